"""The smoke test, by the real client against a local Kaggle that runs the notebooks' code."""

import itertools
import json

import pytest

from deploy.client import Kaggle
from deploy.errors import BadAnswer, Unreachable, UsageError
from deploy.kernel_calls import SAVE
from deploy.live_runs import Runs
from deploy.made_things import MadeThings
from deploy.raw_answers import RawAnswers
from localkaggle import facts as local_facts
from localkaggle.fault_kinds import edited
from localkaggle.server import USER
from tests.e2e import live_rehearsal
from tests.e2e.live_rehearsal import HURRIED, kaggle, smoke, there
from tests.e2e.plain_session import Plain

QUICK = {"queue_seconds": 0.01, "ready_seconds": 0.05}


def test_a_smoke_test_shows_the_facts_and_leaves_nothing_behind(tmp_path):
    """Its one file is what a local Kaggle can be told to behave like; the notebook whose answer was
    lost is found, and not made twice.
    """
    with kaggle({**QUICK, "layout": "flat", "own_output": False}, Plain) as local:
        local.faults.say("SaveKernel", ["reset after"])
        result = smoke(tmp_path)
        left = there(local)
        made = [
            asked["isPrivate"]
            for method, asked, *_ in local.journal
            if method in ("SaveKernel", "CreateDataset")
        ]
        assert live_rehearsal.duplicates(local) == []

    read = local_facts.read(result.file)
    rows = {row.fact: row.seen for row in result.rows}
    assert left == result.left == []
    assert made == [True] * 5
    assert [path.name for path in tmp_path.iterdir()] == [result.file.name]
    assert (read["layout"], read["own_output"]) == ("flat", False)
    unseen = {name for name, seen in rows.items() if not seen and not name.endswith("_seconds")}
    assert unseen == {"verified", "refused_push", "reserves", "gpus", "scores"}
    assert USER not in result.file.read_text()


def test_the_address_that_kaggle_gives_a_notebook_is_the_one_that_is_deleted(tmp_path):
    """Never that of somebody else: such a push is no success."""
    with kaggle(QUICK, Plain) as local:
        connection, made = Kaggle.connect(pace=HURRIED), MadeThings(tmp_path / "made.json", USER)
        answers = RawAnswers(tmp_path / "facts.json", made.began, USER, made.suffix)
        runs = Runs(connection, made, answers)
        given = f"{runs.handle()}-x"
        address = {"ref": "", "url": f"https://www.kaggle.com/code/{given}?scriptVersionId=3"}
        local.faults.say("SaveKernel", [edited(**address), edited(ref="/code/ben/other", url="")])

        assert runs.push("cpu", "files", seconds=60, execution=SAVE) == (given, 1)
        with pytest.raises(BadAnswer, match="a notebook of somebody else"):
            runs.push("sources", "files", seconds=60, execution=SAVE)

    assert sorted(made.kernels()) == [runs.handle(), given]


@pytest.mark.slow
def test_a_step_that_spends_is_announced_and_taken_only_if_it_is_agreed_to(tmp_path):
    """The others are announced, and not asked about."""
    asked, shown = [], []

    with kaggle(QUICK, Plain) as local:
        spending = {"wanted": ("tpu", "submit"), "agree": lambda step: asked.append(step.name)}
        smoke(tmp_path, show=shown.append, **spending)
        pushes = [said for name, said, *_ in local.journal if name == "SaveKernel"]

    assert asked == ["tpu", "submit"]
    assert [said for said in pushes if said.get("machineShape")] == []
    assert "It spends 5 TPU minutes." in " ".join(shown)
    assert "It spends one submission to digits." in " ".join(shown)


def test_the_unfinished_test_of_another_account_is_refused(tmp_path):
    """Its things can be deleted by that account alone."""
    with kaggle(QUICK, Plain) as local:
        local.faults.say("SaveKernel", itertools.repeat("reset"))
        with pytest.raises(Unreachable):
            smoke(tmp_path)
        [record] = tmp_path.glob("unfinished-*.json")
        held = json.loads(record.read_text())
        record.write_text(json.dumps({**held, "user": "ben"}))

        with pytest.raises(UsageError, match="Log in as ben"):
            smoke(tmp_path)
