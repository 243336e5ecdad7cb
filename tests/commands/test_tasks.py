"""The tasks end with the documented exit codes, and with a JSON object if --json asks for it."""

import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from invoke.collection import Collection

import commands.project
import tasks
from commands import console
from commands.telling import Telling
from deploy import chain
from deploy.competition import Submission
from deploy.errors import Detached
from deploy.events import Note
from deploy.runs import Run
from localkaggle.server import LocalKaggle
from localkaggle.sessions.session import namespaces
from tests.deploy.invoked import HANGS_AFTER, ROOT, Prompt, ended
from tests.doors.given import copy_project
from tests.faults.world import competition
from tests.shipped import there

TASKS = sorted(Collection.from_module(tasks).task_names)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of this project, which tests may change."""
    return copy_project(tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module")
def prompt(copy: Path) -> Iterator[Prompt]:
    """Return a process that runs commands in the copy."""
    with Prompt(copy) as prompt:
        yield prompt


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run some code, and then invoke with these words if there are any."""
    code = f"import sys; {code}; sys.argv = {['invoke', *words]!r}; "
    code += "from invoke.main import program; program.run()" if words else ""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


HEAVY = "kaggle kagglesdk requests pandas numpy keras jax tensorflow rich jupytext pipeline"


def test_every_task_is_listed_without_heavy_imports(prompt):
    """`invoke --list` is what people type first."""
    started = python(
        f"import tasks; sys.exit(' '.join(set({HEAVY!r}.split()) & set(sys.modules)) or 0)"
    )
    lines = prompt("--list")[1].splitlines()

    listed = [line.split()[0] for line in lines if line[:2] == "  " and line[2] != " "]
    assert listed == TASKS and len(TASKS) == 20
    assert (started.returncode, started.stderr) == (0, "")


RUN = "ann/digits-train-tpu/1"
ERRORS = [
    (["push-prepare", "--config", "breast_cancer"], 2, 'kind="table"'),
    (["dry-run", "--config", "cifar100_wrn"], 2, "no embedded competition"),
    (["watch", "--kernel", "foo"], 2, "expected one of prepare-cpu, train-tpu, infer-gpu"),
    (["dry-run", "--dataset", "weights"], 2, "--dataset 'weights': expected OWNER/SLUG=DIR"),
    (["dry-run", "--model", "weights"], 2, "--model 'weights': expected OWNER/MODEL/FRAMEWORK/"),
    (["dry-run", "--input", "no-such"], 2, "there is no such folder"),
    (["dry-run", "--input", "deploy", "--budget", "2"], 2, "--budget 2: expected a duration"),
    (
        ["dry-run", "--input", "tests", "--full", "--budget", "2m"],
        2,
        "--full and --budget cannot be combined",
    ),
    (["dry-run", "--full"], 2, "both require --input"),
    (["init"], 2, "--competition is missing"),
    (["inspect"], 2, "--input is missing"),
    (["watch", "--run", RUN, "--hours", "nan"], 2, "--hours nan: expected a number from"),
    (["watch", "--run", f"ann/{'x' * 300}/1"], 2, "owner/slug/version"),
]


@pytest.mark.parametrize(("words", "code", "said"), ERRORS)
def test_an_error_is_a_message_an_exit_code_and_a_json_object(prompt, words, code, said):
    """Without a traceback; the message is short."""
    if "--config" in words:
        there(f"pipeline/configs/{words[-1]}.py")
    exit_code, shown, message = prompt(*words, "--json")

    told = json.loads(shown.splitlines()[-1])
    assert (exit_code, told["exit_code"]) == (code, code)
    assert said in message and said in told["error"]
    assert "Traceback" not in message and len(message) < 2000


def test_a_config_that_imports_keras_starts_no_tensorflow():
    """TensorFlow takes seconds, and prints startup messages on stderr of every task."""
    code = "import os; del os.environ['KERAS_BACKEND']; import tasks, keras, sys"
    done = python(f"{code}; print('tensorflow' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_notebook_is_built_without_an_account(prompt):
    """It shows the placeholder for the owner."""
    code, shown, _ = prompt("build", "--json")

    told = json.loads(shown.splitlines()[-1])
    assert (code, told["handle"]) == (0, "owner/digits-train-tpu")
    assert Path(told["notebook"]).is_file()
    assert "The owner is the placeholder 'owner'" in shown


def test_a_closed_pipe_is_not_an_error():
    """`| head` closes it."""
    command = f"{shlex.quote(sys.executable)} -m invoke doctor | head -1"

    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER
    )

    assert done.stdout.startswith("PASS  client") and done.stderr == ""


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKaggle]:
    """A local Kaggle with two rows of digits, named by the environment."""
    with LocalKaggle(tmp_path / "kaggle", competitions=[competition()], offline=True) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield local


