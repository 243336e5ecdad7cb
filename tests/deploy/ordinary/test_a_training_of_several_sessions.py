"""`invoke relay`: a training of several sessions by one command, from the push to the score; and
sources that Kaggle mounts only in the second run.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from deploy import chain
from deploy.client import Kaggle
from deploy.errors import NoQuota, NotMounted, SourceMissing, SourcesRefused, UsageError
from deploy.preview import Preview
from deploy.project import INFER, TRAIN, Project
from deploy.records import Records
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import Outcome
from pipeline.runtime import mounts
from tests.deploy import steps
from tests.deploy.small import HANDLE, connect, ended, push
from tests.deploy.trainer import Script, unbroken
from tests.faults.recorded_session import Recorded


class Finding(Recorded):
    """An inference that fails unless its sources are mounted."""

    def run(self) -> Outcome:
        """Fail, or write a submission."""
        if self._inputs:
            return super().run()
        self._log.start()
        self._log.add("stderr", f"{mounts.NOT_MOUNTED} anything\n")
        return Outcome("exception", "The notebook threw an exception", 0.0)


@pytest.fixture
def start(host):
    """Return a function that starts a Kaggle whose trainings follow a script, and logs in."""

    def begin(script: Script, **options: Any):
        def session(folder: Any, *given: Any, **rest: Any) -> Any:
            return (script if TRAIN in folder.name else Finding)(folder, *given, **rest)

        return host(session=session, **options), connect()

    return begin


def run(kaggle: Kaggle, ours: Project, shown: list[str], **more: Any) -> chain.Result:
    """Run the whole chain, as `invoke relay` does."""
    return steps.relayed(kaggle, ours, show=shown.append, check=lambda *_: None, **more)


def counts(local: LocalKaggle) -> tuple[list[str], int, int]:
    """Return how the sessions of the training ended, and how many other runs and submissions."""
    kernels = local.kernels.kernels
    trainings = [version.status for version in kernels[HANDLE].versions]
    others = sum(len(kernel.versions) for kernel in kernels.values()) - len(trainings)
    return trainings, others, len(local.submissions.submissions)


def test_relay_goes_from_session_to_session_to_the_score(start, ours, shown):
    """The quota ends between them: exit code 7, and the same command resumes. It asks once for all
    sessions, before the inference and before the submission, and repeats nothing.
    """
    local, kaggle = start(Script())
    local.kernels.used_seconds["TPU"] = 20 * 3600 - 90.0  # one session and a half
    asked: list[str] = []

    def agree(shown: Any) -> None:
        asked.append(shown.built.kernel if isinstance(shown, Preview) else "submit")

    how = {"agree": agree}
    with pytest.raises(NoQuota, match="quota resets at 2030-01-05 00:00 UTC") as caught:
        run(kaggle, ours, shown, **how)

    assert str(caught.value).endswith("To resume then:\ninvoke relay --config digits")
    assert (caught.value.exit_code, counts(local)) == (7, (["COMPLETE"] * 2, 0, 0))
    local.kernels.used_seconds["TPU"] = 0.0
    made = run(kaggle, ours, shown, **how)
    assert (made.trained / "artifact" / "weights.npz").read_bytes() == unbroken()
    assert asked == [TRAIN, TRAIN, INFER, "submit"]
    assert run(kaggle, ours, shown, **how).submission == made.submission
    assert counts(local) == (["COMPLETE"] * 3, 1, 1)


# A source that was just attached


def test_a_late_source_pushes_the_same_notebook_again(start, ours, shown):
    local, kaggle = start(Script(v2="complete"), facts=Facts(late_sources=True))

    result = run(kaggle, ours, shown)

    assert (result.train.version, result.infer.version) == (2, 2)
    assert result.submission.score is not None
    for kernel in local.kernels.kernels.values():
        failed, passed = kernel.versions
        assert mounts.NOT_MOUNTED in failed.log.text()
        assert failed.request.text == passed.request.text
    told = [line for line in shown if "\nPushing the notebook once more" in line]
    assert len(told) == 2


def test_a_missing_source_is_pushed_twice_at_most(start, ours, shown):
    local, kaggle = start(Script(v1="unmounted", v2="unmounted"))

    with pytest.raises(NotMounted, match="Push the notebook again:\ninvoke push-train\n"):
        run(kaggle, ours, shown)

    assert counts(local) == (["ERROR"] * 2, 0, 0)


# A dataset of somebody else, in dataset_sources of a kernel-metadata.json

THEIRS = "teammate/our-weights"


@pytest.fixture
def with_theirs(start, ours, tmp_path):
    """Return a Kaggle, and its client; the training mounts a teammate's dataset, not shared."""
    local, kaggle = start(Script())
    path = ours.root / "kernels" / "train-tpu" / "kernel-metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dataset_sources": [THEIRS]}))
    (tmp_path / "theirs").mkdir()
    local.datasets.publish({THEIRS: tmp_path / "theirs"})
    local.datasets.datasets[THEIRS].is_private = True
    return local, kaggle


def test_a_dataset_that_is_not_shared_ends_a_push_before_its_session(with_theirs, ours, shown):
    """Exit code 2. Once it is shared the same command pushes, even if Kaggle does not say."""
    local, kaggle = with_theirs

    said = f"rehearsal has no access to the dataset {THEIRS}"
    with pytest.raises(SourceMissing, match=said) as told:
        push(kaggle, ours, show=shown.append)

    assert "or ask the owner to share it" in str(told.value)
    assert (told.value.exit_code, not local.kernels.kernels) == (2, True)
    local.datasets.datasets[THEIRS].is_private = False
    local.faults.say("GetDataset", ["400"])
    assert push(kaggle, ours, show=shown.append).version == 1
    assert any(line.startswith(f"Could not check that Kaggle has {THEIRS}: ") for line in shown)


def test_a_dataset_in_the_config_is_checked_before_a_push(start, ours, shown):
    local, kaggle = start(Script())

    with pytest.raises(
        SourceMissing, match=f"{THEIRS}, or .* ready.* because pretrained in the config"
    ):
        push(kaggle, replace(ours, needs=[THEIRS]), show=shown.append)

    assert not local.kernels.kernels


def test_a_version_that_lacks_a_source_is_reported_everywhere(
    with_theirs, ours, shown, monkeypatch
):
    """Kaggle started the run without it. It is a version, but not one with its sources."""
    local, kaggle = with_theirs
    local.datasets.datasets[THEIRS].is_private = False
    source = local.kernels._source
    monkeypatch.setattr(
        local.kernels,
        "_source",
        lambda kind, name, **more: None if kind == "dataset" else source(kind, name, **more),
    )

    with pytest.raises(SourcesRefused, match="exist and are shared with you"):
        push(kaggle, ours, show=shown.append)

    with pytest.raises(UsageError, match=f"created {HANDLE}/1, but one of its sources is missing"):
        Records(ours).last_run(TRAIN)
    lines = steps.journal_lines(ours)
    assert any(f"{HANDLE}/1" in line and "one of its sources is missing" in line for line in lines)
    ended(local)
    monkeypatch.setattr(local.kernels, "_source", source)
    assert push(kaggle, ours, show=shown.append).version == 2
