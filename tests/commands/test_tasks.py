"""The commands end with the documented exit codes, and with one JSON object where that was asked
for.
"""

import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tasks
from deploy.errors import UsageError
from localkaggle.server import LocalKaggle
from proofs.kaggle.world import competition

ROOT = Path(__file__).resolve().parents[2]
HANGS_AFTER = 300.0  # seconds: no measure of speed
TASKS = [
    "build",
    "check",
    "doctor",
    "dry-run",
    "init",
    "inspect",
    "prove",
    "publish",
    "pull",
    "push-infer",
    "push-train",
    "relay",
    "report",
    "scale-check",
    "status",
    "submit",
    "watch",
]


def invoke(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "invoke", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_AFTER,
    )


def test_every_task_is_listed_and_nothing_heavy_is_started_for_it():
    """`invoke --list` is the first thing that one types."""
    code = (
        "import sys, tasks; heavy = {'kaggle', 'kagglesdk', 'requests', 'pandas', 'numpy', 'keras',"
        " 'jax', 'tensorflow', 'jupytext', 'pipeline', 'localkaggle', 'deploy'};"
        " sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )

    listed = invoke("--list")
    started = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert [
        line.split()[0]
        for line in listed.stdout.splitlines()
        if line[:2] == "  " and line[2] != " "
    ] == TASKS
    assert (started.returncode, started.stderr) == (0, "")


HELP = """
import contextlib, io, json, sys
from invoke.main import program

told = {}
for task in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        program.run(["invoke", "--help", task], exit=False)
    told[task] = shown.getvalue()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """Return what `invoke --help` shows of each task, by one process for all."""
    done = subprocess.run(
        [sys.executable, "-c", HELP, *TASKS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    told: dict[str, str] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("task", TASKS)
def test_the_help_of_a_task_has_an_example(task, helps):
    """One that can be copied."""
    assert f"Example: invoke {task}" in " ".join(helps[task].split()).replace("- ", "-")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["push-train"], 3, "No Kaggle credentials"),
        (["push-train", "--config", "no-such"], 2, "digits"),
        (["dry-run", "--config", "no-such"], 2, "digits"),
        (["watch", "--run", "nonsense"], 2, "owner/slug/version"),
        (["watch", "--kernel", "foo"], 2, "expected train-tpu or infer-gpu"),
        (["pull", "--kernel", "foo"], 2, "expected train-tpu or infer-gpu"),
        (["build", "--kernel", "foo"], 2, "expected one of: infer-gpu, train-tpu"),
        (["dry-run", "--gpu-python", "/bin/true"], 2, "--gpu-python /bin/true: expected"),
        (["dry-run", "--tpu-python", "no-such"], 2, "--tpu-python no-such: expected"),
        (
            ["dry-run", "--config", "tests/commands/mounting.py"],
            2,
            "train-tpu mounts no dataset; expected ann/weights",
        ),
        (["dry-run", "--dataset", "weights"], 2, "--dataset 'weights': expected OWNER/SLUG=DIR"),
        (["dry-run", "--dataset", "keras/weights=/no/such"], 2, "there is no folder '/no/such'"),
        (
            ["dry-run", "--competition", "proofs.competitions.unseen:nothing"],
            2,
            "expected MODULE:FUNCTION",
        ),
        (
            ["dry-run", "--competition", "proofs.competitions.unseen:unseen"],
            2,
            "makes 'varieties', and the config is for 'digits'",
        ),
        (["inspect"], 2, "--input is missing"),
        (["inspect", "--input", "no-such"], 2, "there is no such folder"),
    ],
)
def test_an_error_is_a_message_an_exit_code_and_a_json_object(arguments, code, said):
    """No traceback: the message says what to do."""
    done = invoke(*arguments, "--json")

    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["exit_code"]) == (code, code)
    assert said in done.stderr and said in told["error"]
    assert "Traceback" not in done.stderr


def test_a_python_that_cannot_run_notebooks_is_named_with_the_command_that_fixes_it(tmp_path):
    """It was chosen for its versions, and a package was forgotten."""
    bare = tmp_path / "bare"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", bare], check=True, timeout=HANGS_AFTER
    )

    done = invoke("dry-run", "--gpu-python", str(bare / "bin" / "python"))

    assert done.returncode == 2 and "has no 'papermill', 'ipykernel'" in done.stderr
    assert "-m pip install papermill ipykernel -r constraints/gpu-image.txt" in done.stderr


def test_a_notebook_is_built_without_an_account(tmp_path):
    """Nothing is sent, so nobody has to be logged in; the placeholder is named."""
    copy = shutil.copytree(
        ROOT, tmp_path / "copy", ignore=shutil.ignore_patterns(".*", "runs", "build", "tests")
    )

    done = invoke("build", "--json", cwd=copy)

    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["handle"]) == (0, "owner/digits-train-tpu")
    assert Path(told["notebook"]).is_file()
    assert "No Kaggle credentials were found. The owner is the placeholder 'owner'" in done.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"username": "ann", "key": ', "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ('{"username": "ann"}', "has no username or no key"),
    ],
)
def test_a_broken_file_of_credentials_is_not_called_none(tmp_path, monkeypatch, text, said):
    """Who made one searches for what is wrong with it."""
    (tmp_path / "kaggle.json").write_text(text)
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path))

    done = invoke("push-train", "--yes")

    assert done.returncode == 3
    assert f"The Kaggle credentials cannot be used: {tmp_path}/kaggle.json {said}" in done.stderr
    assert "~/.kaggle/access_token" in done.stderr


def test_a_check_without_what_it_needs_says_how_to_get_it(monkeypatch):
    """In place of three commands that fail."""
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("ruff", "xdist") else name
    )

    with pytest.raises(UsageError, match=r"no ruff, xdist;(.|\n)*pip install -e '\.\[test\]'"):
        tasks.check.body.__wrapped__(None)


def test_a_reader_that_has_enough_is_no_error():
    """`| head` closes the pipe."""
    command = f"{shlex.quote(sys.executable)} -m invoke doctor | head -1"

    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=HANGS_AFTER
    )

    assert done.stdout.startswith("PASS  python") and done.stderr == ""


REFUSED = """
import contextlib, io, json, sys
from invoke.main import program

told = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as shown:
        try:
            program.run(["invoke", *words])
        except SystemExit as end:
            told.append([end.code, shown.getvalue()])
print(json.dumps(told))
"""


def refused(commands: list[list[str]]) -> Iterator[str]:
    """Yield what each of these commands, given in one process, says, each with exit code 2."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSED, json.dumps(commands)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=HANGS_AFTER,
    )
    for code, said in json.loads(done.stdout.splitlines()[-1]):
        assert (code, "Traceback" in said) == (2, False)
        yield said


