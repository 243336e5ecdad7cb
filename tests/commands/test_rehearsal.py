"""What a rehearsal and a server host of a folder of one's own: a part of its labelled rows is the
hidden test set. tests/doors/test_dry_run.py runs one whole.
"""

import csv
import io
import itertools
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commands.rehearsal import Hosted, default, explained, hosted_folder
from deploy.errors import RunFailed, SourceMissing
from localkaggle.server import LocalKaggle
from localkaggle.sessions import session
from pipeline.errors import ConfigError, SubmissionError
from tests.deploy.invoked import ended
from tests.localkaggle.pushed_notebooks import SECONDS_AT_MOST, Scripted, ask, finished, push, soon
from workbench.rehearse.own_folder import IN_SIGHT

ROOT = Path(__file__).resolve().parents[2]


def test_a_folder_without_a_config_is_told_which_one_it_gets(capsys):
    """What it then lacks is said of that one."""
    assert (default(""), default("my data")) == ("digits", "digits")

    (line,) = capsys.readouterr().out.splitlines()
    assert "this takes digits" in line and "invoke inspect --input 'my data' --write NAME" in line


def hosted(folder: Path, budget: str = "") -> Hosted:
    return hosted_folder(str(folder.parent / "kinds.py"), folder, budget, internet=False)


def test_what_lies_behind_links_is_as_private_as_the_folder(leaves: Path, tmp_path: Path) -> None:
    """It holds the labels."""
    for name in ("train", "train.csv"):
        (tmp_path / f"of {name}").mkdir()
        (leaves / name).rename(tmp_path / f"of {name}" / name)
        (leaves / name).symlink_to(tmp_path / f"of {name}" / name)
    private = hosted(leaves).options["private"]
    for secret in ("leaves/sample_submission.csv", "of train/train/r000.png", "of train.csv"):
        assert any((tmp_path / secret).is_relative_to(folder) for folder in private), secret


def test_without_namespaces_it_says_that_labels_are_in_sight_and_links_no_file(
    leaves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a session writes into its input would else change the user's own file."""
    monkeypatch.setattr(session, "namespaces", lambda: ())
    found = hosted(leaves)
    found.options["competitions"][0].write(tmp_path / "seen")
    images = list((tmp_path / "seen").rglob("*.png"))
    assert IN_SIGHT in found.lines
    assert images and all(path.stat().st_nlink == 1 for path in images)


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
    short = hosted(leaves, "2m")
    assert short.check(sample, sample) == 21
    with pytest.raises(SubmissionError, match="same prediction"):
        hosted(leaves).check(sample, sample)


SLUG = "four-kinds"
SAMPLE = "sample_submission.csv"


def served(leaves: Path, act: Any = None, budget: str = "") -> LocalKaggle:
    """Return a local Kaggle that hosts the folder, as `invoke serve --folder` starts it."""
    place = leaves.parent / "kaggle"
    config = str(leaves.parent / "kinds.py")
    hosted = hosted_folder(config, leaves, budget, internet=False, served_from=place)
    quick = {"queue_seconds": 0.0, "session": partial(Scripted, act or (lambda session: None))}
    return LocalKaggle(place, **hosted.options, **quick)


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table."""
    return list(csv.DictReader(io.StringIO(path.read_text())))


def answers(session: Scripted) -> None:
    """Give each row of the test set that is mounted the label of the first training row."""
    folder = session.inputs[f"competitions/{SLUG}"]
    label = rows(folder / "train.csv")[0]["label"]
    lines = [f"{row['id']},{label}\n" for row in rows(folder / SAMPLE)]
    (session.working / "submission.csv").write_text("".join(["id,label\n", *lines]))


def test_a_notebook_is_scored_on_rows_that_only_its_rerun_sees(leaves):
    """Everybody else downloads a folder without them, and without a trace of their labels."""
    with served(leaves, answers) as kaggle:
        push(kaggle, competitionDataSources=[SLUG])
        assert finished(kaggle).status == "COMPLETE"
        sent = {"competitionName": SLUG, "kernelOwner": "rehearsal", "kernelSlug": "small-kernel"}
        ask(kaggle, "CreateCodeSubmission", **sent, kernelVersion=1, fileName="submission.csv")
        submission = next(iter(kaggle.submissions.submissions.values()))
        assert soon(lambda: submission.status != "PENDING")

        place = kaggle.folder / "competitions" / SLUG
        labelled, trained = rows(leaves / "train.csv"), rows(place / "visible" / "train.csv")
        asked = rows(place / "hidden" / SAMPLE)
    assert (submission.error, 0 < submission.score < 1) == ("", True)
    assert len(trained) + len(asked) == len(labelled)
    assert not {row["id"] for row in labelled} & {row["id"] for row in asked}


def test_the_same_rows_are_hidden_after_a_restart_under_names_that_no_other_server_gives(leaves):
    """A submission of before would have the same score; the names follow from a secret."""
    hidden = []
    for number in range(3):
        with served(leaves) as kaggle:
            solution = kaggle.competitions[SLUG].solution["label"]
            asked = (kaggle.competitions.folder(SLUG, hidden=True) / SAMPLE).read_bytes()
            hidden.append((solution, asked))
        if number == 1:
            (leaves.parent / "kaggle").rename(leaves.parent / "other")
    assert hidden[0] == hidden[1] and len(hidden[0][0]) == len(hidden[2][0])
    assert not hidden[0][0].keys() & hidden[2][0].keys()


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("", r"are not those of .*hidden\.json"),
        ("5m", r"--budget 5m: .* was written with none"),
    ],
)
def test_other_rows_or_another_budget_than_at_the_first_start_are_refused(leaves, budget, said):
    """What was trained there had other rows; how many are hidden follows from the budget."""
    with served(leaves):
        pass
    table = leaves / "train.csv"
    if not budget:
        table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")

    with pytest.raises(ConfigError, match=said):
        served(leaves, budget=budget)


def test_one_command_hosts_a_folder_until_ctrl_c(leaves, tmp_path):
    """It prints what to paste into another shell."""
    words = ["serve", "--config", tmp_path / "kinds.py", "--input", leaves]
    with subprocess.Popen(
        [sys.executable, "-m", "invoke", *words, "--folder", tmp_path / "kag"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = list(itertools.takewhile(lambda line: "Ctrl-C" not in line, process.stdout))
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=SECONDS_AT_MOST)[0].startswith("# Ended")

    assert process.returncode == 0
    assert lines[0] == "# 19 of 96 labelled rows are the hidden test set\n"
    assert any(f"competitions: {SLUG}; its files are in" in line for line in lines)


@pytest.mark.slow
def test_a_start_that_is_refused_names_itself_with_all_its_options(leaves, tmp_path):
    """The command that it printed trained on all rows, with the internet."""
    place = tmp_path / "kaggle"
    with LocalKaggle(place, competitions=["digits"]):
        pass
    given = ["serve", "--config", str(tmp_path / "kinds.py"), "--input", str(leaves)]
    given += ["--budget", "90s", "--offline"]

    ((code, _, said),) = ended([[*given, "--folder", str(place)]])

    error, command = said.splitlines()[-2:]
    assert (code, command) == (2, f"{shlex.join(['invoke', *given])} --folder {place}-2")
    assert "hosts digits; expected that to be hosted again, by the command that it was" in error
