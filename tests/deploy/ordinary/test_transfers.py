"""Ordinary days of a transfer: the connection breaks, the address ends, the process is killed."""

import hashlib
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from deploy import events, output
from deploy import pull as pulling
from deploy.connection import Pace
from deploy.errors import Unreachable
from deploy.runs import Run
from deploy.transfer import PARTIAL, RECEIVED_BYTES
from formats import checksums
from formats.errors import DiskError
from localkaggle.server import LocalKaggle
from localkaggle.services.storage import KEPT_BYTES
from tests.deploy.services import published
from tests.deploy.small import connect
from tests.localkaggle.pushed_notebooks import Scripted, finished, push

HANDLE, DATASET = "rehearsal/small-kernel", "rehearsal/digits-artifact"
RUN = Run(HANDLE, 1)
SIZE, BREAKS_AFTER = 3_000_000, 700_000
# Two pieces of a file, and an answer that breaks after the first.
WHOLE = bytes(RECEIVED_BYTES) + b"1" * RECEIVED_BYTES
BYTES = {"Content-Type": "application/octet-stream", "ETag": '"1"'}
HALF = (200, WHOLE[:RECEIVED_BYTES], {**BYTES, "Content-Length": str(len(WHOLE))})
PUBLISH = """
import sys
from pathlib import Path
from tests.deploy.services import published
from tests.deploy.small import connect
published(connect(), Path(sys.argv[1]), [], 3600)
"""


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def large(path: Path, seed: int = 1, size: int = SIZE) -> str:
    """Write a file in which no two megabytes are equal, mostly of holes; return its sha256."""
    draw = random.Random(seed)  # noqa: S311 - varies bytes, guards nothing
    with path.open("wb") as file:
        file.truncate(size)
        for place in range(0, size - 64, 1 << 20):
            file.seek(place)
            file.write(draw.randbytes(64))
    return sha256(path)


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
        steps = pulling.pull(self.client, RUN, into)
        return events.completed(steps, lambda note: self.shown.append(note.text))

    def address(self) -> str:
        """Return a signed address of the large file."""
        return self.client.kernel_output(HANDLE, 1)[0]["weights.npz"]


@pytest.fixture
def site(host, shown):
    """Return the site."""

    def act(session: Scripted) -> None:
        digest = large(session.working / "weights.npz")
        files = {"weights.npz": {"sha256": digest, "size": SIZE}}
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


def test_a_download_that_breaks_goes_on_from_there(site, tmp_path):
    """Of each break a piece is lost that was not complete; nothing else is sent twice."""
    site.wire.breaks_after = BREAKS_AFTER

    folder = site.pull(tmp_path / "runs")

    breaks = SIZE // BREAKS_AFTER + 1
    assert (folder / "weights.npz").read_bytes() == site.weights.read_bytes()
    assert site.wire.down <= SIZE + site.others + breaks * RECEIVED_BYTES
    names = {output.NOTE, "outputs.json", "weights.npz", "small-kernel.log"}
    assert {path.name for path in folder.iterdir()} == names


def test_patience_counts_from_the_last_byte(site, skip, tmp_path):
    """A download may take longer than a question is retried, and break at its end."""
    site.client.pace = Pace(first=0.01, most=0.05, patience=300)
    site.wire.breaks_after = BREAKS_AFTER
    site.wire.passed = every(BREAKS_AFTER, site, lambda: skip(200))

    site.client.download(site.address(), tmp_path / "x")

    assert (tmp_path / "x").read_bytes() == site.weights.read_bytes()
    assert site.local.faults.seen.count("storage") >= 5  # that is a thousand seconds


def test_a_download_that_stays_where_it_is_ends(site, skip, tmp_path):
    """Connections that bring nothing do not count as progress."""
    site.client.pace = Pace(first=0.01, most=0.05, patience=300)
    site.wire.breaks_after = RECEIVED_BYTES // 2
    site.wire.passed = lambda: skip(100)

    with pytest.raises(Unreachable, match=r"download x"):
        site.client.download(site.address(), tmp_path / "x")

    assert not (tmp_path / "x").exists() and site.local.faults.seen.count("storage") < 10


def test_a_signed_address_that_ends_on_the_way_is_asked_for_again(site, tmp_path):
    """As often as it takes: each one lasts for some megabytes."""
    site.wire.breaks_after = BREAKS_AFTER
    site.wire.passed = every(BREAKS_AFTER, site, site.local.storage.expire)

    folder = site.pull(tmp_path / "runs")

    assert (folder / "weights.npz").read_bytes() == site.weights.read_bytes()
    assert site.local.faults.seen.count("ListKernelSessionOutput") >= 5


@pytest.mark.parametrize(("part", "asks"), [(None, 2), ("bytes 0-65535/131072", 3), ("", 3)])
def test_another_part_than_was_asked_for_is_not_used(kaggle, between, tmp_path, part, asks):
    """A proxy may answer a range with what it has, also if that is as long as the rest, or send the
    whole file: nothing is appended to what came before.
    """
    url = between.serve("x", WHOLE)
    wrong = (206, WHOLE[:RECEIVED_BYTES], {**BYTES, "Content-Range": part})
    between.say("between", [HALF] if part is None else [HALF, wrong])

    kaggle.download(url, tmp_path / "x")

    assert (tmp_path / "x").read_bytes() == WHOLE and between.count("between") == asks


