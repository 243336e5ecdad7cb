"""A kill at any moment leaves a valid checkpoint, and a corrupt one is never used."""

import gc
import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import CheckpointError, DiskError
from pipeline.session import checkpoint

ROOT = Path(__file__).resolve().parents[3]


def saved(folder: Path, step: int) -> Path:
    return checkpoint.save(
        folder,
        step,
        {"weights/a": np.full(3, step, np.float32), "count": np.array(step)},
        {"run_id": "r"},
    )


def test_the_newest_checkpoint_comes_back_as_it_was(tmp_path):
    """Names, values, types and details."""
    saved(tmp_path, 3)
    saved(tmp_path, 12)

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert (found.step, found.details) == (12, {"run_id": "r"})
    assert list(found.arrays) == ["weights/a", "count"]
    assert found.arrays["weights/a"].dtype == np.float32
    assert np.array_equal(found.arrays["weights/a"], [12, 12, 12])


def test_two_checkpoints_are_kept(tmp_path):
    """One to go on from, one in case it is torn."""
    for step in (1, 2, 3, 4):
        saved(tmp_path, step)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]


def test_no_checkpoint_is_no_error(tmp_path):
    """A first run begins at the beginning."""
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "nowhere") is None


@pytest.mark.parametrize("name", ["state.npz", "manifest.json"])
@pytest.mark.parametrize(
    "spoil",
    [Path.unlink, lambda p: p.write_bytes(p.read_bytes()[:-3]), lambda p: p.write_bytes(b"")],
)
def test_a_torn_checkpoint_is_passed_over_for_the_one_before(tmp_path, name, spoil):
    """Less is lost than everything."""
    saved(tmp_path, 1)
    spoil(saved(tmp_path, 2) / name)

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert found.step == 1
    assert [problem.split(":")[0] for problem in found.skipped] == ["step-00000002"]


@pytest.mark.parametrize("most", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_flipped_bit_makes_a_checkpoint_a_torn_one(tmp_path, most):
    """In the state or in the manifest; the one before it is taken."""
    saved(tmp_path, 1)
    folder = saved(tmp_path, 2)

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


def test_checkpoints_of_which_none_is_whole_are_an_error(tmp_path):
    """To begin again in silence would throw the run away."""
    for step in (1, 2):
        (saved(tmp_path, step) / "state.npz").unlink()

    with pytest.raises(CheckpointError, match="none is valid") as caught:
        checkpoint.latest(tmp_path)

    assert "--fresh" in str(caught.value)


def test_an_unfinished_save_is_not_seen(tmp_path):
    """It has another name until it is whole."""
    done = saved(tmp_path, 1)
    shutil.copytree(done, tmp_path / ".writing-abc")

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert found.step == 1


@pytest.mark.filterwarnings("error")
def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path):
    """The exit code says disk, and the message what to do."""
    saved(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises(DiskError) as caught:
            checkpoint.save(tmp_path, 2, {"big": np.zeros(10**6)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    found = checkpoint.latest(tmp_path)

    gc.collect()  # what was left open would complain here
    assert caught.value.exit_code == 8
    assert found is not None
    assert found.step == 1
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_setting_aside_deletes_nothing(tmp_path):
    """--fresh can be regretted."""
    for number in (1, 2):
        saved(tmp_path / "checkpoints", number)
        checkpoint.set_aside(tmp_path / "checkpoints")

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoints-set-aside-1",
        "checkpoints-set-aside-2",
    ]


def test_what_belongs_to_a_run_is_set_aside_with_it(tmp_path):
    """History without its checkpoints would be the history of nothing."""
    saved(tmp_path / "checkpoints", 1)
    for name in ("history.csv", "progress.jsonl"):
        (tmp_path / name).write_text("of the first run")

    checkpoint.set_aside(
        tmp_path / "checkpoints", [tmp_path / "history.csv", tmp_path / "progress.jsonl"]
    )

    aside = tmp_path / "checkpoints-set-aside-1"
    assert [path.name for path in tmp_path.iterdir()] == [aside.name]
    assert sorted(path.name for path in aside.iterdir()) == [
        "history.csv",
        "progress.jsonl",
        "step-00000001",
    ]


def test_nothing_is_set_aside_where_nothing_was_saved(tmp_path):
    """A first run with --fresh leaves no empty folders."""
    (tmp_path / "checkpoints").mkdir()

    checkpoint.set_aside(tmp_path / "checkpoints", [tmp_path / "history.csv"])

    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize(
    "stray", ["step-00000002 (copy)", "step-2", "step-00000009.tmp", "step-last"]
)
@pytest.mark.parametrize(
    "make", [Path.mkdir, lambda path: path.write_text("x")], ids=["folder", "file"]
)
def test_what_only_looks_like_a_checkpoint_is_left_alone(tmp_path, stray, make):
    """A copy that somebody made is neither read nor removed."""
    make(tmp_path / stray)
    for step in (1, 2, 3):
        saved(tmp_path, step)

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert found.step == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [stray, "step-00000002", "step-00000003"]
    )


def test_a_torn_checkpoint_is_not_one_of_the_two_that_are_kept(tmp_path):
    """The one to fall back on is whole."""
    for step in (1, 2):
        saved(tmp_path, step)
    (tmp_path / "step-00000002" / "state.npz").write_bytes(b"torn")

    saved(tmp_path, 3)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000001", "step-00000003"]


def test_a_checkpoint_under_the_name_of_another_step_is_not_whole(tmp_path):
    """The step counter is the only clock; it is not taken from a name that somebody gave."""
    saved(tmp_path, 1).rename(tmp_path / "step-00000007")

    with pytest.raises(CheckpointError, match="holds step 1"):
        checkpoint.latest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"run_id": "r"', '"run_id": "s"'),
        lambda text: text.replace('"weights/a"', '"weights/b"'),
        lambda text: text.replace("manifest_sha256", "manifest_shb256"),
        lambda text: text.replace("\n", " ", 1),
        lambda text: json.dumps(
            {k: v for k, v in json.loads(text).items() if k != "manifest_sha256"}, sort_keys=True
        ),
    ],
    ids=["a detail", "a name", "the name of the seal", "a space", "of an older version"],
)
def test_a_manifest_that_was_changed_is_passed_over(tmp_path, change):
    """It says what the arrays are, and of which run."""
    saved(tmp_path, 1)
    path = saved(tmp_path, 2) / "manifest.json"
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before

    found = checkpoint.latest(tmp_path)

    assert found is not None
    assert found.step == 1


