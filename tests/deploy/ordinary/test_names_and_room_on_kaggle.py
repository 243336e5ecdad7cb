"""A name that is taken, a version that is still processed, a storage that is full: what helps."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.errors import Denied, Refused
from deploy.relay import publish as datasets
from localkaggle.fault_kinds import instead
from tests.deploy.small import connect, push
from tests.faults import world as worlds
from tests.faults.recorded_session import write_artifact
from tests.faults.world import World

TAKEN = 'The requested title "{}" is already in use by a {}. Please choose another title.'
PAGE = "https://www.kaggle.com/datasets/rehearsal"


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Return a world with nothing on it; each test publishes in another dataset."""
    with worlds.temporary() as world:
        yield world


def publish(world: World, handle: str, place: Path, letter: str = "a") -> None:
    """Publish an artifact there, as `invoke publish` does; another letter makes another one."""
    write_artifact(place / letter, letter * 64)
    words = {"title": handle.partition("/")[2], "deadline_seconds": 60, "show": world.shown.append}
    datasets.publish(connect(), place / letter, handle, **words)


def test_a_notebook_whose_title_is_taken_may_get_another_address(world):
    """Kaggle says so with 409, or with 200."""
    taken = TAKEN.format("Digits Train Tpu", "notebook")
    for answer in (instead(409, {"code": 409, "message": taken}), instead(200, {"error": taken})):
        world.local.faults.say("SaveKernel", [answer])

        with pytest.raises(Refused, match=r"title\.\n(.|\n)*relay.toml:\n\[slugs\]"):
            push(connect(), world.project)


def test_a_dataset_that_never_comes_says_where_to_look(world, tmp_path):
    """Kaggle took the call, and answers 404 from then on."""
    world.local.faults.say("GetDataset", ["404"] * (datasets.LOST + 2))

    publish(world, "rehearsal/a-late-one", tmp_path)

    (line,) = [line for line in world.shown if "still not there" in line]
    assert f"{PAGE}/a-late-one\n" in line and "no room" in line


def test_a_version_is_refused_while_the_one_before_is_processed(world, tmp_path):
    """By a 403 that is about no rules of a competition."""
    publish(world, "rehearsal/a-busy-one", tmp_path)
    denied = {"code": 403, "message": "Permission 'datasets.update' was denied"}
    world.local.faults.say("CreateDatasetVersion", [instead(403, denied)])

    with pytest.raises(Denied, match=r"still processes(.|\n)*in some minutes") as caught:
        publish(world, "rehearsal/a-busy-one", tmp_path, "b")

    assert "rules" not in str(caught.value)
