"""What a rehearsal and a server host of a folder of one's own: a part of its labelled rows is the
hidden test set. tests/doors/test_dry_run.py runs one whole.
"""

import itertools
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands.rehearsal import Hosted, default, explained, hosted_folder
from deploy.errors import RunFailed, SourceMissing
from localkaggle.server import LocalKaggle
from localkaggle.sessions import session
from pipeline.errors import ConfigError, SubmissionError
from tests.deploy.invoked import ended
from tests.localkaggle.pushed_notebooks import SECONDS_AT_MOST
from workbench.rehearse.own_folder import IN_SIGHT

ROOT = Path(__file__).resolve().parents[2]


def test_a_folder_without_a_config_is_told_which_one_it_gets(capsys):
    """What it then lacks is said of that one."""
    assert (default(""), default("my data")) == ("digits", "digits")

    (line,) = capsys.readouterr().out.splitlines()
    assert "this takes digits" in line and "invoke inspect --input 'my data' --write NAME" in line


def hosted(folder: Path, budget: str = "") -> Hosted:
    return hosted_folder(str(folder.parent / "kinds.py"), folder, budget, internet=False)


def test_a_short_training_may_predict_one_label_for_all_rows_and_sees_no_folder(leaves):
    sample = leaves / "sample_submission.csv"
    short = hosted(leaves, "2m")
    assert short.check(sample, sample) == 21
    with pytest.raises(SubmissionError, match="same prediction"):
        hosted(leaves).check(sample, sample)
    assert short.options["private"] == (leaves.resolve(),)


def test_without_namespaces_it_says_that_labels_are_in_sight_and_links_no_file(
    leaves, tmp_path, monkeypatch
):
    """What a session writes into its input would else change the user's own file."""
    monkeypatch.setattr(session, "namespaces", lambda: ())
    found = hosted(leaves)
    found.options["competitions"][0].write(tmp_path / "seen")
    images = list((tmp_path / "seen").rglob("*.png"))
    assert IN_SIGHT in found.lines
    assert images and all(path.stat().st_nlink == 1 for path in images)


def test_a_failed_rehearsal_sends_nobody_to_kaggle(tmp_path):
    said = "Fix it.\nTo pull what it wrote until then, if anything:\ninvoke pull --run a/b/1"
    error = explained(RunFailed(said), "", tmp_path)
    assert str(error).startswith("Fix it.\n(This was a rehearsal")
    assert "invoke pull" not in str(error)
    lacking = explained(SourceMissing("No dataset."), "", tmp_path)
    assert "--dataset OWNER/SLUG=DIR" in str(lacking)


SLUG = "four-kinds"
SAMPLE = "sample_submission.csv"


def served(leaves: Path, budget: str = "") -> LocalKaggle:
    """Return a local Kaggle that hosts the folder, as `invoke serve --folder` starts it."""
    place = leaves.parent / "kaggle"
    config = str(leaves.parent / "kinds.py")
    hosted = hosted_folder(config, leaves, budget, internet=False, served_from=place)
    return LocalKaggle(place, **hosted.options)


def test_the_same_rows_are_hidden_after_a_restart(leaves):
    """A submission of before would have the same score."""
    hidden = []
    for _ in range(2):
        with served(leaves) as kaggle:
            solution = kaggle.competitions[SLUG].solution["label"]
            asked = (kaggle.competitions.folder(SLUG, hidden=True) / SAMPLE).read_bytes()
            hidden.append((solution, asked))
    assert hidden[0] == hidden[1]


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
