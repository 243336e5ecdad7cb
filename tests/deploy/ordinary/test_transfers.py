"""Ordinary trouble of a transfer: the connection breaks, the address expires, the process is
killed.
"""

import json
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from deploy import events, output
from deploy.connection import Pace
from deploy.errors import Unreachable
from deploy.runs import Run
from deploy.transfer import PARTIAL, RECEIVED_BYTES
from formats import checksums
from formats.errors import DiskError
from localkaggle.server import LocalKaggle
from localkaggle.services.storage import KEPT_BYTES
from tests.deploy.small import connect
from tests.faults.recorded_session import write_artifact
from tests.localkaggle.pushed_notebooks import Scripted, finished, push

HANDLE, DATASET = "rehearsal/small-kernel", "rehearsal/digits-artifact"
RUN = Run(HANDLE, 1)
SIZE, BREAKS_AFTER = 3_000_000, 700_000
WEIGHTS = random.Random(1).randbytes(SIZE)  # noqa: S311 - guards nothing
# Two pieces of a file, and an answer that breaks after the first.
WHOLE = bytes(RECEIVED_BYTES) + b"1" * RECEIVED_BYTES
BYTES = {"Content-Type": "application/octet-stream", "ETag": '"1"'}
HALF = (200, WHOLE[:RECEIVED_BYTES], {**BYTES, "Content-Length": str(len(WHOLE))})
REST = f"bytes {RECEIVED_BYTES - 1}-{len(WHOLE) - 1}/{len(WHOLE)}"  # from the last byte
PUBLISH = """
import sys
from pathlib import Path
from tests.deploy.services import published
from tests.deploy.small import connect
published(connect(), Path(sys.argv[1]), [], 3600)
"""


class Site:
    """A local Kaggle with a run whose output has a file `weights.npz`, and a client of it."""

    def __init__(self, local: LocalKaggle, shown: list[str]) -> None:
        self.local, self.wire = local, local.wire
        push(local)
        self.version = finished(local)
        self.weights = self.version.working / "weights.npz"
        self.client, self.shown = connect(show=shown.append), shown
        self.others = sum(path.stat().st_size for path in self.version.working.iterdir()) - SIZE

    def pull(self, into: Path) -> Path:
        """Pull the run, and return its folder."""
        steps = output.pull(self.client, RUN, into)
        return events.completed(steps, lambda note: self.shown.append(note.text))

    def address(self) -> str:
        """Return a signed address of the large file."""
        return self.client.kernel_output(HANDLE, 1)[0]["weights.npz"]


@pytest.fixture
def site(host, shown):
    """Return the site."""

    def act(session: Scripted) -> None:
        (session.working / "weights.npz").write_bytes(WEIGHTS)
        files = {"weights.npz": checksums.file_entry(session.working / "weights.npz")}
        (session.working / "outputs.json").write_text(json.dumps({"files": files}))

    waits = {"queue_seconds": 0.0, "ready_seconds": 0.0}
    return Site(host(competitions=(), session=partial(Scripted, act), **waits), shown)


@pytest.fixture
def skip(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that lets seconds pass at once."""
    ahead, real = [0.0], time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + ahead[0])
    return lambda seconds: ahead.append(ahead.pop() + seconds)


def every(bytes_passed: int, site: Site, act: Callable[[], object]) -> Callable[[], None]:
    """Return what acts each time that so many more bytes have passed."""
    reached = [0]

    def passed() -> None:
        if site.wire.down + site.wire.up >= reached[0] + bytes_passed:
            reached[0] += bytes_passed
            act()

    return passed


# Down


def test_a_broken_download_is_resumed(site, tmp_path):
    """Each break loses an incomplete piece; nothing else is sent twice. The signed address expires
    each time.
    """
    site.wire.breaks_after = BREAKS_AFTER
    site.wire.passed = every(BREAKS_AFTER, site, site.local.storage.expire)

    folder = site.pull(tmp_path / "runs")

    breaks = SIZE // BREAKS_AFTER + 1
    assert site.local.faults.seen.count("ListKernelSessionOutput") >= breaks
    assert (folder / "weights.npz").read_bytes() == WEIGHTS
    assert site.wire.down <= SIZE + site.others + breaks * RECEIVED_BYTES
    names = {output.NOTE, "outputs.json", "weights.npz", "small-kernel.log"}
    assert {path.name for path in folder.iterdir()} == names


def test_a_long_download_shows_its_progress_and_remaining_time(site, skip, tmp_path):
    """It breaks on the way, so that the server is never far ahead."""
    site.wire.breaks_after = 1_000_000
    site.wire.passed = every(1_000_000, site, lambda: skip(20))

    site.client.download(site.address(), tmp_path / "x")

    said = r"x: [12] of 3 MB, 0:\d\d:\d\d to go"
    assert [line for line in site.shown if re.fullmatch(said, line)], site.shown


@pytest.mark.parametrize("breaks_after", [BREAKS_AFTER, RECEIVED_BYTES // 2])
def test_patience_counts_from_the_last_byte(site, skip, tmp_path, breaks_after):
    """A download may take longer than the patience of a read, and break at its end. Connections
    without a whole piece are no progress.
    """
    site.client.pace, whole = Pace(first=0.01, most=0.05, patience=300), tmp_path / "x"
    site.wire.breaks_after = breaks_after
    site.wire.passed = every(breaks_after, site, lambda: skip(200))

    with nullcontext() if breaks_after == BREAKS_AFTER else pytest.raises(Unreachable):
        site.client.download(site.address(), whole)

    assert whole.exists() == (breaks_after == BREAKS_AFTER) and site.wire.down <= 2 * SIZE
    assert not whole.exists() or site.local.faults.seen.count("storage") >= 5  # a thousand seconds


@pytest.mark.parametrize(
    "told",
    [
        None,
        {"Content-Range": "bytes 0-65536/131072"},
        {"Content-Range": REST, "ETag": '"2"'},
        {"Content-Range": f"{REST}0"},
    ],
    ids=["the whole file", "another part", "the rest of another file", "less than the rest"],
)
def test_a_wrong_part_of_a_file_is_not_used(kaggle, between, tmp_path, told):
    """A proxy may answer a range with something else, or ignore If-Range: it is not appended to the
    earlier bytes.
    """
    url = between.serve("x", WHOLE)
    wrong = (206, b"2" * (RECEIVED_BYTES + 1), {**BYTES, **(told or {})})
    between.say("between", [HALF, wrong] if told else [HALF])

    kaggle.download(url, tmp_path / "x")

    assert (tmp_path / "x").read_bytes() == WHOLE
    assert between.count("between") == (3 if told else 2)


def test_a_complete_file_is_not_downloaded_again(kaggle, between, tmp_path):
    """A killed process had downloaded it: the last byte shows whether it is still the same."""
    url, last = between.serve("x", WHOLE), len(WHOLE) - 1
    same = {"Content-Range": f"bytes {last}-{last}/{len(WHOLE)}"}
    between.say("between", [(200, WHOLE, BYTES), (206, WHOLE[-1:], {**BYTES, **same})])

    for _ in range(2):
        kaggle.download(url, tmp_path / "x", note=tmp_path / "note")

    assert (tmp_path / "x").read_bytes() == WHOLE and between.count("between") == 2


def test_a_full_disk_is_reported_and_leaves_nothing(site, tmp_path):
    """Exit code 8, with the path; what was written is removed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, hard))
    try:
        with pytest.raises(DiskError, match=r"weights\.npz: File too large.\n.*free space"):
            site.pull(tmp_path / "runs")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list((tmp_path / "runs").iterdir()) == []


