"""The proof of saving holds for our save, and finds what is wrong with worse ones."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline import artifact
from pipeline.session import checkpoint
from proofs.shared import crash_states, disk_recorder
from proofs.training import crash_safety

ROOT = Path(__file__).resolve().parents[3]
NEXT, AGAIN = crash_safety.BEFORE[:2]


def quiet(line: str) -> None:
    pass


def plain(*wrong: str):
    """Return a save that does what ours does, but for what is `wrong` with it."""

    def save(folder, step, arrays, details):
        made = checkpoint.save(
            folder.parent.parent / "elsewhere", step, arrays, details
        )  # outside of what is recorded
        fresh, target = folder / ".writing-x", folder / made.name
        fresh = target if "in place" in wrong else fresh
        if "prune first" in wrong:
            for path in folder.glob("step-*"):
                shutil.rmtree(path)
        if "remove first" in wrong:
            shutil.rmtree(target, ignore_errors=True)
        fresh.mkdir(exist_ok="in place" in wrong)
        for file in made.iterdir():
            with (fresh / file.name).open("wb") as copy:
                copy.write(file.read_bytes())
                copy.flush()
                if "no fsync" not in wrong:
                    os.fsync(copy.fileno())
        if "no fsync of the temporary folder" not in wrong:
            sync(fresh)
        if target.exists() and fresh != target:
            target.rename(folder / f"{target.name}.replaced")
        if fresh != target:
            fresh.rename(target)
        if "no fsync of the folder" not in wrong:
            sync(folder)
        for path in folder.iterdir():
            if path != target and path.name != "step-00000002":
                shutil.rmtree(path)

    return save


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize("held", [NEXT, AGAIN], ids=lambda held: held.name)
def test_a_save_without_a_fault_is_not_blamed(held):
    """Else the tests below would show nothing."""
    judged = crash_safety.judge(plain(), held, seed=0)

    assert judged.states > 40
    assert judged.wrong == ()


@pytest.mark.parametrize(
    ("wrong", "held"),
    [
        ("no fsync", NEXT),
        ("no fsync", AGAIN),
        ("no fsync of the temporary folder", NEXT),
        ("no fsync of the temporary folder", AGAIN),
        ("no fsync of the folder", NEXT),
        ("prune first", NEXT),
        ("remove first", AGAIN),
        ("in place", AGAIN),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_each_fault_of_a_save_is_found(wrong, held):
    """Each is a mistake that one makes, and that no test without a crash shows."""
    assert crash_safety.judge(plain(wrong), held, seed=0).wrong


@pytest.mark.parametrize(
    ("module", "part"), [(checkpoint, crash_safety.flips), (artifact, crash_safety.artifact_flips)]
)
def test_a_reader_that_takes_a_manifest_at_its_word_is_found_out(monkeypatch, module, part):
    """As ours did, before a manifest held its own sha256."""
    monkeypatch.setattr(module, "opened", json.loads)

    row = part(short=True, show=quiet)

    assert not row.passed
    assert "missed: manifest.json" in row.figure


def trees(
    work, tmp_path: Path, before: dict[str, bytes | None] | None = None
) -> list[crash_states.Tree]:
    """Return what a crash may leave of something that works in a folder."""
    top = tmp_path / "top"
    crash_states.write(before or {}, top)
    return [
        tree
        for _, tree in crash_states.states(disk_recorder.record(top, lambda: work(top)), seed=0)
    ]


def test_a_write_may_be_cut_off_missing_or_zeros(tmp_path):
    """Until an fsync."""

    def work(top: Path) -> None:
        (top / "a").write_bytes(b"12345678")

    found = [tree.get("a") for tree in trees(work, tmp_path)]

    assert {None, b"", b"1", b"1234", bytes(8), b"12345678"} <= set(found)


def test_a_file_that_was_synced_may_still_lose_its_name(tmp_path):
    """POSIX promises it only after the fsync of its folder."""

    def work(top: Path) -> None:
        with (top / "a").open("wb") as file:
            file.write(b"whole")
            file.flush()
            os.fsync(file.fileno())
        (top / "b").mkdir()

    found = trees(work, tmp_path)

    assert {"b": None} in found
    assert {tree["a"] for tree in found if "b" in tree and "a" in tree} == {b"whole"}


def test_what_a_folder_s_fsync_made_durable_stays(tmp_path):
    """And what came after it may still be lost, the later without the earlier too."""

    def work(top: Path) -> None:
        (top / "a").rename(top / "b")
        sync(top)
        (top / "c").mkdir()
        (top / "d").mkdir()

    found = trees(work, tmp_path, {"a": b"x"})

    assert {"b": b"x", "d": None} in found
    assert all(("a" in tree) != ("b" in tree) for tree in found)


def test_a_rename_happens_whole_or_not_at_all(tmp_path):
    """The one promise that every file system keeps."""
    found = trees(lambda top: (top / "a").replace(top / "b"), tmp_path, {"a": b"new", "b": b"old"})

    assert {tuple(sorted(tree.items())) for tree in found} == {
        (("a", b"new"), ("b", b"old")),
        (("b", b"new"),),
    }


def test_a_write_that_is_not_watched_is_no_silent_gap(tmp_path):
    """A recording that misses a call would prove nothing."""
    (tmp_path / "a").write_bytes(b"x" * 10)

    def work() -> None:
        os.truncate(tmp_path / "a", 3)

    with pytest.raises(RuntimeError, match="does not watch every call"):
        disk_recorder.record(tmp_path, work)


def test_what_was_recorded_is_what_was_done_before(tmp_path):
    """Nothing stays replaced afterwards."""
    functions = (os.open, os.rename, io.open, open)
    disk_recorder.record(tmp_path, lambda: (tmp_path / "a").write_text("ä"))

    assert (os.open, os.rename, io.open, open) == functions
    assert (tmp_path / "a").read_text() == "ä"


SAVE = """
import sys
from pathlib import Path
from pipeline import artifact
from pipeline.session import checkpoint
from proofs.training import crash_safety
checkpoint.save(Path(sys.argv[1]), 2, crash_safety.arrays(9), crash_safety.DETAILS)
"""
CALLS = re.compile(r"^(?:\d+ +)?(mkdir|rename|unlink|rmdir|fsync|write|open)\w*\(.*\) = \d")


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
def test_the_kernel_sees_the_calls_that_were_recorded(tmp_path):
    """As many of each kind, in the same order: written, flushed, renamed, removed."""
    folders = [tmp_path / name / "checkpoints" for name in ("recorded", "traced")]
    for folder in folders:
        for step in (1, 2):
            checkpoint.save(folder, step, crash_safety.arrays(step), crash_safety.DETAILS)
    recording = disk_recorder.record(
        folders[0].parent,
        lambda: checkpoint.save(folders[0], 2, crash_safety.arrays(9), crash_safety.DETAILS),
    )
    log = tmp_path / "log"
    done = subprocess.run(
        [
            *(
                "strace",
                "-f",
                "-y",
                "-o",
                log,
                "-e",
                "trace=/^(mkdir|rename|unlink|rmdir|fsync|write|pwrite|openat)",
            ),
            *(sys.executable, "-c", SAVE, folders[1]),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr

    seen = [
        "remove" if (name := match[1]) in ("unlink", "rmdir") else name
        for line in log.read_text().splitlines()
        if str(folders[1].parent) in line
        and (match := CALLS.match(line))
        and (match[1] != "open" or "O_CREAT" in line)
    ]
    assert ["make" if name in ("open", "mkdir") else name for name in seen] == [
        kind(change) for change in recording.changes
    ]
    assert Counter(seen)["fsync"] == 5


def kind(change: crash_states.Change) -> str:
    """Return the kind of call that made a change."""
    if isinstance(change, crash_states.Sync):
        return "fsync"
    if isinstance(change, crash_states.Write):
        return "write"
    named = [node for _, _, node in change.changes]
    return "rename" if len(named) > 1 else "remove" if named == [None] else "make"
