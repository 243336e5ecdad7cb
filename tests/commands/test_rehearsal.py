"""What a rehearsal hosts of a folder of one's own. tests/doors/test_dry_run.py runs one whole."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands.rehearsal import SEEN, Hosted, default, explained, hosted_folder, require_space
from deploy.errors import DiskError, RunFailed, SourceMissing
from localkaggle.sessions import session
from pipeline.errors import SubmissionError
from tests.deploy.ordinary.test_other_platforms import MAC

ROOT = Path(__file__).resolve().parents[2]


def test_a_folder_without_a_config_is_told_which_one_it_gets(capsys):
    """What it then lacks is said of that one."""
    assert (default(""), default("my data")) == ("digits", "digits")

    (line,) = capsys.readouterr().out.splitlines()
    assert "this takes digits" in line and "invoke inspect --input 'my data' --write NAME" in line


def hosted(folder: Path, *, full: bool = True) -> Hosted:
    config = str(folder.parent / "kinds.py")
    return hosted_folder(config, folder, "", full=full, internet=False)


def test_what_lies_behind_links_is_as_private_as_the_folder(leaves: Path, tmp_path: Path) -> None:
    """It holds the labels."""
    for name in ("train", "train.csv"):
        (tmp_path / f"of {name}").mkdir()
        (leaves / name).rename(tmp_path / f"of {name}" / name)
        (leaves / name).symlink_to(tmp_path / f"of {name}" / name)
    private = hosted(leaves).private
    for secret in ("leaves/sample_submission.csv", "of train/train/r000.png", "of train.csv"):
        assert any((tmp_path / secret).is_relative_to(folder) for folder in private), secret


def test_without_namespaces_it_says_that_labels_are_in_sight_and_links_no_file(
    leaves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a session writes into its input would else change the user's own file."""
    monkeypatch.setattr(session, "namespaces", lambda: ())
    found = hosted(leaves)
    found.competition.write(tmp_path / "seen")
    images = list((tmp_path / "seen").rglob("*.png"))
    assert SEEN in found.lines
    assert images and all(path.stat().st_nlink == 1 for path in images)
    assert found.size > sum(path.stat().st_size for path in images)


@pytest.mark.skipif(not session.namespaces(), reason="namespaces are not permitted")
def test_a_link_takes_no_space_and_a_table_is_written_twice(leaves: Path) -> None:
    """For the visible test set and for the hidden one."""
    assert SEEN not in hosted(leaves).lines
    assert hosted(leaves).size == 2 * (leaves / "train.csv").stat().st_size


def test_room_for_what_is_written_is_asked_for(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(DiskError, match="The disk is full"):
        require_space(tmp_path / "runs", free)


def test_a_failed_rehearsal_sends_nobody_to_kaggle(tmp_path: Path) -> None:
    said = "Fix it.\nTo pull what it wrote until then, if anything:\ninvoke pull --run a/b/1"
    error = explained(RunFailed(said), "", tmp_path)
    assert str(error).startswith("Fix it.\n(This was a rehearsal")
    assert "invoke pull" not in str(error)
    lacking = explained(SourceMissing("No dataset."), "", tmp_path)
    assert "--dataset OWNER/SLUG=DIR" in str(lacking)


@pytest.mark.slow
def test_a_short_rehearsal_may_predict_one_label_for_all_rows(leaves: Path) -> None:
    """A short training may learn no more; a whole one is checked as on Kaggle."""
    sample = leaves / "sample_submission.csv"  # with one placeholder in every row
    short = hosted(leaves, full=False)
    assert short.check(sample, sample) == 21
    assert short.size > 10 * 4 * 10**6  # copies of a million weights, checkpoints among them
    with pytest.raises(SubmissionError, match="same prediction"):
        hosted(leaves).check(sample, sample)


# JAX's and TensorFlow's builds for Linux need these two files of /proc; those for a Mac do not.
# psutil measures the sessions' memory, on a Mac without /proc.
NO_PROC = """
mount --rbind /proc {proc} && mount -t tmpfs none /proc && mkdir /proc/self
ln -s {proc}/self/exe /proc/self/exe && touch /proc/cpuinfo
mount --bind {proc}/cpuinfo /proc/cpuinfo && exec "$0" -m invoke dry-run
"""


@pytest.mark.slow
@pytest.mark.skipif(not session.namespaces(), reason="/proc is hidden by a mount")
def test_the_first_command_of_the_readme_runs_without_prctl_and_proc(tmp_path: Path) -> None:
    """As on a Mac: with a line that says what is not there."""
    ignored = shutil.ignore_patterns(".*", "runs", "build", "tests", "docs")
    copy = shutil.copytree(ROOT, tmp_path / "copy", ignore=ignored)
    start, proc = tmp_path / "start", tmp_path / "proc"
    start.mkdir()
    proc.mkdir()
    (start / "sitecustomize.py").write_text(
        f"{MAC}\nimport psutil\npsutil.PROCFS_PATH = {str(proc)!r}\n"
    )
    kept = {name: value for name, value in os.environ.items() if "XLA" not in name}

    done = subprocess.run(
        [*session.namespaces(), "sh", "-c", NO_PROC.format(proc=proc), sys.executable],
        cwd=copy,
        env=kept | {"PYTHONPATH": str(start)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "rehearsal   not available here: Linux's namespaces. A session is not cut" in done.stdout
    assert "\nscore       " in done.stdout
