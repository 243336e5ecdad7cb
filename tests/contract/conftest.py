"""The Kaggle of the contract tests: the local one, or with `--live` kaggle.com. There, they make
private notebooks and datasets named `relay-contract-…`, and delete them at the end of each file.
RELAY_LIVE_SPENDS allows what Kaggle charges for: `tpu`, `gpu` (with `-m slow`) and `submission`.
RELAY_LIVE_FILES and RELAY_LIVE_NOTEBOOKS name the competitions.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from deploy.calls import RUN, Saved
from deploy.client import Kaggle
from deploy.errors import RelayError
from localkaggle.competitions import Competition, accuracy
from localkaggle.server import LocalKaggle
from tests.localkaggle.pushed_notebooks import notebook

ROOT = Path(__file__).resolve().parents[2]
FACTS = (ROOT / "docs" / "facts.md").read_text(encoding="utf-8")
LIVE = os.environ.get("RELAY_LIVE") == "1"
SECONDS_AT_MOST = 1800 if LIVE else 300
TABLE = b"ImageId,Label\n1,0\n2,0\n"
FILES = {"train.csv": b"Label\n1\n", "test.csv": b"\n\n\n", "sample_submission.csv": TABLE}
NOTEBOOKS = Competition(
    "contract-notebooks", "Notebooks", {}, FILES, FILES, {"Label": {"1": "0", "2": "1"}}, accuracy
)
BY_FILE = replace(NOTEBOOKS, slug="contract-files", title="Files", takes_files=True)
ENDED = ("COMPLETE", "ERROR", "CANCEL_ACKNOWLEDGED")


@dataclass
class Site:
    """A Kaggle, our client that is logged in there, and what was made."""

    kaggle: Kaggle
    kernels: set[str] = field(default_factory=set)
    datasets: set[str] = field(default_factory=set)

    def name(self, what: str) -> str:
        """Return an address that nobody has."""
        return f"{self.kaggle.username}/relay-contract-{what}-{uuid4().hex[:6]}"

    def competition(self, *, files: bool) -> str:
        """Return a competition that takes files, or one that takes notebooks."""
        if not LIVE:
            return (BY_FILE if files else NOTEBOOKS).slug
        name, usual = ("FILES", "digit-recognizer") if files else ("NOTEBOOKS", "")
        found = os.environ.get(f"RELAY_LIVE_{name}", usual)
        return found or pytest.skip(f"no competition to ask for: RELAY_LIVE_{name} names one")

    def push(self, handle: str, *cells: str, execution: str = RUN, **metadata: Any) -> Saved:
        """Push a notebook of these cells, private, without internet and accelerator."""
        usual = {
            "id": handle,
            "title": handle.split("/")[1].replace("-", " ").title(),
            "language": "python",
            "kernel_type": "notebook",
            "is_private": True,
            **dict.fromkeys(("enable_gpu", "enable_tpu", "enable_internet"), False),
            "machine_shape": "",
        }
        saved = self.kaggle.save_kernel(
            usual | metadata, notebook(*cells), timeout_seconds=900, execution=execution
        )
        self.kernels.add(saved.handle)
        return saved

    def ended(self, handle: str, version: int = 1) -> str:
        """Wait until a version has ended, and return how."""
        return until(lambda: self.kaggle.kernel_status(handle, version).name, ENDED)

    def publish(self, handle: str, folder: Path, **files: bytes) -> int:
        """Make a dataset or its next version of files, and return the version when it is ready."""
        self.datasets.add(handle)
        tokens = []
        for name, content in files.items():
            (folder / name).write_bytes(content)
            tokens.append(self.kaggle.upload(folder / name))
        before = self.kaggle.dataset(handle)
        if before is None:
            title = handle.split("/")[1]
            self.kaggle.create_dataset(handle, title=title, description="first", tokens=tokens)
        else:
            self.kaggle.create_dataset_version(handle, notes="another", tokens=tokens)
        return self.ready(handle, before.version + 1 if before else 1)

    def ready(self, handle: str, version: int) -> int:
        """Wait until that version of a dataset is the current one, and return it."""
        until(lambda: self.kaggle.dataset_status(handle), ("READY",))
        return int(until(lambda: self.version(handle), (version,)))

    def version(self, handle: str) -> int:
        """Return the current version of a dataset, 0 if there is none."""
        dataset = self.kaggle.dataset(handle)
        return dataset.version if dataset else 0

    def tidy(self) -> None:
        """Delete what was made, and say what could not be."""
        for made, delete in (
            (self.kernels, self.kaggle.delete_kernel),
            (self.datasets, self.kaggle.delete_dataset),
        ):
            for handle in sorted(made):
                try:
                    delete(handle)
                except RelayError as error:
                    print(f"not deleted: {handle}: {error}")  # it may never have been made


def until(ask: Any, words: Sequence[Any]) -> Any:
    """Ask until the answer is one of these words, and return it."""
    deadline = time.monotonic() + SECONDS_AT_MOST
    while (answer := ask()) not in words and time.monotonic() < deadline:
        time.sleep(10 if LIVE else 0.05)
    assert answer in words
    return answer


def scored(site: Site, slug: str, ref: int, before: int, said: str) -> str:
    """Return the score of a submission that was just made, after it was seen in the list."""
    listed = site.kaggle.list_submissions(slug)[0]
    assert (listed.ref, listed.description) == (ref, said)
    assert site.kaggle.submission_limits(slug).allowed_now == before - 1
    until(lambda: site.kaggle.get_submission(ref).status, ("COMPLETE", "ERROR"))
    return site.kaggle.get_submission(ref).public_score


def spends(what: str) -> None:
    """Skip where Kaggle would charge for it and nobody asked for it."""
    if LIVE and what not in os.environ.get("RELAY_LIVE_SPENDS", "").split(","):
        pytest.skip(f"it would spend {what}: RELAY_LIVE_SPENDS={what} asks for it")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return the Kaggle that is asked."""
    with ExitStack() as stack:
        if not LIVE:
            local = stack.enter_context(
                LocalKaggle(
                    tmp_path_factory.mktemp("kaggle"),
                    competitions=[NOTEBOOKS, BY_FILE],
                    queue_seconds=0.05,
                    ready_seconds=0.2,
                )
            )
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, value in local.environment.items():
                patch.setenv(name, value)
        site = Site(Kaggle.connect())
        if LIVE:
            stack.callback(site.tidy)
        yield site


@pytest.fixture(autouse=True)
def rests_on_facts(request: pytest.FixtureRequest) -> None:
    """Refuse a test that names no fact, or one that docs/facts.md does not have."""
    facts = [mark.args[0] for mark in request.node.iter_markers("fact")]
    assert facts, "name the fact that it rests on: @pytest.mark.fact(...)"
    assert [fact for fact in facts if fact not in FACTS] == []


def told(lines: Sequence[str]) -> dict[str, Any]:
    """Return what a notebook printed as one line of JSON."""
    return dict(json.loads(next(line for line in lines if line.startswith("{"))))
