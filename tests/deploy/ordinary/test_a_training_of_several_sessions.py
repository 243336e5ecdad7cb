"""A training of several sessions by one command: `invoke relay`, from the push to the score."""

from typing import Any

import pytest

from deploy.client.client import Kaggle
from deploy.errors import NoQuota
from deploy.project import INFER, TRAIN, Project
from deploy.relay import relay
from localkaggle.server import LocalKaggle
from tests.deploy.small import HANDLE, connect
from tests.deploy.trainer import Script, unbroken
from tests.faults.recorded_session import Recorded


@pytest.fixture
def start(host):
    """Return a function that starts a Kaggle whose trainings follow a script, and logs in."""

    def begin(script: Script):
        def session(folder: Any, *given: Any, **rest: Any) -> Any:
            return (script if TRAIN in folder.name else Recorded)(folder, *given, **rest)

        return host(session=session), connect()

    return begin


def run(kaggle: Kaggle, ours: Project, shown: list[str], **more: Any) -> relay.Result:
    """Run the whole chain, as `invoke relay` does."""
    return relay.run(kaggle, ours, show=shown.append, check=lambda *_: None, **more)


def counts(local: LocalKaggle) -> tuple[list[str], int, int]:
    """Return how the sessions of the training ended, and how many other runs and submissions."""
    kernels = local.kernels.kernels
    trainings = [version.status for version in kernels[HANDLE].versions]
    others = sum(len(kernel.versions) for kernel in kernels.values()) - len(trainings)
    return trainings, others, len(local.submissions.submissions)


def test_relay_trains_from_session_to_session_and_goes_on_to_the_score(start, ours, shown):
    """It asks before the first session, for all of them, before the inference and the submission;
    given again, it does nothing twice.
    """
    local, kaggle = start(Script())
    asked: list[str] = []

    made = run(
        kaggle,
        ours,
        shown,
        agree=lambda preview: asked.append(preview.kernel),
        agree_to_submit=lambda spending: asked.append("submit"),
    )

    assert (made.trained / "artifact" / "weights.npz").read_bytes() == unbroken()
    assert asked == [TRAIN, INFER, "submit"]
    assert counts(local) == (["COMPLETE"] * 3, 1, 1)
    assert run(kaggle, ours, shown).submission == made.submission
    assert counts(local) == (["COMPLETE"] * 3, 1, 1)


def test_quota_that_ends_between_sessions_ends_relay_with_the_day_and_the_command(
    start, ours, shown
):
    """Exit code 7; the same command resumes then."""
    local, kaggle = start(Script())
    local.kernels.used_seconds["TPU"] = 20 * 3600 - 90.0  # one session and a half

    with pytest.raises(NoQuota, match="quota returns at 2030-01-05 00:00 UTC") as caught:
        run(kaggle, ours, shown)

    assert str(caught.value).endswith("To resume then:\ninvoke relay --config digits")
    assert (caught.value.exit_code, counts(local)) == (7, (["COMPLETE"] * 2, 0, 0))
    local.kernels.used_seconds["TPU"] = 0.0
    made = run(kaggle, ours, shown)
    assert (made.trained / "artifact" / "weights.npz").read_bytes() == unbroken()
    assert counts(local) == (["COMPLETE"] * 3, 1, 1)
