"""A local Kaggle starts again on its folder, with what it held."""

import errno
import fcntl
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import kagglesdk.competitions.types.competition_api_service as competition_types
import kagglesdk.datasets.types.dataset_api_service as dataset_types
import kagglesdk.kernels.types.kernels_api_service as kernel_types
import pytest

from localkaggle.competitions import Competition, accuracy
from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from localkaggle.sessions.session import Outcome
from tests.localkaggle.pushed_notebooks import (
    Scripted,
    finished,
    notebook,
    refused,
    save,
    signed_in,
    soon,
)
from tests.localkaggle.services.test_datasets import HANDLE, create, names, upload

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = b"id,label\nh1,0\nh2,0\n"
SMALL = Competition(
    slug="small",
    title="Small Things",
    training={"train.csv": b"id,label\nt,0\n"},
    visible_test={"sample_submission.csv": SAMPLE},
    hidden_test={"sample_submission.csv": SAMPLE},
    solution={"label": {"h1": "1", "h2": "0"}},
    score=accuracy,
    takes_files=True,
)
# What is killed: a server in a process of its own, whose sessions are functions.
SERVER = """
import sys, threading
from functools import partial
from pathlib import Path
from localkaggle.server import LocalKaggle
from tests.localkaggle.pushed_notebooks import Scripted
from tests.localkaggle.test_restarting import SMALL, act

with LocalKaggle(
    Path(sys.argv[1]), competitions=[SMALL], session=partial(Scripted, act),
    queue_seconds=0.0, ready_seconds=0.0,
) as kaggle:
    import json
    print(json.dumps(kaggle.environment), flush=True)
    threading.Event().wait()
"""


def act(session: Scripted) -> None:
    """Write an output, or, where the notebook says so, print a line and wait for ever."""
    if "wait" in session.notebook:
        session.log.add("stdout", "begun\n")
        threading.Event().wait()
    session.log.add("stdout", "done é\n")
    (session.working / "result.txt").write_text("written")


@contextmanager
def started(folder: Path, **options: Any) -> Iterator[LocalKaggle]:
    """Start it again in this process, as somebody would with the same command."""
    usual: dict[str, Any] = {"competitions": [SMALL], "session": partial(Scripted, act)}
    with LocalKaggle(folder, queue_seconds=0.0, ready_seconds=0.0, **usual | options) as kaggle:
        yield kaggle


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], list[Any]]:
    """Return the folder of a server that was killed while a run was RUNNING, its environment, and
    what it had answered before: of kernels, a dataset, a submission and the quota.
    """
    folder = tmp_path_factory.mktemp("killed") / "kaggle"
    command = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        environment = json.loads(process.stdout.readline())
        with signed_in(environment) as client:
            save(client, notebook("1"), enable_gpu=True)
            kernels = client.kernels.kernels_api_client
            asked = make(
                kernel_types.ApiGetKernelSessionStatusRequest,
                user_name="rehearsal",
                kernel_slug="small-kernel",
            )
            status = kernels.get_kernel_session_status
            assert soon(lambda: status(asked).status.name == "COMPLETE")
            create(client, upload(client, "a.txt", b"of a dataset"))
            scored = submit(client)
            before = everything(client)
            save(client, notebook("wait"), "second-kernel", enable_tpu=True)
            asked.kernel_slug = "second-kernel"
            assert soon(lambda: status(asked).status.name == "RUNNING")
            assert soon(lambda: list(folder.glob("sessions/*second*/log.jsonl")))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert scored
    return folder, environment, before


def submit(client: Any) -> bool:
    """Submit a file, and return whether it is scored soon."""
    competitions = client.competitions.competition_api_client
    text = b"id,label\nh1,1\nh2,1\n"
    begun = make(
        competition_types.ApiStartSubmissionUploadRequest,
        competition_name="small",
        file_name="submission.csv",
        content_length=len(text),
        last_modified_epoch_seconds=1,
    )
    announced = competitions.start_submission_upload(begun)
    import requests

    requests.put(announced.create_url, data=text, timeout=60).raise_for_status()
    made = make(
        competition_types.ApiCreateSubmissionRequest,
        competition_name="small",
        blob_file_tokens=announced.token,
        submission_description="mine",
    )
    competitions.create_submission(made)
    return soon(lambda: submissions(client)[0]["status"] == "COMPLETE")


def submissions(client: Any) -> list[dict[str, Any]]:
    """Return what is said of the submissions."""
    asked = make(competition_types.ApiListSubmissionsRequest, competition_name="small")
    answer = client.competitions.competition_api_client.list_submissions(asked)
    return [each.to_dict() for each in answer.submissions]


def everything(client: Any) -> list[Any]:
    """Return what a Kaggle says of what was made before the kill."""
    kernels, datasets = client.kernels.kernels_api_client, client.datasets.dataset_api_client
    named = {"user_name": "rehearsal", "kernel_slug": "small-kernel"}
    kernel = kernels.get_kernel(make(kernel_types.ApiGetKernelRequest, **named))
    output = kernels.list_kernel_session_output(
        make(kernel_types.ApiListKernelSessionOutputRequest, **named)
    )
    owner, slug = HANDLE.split("/")
    files = datasets.list_dataset_files(
        make(dataset_types.ApiListDatasetFilesRequest, owner_slug=owner, dataset_slug=slug)
    )
    return [
        kernel.to_dict(),
        [file.file_name for file in output.files],
        output.log,
        [file.to_dict() for file in files.files],
        submissions(client),
    ]


