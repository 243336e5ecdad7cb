"""The records on this machine are trusted only while they are true."""

import json
from dataclasses import replace

import pytest

from deploy import output, status
from deploy.errors import RunFailed, UsageError
from deploy.journal import PUSH, Journal, Request, State
from deploy.project import INFER, TRAIN
from deploy.records import Records
from tests.deploy import steps
from tests.deploy.small import HANDLE, connect
from tests.deploy.trainer import Script
from tests.faults.world import CHAIN, competition, temporary
from tests.shipped import DIGITS


def test_one_command_goes_from_the_push_to_the_score():
    """Afterwards each step finds its result and repeats nothing. Here the train kernel's output is
    mounted, and a file is submitted.
    """
    with temporary("", competitions=[competition(takes_files=True)]) as world:
        world.changes["handoff"] = "kernel"
        kaggle, ours, judged = connect(), world.project, []

        result = steps.relayed(kaggle, ours, check=lambda given, _: judged.append(str(given)))

        end = result.values()
        assert (end["train_version"], end["infer_version"], end["dataset"]) == (1, 1, None)
        assert (end["rows"], end["score"], [end["submission"]]) == (2, 0.5, judged)
        assert Records(ours).last_run(INFER) == result.infer
        assert steps.pulled(kaggle, ours, result.train) == result.trained
        assert steps.submitted(kaggle, ours, result.infer, result.inferred) == result.submission
        assert result.submission.uploaded and world.counts() == (2, 0, 1)
        assert status.now(kaggle, Records(ours))["next"] is None


def test_a_failed_training_stops_the_chain_and_is_pulled():
    with temporary("", session=Script(v1="fails")) as world:
        with pytest.raises(RunFailed, match="the batch does not fit"):
            steps.relayed(connect(), world.project)

        pushes = Records(world.project)
        folder = pushes.pulled_folder(pushes.last_run(TRAIN))
        assert (folder / "bundle.json").is_file() and world.counts() == (1, 0, 0)


def test_the_status_names_the_command_that_comes_next():
    """From the first push to the score, after which nothing does."""
    told = []
    with temporary() as world:
        world.changes["deadline_seconds"] = 3600
        for task in CHAIN.values():
            task.body(world, world.connect())
            world.ended()
            told.append(status.now(world.connect(), Records(world.project))["next"])

    train, infer = (f"rehearsal/digits-{kernel}/1" for kernel in (TRAIN, INFER))
    words = [f"pull --run {train}"] * 2 + ["publish", "push-infer"]
    words += [f"pull --run {infer}"] * 2 + [f"submit --run {infer}"]
    assert told == [*(f"invoke {each} --config {DIGITS}" for each in words), None]


@pytest.fixture
def pulled(ours, trained):
    """Return what makes a training of another Kaggle, which was pulled from there."""

    def made(runs=ours.runs):
        run, folder = trained()
        folder = folder.rename(runs / folder.name)
        ours_there = {"kernel": TRAIN, "config": "digits", "competition": "digits"}
        bundle = {"bundle_sha256": run.bundle_sha256, **ours_there}
        (folder / output.BUNDLE).write_text(json.dumps(bundle))
        note = {"run": str(run), "server": "elsewhere", "at": "2026-11-21T09:00:00+00:00"}
        (folder / output.NOTE).write_text(json.dumps(note))
        journal = Journal(runs / "journal.sqlite", "elsewhere")
        pushed = Request(PUSH, handle=run.handle, **ours_there, bundle_sha256=run.bundle_sha256)
        journal.record(journal.intend(pushed), State.VERSION, number=run.version)
        return run, folder

    return made


def test_the_runs_of_one_kaggle_are_not_those_of_another(ours, pulled):
    run, folder = pulled()
    records = Records(ours)

    with pytest.raises(UsageError, match="does not contain a push"):
        records.last_run(TRAIN)
    with pytest.raises(UsageError, match=r"(?s)was pulled from .* at elsewhere.*invoke pull"):
        records.pulled_folder(run)
    with pytest.raises(UsageError, match="it is from a different run"):
        records.pulled_folder(replace(run, bundle_sha256="b2"))
    there = Records(ours)
    there.__dict__["journal"] = Journal(ours.runs / "journal.sqlite", "elsewhere")
    assert there.pulled_folder(there.last_run(TRAIN)) == folder


def test_without_a_push_the_last_rehearsal_is_the_last_training(ours, pulled):
    """For the report of a rehearsal."""
    (ours.runs / "dry-run-1").mkdir(parents=True)
    _, folder = pulled(ours.runs / "dry-run-1")

    assert Records(ours).training("") == (folder, "")
    with pytest.raises(UsageError, match="Rehearsals are not included"):
        Records(replace(ours, config="digits_csv")).training("")
    with pytest.raises(UsageError, match="has not been pulled"):
        Records(ours).training(f"{HANDLE}/7")