# What a killed pull left


def left_by_a_killed_pull(site: Site, runs: Path, content: bytes, tag: str) -> None:
    """Write what a pull of this run leaves that is killed in the middle of the large file."""
    folder = runs / f".pull.{RUN.handle.partition('/')[2]}"
    place = output.safe("weights.npz")
    folder.mkdir(parents=True)
    (folder / f"{place}{PARTIAL}").write_bytes(content)
    note = output._note(folder, place)
    note.parent.mkdir()
    note.write_text(json.dumps({"tag": tag}))
    (folder / "of-another-run.txt").write_text("stays behind")


@pytest.mark.parametrize(
    ("damage", "tag", "halves"),
    [
        (False, "", 1),  # it is the same file
        (True, "", 3),  # its bytes are not what came: that shows at the end
        (True, '"of another run"', 2),  # the storage is told, and sends the whole file at once
    ],
)
def test_a_killed_pull_is_resumed_if_the_file_is_the_same(
    site, tmp_path, shown, damage, tag, halves
):
    """Otherwise all of it is downloaded again."""
    stat = site.weights.stat()
    half = bytes(SIZE // 2) if damage else WEIGHTS[: SIZE // 2]
    tag = tag or f'"{stat.st_mtime_ns:x}-{SIZE:x}"'
    left_by_a_killed_pull(site, tmp_path / "runs", half, tag)

    folder = site.pull(tmp_path / "runs")

    assert (folder / "weights.npz").read_bytes() == WEIGHTS
    assert site.wire.down - site.others - halves * SIZE // 2 in (0, 1)  # the last byte again
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder.name]
    assert not (folder / "of-another-run.txt").exists()
    assert any("resuming an interrupted pull" in line for line in shown)


# Up


def test_an_upload_whose_answer_was_lost_is_not_sent_again(site, tmp_path):
    path = tmp_path / "weights.npz"
    path.write_bytes(WEIGHTS)
    site.local.faults.say("upload", ["reset after"])

    token = site.client.upload(path)

    assert site.local.uploads.complete(token).path.read_bytes() == WEIGHTS
    assert SIZE <= site.wire.up < 1.1 * SIZE


def test_a_killed_publish_is_resumed(site, tmp_path):
    """SIGKILL during an upload that also breaks: one version is made, of whole files."""
    trained = tmp_path / "artifact"
    write_artifact(trained, "b1", {"weights.npz": WEIGHTS})
    site.wire.breaks_after = BREAKS_AFTER
    command = [sys.executable, "-c", PUBLISH, str(trained)]
    child: Future[subprocess.Popen[bytes]] = Future()
    site.wire.passed = lambda: site.wire.up >= SIZE // 2 and child.result(60).kill()

    child.set_result(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    assert child.result().wait() == -9
    site.wire.passed = lambda: None
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    (version,) = site.local.datasets.datasets[DATASET].versions
    assert {path.name for path in version.folder.iterdir()} == {"manifest.json", "weights.npz"}
    assert (version.folder / "weights.npz").read_bytes() == WEIGHTS
    breaks, others = 2 * SIZE // BREAKS_AFTER + 3, 4000
    assert site.wire.up <= SIZE + others + breaks * KEPT_BYTES
    assert site.wire.down <= SIZE + others + breaks * RECEIVED_BYTES
    assert not [path for path in (tmp_path / "runs").iterdir() if path.name[0] == "."]