def test_a_checkpoint_of_an_older_version_is_refused_by_what_it_lacks(tmp_path):
    """To read it would mean to trust any manifest from which the seal was lost."""
    path = saved(tmp_path, 1) / "manifest.json"
    path.write_text(
        json.dumps(
            {k: v for k, v in json.loads(path.read_text()).items() if k != "manifest_sha256"}
        )
    )

    with pytest.raises(CheckpointError, match="lacks manifest_sha256: an older version"):
        checkpoint.latest(tmp_path)


OTHER = """
import sys
from pathlib import Path
from pipeline.session import checkpoint
with checkpoint.writer(Path(sys.argv[1])):
    print("writing", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other(tmp_path):
    """Return another process that writes into the folder, until it is told to end or is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path / "checkpoints")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def test_a_second_process_is_kept_out_and_told_of_the_first(other, tmp_path):
    """Two runs in one folder would remove each other's checkpoints."""
    with pytest.raises(CheckpointError, match=rf"written by process {other.pid} \(.*python.*\)"):
        saved(tmp_path / "checkpoints", 1)
    (tmp_path / "checkpoints" / "step-00000001").mkdir()
    with pytest.raises(CheckpointError, match="one run at a time"):
        checkpoint.set_aside(tmp_path / "checkpoints")

    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


@pytest.mark.parametrize(
    "end", [lambda other: other.communicate("\n"), lambda other: (other.kill(), other.wait())]
)
def test_the_folder_is_free_once_the_first_has_ended(other, tmp_path, end):
    """Also after kill -9: nothing has to be cleared up."""
    end(other)

    saved(tmp_path / "checkpoints", 1)

    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_process_may_save_into_what_it_holds_already(tmp_path):
    """A run holds its folder from its first to its last checkpoint."""
    with checkpoint.writer(tmp_path / "a" / "b"), checkpoint.writer(tmp_path / "a" / "b"):
        saved(tmp_path / "a" / "b", 1)
        checkpoint.set_aside(tmp_path / "a" / "b")
        saved(tmp_path / "a" / "b", 2)

    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b", "b-set-aside-1"]


def test_looking_for_a_checkpoint_changes_nothing(tmp_path):
    """The folder may be the input of a session, which is read-only; or that of a run that is still
    alive.
    """
    for step in (1, 2):
        saved(tmp_path, step)
    (tmp_path / ".writing-abc").mkdir()
    (tmp_path / "step-00000002" / "state.npz").write_bytes(b"torn")
    paths = sorted([tmp_path, *tmp_path.rglob("*")])
    before = [(path, path.stat().st_mtime_ns) for path in paths]

    checkpoint.latest(tmp_path)

    assert [
        (path, path.stat().st_mtime_ns) for path in sorted([tmp_path, *tmp_path.rglob("*")])
    ] == before


TINY = """
import json, subprocess, sys
from pathlib import Path
import numpy as np
from pipeline.session import checkpoint
from pipeline.errors import DiskError

folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], check=True)
checkpoint.save(folder, 1, {"a": np.zeros(5000)}, {})
found = []
# From what fits to what does not: the last write of the state, the manifest, a name.
for size in range(20_000, 28_000, 64):
    try:
        checkpoint.save(folder, 2, {"a": np.ones(size)}, {})
        found.append("saved")
    except DiskError as error:
        found.append("full" if "No space left" in str(error) else str(error))
    latest = checkpoint.latest(folder)
    assert latest is not None and latest.arrays["a"].all() == (latest.step == 2)
    assert latest.step == 2 or "saved" not in found
    assert not list(folder.glob(".writing-*"))
print(json.dumps(found))
"""


@pytest.mark.skipif(
    subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
    ).returncode,
    reason="no file system can be mounted here",
)
def test_a_disk_that_is_really_full_keeps_the_last_good_checkpoint(tmp_path):
    """Wherever in a save it fills up; the next that fits is saved."""
    done = subprocess.run(
        [
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            sys.executable,
            "-c",
            TINY,
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"saved", "full"}
