"""The records on this machine are trusted only while they are true."""

import json
import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deploy import status
from deploy.errors import RunFailed, Unreachable, UsageError
from deploy.project import INFER, TRAIN
from deploy.records import Records
from localkaggle.server import LocalKaggle
from tests.deploy import steps
from tests.deploy.small import connect
from tests.deploy.trainer import Script
from tests.faults.recorded_session import Recorded
from tests.faults.world import CHAIN, TASKS, competition, temporary


@contextmanager
def prepared(task=""):
    with temporary(task) as world:
        world.changes["deadline_seconds"] = 3600
        yield world


def does(world, task):
    """Do a task, and return its result."""
    return CHAIN.get(task, TASKS.get(task)).body(world, world.connect())


def pulled(world, task="pull"):
    return does(world, task)[1]


def restart_empty(world):
    """End the local Kaggle, and start one with nothing in it on the same port."""
    port = world.local.port
    world._stack.close()
    waits = {"queue_seconds": 0.01, "ready_seconds": 0.05, "session": Recorded}
    place, given = world.folder / "kaggle-2", {"competitions": [competition()], "offline": True}
    world.local = world._stack.enter_context(LocalKaggle(place, port=port, **given, **waits))
    os.environ.update(world.local.environment)


@pytest.mark.parametrize(("handoff", "takes_files"), [("kernel", False), ("dataset", True)])
def test_one_command_goes_from_the_push_to_the_score(handoff, takes_files):
    """Every link by version and hash; afterwards each step finds what the chain made, repeats
    nothing, and the status names no command any more. Through the train kernel's output there is no
    upload; where files are taken, the last step is one.
    """
    with temporary("", competitions=[competition(takes_files=takes_files)]) as world:
        world.changes["handoff"] = handoff
        judged, kaggle, ours, show = [], connect(), world.project, world.shown.append

        result = steps.relayed(kaggle, ours, show=show, check=lambda given, _: judged.append(given))

        end, weights = result.values(), "artifact/weights.npz"
        for dataset in world.local.datasets.datasets.values():
            published = dataset.versions[0].folder / "weights.npz"
            assert published.read_bytes() == (result.trained / weights).read_bytes()
        assert (result.train.version, result.infer.version) == (1, 1)
        assert (result.dataset is None) == (handoff == "kernel")
        assert result.submission.uploaded == takes_files
        assert judged == [result.inferred / "submission.csv"] == [Path(end["submission"])]
        assert (end["rows"], end["score"], end["pictures"]) == (2, 0.5, [])
        made = world.counts()
        assert Records(ours).last_run(INFER) == result.infer
        assert steps.pulled(kaggle, ours, result.train) == result.trained
        last = result.infer, result.inferred
        assert (
            steps.submitted(kaggle, ours, *last, check=lambda *_: 1, show=show) == result.submission
        )
        assert world.counts() == made == (2, int(handoff == "dataset"), 1)
        found = status.now(kaggle, Records(ours))
        assert found["runs"] == dict.fromkeys(map(str, (result.train, result.infer)), "COMPLETE")
        assert found["next"] is None


def test_a_training_that_fails_stops_the_chain_and_what_it_wrote_is_pulled():
    with temporary("", session=Script(v1="fails")) as world:
        with pytest.raises(RunFailed, match="the batch does not fit"):
            steps.relayed(connect(), world.project, show=print, check=lambda *_: None)

        pushes = Records(world.project)
        folder = pushes.pulled_folder(pushes.last_run(TRAIN))
        assert (folder / "bundle.json").is_file() and world.counts() == (1, 0, 0)


def test_the_runs_of_one_kaggle_are_not_those_of_another(tmp_path):
    """A chain that was rehearsed is pushed, published and submitted again on another Kaggle, from
    the first step on.
    """
    with prepared("submit") as world:
        first = Records(world.project).last_run(TRAIN)
        pulled(world)
        with LocalKaggle(
            tmp_path / "second", competitions=[competition()], offline=True, queue_seconds=3600
        ) as second:
            os.environ.update(second.environment)
            with pytest.raises(UsageError, match="knows no push"):
                Records(world.project).last_run(TRAIN)
            run = does(world, "push-train")

            assert run == replace(first, version=1) and second.kernels.version(run.handle, 1)
            with pytest.raises(UsageError, match=r"(?s)was pulled from .* at 127.*invoke pull"):
                Records(world.project).pulled_folder(run)
            assert any("another Kaggle" in line for line in steps.journal_lines(world.project))


def test_what_was_pulled_from_a_kaggle_that_was_restarted_since_is_not_the_new_run_s():
    """Equal names, equal bundles, another training."""
    with prepared("pull") as world:
        note = pulled(world) / ".pulled.json"
        early = {**json.loads(note.read_text()), "at": "2025-01-01T00:00:00+00:00"}
        note.write_text(json.dumps(early))
        restart_empty(world)
        does(world, "push-train")
        world.ended()

        with pytest.raises(UsageError, match=r"(?s)was pulled before .* was pushed.*invoke pull"):
            does(world, "publish")

        pulled(world)
        assert does(world, "publish").version == 1


@pytest.mark.slow
def test_the_whole_chain_goes_again_on_a_kaggle_that_was_restarted():
    """No number of the old one leads anywhere, and none of them stops a step."""
    with prepared("submit") as world:
        does(world, "submit")
        restart_empty(world)
        world.shown.clear()

        for name, task in CHAIN.items():
            result = does(world, name)
            world.ended()
            assert task.truth(world, result)

        assert world.counts() == (2, 1, 1) and "no longer counts" in world.shown[0]


def test_the_status_names_the_command_that_comes_next():
    """From the first push to the score, after which nothing does."""
    told = []
    with prepared() as world:
        for name in CHAIN:
            does(world, name)
            world.ended()
            told.append(status.now(world.connect(), Records(world.project))["next"])

    train, infer = (f"rehearsal/digits-{kernel}/1" for kernel in (TRAIN, INFER))
    words = [f"pull --run {train}"] * 2 + ["publish", "push-infer"]
    words += [f"pull --run {infer}"] * 2 + [f"submit --run {infer}"]
    assert told == [*(f"invoke {each} --config digits" for each in words), None]


def test_without_a_push_the_last_rehearsal_is_the_last_training():
    """Who has only rehearsed asks for the report of that."""
    with prepared("pull") as world:
        folder = pulled(world)
        made = {"kernel": TRAIN, "config": "digits", "competition": "digits"}
        (folder / "bundle.json").write_text(json.dumps(made))  # as a bundle says
        everything = replace(world.project, runs=world.project.runs.parent)

        assert Records(everything).training("") == (folder, "")
        with pytest.raises(UsageError, match="a rehearsal is none"):
            Records(replace(everything, config="digits_csv")).training("")
        with pytest.raises(UsageError, match="has not been pulled"):
            Records(everything).training("ann/digits-train-tpu/7")


@pytest.mark.parametrize("often", [1, 4])
@pytest.mark.parametrize("kind", ["HTML after", "an empty object"])
def test_a_download_that_is_answered_wrongly_makes_no_second_version(kind, often):
    """A page in place of a file was taken for another artifact, and ours was uploaded again."""
    with prepared("publish again") as world:
        world.local.faults.say("DownloadDataset", [kind] * often)

        if kind == "an empty object" and often > 1:
            with pytest.raises(Unreachable, match=r"gave 2 bytes for manifest\.json"):
                does(world, "publish")
        assert does(world, "publish").version == 1
        assert len(world.local.faults.struck) == often and world.counts() == (1, 1, 0)
