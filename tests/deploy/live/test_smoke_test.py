"""The smoke test, by the real client against a local Kaggle that runs the notebooks' code."""

import itertools
import json

import pytest

from deploy.client.client import Kaggle
from deploy.client.kernel_calls import SAVE
from deploy.errors import BadAnswer, Unreachable, UsageError
from deploy.live import live
from deploy.live.live_runs import Runs
from deploy.live.made_things import MadeThings
from deploy.live.raw_answers import RawAnswers
from localkaggle import facts as local_facts
from localkaggle.fault_kinds import edited, instead
from localkaggle.server import USER
from tests.e2e import live_rehearsal
from tests.e2e.live_rehearsal import HURRIED, QUICKLY_KILLED_SECONDS, kaggle, smoke, there
from tests.e2e.plain_session import Plain

QUICK = {"queue_seconds": 0.01, "ready_seconds": 0.05}


def smoked(folder, wanted, **more):
    """Give the smoke test with these steps."""
    more["killed_seconds"] = QUICKLY_KILLED_SECONDS
    return live.smoke_test(Kaggle.connect(pace=HURRIED), "digits", folder, wanted=wanted, **more)


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


@pytest.mark.slow
def test_what_cannot_be_deleted_is_named_and_tried_again(tmp_path):
    """The next command deletes it, and makes nothing."""
    refused = instead(200, {"error": "Try again later"})
    with kaggle(QUICK, Plain) as local:
        local.faults.say("DeleteDataset", itertools.repeat(refused))
        first = smoke(tmp_path)
        local.faults.say("DeleteDataset", [])
        made = [call[0] for call in local.journal].count("SaveKernel")
        second = smoke(tmp_path)

        assert [call[0] for call in local.journal].count("SaveKernel") == made
        assert there(local) == []
    [address] = first.left
    assert address.startswith(f"https://www.kaggle.com/datasets/{USER}/relay-live-")
    assert (second.left, second.file) == ([], first.file)


@pytest.mark.parametrize(
    ("answer", "noted"),
    [
        ({"ref": "", "url": "https://www.kaggle.com/code/{0}-x?scriptVersionId=3"}, "{0}-x"),
        ({"ref": "/code/{0}-x", "url": ""}, "{0}-x"),
        ({"ref": "/code/ben/other", "url": ""}, "{0}"),
    ],
)
def test_the_address_that_kaggle_gives_a_notebook_is_the_one_that_is_deleted(
    answer, noted, tmp_path
):
    """Never that of somebody else: such a push is no success."""
    with kaggle(QUICK, Plain) as local:
        connection, made = Kaggle.connect(pace=HURRIED), MadeThings(tmp_path / "made.json", USER)
        answers = RawAnswers(tmp_path / "facts.json", made.began, USER, made.suffix)
        runs = Runs(connection, made, answers)
        asked = runs.handle()
        told = {name: text.format(asked) for name, text in answer.items()}
        local.faults.say("SaveKernel", [edited(**told)])
        try:
            pushed = runs.push("cpu", "files", seconds=60, execution=SAVE)
        except BadAnswer:
            pushed = None

    assert pushed == (None if "ben" in told["ref"] else (noted.format(asked), 1))
    assert made.kernels() == [noted.format(asked)]


@pytest.mark.slow
def test_a_step_that_spends_is_announced_and_taken_only_if_it_is_agreed_to(tmp_path):
    """The others are announced, and not asked about."""
    asked, shown = [], []

    with kaggle(QUICK, Plain) as local:
        smoked(
            tmp_path,
            ("tpu", "submit"),
            agree=lambda step: asked.append(step.name),
            show=shown.append,
        )
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
