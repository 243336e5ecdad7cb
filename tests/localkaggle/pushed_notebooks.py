"""Helpers that push notebooks to a local Kaggle and wait, and a session that runs a function."""

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import requests

from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import Outcome
from localkaggle.sessions.session_log import Log

# A part of a call's name → its service; all others are about kernels.
SERVICES = {
    "Dataset": "datasets.DatasetApiService",
    "Blob": "blobs.BlobApiService",
    "Model": "models.ModelApiService",
    **dict.fromkeys(
        ("Competition", "Submission", "DataFile"), "competitions.CompetitionApiService"
    ),
}
SECONDS_AT_MOST = 300  # for an event that is certain, even on a busy machine


class Scripted:
    """A session that calls a function instead of running the notebook. The function may return the
    outcome; an exception is logged.
    """

    def __init__(
        self,
        act: Callable[["Scripted"], Outcome | None],
        folder: Path,
        notebook: str,
        *,
        inputs: Mapping[str, Path],
        rerun: bool,
        log: Log,
        **rest: Any,
    ) -> None:
        self._act, self.notebook, self.log = act, notebook, log
        self.inputs, self.rerun, self.given = inputs, rerun, rest
        self.seconds = 0.0  # the duration that it reports
        self.working = folder / "working"
        self.working.mkdir(parents=True)

    def run(self) -> Outcome:
        """Call the function, and return how it ended."""
        try:
            return self._act(self) or Outcome("", "", self.seconds)
        except Exception as error:
            self.log.add("stderr", f"{error}\n")
            return Outcome("exception", "The notebook threw an exception", 0.0)

    def cancel(self) -> None:
        """Do nothing: the function ends by itself."""


def soon(happened: Callable[[], object]) -> bool:
    """Wait for an event, and return whether it happened."""
    deadline = time.monotonic() + SECONDS_AT_MOST
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(happened())


class Answer(NamedTuple):
    """The answer of a local Kaggle to one call."""

    code: int
    said: Any

    @property
    def message(self) -> str:
        """The text of a refusal."""
        return str(self.said.get("message") or self.said.get("error") or "")


def ask(kaggle: LocalKaggle, call: str, **fields: Any) -> Answer:
    """Make one call over HTTP; `fields` are those of its JSON."""
    kinds = {name: service for name, service in SERVICES.items() if name in call}
    service = next(iter(kinds.values()), "kernels.KernelsApiService")
    answer = request(kaggle, "POST", f"/api/v1/{service}/{call}", json=fields)
    return Answer(answer.status_code, answer.json() if answer.content else {})


def request(kaggle: LocalKaggle, method: str, address: str, **options: Any) -> requests.Response:
    """Send one request without a proxy, to a path or to an address from an answer."""
    path = re.sub("^http://[^/]+", "", address)
    with requests.Session() as session:
        session.trust_env = False
        options = {"auth": ("rehearsal", kaggle.oauth.key), "timeout": 60, **options}
        return session.request(
            method, f"http://127.0.0.1:{kaggle.port}{path}", allow_redirects=True, **options
        )


def push(kaggle: LocalKaggle, *cells: str, **fields: Any) -> Any:
    """Push a notebook of these cells, and return the answer."""
    usual = {"slug": "rehearsal/small-kernel", "text": notebook(*cells or ("1",))}
    fields = usual | {"language": "python", "kernelType": "notebook"} | fields
    title = fields["slug"].split("/")[-1].replace("-", " ").title()
    return ask(kaggle, "SaveKernel", **{"newTitle": title, **fields}).said


def upload(kaggle: LocalKaggle, name: str, content: bytes, **submission: str) -> str:
    """Upload a file of a dataset or a submission, and return its token."""
    told = {"contentLength": len(content), **submission}
    call, field = (
        ("StartSubmissionUpload", "fileName") if submission else ("StartBlobUpload", "name")
    )
    said = ask(kaggle, call, **{field: name}, **told).said
    assert request(kaggle, "PUT", said["createUrl"], data=content, auth=None).status_code == 200
    return str(said["token"])


def publish(kaggle: LocalKaggle, **files: bytes | str) -> Answer:
    """Make rehearsal/small-data, or its next version, from files: contents or tokens."""
    tokens = [
        upload(kaggle, name, given) if isinstance(given, bytes) else given
        for name, given in files.items()
    ]
    sent = [{"token": token} for token in tokens]
    if "rehearsal/small-data" in kaggle.datasets.datasets:
        named = {"ownerSlug": "rehearsal", "datasetSlug": "small-data"}
        return ask(kaggle, "CreateDatasetVersion", **named, body={"files": sent})
    named = {"ownerSlug": "rehearsal", "slug": "small-data", "title": "Small data"}
    return ask(kaggle, "CreateDataset", **named, isPrivate=True, files=sent)


def notebook(*cells: str, **metadata: Any) -> str:
    """Return an .ipynb with these code cells."""
    kernelspec = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    }
    made = nbformat.v4.new_notebook(metadata={**kernelspec, **metadata})
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return str(nbformat.writes(made))


def finished(kaggle: LocalKaggle, slug: str = "small-kernel", number: int = 1) -> Any:
    """Wait for a version's end and return it."""
    version = kaggle.kernels.version(f"rehearsal/{slug}", number)
    assert version is not None
    assert soon(lambda: version.status not in ("QUEUED", "RUNNING"))
    return version
