"""A folder of one's own is a competition: a part of its labelled rows is the hidden test set, also
after the server has started again.
"""

import csv
import io
import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import kagglesdk.competitions.types.competition_api_service as types
import pytest

from commands.rehearsal import hosted_folder
from deploy.errors import UsageError
from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from tests.commands.test_rehearsal import written
from tests.deploy.invoked import ended
from tests.localkaggle.pushed_notebooks import (
    SECONDS_AT_MOST,
    Scripted,
    notebook,
    ran,
    signed_in,
    soon,
)
from tests.pipeline.conftest import write_competition

ROOT = Path(__file__).resolve().parents[2]
SLUG = "four-kinds"
SAMPLE = "sample_submission.csv"


@pytest.fixture
def leaves(tmp_path: Path) -> Path:
    """Return a folder of 96 labelled images, with a config beside it."""
    written(tmp_path)
    return write_competition(tmp_path / "leaves")


def served(leaves: Path, act: Any = None, budget: str = "") -> LocalKaggle:
    """Return a local Kaggle that hosts the folder, as `invoke serve --folder` starts it."""
    place = leaves.parent / "kaggle"
    config = str(leaves.parent / "kinds.py")
    hosted = hosted_folder(
        config, leaves, budget, full=not budget, internet=False, served_from=place
    )
    quick = {"queue_seconds": 0.0, "session": partial(Scripted, act or (lambda session: None))}
    made = hosted.serve(place, **quick)
    assert isinstance(made, LocalKaggle)
    return made


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
    with served(leaves, answers) as kaggle, signed_in(kaggle.environment) as client:
        version = ran(kaggle, client, notebook("1"), competition_data_sources=[SLUG])
        assert version.status == "COMPLETE"
        submitted = make(
            types.ApiCreateCodeSubmissionRequest,
            competition_name=SLUG,
            kernel_owner="rehearsal",
            kernel_slug="small-kernel",
            kernel_version=1,
            file_name="submission.csv",
        )
        client.competitions.competition_api_client.create_code_submission(submitted)
        submission = next(iter(kaggle.submissions.submissions.values()))
        assert soon(lambda: submission.status != "PENDING")

        place = kaggle.folder / "competitions" / SLUG
        seen, hidden = place / "visible", place / "hidden"
        assert (submission.error, 0 < submission.score < 1) == ("", True)
        trained, asked = rows(seen / "train.csv"), rows(hidden / SAMPLE)
        assert len(trained) + len(asked) == len(rows(leaves / "train.csv"))
        assert not {row["id"] for row in rows(leaves / "train.csv")} & {row["id"] for row in asked}


def test_the_same_rows_are_hidden_after_a_restart(leaves):
    """A submission of before would have the same score."""
    with served(leaves) as kaggle:
        before = kaggle.competitions[SLUG].solution
        asked = (kaggle.competitions.folder(SLUG, hidden=True) / SAMPLE).read_bytes()
    with served(leaves) as kaggle:
        assert kaggle.competitions[SLUG].solution == before
        assert (kaggle.competitions.folder(SLUG, hidden=True) / SAMPLE).read_bytes() == asked


def test_no_two_servers_call_the_hidden_rows_alike(leaves):
    """The names follow from a secret of the folder that is served from."""
    with served(leaves) as kaggle:
        before = kaggle.competitions[SLUG].solution
    (leaves.parent / "kaggle").rename(leaves.parent / "other")
    with served(leaves) as kaggle:
        assert kaggle.competitions[SLUG].solution.keys() == before.keys()
        assert not kaggle.competitions[SLUG].solution["label"].keys() & before["label"].keys()


def test_a_folder_whose_labels_have_changed_is_refused(leaves):
    """What was trained there had other rows."""
    with served(leaves):
        pass
    table = leaves / "train.csv"
    table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")

    with pytest.raises(UsageError, match=r"are not those that .* was started with"):
        served(leaves)


def test_another_budget_than_that_of_the_first_start_is_refused(leaves):
    """How many rows are hidden follows from it."""
    with served(leaves):
        pass

    with pytest.raises(UsageError, match=r"--budget 5m: .* was started with none"):
        served(leaves, budget="5m")


def test_one_command_hosts_a_folder_and_goes_on_with_it(leaves, tmp_path):
    """It prints what to paste into another shell, the same each time, and ends with Ctrl-C."""
    config = str(tmp_path / "kinds.py")
    words = ["serve", "--config", config, "--input", str(leaves), "--folder", str(tmp_path / "kag")]
    printed = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "invoke", *words],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        lines = []
        while (line := process.stdout.readline()) and "Ctrl-C" not in line:
            lines.append(line)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=SECONDS_AT_MOST)[0].startswith("# Ended")
        assert process.returncode == 0
        printed.append(lines)

    assert printed[0] == printed[1]
    assert printed[0][0] == "# 19 of 96 labelled rows are the hidden test set\n"
    assert any(f"competitions: {SLUG}; its files are in" in line for line in printed[0])


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
