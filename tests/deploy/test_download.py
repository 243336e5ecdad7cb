"""A competition's files come as one archive, and become a folder: complete, or not at all."""

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from deploy import download
from deploy.errors import Busy
from deploy.locks import locked
from deploy.transfer import PARTIAL, RECEIVED_BYTES
from formats import archives
from formats.errors import DiskError
from localkaggle.competitions import Competition, accuracy
from tests.deploy.small import connect
from tests.localkaggle.archived import archived, of_folder, zipped

SLUG = "small-files"
TABLE, PICTURE = b"id,label\n1,a\n", bytes(range(256)) * 300


def tarred(files: Mapping[str, bytes], mode: Literal["w:gz", "w:xz", "w:bz2"] = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def below(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != archives.NOTE)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def unpacked(tmp_path: Path, files: Mapping[str, bytes], shown: list[str]) -> dict[str, bytes]:
    """Return the files of data/small-files, once an archive of these is unpacked."""
    path = tmp_path / f"{SLUG}.zip"
    path.write_bytes(zipped(files.items()))
    download.unpack(path, tmp_path / SLUG, shown.append)
    return below(tmp_path / SLUG)


TWO = {"1.jpg": b"1", "2.jpg": b"2"}


@pytest.mark.parametrize(
    ("name", "held", "made"),
    [
        ("train.csv.zip", {"train.csv": TABLE}, ["train.csv"]),
        ("train.zip", {"train.csv": TABLE}, ["train.csv"]),
        ("train.csv.zip", {"train_v2.csv": TABLE}, ["train_v2.csv"]),
        ("train.zip", TWO, ["train/1.jpg", "train/2.jpg"]),
        ("test.zip", {"test/1.jpg": b"1"}, ["test/1.jpg"]),
        ("test.zip", {"1.jpg": b"1"}, ["test/1.jpg"]),
        ("test.zip", {"jpg/1.jpg": b"1"}, ["test/jpg/1.jpg"]),
        ("train.zip", {"train/1.jpg": b"1", "__MACOSX/train/._1.jpg": b""}, ["train/1.jpg"]),
        ("deep/train.zip", {"train\\1.jpg": b"1"}, ["deep/train/1.jpg"]),
        ("both.zip", {"train.zip": zipped(TWO.items())}, ["both/train/1.jpg", "both/train/2.jpg"]),
    ],
)
def test_an_archive_is_unpacked_where_a_person_would_unpack_it(tmp_path, shown, name, held, made):
    files = unpacked(tmp_path, {name: zipped(held.items()), "read.me": b"?"}, shown)

    assert sorted(files) == sorted([*made, "read.me"])


def test_tars_and_gzipped_tables_are_unpacked_too(tmp_path, shown):
    files = {"train.tar.gz": tarred(TWO), "train.csv.gz": gzip.compress(TABLE), "a.nii.gz": b"x"}

    made = unpacked(tmp_path, files, shown)

    assert made == {"train/1.jpg": b"1", "train/2.jpg": b"2", "train.csv": TABLE, "a.nii.gz": b"x"}


@pytest.mark.parametrize("path", ["../evil", "/evil", "train/../../evil", "..\\evil"])
@pytest.mark.parametrize("make", [lambda files: zipped(files.items()), tarred], ids=["zip", "tar"])
def test_no_path_of_an_archive_leads_out_of_the_folder(tmp_path, shown, path, make):
    """For an inner archive a line reports it, and the rest is unpacked."""
    name = "train.zip" if make is not tarred else "train.tgz"
    inner = make({"1.jpg": b"1", path: b"evil"})

    made = unpacked(tmp_path, {name: inner, "train.csv": TABLE}, shown)

    assert made == {name: inner, "train.csv": TABLE}
    assert "is outside the folder" in shown[0] and "stays packed" in shown[0]
    (other := tmp_path / "other").mkdir()
    with pytest.raises(archives.ArchiveError, match="outside the folder"):
        unpacked(other, {path: b"evil"}, shown)
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("ours", [True, False])
def test_a_damaged_archive_leaves_no_folder(tmp_path, shown, ours):
    """A downloaded one is removed; the user's own is kept."""
    folder = tmp_path / SLUG
    path = tmp_path / f"{SLUG}.download/{SLUG}.zip" if ours else tmp_path / f"{SLUG}.zip"
    path.parent.mkdir(exist_ok=True)
    content = bytearray(zipped([("a.csv", TABLE), ("train.bin", PICTURE)]))
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert download.archive(folder) == path

    with pytest.raises(archives.ArchiveError, match="cannot be unpacked"):
        download.unpack(path, folder, shown.append)

    assert path.exists() != ours and not folder.exists()


def broken(content: bytes, at: int) -> bytes:
    """Return an archive with one other byte; `at` from the end if it is negative."""
    changed = bytearray(content)
    changed[at] ^= 0xFF
    return bytes(changed)


def bzipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("1.jpg", NOISE)
    return buffer.getvalue()


NOISE = Random(1).randbytes(300_000)  # noqa: S311 - guards nothing
BROKEN = {
    "xz.tar.xz": broken(tarred({"1.jpg": NOISE, "2.jpg": b"2"}, "w:xz"), 150_000),
    "bz.zip": broken(bzipped(), 45),
    "checksum.tar.gz": broken(tarred(TWO), -8),
    "short.tar.gz": tarred({"1.jpg": NOISE})[:200_000],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_inner_archive_stays_packed_with_a_message(tmp_path, shown, name):
    files = {name: BROKEN[name], "train.csv": TABLE}

    assert unpacked(tmp_path, files, shown) == files
    (said,) = shown
    assert "cannot be unpacked: " in said and said.endswith("outside its folder. It stays packed")
    assert ":;" not in said and ".;" not in said and ": ;" not in said


def test_a_downloaded_archive_that_may_not_be_unpacked_is_kept(tmp_path, shown):
    """The same bytes would be downloaded again."""
    path = tmp_path / f"{SLUG}.download" / f"{SLUG}.zip"
    path.parent.mkdir()
    path.write_bytes(zipped([("../evil", b"evil")]))

    with pytest.raises(
        archives.ArchiveError, match=r"outside the folder(?s:.*)Unpack its files to"
    ) as said:
        download.unpack(path, tmp_path / SLUG, shown.append)

    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert "removed" not in str(said.value) and not (tmp_path / SLUG).exists()


def test_only_one_process_downloads_or_unpacks(host, tmp_path, shown):
    site = host(competitions=[competition()])
    folder = tmp_path / "data" / SLUG
    path = download.fetch(connect(), SLUG, folder)
    with locked(folder.with_name(f"{SLUG}.download.lock"), ""):
        with pytest.raises(
            Busy, match=r"Another process is downloading or unpacking .*small-files"
        ) as said:
            download.unpack(path, folder, shown.append)
        with pytest.raises(Busy):
            download.fetch(connect(), SLUG, folder)
    assert said.value.exit_code == 7 and not folder.exists()

    came = site.wire.down
    assert download.fetch(connect(), SLUG, folder) == path and site.wire.down == came
    download.unpack(path, folder, shown.append)
    download.unpack(path, folder, shown.append)  # whose archive is gone meanwhile
    with pytest.raises(Busy, match="Run the same command again"):
        download.fetch(connect(), SLUG, folder)
    assert [each.name for each in folder.parent.iterdir()] == [SLUG]


def test_a_complete_folder_is_not_empty_and_has_no_leftovers(tmp_path, shown):
    folder, around = tmp_path / SLUG, tmp_path / f"{SLUG}.download"
    assert not download.done(folder)
    folder.mkdir()
    assert not download.done(folder)

    unpacked(tmp_path, {"train.csv": TABLE}, shown)  # into the empty folder
    around.mkdir()  # of a process that was killed after its last rename
    (tmp_path / f"{SLUG}.download.lock").touch()

    assert download.done(folder) and below(folder) == {"train.csv": TABLE}
    assert sorted(each.name for each in tmp_path.iterdir()) == [SLUG, f"{SLUG}.zip"]


def test_an_archive_whose_contents_are_there_stays_packed(tmp_path, shown):
    files = {"train.csv": TABLE, "train.csv.zip": zipped([("train.csv", b"older")])}
    theirs = {archives.NOTE: b'{"x.zip": ["train.csv"]}'}  # of another folder

    assert unpacked(tmp_path, {**files, **theirs}, shown) == files
    assert not archives.packed_in(tmp_path / SLUG)
    assert shown == ["train.csv.zip stays packed because train.csv already exists"]


def test_training_examples_that_are_archives_stay_packed(tmp_path, shown):
    files = {f"train/{n}.zip": zipped(TWO.items()) for n in range(archives.MOST + 1)}

    assert unpacked(tmp_path, files, shown) == files


def test_unpacked_archives_can_be_packed_again(tmp_path, shown):
    """As in a rehearsal, whose session finds the files in the archives."""
    inner = zipped([("train.csv", TABLE), ("more/x.csv", TABLE)])
    files = {"train.zip": zipped(TWO.items()), "test.csv.zip": zipped([("test.csv", TABLE)])}
    made = unpacked(tmp_path, {**files, "all.zip": inner, "read.me": b"?"}, shown)
    folder = tmp_path / SLUG

    archives.pack(folder, archives.packed_in(folder))

    packed = {path.name for path in folder.iterdir()} - {archives.NOTE}
    assert packed == {"train.zip", "test.csv.zip", "all.zip", "read.me"}
    held = archives.holding(folder, ["train", "all/more/*.csv", "sample.csv", "read.me"])
    assert sorted(path.name for path in held) == ["all.zip", "train.zip"]
    archives.unpack_below(folder, shown.append)
    assert below(folder) == made


FETCH = """
import sys
from pathlib import Path
from deploy import download
from tests.deploy.small import connect
download.fetch(connect(), "small-files", Path(sys.argv[1]))
"""


def test_a_killed_download_is_resumed(host, tmp_path):
    """SIGKILL while it receives: the next process asks for the rest alone."""
    noise = Random(1).randbytes(2_000_000)  # noqa: S311 - guards nothing
    site = host(competitions=[of_folder(SLUG, lambda folder: written(folder, noise))])
    size, folder = site.competitions.archive(SLUG).stat().st_size, tmp_path / "data" / SLUG
    part = folder.with_name(f"{SLUG}.download") / f"{SLUG}.zip{PARTIAL}"
    child: Future[subprocess.Popen[bytes]] = Future()

    def passed() -> None:
        if site.wire.down >= size // 2 and (process := child.result(60)).poll() is None:
            while not part.is_file() or part.stat().st_size < site.wire.down - RECEIVED_BYTES:
                time.sleep(0.01)  # what is in the buffers of the connection has not come yet
            process.kill()
            process.wait()

    site.wire.passed = passed
    command = [sys.executable, "-c", FETCH, str(folder)]
    child.set_result(subprocess.Popen(command))
    assert child.result().wait() == -9 and download.archive(folder) is None
    site.wire.passed = lambda: None

    path = download.fetch(connect(), SLUG, folder)

    assert path == download.archive(folder)
    assert path.read_bytes() == site.competitions.archive(SLUG).read_bytes()
    assert size < site.wire.down <= size + 2 * RECEIVED_BYTES
    download.unpack(path, folder, print)
    assert below(folder) == {"noise.bin": noise}
    assert [each.name for each in folder.parent.iterdir()] == [SLUG]


def written(folder: Path, noise: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "noise.bin").write_bytes(noise)


def test_a_download_needs_twice_its_archive_on_the_disk(host, tmp_path, monkeypatch):
    """Before anything is written."""
    site = host(competitions=[competition()])
    size = site.competitions.archive(SLUG).stat().st_size
    free = shutil.disk_usage(tmp_path)._replace(free=2 * size - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)

    with pytest.raises(DiskError, match=r"GB are free.\nFree some space"):
        download.fetch(connect(), SLUG, tmp_path / "data" / SLUG)

    assert list((tmp_path / "data").rglob("*.*")) == [tmp_path / "data" / f"{SLUG}.download"]


def competition() -> Competition:
    train, test = (
        {f"{part}/{n}.jpg": PICTURE for n in (1, 2)} | table
        for part, table in (
            ("train", {"train.csv": TABLE}),
            ("test", {"sample_submission.csv": TABLE}),
        )
    )
    answers = {"label": {"1": "a"}}
    return archived(Competition(SLUG, "Small", train, test, test, answers, accuracy))
