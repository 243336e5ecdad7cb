"""A benchmark goes on with the cells of the sessions before, on whatever machine they were."""

from dataclasses import replace
from functools import partial

import pytest

from deploy.project import BENCH
from tests.deploy import steps
from tests.deploy.relay.conftest import with_kernel
from tests.deploy.small import connect
from tests.localkaggle.pushed_notebooks import Scripted
from workbench.benchmark.session import COMPLETE

HANDLE = "rehearsal/digits-bench"


class Bench:
    """Sessions that measure one cell more than are mounted."""

    def __init__(self):
        self.mounted, self.completes = [], False

    def __call__(self, session):
        """Write a cell."""
        session.log.start()
        (session.working / "__notebook__.ipynb").write_text('{"cells": []}')
        self.mounted.append(sorted(session.inputs))
        cells = [path for place in session.inputs.values() for path in place.glob("*.json")]
        (session.working / f"{len(cells)}.json").write_text("{}")
        if self.completes:
            (session.working / COMPLETE).write_text("{}")


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def live(host, bench):
    host(session=partial(Scripted, bench))
    return connect()


@pytest.fixture
def ours(ours):
    return with_kernel(ours, BENCH)


def push(live, ours, **more):
    run = steps.pushed(live, ours, BENCH, show=lambda line: None, **more)
    steps.watched(live, ours, run, show=lambda line: None)
    return run.version


def test_each_push_mounts_what_was_measured_before_on_any_machine(live, ours, bench):
    """The same command again goes on; --fresh takes nothing."""
    tpu, gpu = (replace(ours, runtime=name) for name in ("tpu-v5e-8", "gpu-t4x2"))

    assert [push(live, each) for each in (tpu, gpu, gpu)] == [1, 2, 3]
    assert push(live, gpu, fresh=True) == 4

    competitions = "competitions/digits"
    own = f"notebooks/{HANDLE}"
    assert bench.mounted == [[competitions], *([[competitions, own]] * 2), [competitions]]


def test_a_machine_whose_grid_is_complete_gets_no_other_session(live, ours, bench):
    """Another machine does, and so does another grid; --again pushes in any case."""
    bench.completes = True
    tpu, gpu = (replace(ours, runtime=name) for name in ("tpu-v5e-8", "gpu-t4x2"))

    assert [push(live, each) for each in (tpu, tpu, gpu, tpu, gpu)] == [1, 1, 2, 1, 2]
    longer = replace(tpu, options={"epochs": "10"})
    assert [push(live, longer), push(live, longer), push(live, longer, again=True)] == [3, 3, 4]
    assert longer.command("push-bench").endswith("--for tpu-v5e-8 --epochs 10")


def test_images_that_keras_has_need_no_competition(live, ours, bench):
    """None is mounted, and none has to be entered."""
    push(live, replace(ours, competition="cifar100", mounts=False))

    assert bench.mounted == [[]]
