"""Secrets: twenty are planted where secrets get lost. How many are found, and how many does
anything of ours write?

The commands are those of a user, in a copy of the project, with VERBOSE=1 set, against a Kaggle on
this machine. Every secret is drawn from a seed, so none is in the repository.
"""

import base64
import contextlib
import json
import os
import random
import re
import shutil
import string
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from deploy.client import secrets
from deploy.journal import Journal
from localkaggle.server import USER, LocalKaggle
from proofs.shared.results_table import Row

FRAGMENT = 12  # characters; a part of a secret that is as long counts as the secret
SAMPLE_SECONDS = 0.02  # between two looks at the command lines of all children
LETTERS, HEXADECIMAL = string.ascii_letters + string.digits, "0123456789abcdef"
RUN, PULLED = f"{USER}/digits-train-tpu/1", "digits-train-tpu-v1"
# Where each is met: (the step that tells of it, the words of the refusal). Without words it is not
# ours to refuse: the scanner has to know it, and the step to show its place without it. One entry
# for both of a place, or one for each.
WHERE = {
    "environment": [("", "")],
    "notebook cell": [("refused push", r"- {} seems to be in cell \d+ \(client.*\), line \d")],
    "cell metadata": [
        ("refused push", r"- {} seems to be in cell \d+ \(client.*\), metadata, \w+, line \d")
    ],
    "config module": [
        (
            "refused push",
            r"- {} seems to be in cell \d+ \(%%writefile pipeline/configs/digits\.py\), line \d",
        )
    ],
    "kernel-metadata.json": [
        ("refused push", r"- {} seems to be in kernel-metadata\.json, \w+, line \d")
    ],
    "manifest.json": [("publish", r"manifest\.json:(?:\n  - .*)*\n  - {}, line \d")],
    "submission description": [
        ("submit", r"the submission's description:(?:\n  - .*)*\n  - {}, line \d")
    ],
    "error page": [("error page, key", ""), ("error page, token", "")],
    "traceback": [("watch", ""), ("fall", "")],
    "journal row": [("journal", "")],
}
# A kernel with secrets in it; and one that has none, but tells some when it runs.
PLANTED = """# %% token="{metadata[0]}" header="{metadata[1]}"
client.login("{cell[0]}")
PRIVATE = '''{cell[1]}'''
"""
TELLING = """# %%
import hashlib
import json
from pathlib import Path

said = [bytes.fromhex(text).decode() for text in {hidden}]
digest = hashlib.sha256(b"weights").hexdigest()
manifest = {{
    "run_id": "r1",
    "weights_sha256": digest,
    "bundle_sha256": json.loads(Path("bundle.json").read_text())["bundle_sha256"],
    "files": {{"weights.npz": {{"sha256": digest, "size": 7}}}},
    "metrics": said[1:],
}}
Path("artifact").mkdir()
Path("artifact/weights.npz").write_bytes(b"weights")
text = lambda: json.dumps(manifest, indent=2, sort_keys=True) + "\\n"
manifest["manifest_sha256"] = hashlib.sha256(text().encode()).hexdigest()
Path("artifact/manifest.json").write_text(text())
raise RuntimeError(said[0])
"""
SUBMIT = """
import sys
from pathlib import Path

from commands import console, project
from deploy.kernel import push_and_watch
from deploy.relay import submit

@console.reported
def send():
    submit.submit(
        project.connect(), push_and_watch.parse(sys.argv[1]), "digits", submission=Path("tasks.py"), check=lambda given, sample: None,
        message=sys.stdin.read(), deadline_seconds=5, show=console.show,
    )

send()
"""
FALL = """
import sys, threading

from commands import console

@console.reported
def fall():
    text = sys.stdin.read()
    def fall_aside():
        raise ValueError(text)
    aside = threading.Thread(target=fall_aside)
    aside.start()
    aside.join()
    raise RuntimeError(text) from KeyError(text)

fall()
"""


@dataclass(frozen=True)
class Canary:
    """A planted secret.

    Attributes:
        place: where it is planted. kind: as the scanner calls it.
        text: what is planted. value: the part of it that nobody may see.
    """

    place: str
    kind: str
    text: str = field(repr=False)
    value: str = field(repr=False)

    def is_in(self, data: bytes) -> bool:
        """Return whether a fragment of the value is in there."""
        parts = (
            self.value[start : start + FRAGMENT] for start in range(len(self.value) - FRAGMENT + 1)
        )
        return any(part.encode() in data for part in parts)


@dataclass(frozen=True)
class Result:
    """What came of a canary.

    Attributes:
        found: it was refused where it is ours to refuse; elsewhere, the scanner knows it, and its
            place was told without it.
        written: which of our outputs hold it.
    """

    canary: Canary
    found: bool
    written: tuple[str, ...]


