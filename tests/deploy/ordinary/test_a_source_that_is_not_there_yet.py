"""A source that was just attached: Kaggle may mount it in the second run only."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import NotMounted, SourceMissing, SourcesRefused, UsageError
from deploy.project import Project
from deploy.relay import chained_sessions, relay
from deploy.relay.last_runs import Pushes
from deploy.setup import doctor
from deploy.trace import status
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from tests.deploy.small import HEAD, TRAIN, write_kernel
from tests.e2e.plain_session import Plain
from tests.faults.world import competition

ROOT = Path(__file__).resolve().parents[3]
FINDS = """
from pipeline.runtime import mounts
mounts.competition(mounts.root() / "input", "digits", "sample_submission.csv")
"""
INFER = f"""{HEAD}{FINDS}
expect = json.loads(Path("bundle.json").read_text())["expect"]
mounts.artifact(mounts.root() / "input", expect["run_id"])
sample = mounts.root() / "input/competitions/digits/sample_submission.csv"
Path("submission.csv").write_bytes(sample.read_bytes())
seal(["bundle.json", "submission.csv"])
"""
# A notebook that looks for what no push attaches.
NEVER = """
mounts.file(mounts.root() / "input", "ann/nothing/here.csv")
"""


@pytest.fixture
def site(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[LocalKaggle, Kaggle, Project]]]:
    """Give what starts a Kaggle, and connects a small project whose notebooks look for inputs."""
    for name in ("errors.py", "runtime/mounts.py", "storage/checksums.py"):
        (root / "pipeline" / name).parent.mkdir(exist_ok=True)
        (root / "pipeline" / name).with_name("__init__.py").touch()
        shutil.copy(ROOT / "pipeline" / name, root / "pipeline" / name)
    write_kernel(root, "infer-gpu", INFER)
    ours = Project(
        root, "digits", "digits", "dataset", root / "runs", root / "build", deadline_seconds=120
    )
    with ExitStack() as stack:

        def begin(train: str) -> tuple[LocalKaggle, Kaggle, Project]:
            write_kernel(root, "train-tpu", TRAIN.replace("origin =", f"{train}origin ="))
            local = LocalKaggle(
                tmp_path / "kaggle",
                competitions=[competition()],
                offline=True,
                queue_seconds=0.01,
                ready_seconds=0.05,
                session=Plain,
                facts=Facts(late_sources=True),
            )
            stack.enter_context(local)
            for name, value in local.environment.items():
                monkeypatch.setenv(name, value)
            return local, Kaggle.connect(pace=Pace(first=0.02, most=0.1, patience=60)), ours

        yield begin


def test_the_same_notebook_is_pushed_once_more_and_the_chain_goes_on(site, shown):
    local, kaggle, ours = site(FINDS)

    result = relay.run(kaggle, ours, show=shown.append, check=lambda *_: None)

    assert (result.train.version, result.infer.version) == (2, 2)
    assert result.submission.score is not None
    for kernel in local.kernels.kernels.values():
        failed, passed = kernel.versions
        assert "Kaggle has not mounted the competition 'digits'" in failed.log.text()
        assert failed.notebook == passed.notebook
    told = [line for line in shown if "\nPushing the same again, once" in line]
    assert len(told) == 2


def test_a_source_that_stays_away_is_pushed_twice_and_no_more(site, shown):
    local, kaggle, ours = site(FINDS + NEVER)

    with pytest.raises(NotMounted) as raised:
        relay.run(kaggle, ours, show=shown.append, check=lambda *_: None)

    assert len(local.kernels.kernels["rehearsal/digits-train-tpu"].versions) == 2
    said = str(raised.value)
    assert "Kaggle has not mounted the dataset ann/nothing" in said
    assert "Nothing has to be edited. Push the same again:\ninvoke push-train\n" in said


def test_a_training_until_done_begins_again_in_the_next_session(site, shown):
    _, kaggle, ours = site(FINDS)

    done = chained_sessions.train(kaggle, ours, show=shown.append)

    assert (done.run.version, done.sessions) == (2, 2)


# A dataset of somebody else, in dataset_sources of a kernel-metadata.json

THEIRS = "teammate/our-weights"


@pytest.fixture
def with_theirs(site: Any, tmp_path: Path) -> tuple[LocalKaggle, Kaggle, Project]:
    """Return a Kaggle, and a project whose training mounts a teammate's dataset, not shared."""
    local, kaggle, ours = site("")
    path = ours.root / "kernels" / "train-tpu" / "kernel-metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dataset_sources": [THEIRS]}))
    (tmp_path / "theirs").mkdir()
    local.datasets.publish({THEIRS: tmp_path / "theirs"})
    local.datasets.datasets[THEIRS].is_private = True
    return local, kaggle, ours


def test_a_dataset_that_is_not_shared_ends_a_push_before_its_session(with_theirs, shown):
    """Exit code 2. Once it is shared the same command pushes."""
    local, kaggle, ours = with_theirs

    with pytest.raises(SourceMissing, match=f"Kaggle shows rehearsal no dataset {THEIRS}") as told:
        relay.push(kaggle, ours, relay.TRAIN, show=shown.append)

    assert "Ask its owner to share it, or correct dataset_sources" in str(told.value)
    assert (told.value.exit_code, not local.kernels.kernels) == (2, True)
    rows = {row.name: row for row in doctor.examine(ours.root, lambda: ours, pace=kaggle.pace)}
    assert rows["sources"].verdict == "FAIL" and THEIRS in rows["sources"].found
    local.datasets.datasets[THEIRS].is_private = False
    assert relay.push(kaggle, ours, relay.TRAIN, show=shown.append).version == 1


def test_a_dataset_that_kaggle_does_not_tell_of_keeps_no_push_from_being_sent(with_theirs, shown):
    local, kaggle, ours = with_theirs
    local.datasets.datasets[THEIRS].is_private = False
    local.faults.say("GetDataset", ["400"])

    run = relay.push(kaggle, ours, relay.TRAIN, show=shown.append)

    assert run.version == 1
    assert any(line.startswith(f"Not known whether Kaggle has {THEIRS}: ") for line in shown)


def test_a_version_that_lacks_a_source_is_named_wherever_it_is_asked_for(
    with_theirs, shown, monkeypatch
):
    """Kaggle took the push, and started it without: it is a version, and may still run."""
    local, kaggle, ours = with_theirs
    local.datasets.datasets[THEIRS].is_private = False
    monkeypatch.setattr(local.kernels, "_source_exists", lambda kind, _: kind != "dataset")

    with pytest.raises(SourcesRefused, match="exist and are shared with you"):
        relay.push(kaggle, ours, relay.TRAIN, show=shown.append)

    with pytest.raises(UsageError, match="became rehearsal/digits-train-tpu/1, which lacks one of"):
        Pushes(ours).last_run(relay.TRAIN)
    assert any(
        "rehearsal/digits-train-tpu/1" in line and "lacks one of its sources" in line
        for line in status.journal_lines(ours)
    )