def test_the_rest_of_another_file_is_not_joined(kaggle, between, tmp_path):
    """The file was replaced meanwhile, and what answers does not look at If-Range."""
    url, have = between.serve("x", WHOLE), RECEIVED_BYTES - 1  # from the last byte
    told = {"Content-Range": f"bytes {have}-{len(WHOLE) - 1}/{len(WHOLE)}", "ETag": '"2"'}
    between.say("between", [HALF, (206, b"2" * (len(WHOLE) - have), {**BYTES, **told})])

    kaggle.download(url, tmp_path / "x")

    assert (tmp_path / "x").read_bytes() == WHOLE and between.count("between") == 3


def test_a_full_disk_says_so_and_leaves_nothing(site, tmp_path):
    """Exit 8, with the place: what was written is removed again."""
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
    note = pulling._note(folder, place)
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
def test_what_a_killed_pull_left_is_used_if_it_is_of_the_same_file(
    site, tmp_path, shown, damage, tag, halves
):
    """Otherwise it is thrown away, and all of it is fetched: no part is a dead end."""
    whole = site.weights.read_bytes()
    stat = site.weights.stat()
    half = bytes(SIZE // 2) if damage else whole[: SIZE // 2]
    tag = tag or f'"{stat.st_mtime_ns:x}-{SIZE:x}"'
    left_by_a_killed_pull(site, tmp_path / "runs", half, tag)

    folder = site.pull(tmp_path / "runs")

    assert (folder / "weights.npz").read_bytes() == whole
    assert site.wire.down - site.others - halves * SIZE // 2 in (0, 1)  # the last byte again
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder.name]
    assert not (folder / "of-another-run.txt").exists()
    assert any("going on with a pull that was interrupted" in line for line in shown)


def test_a_pull_that_lost_kaggle_keeps_what_came(site, tmp_path, shown):
    """The same command goes on there, and says so."""
    runs = tmp_path / "runs"
    site.client.pace = Pace(first=0.01, most=0.02, patience=0.1)
    site.wire.breaks_after = BREAKS_AFTER
    site.wire.passed = lambda: (
        site.wire.down < 2 * BREAKS_AFTER or setattr(site.wire, "breaks_after", 1)
    )

    with pytest.raises(Unreachable):
        site.pull(runs)
    site.wire.breaks_after, site.wire.passed, before = 0, lambda: None, site.wire.down
    folder = site.pull(runs)

    assert (folder / "weights.npz").read_bytes() == site.weights.read_bytes()
    assert site.wire.down - before <= SIZE + site.others - (BREAKS_AFTER - RECEIVED_BYTES)
    assert list(runs.iterdir()) == [folder]


# Up


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Return an artifact with weights of that size."""
    folder = tmp_path / "artifact"
    folder.mkdir()
    digest = large(folder / "weights.npz")
    files = {"weights.npz": {"sha256": digest, "size": SIZE}}
    manifest = {"run_id": "r1", "weights_sha256": digest, "bundle_sha256": "", "files": files}
    (folder / "manifest.json").write_bytes(checksums.sealed(manifest))
    return folder


def in_dataset(site: Site) -> str:
    """Return the digest of the weights in the one version that the dataset has."""
    (version,) = site.local.datasets.datasets[DATASET].versions
    assert {path.name for path in version.folder.iterdir()} == {"manifest.json", "weights.npz"}
    return sha256(version.folder / "weights.npz")


def test_a_publish_whose_connection_breaks_goes_on(site, trained):
    """Up and, to be compared, down again. The storage keeps whole pieces of what came."""
    site.wire.breaks_after = BREAKS_AFTER

    published(site.client, trained, [], 3600)

    assert in_dataset(site) == sha256(trained / "weights.npz")
    breaks, others = SIZE // BREAKS_AFTER + 2, (trained / "manifest.json").stat().st_size
    assert site.wire.up <= SIZE + others + breaks * KEPT_BYTES
    assert site.wire.down <= SIZE + others + breaks * RECEIVED_BYTES


def test_an_upload_that_the_storage_forgot_begins_anew(site, tmp_path):
    """With another address; the old one is of no use after a week."""
    path = tmp_path / "weights.npz"
    large(path)
    site.wire.breaks_after = BREAKS_AFTER
    done = every(2 * BREAKS_AFTER, site, site.local.uploads.expire)
    site.wire.passed = lambda: site.wire.up < 3 * BREAKS_AFTER and done()

    token = site.client.upload(path)

    assert site.local.uploads.complete(token).path.read_bytes() == path.read_bytes()
    assert site.local.faults.seen.count("StartBlobUpload") == 2


def test_a_publish_that_is_killed_goes_on_where_it_was(site, trained, tmp_path):
    """SIGKILL while it sends; one version is made, of whole files."""
    site.wire.breaks_after = BREAKS_AFTER
    command = [sys.executable, "-c", PUBLISH, str(trained)]
    child: Future[subprocess.Popen[bytes]] = Future()
    site.wire.passed = lambda: site.wire.up >= SIZE // 2 and child.result(60).kill()

    child.set_result(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    assert child.result().wait() == -9
    site.wire.passed = lambda: None
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    assert in_dataset(site) == sha256(trained / "weights.npz")
    breaks, others = 2 * SIZE // BREAKS_AFTER + 3, 4000
    assert site.wire.up <= SIZE + others + breaks * KEPT_BYTES
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.name[0] == "."] == []
