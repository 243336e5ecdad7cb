"""A local Kaggle resumes from its folder after a restart."""

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
from unittest.mock import Mock

import pytest

from localkaggle.competitions import Competition, accuracy
from localkaggle.server import LocalKaggle
from tests.localkaggle.pushed_notebooks import Scripted, ask, finished, publish, push, soon, upload

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = {"sample_submission.csv": b"id,label\nh1,0\nh2,0\n"}
SMALL = Competition(
    "small", "Small", {}, SAMPLE, SAMPLE, {"label": {"h1": "1", "h2": "0"}}, accuracy,
    takes_files=True,
)  # fmt: skip
KERNEL = {"userName": "rehearsal", "kernelSlug": "small-kernel"}
DATA = {"ownerSlug": "rehearsal", "datasetSlug": "small-data"}
# The server that is killed, in another process; its sessions are functions.
SERVER = """
import json, sys, threading
from pathlib import Path
from tests.localkaggle.test_restarting import fill, started

with started(Path(sys.argv[1])) as kaggle:
    print(json.dumps(fill(kaggle)), flush=True)
    threading.Event().wait()
"""


def act(session: Scripted) -> None:
    """Write an output, as if it took an hour, or wait for ever if the notebook says so."""
    if "wait" in session.notebook:
        session.log.add("stdout", "begun\n")
        threading.Event().wait()
    session.log.add("stdout", "done é\n")
    (session.working / "result.txt").write_text("written")
    session.seconds = 3600.0


@contextmanager
def started(folder: Path) -> Iterator[LocalKaggle]:
    """Start it in this process, like the same command again."""
    quick: dict[str, Any] = {"queue_seconds": 0.0, "ready_seconds": 0.0}
    session = partial(Scripted, act)
    with LocalKaggle(folder, competitions=[SMALL], session=session, **quick) as kaggle:
        yield kaggle


def fill(kaggle: LocalKaggle) -> list[Any]:
    """Make one thing of each kind, return its description, and start a run that does not end."""
    push(kaggle, enableGpu=True)
    finished(kaggle)
    publish(kaggle, **{"a.txt": b"of a dataset"})
    named = {"competitionName": "small"}
    token = upload(kaggle, "submission.csv", b"id,label\nh1,1\nh2,1\n", **named)
    ref = ask(kaggle, "CreateSubmission", **named, blobFileTokens=token).said["ref"]
    kaggle.submissions.submissions[ref].thread.join(60)
    said = everything(kaggle)
    push(kaggle, "'wait'", slug="rehearsal/second-kernel", enableTpu=True)
    version = kaggle.kernels.version("rehearsal/second-kernel", 1)
    assert soon(lambda: version.status == "RUNNING" and "begun" in version.log.text())
    return said


def everything(kaggle: LocalKaggle) -> list[Any]:
    """Return descriptions of all that was made before the kill, with address and credentials."""
    output = ask(kaggle, "ListKernelSessionOutput", **KERNEL).said
    return [
        ask(kaggle, "GetKernel", **KERNEL).said,
        [file["fileName"] for file in output["files"]],
        output["log"],
        ask(kaggle, "ListDatasetFiles", **DATA).said,
        ask(kaggle, "ListSubmissions", competitionName="small").said,
        [kaggle.environment, kaggle.oauth.refresh_token, kaggle.kernels.used_seconds["GPU"]],
    ]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """Return the folder of a server that was killed during a run, and what it had answered."""
    folder = tmp_path_factory.mktemp("killed") / "kaggle"
    command = [sys.executable, "-c", SERVER, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        before = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
    return folder, before


def test_a_killed_server_loses_nothing_that_it_answered(killed):
    """At the same address, with the same credentials, logins and used quota."""
    folder, before = killed

    with started(folder) as kaggle:
        assert everything(kaggle) == before
    assert before[-2]["submissions"][0]["publicScore"] == "0.50000" and before[-1][-1] == 3600.0


def test_a_run_during_the_kill_ends_with_an_error(killed):
    """Its log so far is kept, and its time counts towards the quota."""
    with started(killed[0]) as kaggle:
        version = kaggle.kernels.version("rehearsal/second-kernel", 1)
        assert (version.status, version.done.is_set()) == ("ERROR", True)
        assert "was interrupted" in version.failure and "begun" in version.log.text()
        assert kaggle.kernels.used_seconds["TPU"] == version.seconds >= 0
        said = push(kaggle, slug="rehearsal/second-kernel", enableTpu=True)
        assert said["versionNumber"] == 2
        assert finished(kaggle, "second-kernel", 2).status == "COMPLETE"


def test_a_call_without_an_answer_can_be_repeated(tmp_path):
    """The server was killed while it made the folder of a version, which is not reused."""
    with started(tmp_path / "kaggle"):
        pass
    for name in (
        "sessions/rehearsal--small-kernel--v1/working",
        "datasets/rehearsal--small-data--v1",
    ):
        (tmp_path / "kaggle" / name).mkdir(parents=True)
        (tmp_path / "kaggle" / name / "half.txt").write_text("half")

    with started(tmp_path / "kaggle") as kaggle:
        push(kaggle)
        assert finished(kaggle).files() == ["result.txt"]
        publish(kaggle, **{"a.txt": b"of a dataset"})
        files = ask(kaggle, "ListDatasetFiles", **DATA).said["datasetFiles"]
        assert [file["name"] for file in files] == ["a.txt"]


def test_a_folder_in_use_or_with_other_competitions_is_refused(tmp_path):
    """Two servers would overwrite each other, and kernels would lack their input."""
    with started(tmp_path / "kaggle") as kaggle:
        with pytest.raises(FileExistsError, match="in use by another"):
            LocalKaggle(tmp_path / "kaggle")
        state = kaggle.folder / "state.json"
        assert state.stat().st_mode & 0o777 == 0o600 and kaggle.oauth.key in state.read_text()

    with pytest.raises(ValueError, match="hosts the competition small; use"):
        LocalKaggle(tmp_path / "kaggle")


def test_a_folder_that_cannot_be_locked_is_served(tmp_path, monkeypatch):
    """As in some homes on NFS."""
    no_locks = Mock(side_effect=OSError(errno.EOPNOTSUPP, "not supported"))
    monkeypatch.setattr(fcntl, "flock", no_locks)

    with started(tmp_path / "kaggle") as kaggle:
        assert kaggle.folder == tmp_path / "kaggle"


@pytest.mark.parametrize("text", ["", "[]", '{"Login": {"key": {"is": "os:x", "value": 1}}}'])
def test_an_unreadable_state_is_reported_and_kept(tmp_path, text):
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(ValueError, match=r"state\.json was not written by this version"):
        LocalKaggle(tmp_path)

    assert (tmp_path / "state.json").read_text() == text