def row(results: Sequence[Result], *, seed: int = 0) -> Row:
    """Return what `planted` gave as a claim of `invoke prove`."""
    found, written = (
        sum(result.found for result in results),
        sum(bool(result.written) for result in results),
    )
    places = len({result.canary.place for result in results})
    return Row(
        f"Secrets planted in {places} kinds of place, with VERBOSE=1 set",
        "20 of 20 found, 0 written",
        f"{found} of {len(results)} found, {written} written",
        found == len(results) == 20 and not written,
        seed=seed,
    )


def canaries(seed: int) -> list[Canary]:
    """Return twenty secrets, two for each of ten kinds of place."""
    draw = random.Random(seed)  # noqa: S311 - they guard nothing

    def some(count: int, alphabet: str = LETTERS) -> str:
        # With letters and digits in it, however the draw falls.
        return "".join(draw.choices(alphabet, k=count - 4)) + (
            "e0c4" if alphabet == HEXADECIMAL else "Kw47"
        )

    def canary(place: str, kind: str, form: str, value: str) -> Canary:
        return Canary(place, kind, form.format(value), value)

    def encoded(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    key, other = some(32, HEXADECIMAL), some(32, HEXADECIMAL)
    tokens = [f"KGAT_{some(32, HEXADECIMAL)}" for _ in range(4)]
    pem = "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----"
    signed = "https://storage.googleapis.com/x?X-Goog-Signature={}"
    return [
        canary("environment", "a Kaggle key", "KAGGLE_KEY={}", key),
        canary("environment", "a Hugging Face token", "HF_TOKEN=hf_{}", some(34)),
        canary("notebook cell", "a Kaggle token", "{}", tokens[0]),
        canary("notebook cell", "a private key", pem, some(64)),
        canary("cell metadata", "a GitHub token", "ghp_{}", some(36)),
        canary(
            "cell metadata",
            "an Authorization header",
            "Authorization: Basic {}",
            encoded(f"ann:{other}"),
        ),
        canary(
            "config module",
            "a Kaggle key",
            'ACCOUNT = {{"username": "ann", "key": "{}"}}',
            some(32, HEXADECIMAL),
        ),
        canary("config module", "an AWS secret", 'AWS_SECRET_ACCESS_KEY = "{}"', some(40)),
        canary("kernel-metadata.json", "a Kaggle token", "ann/{}", tokens[1]),
        canary("kernel-metadata.json", "an API key", "sk-ant-api03-{}", some(60)),
        canary("manifest.json", "a signed address", signed, some(256, HEXADECIMAL)),
        canary(
            "manifest.json",
            "a JSON web token",
            "eyJhbGciOiJub25lIn0.{}",
            f"{encoded(some(40))}.{some(43)}",
        ),
        canary("submission description", "a Kaggle token", "{}", tokens[2]),
        canary(
            "submission description", "a Weights & Biases key", "wandb {}", some(40, HEXADECIMAL)
        ),
        canary(
            "error page",
            "an Authorization header",
            "Authorization: Basic {}",
            encoded(f"{USER}:{key}"),
        ),
        canary("error page", "an Authorization header", "Authorization: Bearer {}", tokens[3]),
        canary("traceback", "an API key", "cannot reach it with sk-proj-{}", some(48)),
        canary(
            "traceback",
            "an address with a password",
            "cannot clone https://ann:{}@example.com/x",
            some(24),
        ),
        canary("journal row", "a signed address", "https://example.com/code?token={}", some(40)),
        canary("journal row", "a GitHub token", "github_pat_{}", some(60)),
    ]


def planted(root: Path, folder: Path, *, seed: int = 0) -> list[Result]:
    """Plant all twenty, run what meets them, and read every byte that was written.

    Args:
        root: of the repository. folder: empty or new; holds everything.
    """
    there: dict[str, list[Canary]] = {}
    for canary in canaries(seed):
        there.setdefault(canary.place, []).append(canary)
    project = folder / "project"
    shutil.copytree(
        root,
        project,
        ignore=shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "tests", "docs"),
    )
    with LocalKaggle(folder / "kaggle", offline=True) as local, Echo() as echo:
        local.key, local.token = there["environment"][0].value, there["error page"][1].value
        in_use = dict(canary.text.split("=", 1) for canary in there["environment"])
        shell = Shell(project, {**local.environment, **in_use, "VERBOSE": "1"})
        with shell:
            _plant(project, there)
            shell.invoke("push-train", name="refused push")
            sent = {"refused push": (project / "build").exists() or "SaveKernel" in _calls(local)}
            _clean(root, project, [there["traceback"][0], *there["manifest.json"]])
            for task in ("push-train", "watch", "pull", "publish"):
                shell.invoke(task)
            message = " ".join(
                ["digits", *(canary.text for canary in there["submission description"])]
            )
            shell.python("submit", SUBMIT, RUN, given=message)
            shell.python("fall", FALL, given=there["traceback"][1].text)
            shell.environment |= dict.fromkeys(("http_proxy", "HTTP_PROXY"), echo.address)
            shell.invoke("push-train", name="error page, key")
            shell.environment["KAGGLE_API_TOKEN"] = local.token
            shell.invoke("push-train", name="error page, token")
        shell.told["journal"] = _row(project, *(canary.text for canary in there["journal row"]))
        sent |= {
            "publish": "StartBlobUpload" in _calls(local),
            "submit": "CreateCodeSubmission" in _calls(local),
        }
        outputs = {name: text.encode() for name, text in shell.told.items()}
        outputs |= {name: _bytes(project / name) for name in ("build", "runs")}
        outputs["temporary files"] = _bytes(Path(local.environment["TMPDIR"]))
        outputs["command lines"] = "\n".join(shell.command_lines).encode()
        if not all(outputs[name] for name in ("push-train", "build", "runs", "command lines")):
            raise RuntimeError("Where there is nothing to read, nothing is proven.")

    def found(canary: Canary, number: int) -> bool:
        step, words = WHERE[canary.place][min(number, len(WHERE[canary.place]) - 1)]
        if words:
            return not sent[step] and bool(re.search(words.format(canary.kind), shell.told[step]))
        known = canary.kind in {place.kind for place in secrets.find(canary.text)}
        return known and (not step or secrets.redact(canary.text) in shell.told[step])

    return [
        Result(
            canary,
            found(canary, number),
            tuple(name for name, data in outputs.items() if canary.is_in(data)),
        )
        for held in there.values()
        for number, canary in enumerate(held)
    ]


