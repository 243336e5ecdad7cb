"""A server that answers the real client as a test says, and otherwise closes the connection."""

import itertools
import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

RESET = "close the connection without an answer; nothing has happened"


class Between:
    """Start with `with`. `seen`: (operation, request body) of every request, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self._said: dict[str, Iterator[Any]] = {}
        self._lock = threading.Lock()
        between = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: object) -> None:
                pass

            def do_POST(self) -> None:
                between._answer(self)

            do_GET = do_PUT = do_POST

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Between":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def say(self, operation: str, answers: Iterable[Any]) -> None:
        """Answer the next calls of that operation: a dict (200), (status, body[, headers]), or
        RESET.
        """
        self._said[operation] = iter(answers)

    def always(self, operation: str, answer: Any) -> None:
        """Answer every call of that operation so."""
        self.say(operation, itertools.repeat(answer))

    def serve(self, name: str, data: bytes) -> str:
        """Return an address at which this file can be downloaded."""
        self.files[name] = data
        return f"http://localhost/between/{name}"

    def count(self, operation: str) -> int:
        """Return how many such calls came."""
        return len(self.bodies(operation))

    def bodies(self, operation: str) -> list[Any]:
        """Return what such calls held."""
        return [body for name, body in self.seen if name == operation]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        path = urlsplit(handler.path).path
        operation = path.rsplit("/", 1)[-1] if "/v1/" in path else path.split("/")[1]
        with self._lock:
            is_json = "json" in handler.headers.get("Content-Type", "") and "/v1/" in path
            self.seen.append((operation, json.loads(raw) if is_json and raw else None))
            said = next(self._said.get(operation, iter(())), None)
        if operation == "between" and said is None:
            data = self.files[unquote(path.split("/", 2)[2])]
            said = 200, data, {"Content-Type": "application/octet-stream", "ETag": f'"{path}"'}
        if said in (RESET, None):
            handler.close_connection = True
            return
        status, body, headers = (*((200, said) if isinstance(said, dict) else said), {})[:3]
        kind = "text/html" if isinstance(body, bytes) else "application/json"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(status)
        for told in {"Content-Length": str(len(data)), "Content-Type": kind, **headers}.items():
            handler.send_header(*told)
        handler.end_headers()
        handler.wfile.write(data)