class Typed(io.StringIO):
    """What a person types at a terminal."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@pytest.mark.parametrize(
    ("typed", "agreed"),
    [("y\n", True), ("Yes\n", True), ("\n", False), ("n\n", False), ("", False)],
)
def test_only_a_yes_is_an_agreement(local, monkeypatch, typed, agreed):
    monkeypatch.setattr(sys, "stdin", Typed(typed))

    assert console.agreement(yes=False)("Push it?") is agreed


def test_a_chain_without_quota_ends_with_7_and_shows_when_it_returns(prompt, local):
    """A script can repeat the command then."""
    local.kernels.used_seconds["TPU"] = 20 * 3600.0

    code, shown, _ = prompt("push-train", "--until-done", "--yes", "--json")

    told = json.loads(shown.splitlines()[-1])
    assert (code, told["exit_code"], not local.kernels.kernels) == (7, 7, True)
    assert "The weekly quota resets at 2030-01-05 00:00 UTC." in told["error"]
    assert "To resume then:\ninvoke push-train --until-done --config digits" in told["error"]


@pytest.mark.parametrize(
    ("words", "last"),
    [
        (["status"], "invoke status --config digits"),
        (["doctor", "--live"], "To start over, run the same command."),
        (["dry-run"], "--minutes N"),
    ],
)
def test_a_task_ends_at_its_deadline_and_shows_how_to_resume(local, copy, words, last):
    """Single bytes keep a connection alive for ever; a timer ends the task. It runs in another
    process, since the timer may interrupt an import.
    """
    for call in ("GetAcceleratorQuotaStatistics", "IntrospectToken"):
        local.faults.say(call, ["one byte a second"])

    ((code, shown, _),) = ended([[*words, "--minutes", "0.03", "--json"]], copy)

    told = json.loads(shown.splitlines()[-1])["error"]
    assert code == 5 and told.startswith("This took longer than 0.03 minutes. ")
    assert told.splitlines()[-1].endswith(last)


def test_a_chain_ends_with_its_score_and_a_command_that_can_be_pasted(tmp_path, capsys):
    """A path may have a space, and the score of an uploaded file may be hidden."""
    folder = tmp_path / "my runs"
    folder.mkdir()
    (folder / "submission.csv").write_text("id,label\na,1\n")
    run, made = Run("ann/digits-train-tpu", 1, "", ""), Submission(1, None, True)
    result = chain.Result(run, None, run, folder, folder, made, 9.0)

    end = commands.project.show_result(result, "digits")

    score, *_, last = capsys.readouterr().out.splitlines()
    given = ["--run", str(folder), "--config", "digits"]
    assert shlex.split(last) == ["report", "invoke", "report", *given]
    assert re.match(r"score +hidden for the uploaded file \(9\.0 sec", score)
    assert end["score"] is None


PIP = "from setuptools import build_meta; build_meta.get_requires_for_build_editable()"


@pytest.mark.parametrize(("then", "words"), [("0", ["--list"]), (PIP, [])])
def test_an_old_python_gets_a_message_with_the_versions_that_work(then, words):
    """From invoke, and from pip."""
    done = python(f"sys.version_info = (3, 10, 12, 'final', 0); {then}", *words)

    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    least, below = re.findall(r"3\.(\d+)", given)
    expected = f"This is Python 3.10; kaggle-relay expects Python 3.{least} to 3.{int(below) - 1}."
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, expected)


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    """Another environment may be active."""
    done = python("sys.modules['requests'] = None", "push-train", "--json")

    assert (done.returncode, json.loads(done.stdout)["exit_code"]) == (2, 2)
    assert "Package 'requests' is not installed" in done.stderr
    assert done.stderr.splitlines()[-1] == f"{sys.executable} -m pip install -e {ROOT}"


@pytest.mark.skipif(not namespaces(), reason="a small disk needs a mount")
def test_a_rehearsal_on_a_full_disk_reports_it(tmp_path):
    """And gives no advice about the network."""
    copy = copy_project(tmp_path)
    (copy / "runs").mkdir()
    rehearse = shlex.join([sys.executable, "-m", "invoke", "dry-run"])
    inside = f"mount -t tmpfs -o size=6m none runs && exec {rehearse}"

    done = subprocess.run(
        [*namespaces(), "sh", "-c", inside], cwd=copy, capture_output=True, text=True, check=False
    )

    assert (done.returncode, "Traceback" in done.stderr) == (8, False)
    assert "disk is full" in done.stderr and "Free some space" in done.stderr


def test_a_detached_relay_shows_that_the_same_command_resumes():
    """Before the command that only watches the run."""
    telling = Telling(following="this command pulls the output")
    telling.kaggle = None

    def steps(kaggle):
        yield Note("a run is pushed")
        raise Detached("Detached from ann/x/1.\nTo watch it again:\ninvoke watch")

    with pytest.raises(Detached) as told:
        telling.run(steps)

    assert str(told.value).splitlines()[1:3] == [
        "To resume, run the same command again.",
        "To watch it again:",
    ]
