"""A benchmark goes on with the cells of the sessions before, on whatever machine they were."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deploy.client.client import Kaggle
from deploy.relay import relay
from deploy.relay.relay import BENCH, Project
from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import Outcome
from localkaggle.sessions.session_log import Log
from pipeline.bench import session
from tests.deploy.small import connect, metadata, write_kernel

HANDLE = "rehearsal/digits-bench"


class Bench:
    """A session that measures one cell more than are mounted."""

    mounted: ClassVar[list[list[str]]] = []
    leaves: ClassVar[bool] = True

    def __init__(
        self, folder: Path, notebook: str, *, inputs: Mapping[str, Path], log: Log, **rest: Any
    ) -> None:
        self.working, self._log, self._inputs = folder / "working", log, inputs
        self.working.mkdir(parents=True)

    def run(self) -> Outcome:
        """Write a cell."""
        self._log.start()
        (self.working / "__notebook__.ipynb").write_text('{"cells": []}')
        self.mounted.append(sorted(self._inputs))
        cells = [path for place in self._inputs.values() for path in place.glob("*.json")]
        (self.working / f"{len(cells)}.json").write_text("{}")
        if not self.leaves:
            (self.working / session.COMPLETE).write_text("{}")
        return Outcome("", "", 0.0)

    def cancel(self) -> None:
        """Do nothing: it is over before anybody could."""


@pytest.fixture
def live(host: Callable[..., LocalKaggle], monkeypatch: pytest.MonkeyPatch) -> Kaggle:
    monkeypatch.setattr(Bench, "mounted", [])
    host(session=Bench)
    return connect()


@pytest.fixture
def ours(ours: Project) -> Project:
    write_kernel(ours.root, BENCH, "# %%\nimport pipeline.model\n")
    described = {**metadata(BENCH), "machine_shape": "", "enable_gpu": False}
    (ours.root / "kernels" / BENCH / "kernel-metadata.json").write_text(json.dumps(described))
    return ours


def push(live: Kaggle, ours: Project, **more: Any) -> int:
    run = relay.push(live, ours, BENCH, show=lambda line: None, **more)
    relay.watch(live, ours, run, show=lambda line: None)
    return int(run.version)


def test_each_push_mounts_what_was_measured_before_on_any_machine(live, ours):
    """The same command again goes on; --fresh takes nothing."""
    tpu, gpu = (replace(ours, runtime=name) for name in ("tpu-v5e-8", "gpu-t4x2"))

    assert [push(live, each) for each in (tpu, gpu, gpu)] == [1, 2, 3]
    assert push(live, gpu, fresh=True) == 4

    competitions = "competitions/digits"
    own = f"notebooks/{HANDLE}"
    assert Bench.mounted == [[competitions], *([[competitions, own]] * 2), [competitions]]


def test_a_machine_whose_grid_is_complete_gets_no_other_session(live, ours, monkeypatch):
    """Another machine does, and so does another grid; --again pushes in any case."""
    monkeypatch.setattr(Bench, "leaves", False)
    tpu, gpu = (replace(ours, runtime=name) for name in ("tpu-v5e-8", "gpu-t4x2"))

    assert [push(live, each) for each in (tpu, tpu, gpu, tpu, gpu)] == [1, 1, 2, 1, 2]
    longer = replace(tpu, options={"epochs": "10"})
    assert [push(live, longer), push(live, longer), push(live, longer, again=True)] == [3, 3, 4]
    assert longer.command("push-bench").endswith("--for tpu-v5e-8 --epochs 10")


def test_the_preview_names_the_command_that_measures_here(live, ours):
    shown: list[str] = []

    relay.push(live, ours, BENCH, show=print, agree=lambda found: shown.extend(found.lines()))

    assert any("to do so: invoke bench --config digits" in line for line in shown)


def test_images_that_keras_has_need_no_competition(live, ours):
    """None is mounted, and none has to be entered."""
    push(live, replace(ours, competition="cifar100", mounts=False))

    assert Bench.mounted == [[]]
