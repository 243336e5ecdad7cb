"""The images that a CPU session decoded reach the next one and the trainings."""

import dataclasses
from functools import partial

import pytest

from deploy import status
from deploy.errors import RunFailed, SourcesRefused
from deploy.journal import PUSH, State
from deploy.project import PREPARE, TRAIN
from deploy.records import Records
from tests.deploy import steps
from tests.deploy.relay.conftest import with_kernel
from tests.deploy.small import connect
from tests.deploy.trainer import KILLED
from tests.localkaggle.pushed_notebooks import Scripted

HANDLE = "rehearsal/digits-prepare-cpu"
OWN, SHARDS = [f"notebooks/{HANDLE}"], 4


class Preparer:
    """Sessions of three shards at most, which take those that are mounted; of a training, none.

    Attributes:
        done: {version: shards that it decodes before it is killed}.
    """

    def __init__(self):
        self.done, self.sources = {}, {}

    def __call__(self, session):
        """Write shards, or an artifact, and end as asked for."""
        session.log.start()
        name = session.working.parent.name.removeprefix("rehearsal--digits-")
        kernel, _, version = name.rpartition("--v")
        self.sources[kernel, int(version)] = sorted(
            place for place in session.inputs if not place.startswith("competitions")
        )
        working = session.working
        (working / "__notebook__.ipynb").write_text('{"cells": []}')
        assert '\\"config\\": \\"digits\\"' in session.notebook
        if kernel == TRAIN:
            (working / "artifact").mkdir()
            (working / "artifact" / "manifest.json").write_text("{}")
            return None
        taken = {
            path.name: path for place in session.inputs.values() for path in place.glob("*-of*")
        }
        for name, path in taken.items():
            (working / name).write_bytes(path.read_bytes())
        (working / "prepared.json").write_text("{}")
        left = [n for n in range(1, SHARDS + 1) if n not in {int(name[0]) for name in taken}]
        for number in left[: self.done.get(int(version), 3)]:
            for ending in ("npy", "json"):
                (working / f"{number}-of-{SHARDS}-{'0' * 32}.{ending}").write_text("pixels")
        return KILLED if int(version) in self.done else None


@pytest.fixture
def preparer():
    return Preparer()


@pytest.fixture
def local(host, preparer):
    return host(session=partial(Scripted, preparer))


@pytest.fixture
def live(local):
    return connect()


@pytest.fixture
def ours(ours):
    return dataclasses.replace(with_kernel(ours, PREPARE), decoding="of 512x512")


@pytest.fixture
def push(live, ours, shown):
    """Return a function that pushes a kernel, waits for its end, and returns its version."""

    def pushed(kernel=PREPARE, project=ours, **more):
        run = steps.pushed(live, project, kernel, show=shown.append, **more)
        try:
            steps.watched(live, project, run, show=lambda line: None)
        except RunFailed as error:
            shown.append(str(error))
        return run.version

    return pushed


def test_a_preparation_is_resumed_until_it_is_complete(push, shown, preparer):
    """By the same command. The next session mounts a partial one; --again decodes what has changed,
    and --fresh uses nothing.
    """
    assert [push() for _ in range(4)] == [1, 2, 2, 2]
    assert [push(again=True), push(fresh=True)] == [3, 4]

    assert preparer.sources == dict(
        zip([(PREPARE, version) for version in (1, 2, 3, 4)], [[], OWN, OWN, []], strict=True)
    )
    assert "partial, 3 of 4 shards. Using its output" in shown[1]


@pytest.mark.parametrize("how", ["again", "fresh"])
def test_one_404_loses_no_images(push, ours, local, preparer, how):
    """Otherwise a TPU would wait for the decoding."""
    push(), push(), push(TRAIN)
    (newest, _) = Records(ours).journal.requests(PUSH, kernel=PREPARE)
    assert (newest.state, newest.left) == (State.ENDED, "complete")  # so its log is read once
    local.faults.say("GetKernelSessionStatus", ["404"])

    assert preparer.sources[TRAIN, push(TRAIN, **{how: True})] == OWN
    assert all(row.is_made for row in Records(ours).journal.requests(PUSH))


def test_a_training_mounts_a_complete_preparation_and_no_other(push, ours, shown, preparer):
    """Only with its own images; a killed one does not hide it."""
    without = push(TRAIN)
    push()
    partial = push(TRAIN, again=True)
    push()
    preparer.done = {3: 1}
    push(again=True)
    prepared = push(TRAIN, again=True)
    other = push(TRAIN, dataclasses.replace(ours, decoding="of 64x64"), again=True)
    small = push(TRAIN, dataclasses.replace(ours, decoding=""), again=True)

    mounted = [version for version in range(1, small + 1) if preparer.sources[TRAIN, version]]
    assert [without, partial, prepared, other, small] == [1, 2, 3, 4, 5] and mounted == [prepared]
    assert preparer.sources[TRAIN, prepared] == OWN
    assert any("is partial, 3 of 4 shards. To prepare: invoke push-prepare" in it for it in shown)
    assert any("images decoded by" in line for line in shown)
    assert any("its images differ" in line for line in shown)


def test_a_training_goes_without_images_that_kaggle_refused(
    push, local, shown, monkeypatch, preparer
):
    """It decodes its images itself."""
    push(), push()
    source = local.kernels._source
    monkeypatch.setattr(
        local.kernels,
        "_source",
        lambda kind, name, **more: None if kind == "kernel" else source(kind, name, **more),
    )
    with pytest.raises(SourcesRefused, match=HANDLE):
        push(TRAIN)

    assert preparer.sources[TRAIN, push(TRAIN)] == []
    told = [line for line in shown if "has since refused one of a training run's sources" in line]
    assert "To prepare: invoke push-prepare --again" in told[0]


def test_a_push_without_an_accelerator_asks_for_no_quota(live, ours, local):
    local.kernels.used_seconds.update(TPU=1e9, GPU=1e9)
    seen = []

    steps.pushed(live, ours, PREPARE, agree=seen.append)

    assert seen[0].lines()[:2] == [f"push        {HANDLE}, version 1", "CPU quota   not needed"]


def test_the_command_after_a_preparation_continues_it(push, live, ours):
    """Or trains. The status shows the progress."""
    partial = {"runs": {f"{HANDLE}/1": "COMPLETE, partial, 3 of 4 shards"}, "next": None}
    for version, following in ((1, "push-prepare"), (2, "push-train")):
        assert push() == version
        assert version == 2 or status.now(live, Records(ours)).items() >= partial.items()
        run = Records(ours).last_run(PREPARE)
        folder = steps.pulled(live, ours, run)
        assert steps.following(ours, run, folder) == f"invoke {following} --config digits"
