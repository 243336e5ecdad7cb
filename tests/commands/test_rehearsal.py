"""What a rehearsal hosts of a folder of one's own. tests/doors/test_dry_run.py runs one whole."""

import shutil
from pathlib import Path

import pytest

from commands.rehearsal import SEEN, Hosted, default, explained, hosted_folder, require_space
from deploy.errors import DiskError, RunFailed, SourceMissing
from localkaggle.sessions import session
from pipeline.errors import SubmissionError

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
