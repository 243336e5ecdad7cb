"""A benchmark resumes with the cells of earlier sessions, on any machine."""

from dataclasses import replace
from functools import partial

import pytest

from deploy.project import BENCH
from tests.deploy import steps
from tests.deploy.relay.conftest import with_kernel
from tests.deploy.small import connect
from tests.localkaggle.pushed_notebooks import Scripted
from workbench.benchmark.command import COMPLETE

COMPETITION, OWN = "competitions/digits", "notebooks/rehearsal/digits-bench"


class Bench:
    """Sessions that measure one cell more than are mounted."""

    def __init__(self):
        self.mounted, self.completes = [], False

    def __call__(self, session):
        """Write a cell."""
        session.log.start()
        (session.working / "__notebook__.ipynb").write_text('{"cells": []}')
        self.mounted.append(sorted(session.inputs))
        if self.completes:
            (session.working / COMPLETE).write_text("{}")


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def push(host, bench, ours):
    """Return what pushes a benchmark, waits for its end, and returns its version."""
    host(session=partial(Scripted, bench))
    live, ours = connect(), with_kernel(ours, BENCH)

    def pushed(runtime, again=False, fresh=False, **changes):
        project = replace(ours, runtime=runtime, **changes)
        run = steps.pushed(live, project, BENCH, again=again, fresh=fresh)
        steps.watched(live, project, run)
        return run.version

    return pushed


TPU, GPU = "tpu-v5e-8", "gpu-t4x2"


def test_a_benchmark_mounts_earlier_measurements_of_any_machine(push, bench):
    """The same command resumes; --fresh uses nothing. Keras' own images need no competition."""
    assert [push(TPU), push(GPU), push(GPU), push(GPU, fresh=True)] == [1, 2, 3, 4]
    push(GPU, fresh=True, competition="cifar100", mounts=False)

    both = [COMPETITION, OWN]
    assert bench.mounted == [[COMPETITION], both, both, [COMPETITION], []]


def test_a_complete_grid_gets_no_other_session(push, bench):
    """Another machine does, and so does another grid; --again pushes anyway."""
    bench.completes = True

    assert [push(each) for each in (TPU, TPU, GPU, TPU, GPU)] == [1, 1, 2, 1, 2]
    longer = {"options": {"epochs": "10"}}
    assert [push(TPU, **longer), push(TPU, **longer), push(TPU, again=True, **longer)] == [3, 3, 4]
    assert push(TPU) == 1