def test_a_number_that_makes_no_sense_is_refused():
    """A wait that never ends is none."""
    numbers = ["abc", "nan", "-1", "1e9", "inf"]

    said = refused(
        [["watch", "--run", "ann/digits-train-tpu/1", "--hours", number] for number in numbers]
    )

    assert ["--hours" in text for text in said] == [True] * len(numbers)


def test_a_run_that_cannot_be_is_refused():
    """Before anybody is asked about it."""
    runs = ["ann/x/0", f"ann/x/{'9' * 5000}", f"ann/{'x' * 300}/1", "a b/c/1", "../../etc/1"]

    said = refused([["watch", "--run", run] for run in runs])

    assert [0 < len(text) < 500 for text in said] == [True] * len(runs)


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKaggle]:
    """A local Kaggle with two rows of digits; the environment leads there."""
    with LocalKaggle(tmp_path / "kaggle", competitions=[competition()], offline=True) as local:
        for name, value in local.environment.items():
            monkeypatch.setenv(name, value)
        yield local


def test_a_push_is_not_made_where_nobody_can_be_asked(local):
    """A script has to say that it means it."""
    done = invoke("push-train", "--json")

    assert (done.returncode, not local.kernels.kernels) == (2, True)
    assert "--yes" in done.stderr and "hours are left this week" in done.stdout


def test_a_chain_without_quota_ends_with_7_and_the_time_of_the_next(local):
    """For a script that gives the same command again then."""
    local.kernels.used_seconds["TPU"] = 20 * 3600.0

    done = invoke("push-train", "--until-done", "--yes", "--json")

    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["exit_code"], not local.kernels.kernels) == (7, 7, True)
    assert "The week's quota returns at 2030-01-05 00:00 UTC." in told["error"]
    assert "To resume then:\ninvoke push-train --until-done --config digits" in told["error"]


def test_a_task_ends_at_its_deadline_though_kaggle_stays_silent(local):
    """A byte now and then keeps a connection alive for ever; the system's timer ends it."""
    local.faults.plan({0: "one byte a second"})

    done = invoke("status", "--minutes", "0.05", "--json")

    assert done.returncode == 5
    assert "longer than 0.05 minutes" in json.loads(done.stdout.splitlines()[-1])["error"]
