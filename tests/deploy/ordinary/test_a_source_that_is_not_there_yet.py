"""A source that was just attached: Kaggle may mount it in the second run only."""

import json
import shutil

import pytest

from deploy.errors import NotMounted, SourceMissing, SourcesRefused, UsageError
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from deploy.setup import doctor
from deploy.trace import status
from localkaggle.facts import Facts
from tests.deploy.invoked import ROOT
from tests.deploy.small import HANDLE, HEAD, TRAIN, connect, push, write_kernel
from tests.e2e.plain_session import Plain

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
def site(root, host):
    """Give what starts a Kaggle, and connects; the project's notebooks look for inputs."""
    for name in ("errors.py", "runtime/mounts.py", "storage/checksums.py"):
        (root / "pipeline" / name).parent.mkdir(exist_ok=True)
        (root / "pipeline" / name).with_name("__init__.py").touch()
        shutil.copy(ROOT / "pipeline" / name, root / "pipeline" / name)
    write_kernel(root, "infer-gpu", INFER)

    def begin(train: str):
        write_kernel(root, "train-tpu", TRAIN.replace("origin =", f"{train}origin ="))
        return host(session=Plain, facts=Facts(late_sources=True)), connect()

    return begin


def test_the_same_notebook_is_pushed_once_more_and_the_chain_goes_on(site, ours, shown):
    local, kaggle = site(FINDS)

    result = relay.run(kaggle, ours, show=shown.append, check=lambda *_: None)

    assert (result.train.version, result.infer.version) == (2, 2)
    assert result.submission.score is not None
    for kernel in local.kernels.kernels.values():
        failed, passed = kernel.versions
        assert "Kaggle has not mounted the competition 'digits'" in failed.log.text()
        assert failed.notebook == passed.notebook
    told = [line for line in shown if "\nPushing the same again, once" in line]
    assert len(told) == 2


def test_a_source_that_stays_away_is_pushed_twice_and_no_more(site, ours, shown):
    local, kaggle = site(FINDS + NEVER)

    with pytest.raises(NotMounted) as raised:
        relay.run(kaggle, ours, show=shown.append, check=lambda *_: None)

    assert len(local.kernels.kernels[HANDLE].versions) == 2
    said = str(raised.value)
    assert "Kaggle has not mounted the dataset ann/nothing" in said
    assert "Nothing has to be edited. Push the same again:\ninvoke push-train\n" in said


# A dataset of somebody else, in dataset_sources of a kernel-metadata.json

THEIRS = "teammate/our-weights"


@pytest.fixture
def with_theirs(site, ours, tmp_path):
    """Return a Kaggle, and its client; the training mounts a teammate's dataset, not shared."""
    local, kaggle = site("")
    path = ours.root / "kernels" / "train-tpu" / "kernel-metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dataset_sources": [THEIRS]}))
    (tmp_path / "theirs").mkdir()
    local.datasets.publish({THEIRS: tmp_path / "theirs"})
    local.datasets.datasets[THEIRS].is_private = True
    return local, kaggle


def test_a_dataset_that_is_not_shared_ends_a_push_before_its_session(with_theirs, ours, shown):
    """Exit code 2. Once it is shared the same command pushes."""
    local, kaggle = with_theirs

    with pytest.raises(SourceMissing, match=f"Kaggle shows rehearsal no dataset {THEIRS}") as told:
        push(kaggle, ours, show=shown.append)

    assert "Ask its owner to share it, or correct dataset_sources" in str(told.value)
    assert (told.value.exit_code, not local.kernels.kernels) == (2, True)
    rows = {row.name: row for row in doctor.examine(ours.root, lambda: ours, pace=kaggle.pace)}
    assert rows["sources"].verdict == "FAIL" and THEIRS in rows["sources"].found
    local.datasets.datasets[THEIRS].is_private = False
    assert push(kaggle, ours, show=shown.append).version == 1


def test_a_dataset_that_kaggle_does_not_tell_of_keeps_no_push_back(with_theirs, ours, shown):
    local, kaggle = with_theirs
    local.datasets.datasets[THEIRS].is_private = False
    local.faults.say("GetDataset", ["400"])

    run = push(kaggle, ours, show=shown.append)

    assert run.version == 1
    assert any(line.startswith(f"Not known whether Kaggle has {THEIRS}: ") for line in shown)


def test_a_version_that_lacks_a_source_is_named_wherever_it_is_asked_for(
    with_theirs, ours, shown, monkeypatch
):
    """Kaggle took the push, and started it without: it is a version, and may still run."""
    local, kaggle = with_theirs
    local.datasets.datasets[THEIRS].is_private = False
    monkeypatch.setattr(local.kernels, "_source_exists", lambda kind, _: kind != "dataset")

    with pytest.raises(SourcesRefused, match="exist and are shared with you"):
        push(kaggle, ours, show=shown.append)

    with pytest.raises(UsageError, match=f"became {HANDLE}/1, which lacks one of"):
        Pushes(ours).last_run(relay.TRAIN)
    lines = status.journal_lines(ours)
    assert any(f"{HANDLE}/1" in line and "lacks one of its sources" in line for line in lines)
