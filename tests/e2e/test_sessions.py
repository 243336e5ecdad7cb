"""Sessions that end early, or continue on other machines."""

import re
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from deploy import output
from deploy.errors import NoQuota, RunFailed
from deploy.journal import PUSH
from deploy.project import INFER, PAIR, TRAIN, Project
from deploy.records import Records
from formats.checkpoint_folder import NAME
from tests.deploy import steps
from tests.e2e.project import LEAST, ROOT, opened, quiet, written

pytestmark = pytest.mark.slow
TRAINING = "rehearsal/digits-train-tpu"


def project(folder, config="digits", handoff="dataset", **more):
    places = (folder / "runs", folder / "build")
    return Project(ROOT, str(config), "digits", handoff, *places, deadline_seconds=1800, **more)


def killed_once_it_has_saved(local, number, until):
    """Kill a version's session with SIGKILL once it has saved a new step."""
    first = set()
    while not until.wait(0.05):
        version = TRAINING in local.kernels.kernels and local.kernels.version(TRAINING, number)
        if version and version.session and version.status == "RUNNING":
            names = {path.name for path in version.working.glob("checkpoints/step-*")}
            found = {name for name in names if NAME.fullmatch(name)}
            if first and found - first:
                version.session.kill()
                return
            first = first or found


@contextmanager
def killing(local, *numbers):
    """Kill the sessions of these versions, each once it has saved a step."""
    until = threading.Event()
    for number in numbers:
        given = (local, number, until)
        threading.Thread(target=killed_once_it_has_saved, args=given, daemon=True).start()
    try:
        yield
    finally:
        until.set()


def test_a_training_without_tpu_quota_continues_on_two_gpus_to_a_score(tmp_path):
    """Its session is killed, and the quota used up; two T4 resume it."""
    config = written(tmp_path, "moved", epochs=30, checkpoint_seconds=1)
    ours = project(tmp_path, config, handoff="kernel")
    pair = replace(ours, runtime=PAIR)
    with opened(tmp_path / "kaggle") as (local, kaggle):
        with killing(local, 1), pytest.raises(RunFailed):
            run = steps.pushed(kaggle, ours, TRAIN, show=quiet)
            steps.watched(kaggle, ours, run, show=quiet)
        local.kernels.used_seconds["TPU"] = 1e6
        with pytest.raises(NoQuota) as refused:
            steps.pushed(kaggle, ours, TRAIN, show=quiet)
        done = steps.trained(kaggle, pair, show=quiet)
        artifact = done.folder / output.ARTIFACT
        infer = steps.pushed(kaggle, pair, INFER, artifact=artifact, show=quiet)
        steps.watched(kaggle, pair, infer, show=quiet)
        pulled = steps.pulled(kaggle, pair, infer, show=quiet)
        rows = len((pulled / "submission.csv").read_text().splitlines()) - 1
        scored = steps.submitted(kaggle, pair, infer, pulled, check=lambda *_: rows, show=quiet)
        shapes = [version.shape for version in local.kernels.kernels[run.handle].versions]
        left = [row.left for row in reversed(Records(ours).journal.requests(PUSH))]

    assert str(refused.value).endswith(f"--for {PAIR}")
    assert shapes == ["TpuV5E8", "NvidiaTeslaT4"]
    assert "step " in left[0]
    assert float(scored.score) >= LEAST


def chain(folder, config, *kills):
    """Train to the end; return the sha256 of the weights, and status and steps of each version."""
    folder.mkdir()
    ours = project(folder, config)
    with opened(folder / "kaggle") as (local, kaggle):
        with killing(local, *kills):
            done = steps.trained(kaggle, ours, show=quiet)
        steps.trained(kaggle, ours, show=quiet)  # makes no other version
        ended = [version.status for version in local.kernels.kernels[TRAINING].versions]
        left = [row.left for row in reversed(Records(ours).journal.requests(PUSH))]
    return output.manifest(done.folder / "artifact").weights_sha256, ended, left


def test_killed_sessions_lead_to_the_weights_of_one_long_session(tmp_path):
    config = written(tmp_path, "chained", epochs=60, checkpoint_seconds=1)

    whole, alone, _ = chain(tmp_path / "whole", config)
    cut, ended, left = chain(tmp_path / "cut", config, 1, 2)

    assert alone == ["COMPLETE"] and ended == ["ERROR", "ERROR", "COMPLETE"]
    steps = [int(re.search(r"step (\d+)", text)[1]) for text in left[:-1]]
    assert steps == sorted(set(steps)) and left[-1] == "complete"
    assert cut == whole