def test_a_server_that_was_killed_lost_nothing_that_it_had_answered(killed):
    """At the same address, with the same credentials."""
    folder, environment, before = killed
    with started(folder) as kaggle, signed_in(environment) as client:
        assert kaggle.environment == environment
        assert everything(client) == before
        assert kaggle.kernels.latest_output("rehearsal/small-kernel") == (
            folder / "sessions" / "rehearsal--small-kernel--v1" / "working"
        )
        assert before[-1][0]["publicScore"] == "0.50000" and "done é" in before[2]


def test_what_ran_when_it_was_killed_has_ended_with_an_error(killed):
    """Its log so far is there, and the quota that it used is used."""
    folder, environment, _ = killed
    with started(folder) as kaggle, signed_in(environment) as client:
        version = kaggle.kernels.version("rehearsal/second-kernel", 1)
        assert (version.status, version.done.is_set()) == ("ERROR", True)
        assert "was interrupted" in version.failure and "begun" in version.log.text()
        assert kaggle.kernels.used_seconds["TPU"] == version.seconds >= 0
        assert save(client, notebook("1"), "second-kernel", enable_tpu=True).version_number == 2
        assert finished(kaggle, "second-kernel", 2).status == "COMPLETE"


def test_used_quota_and_logins_outlast_a_restart(tmp_path):
    """And so does what a person gave at the first start."""
    with started(tmp_path / "kaggle", session=Long) as kaggle:
        with signed_in(kaggle.environment) as client:
            save(client, notebook("1"), enable_gpu=True)
            finished(kaggle)
        login, port = kaggle.refresh_token, kaggle.port
    with started(tmp_path / "kaggle") as kaggle:
        assert kaggle.kernels.used_seconds["GPU"] == 3600.0
        assert (kaggle.refresh_token, kaggle.port) == (login, port)
        assert kaggle.oauth._refresh == {login}


class Long(Scripted):
    """A session that says it took an hour."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(act, *arguments, **options)

    def run(self) -> Outcome:
        """End at once."""
        return Outcome("", "", 3600.0)


def test_a_call_without_an_answer_can_be_given_again(tmp_path):
    """The server died while it made the folders of a version; nothing of them is in the way."""
    with started(tmp_path / "kaggle"):
        pass
    session, dataset = "rehearsal--small-kernel--v1/working", "rehearsal--small-data--v1"
    for name in (f"sessions/{session}", f"datasets/{dataset}"):
        (tmp_path / "kaggle" / name).mkdir(parents=True)
        (tmp_path / "kaggle" / name / "half.txt").write_text("half")

    with started(tmp_path / "kaggle") as kaggle, signed_in(kaggle.environment) as client:
        save(client, notebook("1"))
        assert finished(kaggle).files() == ["result.txt"]
        create(client, upload(client, "a.txt", b"of a dataset"))
        assert names(client) == ["a.txt"]


def test_a_folder_that_is_served_already_is_refused(tmp_path):
    """Two servers would write over each other."""
    with started(tmp_path / "kaggle"), pytest.raises(FileExistsError, match="in use by another"):
        LocalKaggle(tmp_path / "kaggle")


def test_a_folder_that_cannot_be_locked_is_served(tmp_path, monkeypatch):
    """As in a home over NFS or in some mounted drives."""

    def no_locks(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with started(tmp_path / "kaggle") as kaggle:
        assert kaggle.folder == tmp_path / "kaggle"


def test_a_folder_of_another_competition_is_refused(tmp_path):
    """Its kernels would lack their input."""
    with started(tmp_path / "kaggle"):
        pass
    with pytest.raises(ValueError, match="hosts small; expected"):
        LocalKaggle(tmp_path / "kaggle")


@pytest.mark.parametrize("text", ["", "[]", '{"account": 3}', '{"account": {"key": {"is": "os:x"'])
def test_a_state_that_cannot_be_read_is_named(tmp_path, text):
    """And stays as it is."""
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(ValueError, match=r"state\.json is not what this version writes"):
        LocalKaggle(tmp_path)

    assert (tmp_path / "state.json").read_text() == text


def test_a_disk_that_is_full_is_named_and_a_call_that_could_not_be_kept_is_refused(
    tmp_path, monkeypatch
):
    """A run ends all the same."""
    full = OSError(errno.ENOSPC, "No space left on device")
    with started(tmp_path / "kaggle") as kaggle, signed_in(kaggle.environment) as client:
        save(client, notebook("1"))
        finished(kaggle)
        with monkeypatch.context() as patch:
            patch.setattr(kaggle._state, "save", raised(full))
            with refused(400, "disk is full"):
                save(client, notebook("1"))
            assert finished(kaggle, number=2).status == "COMPLETE"
        assert "No space left" in kaggle.disk_full


def raised(error: Exception) -> Any:
    """Return a function that raises an error."""

    def call() -> None:
        raise error

    return call


def test_nobody_else_on_this_machine_reads_the_credentials(tmp_path):
    """They are in the file."""
    with started(tmp_path / "kaggle") as kaggle:
        mode = (kaggle.folder / "state.json").stat().st_mode
        assert (mode & 0o777, kaggle.key in (kaggle.folder / "state.json").read_text()) == (
            0o600,
            True,
        )
