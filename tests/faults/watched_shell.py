"""A user's shell whose output and command lines are recorded, and a server that quotes secrets."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import psutil

from localkaggle.server import USER

SAMPLE_SECONDS = 0.02  # between two looks at the command lines of all children


class Shell:
    """A user's shell in a project. As a context manager, it records the command lines of every
    process below it.

    Attributes:
        printed: by each step, stdout and stderr.
        command_lines: of its children, and of theirs.
    """

    def __init__(self, project: Path, environment: Mapping[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAGGLE")}
        self.environment = {**kept, "PYTHONPATH": str(project), **environment}
        self.printed: dict[str, str] = {}
        self.command_lines: set[str] = set()
        self._project, self._ended = project, threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._watcher.join()

    def invoke(self, task: str, *, name: str = "") -> None:
        """Run a task of the project."""
        yes = ["--yes"] if task.startswith("push") else []
        self._run(name or task, ["-m", "invoke", task, "--json", *yes], "")

    def python(self, name: str, code: str, *arguments: str, given: str) -> None:
        """Run some code as the project's, with a text on its standard input."""
        self._run(name, ["-c", code, *arguments], given)

    def _run(self, name: str, arguments: list[str], given: str) -> None:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self._project,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.printed[name] = f"{done.stdout}\n{done.stderr}"

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    self.command_lines.add(" ".join(process.cmdline()))


class Echo:
    """A server that answers every call with an error that quotes its signature."""

    def __enter__(self) -> Self:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                signed = f"Authorization: {self.headers.get('Authorization')}"
                json_type, bad = "application/json", "Bad request"
                if self.path.endswith("/IntrospectToken"):
                    user = {"active": True, "username": USER, "userId": 1}
                    return self._answer(200, "OK", json_type, user)
                if "Bearer" in signed:
                    page = f"<h1>{bad}</h1>{signed}"
                    return self._answer(400, f"{bad}, {signed}", "text/html", page)
                error = {"code": 400, "message": f"{bad}, {signed}, and no more"}
                return self._answer(400, bad, json_type, error)

            def _answer(self, code: int, reason: str, kind: str, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(code, reason)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        serve = partial(self._server.serve_forever, poll_interval=0.05)
        threading.Thread(target=serve, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
