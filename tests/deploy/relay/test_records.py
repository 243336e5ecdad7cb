"""The records on this machine are trusted only while they are true; the advice given then works."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.errors import Unverified, UsageError
from deploy.relay import last_runs, relay
from deploy.relay.last_runs import Pushes
from deploy.trace import status
from localkaggle.server import LocalKaggle
from tests.faults.recorded_session import Recorded
from tests.faults.world import CHAIN, TASKS, World, competition


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A Kaggle with recorded sessions, and a patient user; the environment leads there."""
    environment = dict(os.environ)
    try:
        with World(tmp_path / "world", changes={"deadline_seconds": 3600}) as world:
            yield world
    finally:
        os.environ.clear()
        os.environ.update(environment)


def pulled(world: World, kernel: str) -> Path:
    """Pull the last run of this kernel as the task does."""
    folder: Path = CHAIN["pull" if kernel == relay.TRAIN else "pull infer"].body(
        world, world.connect()
    )[1]
    return folder


def restart_empty(world: World) -> None:
    """End the local Kaggle, and start one with nothing in it on the same port."""
    port = world.local.port
    world._stack.close()
    world.local = world._stack.enter_context(
        LocalKaggle(
            world.folder / "kaggle-2",
            port=port,
            competitions=[competition()],
            offline=True,
            queue_seconds=0.01,
            ready_seconds=0.05,
            session=Recorded,
        )
    )
    os.environ.update(world.local.environment)


def test_an_artifact_that_was_changed_is_published_after_another_pull(world):
    """`publish` said "pull again", and `pull` refused since the folder was there."""
    TASKS["pull"].before(world)
    folder = pulled(world, relay.TRAIN)
    (folder / "artifact" / "weights.npz").write_bytes(b"other")
    with pytest.raises(Unverified, match=r"(?s)not what its manifest says.*invoke pull"):
        TASKS["publish"].body(world, world.connect())
    assert world.counts() == (1, 0, 0)

    assert pulled(world, relay.TRAIN) == folder

    assert TASKS["publish"].body(world, world.connect()).version == 1
    assert (
        folder.with_name(f"{folder.name}-aside-1") / "artifact" / "weights.npz"
    ).read_bytes() == b"other"
    assert any("aside-1" in line for line in world.shown)


def test_a_submission_that_was_changed_is_submitted_after_another_pull(world):
    """An edited label was checked in place of what is scored. Nothing is asked and nothing recorded
    as spent.
    """
    TASKS["submit"].before(world)
    run = Pushes(world.project).last_run(relay.INFER)
    file = Pushes(world.project).pulled_folder(run) / "submission.csv"
    file.write_text("id,label\na,1\nb,1\n")
    with pytest.raises(Unverified, match=rf"invoke pull --run {run}") as caught:
        TASKS["submit"].body(world, world.connect())
    assert (caught.value.exit_code, world.counts()) == (1, (2, 1, 0))
    (row,) = status.journal(world.project)["submissions"]
    assert (
        status.outcome_of("submissions", row) == "spent nothing: a file was not what it should be"
    )

    pulled(world, relay.INFER)

    assert TASKS["submit"].body(world, world.connect()).score == 0.5
    newest, _ = status.journal(world.project)["submissions"]
    assert status.outcome_of("submissions", newest).startswith("submission ")
    assert TASKS["submit"].body(world, world.connect()).score == 0.5
    newest, *_ = status.journal(world.project)["submissions"]
    assert status.outcome_of("submissions", newest).startswith("followed submission ")


def test_the_runs_of_one_kaggle_are_not_those_of_another(world, tmp_path):
    """A chain that was rehearsed is pushed, published and submitted again on another Kaggle, from
    the first step on.
    """
    TASKS["submit"].before(world)
    first = Pushes(world.project).last_run(relay.TRAIN)
    pulled(world, relay.TRAIN)
    with LocalKaggle(
        tmp_path / "second", competitions=[competition()], offline=True, queue_seconds=3600
    ) as second:
        os.environ.update(second.environment)
        with pytest.raises(UsageError, match="knows no push"):
            Pushes(world.project).last_run(relay.TRAIN)
        run = TASKS["push-train"].body(world, world.connect())

        assert (
            run == replace(first, version=1) and second.kernels.version(run.handle, 1) is not None
        )
        with pytest.raises(UsageError, match=r"(?s)was pulled from .* at 127.*invoke pull --run"):
            Pushes(world.project).pulled_folder(run)
        assert any("another Kaggle" in line for line in status.journal_lines(world.project))


def test_a_kaggle_that_was_restarted_on_its_port_is_noticed(world):
    """The journal's version is not there: that is said, and it is pushed anew."""
    TASKS["pull"].before(world)
    restart_empty(world)
    world.shown.clear()

    run = TASKS["push-train"].body(world, world.connect())

    assert run.version == 1 and world.counts() == (1, 0, 0)
    assert "no longer counts" in world.shown[0]
    rows = status.journal(world.project)["pushes"]
    words = [status.outcome_of("pushes", row) for row in rows]
    assert words == ["pushed", "is not at this Kaggle any more"]


def test_what_was_pulled_from_a_kaggle_that_was_restarted_since_is_not_the_new_run_s(world):
    """Equal names, equal bundles, another training."""
    TASKS["pull"].before(world)
    note = pulled(world, relay.TRAIN) / ".pulled.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "at": "2025-01-01T00:00:00+00:00"}))
    restart_empty(world)
    TASKS["push-train"].body(world, world.connect())
    world.ended()

    with pytest.raises(UsageError, match=r"(?s)was pulled before .* was pushed.*invoke pull"):
        TASKS["publish"].body(world, world.connect())

    pulled(world, relay.TRAIN)
    assert TASKS["publish"].body(world, world.connect()).version == 1


def test_the_whole_chain_goes_again_on_a_kaggle_that_was_restarted(world):
    """No number of the old one leads anywhere, and none of them stops a step."""
    TASKS["submit"].before(world)
    TASKS["submit"].body(world, world.connect())
    restart_empty(world)

    for task in CHAIN.values():
        result = task.body(world, world.connect())
        world.ended()
        assert task.truth(world, result)

    assert world.counts() == (2, 1, 1)


def test_without_a_push_the_last_rehearsal_is_the_last_training(world):
    """Who has only rehearsed asks for the report of that."""
    TASKS["pull"].before(world)
    folder = pulled(world, relay.TRAIN)
    made = {"kernel": relay.TRAIN, "config": "digits", "competition": "digits"}  # as a bundle says
    (folder / "bundle.json").write_text(json.dumps(made))
    everything = replace(world.project, runs=world.project.runs.parent)

    assert last_runs.training(Pushes(everything), "") == (folder, "")
    with pytest.raises(UsageError, match="a rehearsal is none"):
        last_runs.training(Pushes(replace(everything, config="digits_csv")), "")
    with pytest.raises(UsageError, match="has not been pulled"):
        last_runs.training(Pushes(everything), "ann/digits-train-tpu/7")


@pytest.mark.parametrize("call", [2, 4, 6])  # each asks for a file that was published
@pytest.mark.parametrize("kind", ["HTML after", "an empty object"])
def test_a_download_that_is_answered_wrongly_makes_no_second_version(world, kind, call):
    """A page in place of a file was taken for another artifact, and ours was uploaded again."""
    task = TASKS["publish again"]
    task.before(world)
    world.local.faults.plan({call: kind})

    assert task.body(world, world.connect()).version == 1

    assert world.local.faults.struck == [(call, kind, "DownloadDataset")]
    assert world.counts() == (1, 1, 0)
