"""The newest whole checkpoint is taken, and nobody's folder is touched; tests/crash has the kills
and losses of power.
"""

import gc
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.errors import DiskError
from pipeline.errors import CheckpointError
from pipeline.train import checkpoint

ROOT = Path(__file__).resolve().parents[3]


def saved(folder: Path, *steps: int, **details: str) -> Path:
    """Save a checkpoint at each step, and return the last one's folder."""
    for step in steps:
        arrays = {"weights/a": np.full(3, step, np.float32), "count": np.array(step)}
        path = checkpoint.save(folder, step, arrays, {"run_id": "r", **details})
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_of_two_checkpoints_comes_back_as_it_was(tmp_path):
    """Names, values, types and details; the older one stays, in case the newest is corrupt."""
    assert checkpoint.latest(tmp_path) is checkpoint.latest(tmp_path / "nowhere") is None
    saved(tmp_path, 3, 5, 7, 12)

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert (found.step, found.details, found.skipped) == (12, {"run_id": "r"}, ())
    assert list(found.arrays) == ["weights/a", "count"]
    assert found.arrays["weights/a"].dtype == np.float32
    assert np.array_equal(found.arrays["weights/a"], [12, 12, 12])
    assert names(tmp_path) == ["step-00000007", "step-00000012"]


def edit(before: str, after: str) -> Callable[[Path], object]:
    """Return a function that changes the manifest's text once."""
    path = "manifest.json"
    return lambda folder: (folder / path).write_text(
        (folder / path).read_text().replace(before, after, 1)
    )


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "state.npz").unlink(), "state.npz"),
        (lambda folder: (folder / "manifest.json").unlink(), "manifest.json"),
        # Whoever opens a pipe waits for ever.
        (lambda folder: piped(folder / "state.npz"), "state.npz"),
        (lambda folder: (folder / "manifest.json").write_bytes(b""), "JSONDecodeError"),
        (edit("\n", " "), "changed after it was written"),
        (edit("manifest_sha256", "manifest_shb256"), "manifest_sha256 is missing, so it was"),
        (edit('"format": 1', '"format": 2'), "its format is 2, but this version of the project"),
        (lambda folder: folder.rename(folder.with_name("step-00000007")), "contains step 2"),
    ],
)
def test_an_invalid_checkpoint_is_skipped_for_the_one_before_it(tmp_path, spoil, said):
    """Less is lost than everything; where there is none before, to begin again in silence would
    throw the run away.
    """
    spoil(saved(tmp_path, 1, 2))

    found = checkpoint.latest(tmp_path)

    assert found is not None and found.step == 1
    (problem,) = found.skipped
    assert problem.startswith("step-0000000") and said in problem
    shutil.rmtree(tmp_path / "step-00000001")
    with pytest.raises(CheckpointError, match=r"None of .* is valid") as caught:
        checkpoint.latest(tmp_path)
    assert said in str(caught.value) and "--fresh" in str(caught.value)


@pytest.mark.parametrize("most", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_flipped_bit_makes_a_checkpoint_invalid(tmp_path, most):
    """In the state or in the manifest; the one before it is used."""
    folder = saved(tmp_path, 1, 2)

    @settings(max_examples=most)
    @given(
        st.sampled_from(["state.npz", "manifest.json"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 7),
    )
    def each(name: str, place: float, bit: int) -> None:
        torn = bytearray(whole := (folder / name).read_bytes())
        torn[int(place * len(torn))] ^= 1 << bit
        (folder / name).write_bytes(torn)
        assert checkpoint.latest(tmp_path).step == 1
        (folder / name).write_bytes(whole)

    each()
    assert checkpoint.latest(tmp_path).step == 2


def test_folders_with_similar_names_are_neither_read_nor_removed(tmp_path):
    """For example somebody's copy."""
    for stray in ("step-00000009 (copy)", "step-9", "step-00000009.tmp"):
        (tmp_path / stray).mkdir()
    (tmp_path / "step-00000008").write_text("x")
    before = names(tmp_path)

    saved(tmp_path, 1, 2, 3)

    found = checkpoint.latest(tmp_path)
    assert (found.step, found.skipped) == (3, ())
    assert names(tmp_path) == sorted([*before, "step-00000002", "step-00000003"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("size", "words"), [(10**6, 1), (1, 10**6)], ids=["state", "manifest"])
def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path, size, words):
    """At any moment of a save; the exit code is that of a disk error."""
    saved(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
        with pytest.raises(DiskError) as caught:
            checkpoint.save(tmp_path, 2, {"big": np.zeros(size)}, {"words": "x" * words})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    gc.collect()  # what was left open would complain here
    assert caught.value.exit_code == 8
    assert checkpoint.latest(tmp_path).step == 1
    assert names(tmp_path) == ["step-00000001"]


def test_a_run_is_set_aside_with_its_files_and_nothing_is_deleted(tmp_path):
    """Someone may regret --fresh; and a history without its checkpoints is of no use."""
    folder, history = tmp_path / "checkpoints", tmp_path / "history.csv"
    checkpoint.set_aside(folder, [history])
    assert names(tmp_path) == ["checkpoints"]  # nothing was saved yet

    for number in (1, 2):
        saved(folder, number)
        history.write_text(f"of run {number}")
        checkpoint.set_aside(folder, [history, tmp_path / "progress.jsonl"])
    history.write_text("of run 3, which saved nothing")
    checkpoint.set_aside(folder, [history])

    aside = [tmp_path / f"checkpoints-set-aside-{number}" for number in (1, 2, 3)]
    assert [path for path in sorted(tmp_path.iterdir()) if path != folder] == aside
    for number, place in enumerate(aside[:2], 1):
        assert names(place) == ["history.csv", f"step-{number:08d}"]
        assert (place / "history.csv").read_text() == f"of run {number}"


OTHER = """
import sys
from pathlib import Path
from pipeline.train import checkpoint
with checkpoint.writer(Path(sys.argv[1])):
    print("writing", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    "end", [lambda other: other.communicate("\n"), lambda other: (other.kill(), other.wait())]
)
def test_a_second_process_is_kept_out(tmp_path, end):
    """Two runs in one folder would remove each other's checkpoints. It is free once the first has
    ended, also after kill -9.
    """
    folder = tmp_path / "checkpoints"
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, folder],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "writing\n"
        with (
            pytest.raises(CheckpointError, match="by another process; only one run"),
            checkpoint.writer(folder),
        ):
            saved(folder, 1)
        (folder / "step-00000001").mkdir()
        with pytest.raises(CheckpointError, match="one run at a time"):
            checkpoint.set_aside(folder)
        assert names(folder) == ["step-00000001"]
        end(other)

    with checkpoint.writer(folder):
        saved(folder, 2)

    assert checkpoint.latest(folder).step == 2


def test_reading_leaves_a_corrupt_checkpoint_and_a_save_replaces_it(tmp_path):
    """The folder may be a session's read-only input, or that of a run that is still alive, whose
    unfinished save is not seen. The one to fall back on is whole.
    """
    shutil.copytree(saved(tmp_path, 1, 2), tmp_path / ".step-00000003-abc")
    (tmp_path / "step-00000002" / "state.npz").write_bytes(b"torn")

    def state() -> list[tuple[Path, int]]:
        paths = sorted([tmp_path, *tmp_path.rglob("*")])
        return [(path, path.stat().st_mtime_ns) for path in paths]

    before = state()

    assert checkpoint.latest(tmp_path).step == 1
    assert state() == before
    saved(tmp_path, 3)
    assert names(tmp_path)[-2:] == ["step-00000001", "step-00000003"]