def _plant(project: Path, there: Mapping[str, list[Canary]]) -> None:
    """Put the secrets of the first four places into the project, whose push has to be refused."""
    kernel = project / "kernels" / "train-tpu"
    texts = {place: [canary.text for canary in held] for place, held in there.items()}
    (kernel / "notebook.py").write_text(
        PLANTED.format(metadata=texts["cell metadata"], cell=texts["notebook cell"])
    )
    with (project / "pipeline" / "configs" / "digits.py").open("a") as file:
        file.write("\n" + "\n".join(texts["config module"]) + "\n")
    settings = json.loads((kernel / "kernel-metadata.json").read_text())
    source, shape = texts["kernel-metadata.json"]
    (kernel / "kernel-metadata.json").write_text(
        json.dumps({**settings, "model_sources": [source], "machine_shape": shape})
    )


def _clean(root: Path, project: Path, telling: list[Canary]) -> None:
    """Take them out again, and write a notebook that tells these when it runs, and holds them in a
    form that nobody reads.
    """
    for name in ("pipeline/configs/digits.py", "kernels/train-tpu/kernel-metadata.json"):
        shutil.copy(root / name, project / name)
    hidden = [canary.text.encode().hex() for canary in telling]
    (project / "kernels" / "train-tpu" / "notebook.py").write_text(TELLING.format(hidden=hidden))


def _row(project: Path, url: str, status: str) -> str:
    """Record a push with these, and return what the journal tells of it."""
    journal = Journal(project / "runs" / "journal.sqlite")
    with journal.recording("pushes", url=url) as outcome:
        outcome.update(status=status)
    kept = journal.last("pushes", url=url) or {}
    return f"{kept.get('url')} {kept.get('status')}"


def _calls(local: LocalKaggle) -> set[str]:
    return {call[0] for call in local.journal}


def _bytes(folder: Path) -> bytes:
    """Return all that is in there, names too; not what was pulled, which is the user's own."""
    found = [
        path for path in sorted(folder.rglob("*")) if path.is_file() and PULLED not in path.parts
    ]
    return b"\n".join(str(path).encode() + b"\n" + path.read_bytes() for path in found)


class Shell:
    """A user's shell in a project. With `with`, it notes the command lines of all that is started.

    Attributes:
        told: what each step printed, stdout and stderr. command_lines: of its children, and theirs.
    """

    def __init__(self, project: Path, environment: Mapping[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAGGLE")}
        self.environment = {**kept, "PYTHONPATH": str(project), **environment}
        self.told: dict[str, str] = {}
        self.command_lines: set[str] = set()
        self._project, self._left = project, threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
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
        self.told[name] = f"{done.stdout}\n{done.stderr}"

    def _watch(self) -> None:
        while not self._left.wait(SAMPLE_SECONDS):
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    self.command_lines.add(" ".join(process.cmdline()))


class Echo:
    """A server that answers every call with an error that quotes what signed it. Start with `with`."""

    def __enter__(self) -> Self:
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                signed = f"Authorization: {self.headers.get('Authorization')}"
                if self.path.endswith("/IntrospectToken"):
                    return self._answer(
                        200,
                        "OK",
                        "application/json",
                        {"active": True, "username": USER, "userId": 1},
                    )
                if "Bearer" in signed:
                    return self._answer(
                        400, f"Bad request, {signed}", "text/html", f"<h1>Bad request</h1>{signed}"
                    )
                message = f"Bad request, {signed}, and no more"
                return self._answer(
                    400, "Bad request", "application/json", {"code": 400, "message": message}
                )

            def _answer(self, code: int, reason: str, kind: str, value: Any) -> None:
                data = json.dumps(value).encode()
                self.send_response(code, reason)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
