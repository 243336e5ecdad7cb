"""`python -m localkaggle` from outside: people paste its output into a shell."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from localkaggle.__main__ import main
from localkaggle.competitions import EMBEDDED, NAMES
from localkaggle.sessions.session import namespaces
from tests.localkaggle.pushed_notebooks import SECONDS_AT_MOST, notebook, push, soon

ROOT = Path(__file__).resolve().parents[2]
TELL = """
import os, socket
from pathlib import Path

inputs = Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle"), "input")
networks = [name for _, name in socket.if_nameindex()]
given = (inputs / "weights/b0/notop.h5").read_text()
Path("told.part").write_text(f"{given} {networks}")
Path("told.part").rename("told")
"""
APART = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"
ENDLESS = "open('begun', 'w').close(); import time; time.sleep(600)"


# export


def test_an_exported_competition_has_the_public_files(tmp_path, capsys):
    """And nothing of the hidden test set."""
    folder = tmp_path / "new" / "diabetes"

    assert main(["export", "diabetes", str(folder)]) == 0

    assert capsys.readouterr().out == f"Wrote the competition diabetes to {folder}\n"
    made = EMBEDDED["diabetes"]()
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found == {**made.training, **made.visible_test}


@pytest.mark.parametrize(
    ("words", "code", "said", "command"),
    [
        (["export", "digits", "{place}"], 2, "is not empty", "export digits {place}-2"),
        (["export", "digits", "{place}/mine.txt/new"], 8, "cannot write", "new-2"),
        (["serve", "--folder", "{place}"], 2, "{place}", "serve --folder {place}-2"),
        (["serve", "--folder", "{place}/k", "--port", "{port}"], 2, "in use", "--port 0"),
    ],
)
def test_an_error_of_serve_or_export_shows_a_command_that_works(
    words, code, said, command, tmp_path, capsys
):
    """Files that exist stay unchanged."""
    (tmp_path / "mine.txt").write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as plug:
        given = {"place": tmp_path, "port": plug.getsockname()[1]}
        assert main([word.format(**given) for word in words]) == code

    out, errors = capsys.readouterr()
    error, again = errors.splitlines()
    assert out == "" and error.startswith("Error: ") and said.format(**given) in error
    assert again.startswith("python -m localkaggle ") and command.format(**given) in again
    assert (tmp_path / "mine.txt").read_text() == "mine" and not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "--port", "80000"),
        ("serve", "--dataset", "../weights=."),
        ("serve", "--dataset", "keras/weights=/no/such/folder"),
        ("serve", "--model", "keras/dinov3/keras/small=."),
        ("serve", "--model", "keras/dinov3/keras/small/1=/no/such/folder"),
    ],
)
def test_a_wrong_option_prints_the_usage(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(list(words))

    out, errors = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert errors.startswith("usage: python -m localkaggle") and "Traceback" not in errors


# serve


class Served(NamedTuple):
    """A local Kaggle in another process; `lines` is what it printed for the shell."""

    process: "subprocess.Popen[str]"
    lines: str

    def said(self, script: str, folder: Path) -> str:
        """Paste the lines into a shell, run a script there, and return its output."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        words = ["sh", "-c", f"{self.lines}\n{script}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(words, cwd=folder, env=environment, timeout=SECONDS_AT_MOST, **pipes)
        return done.stdout


@contextmanager
def serving(*words: str) -> Iterator[Served]:
    """Serve until the block ends, in a new process group, as from a shell."""
    command = [sys.executable, "-m", "localkaggle", "serve", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as process:
        try:
            lines = []
            while (line := process.stdout.readline()) and "Ctrl-C" not in line:
                lines.append(line)
            yield Served(process, "".join(lines))
        finally:
            process.kill()


METADATA = {
    "id": "rehearsal/strange-kernel",
    "title": "Strange Kernel",
    "code_file": "work.ipynb",
    "language": "python",
    "kernel_type": "notebook",
    "enable_internet": True,
    "dataset_sources": ["keras/weights"],
}


def test_the_printed_lines_lead_kaggles_own_command_there(tmp_path):
    """With any name of the folder, and with all options."""
    given, folder = tmp_path / "given", tmp_path / "Ann's own $kaggle"
    facts, metadata = tmp_path / "facts.json", tmp_path / "kernel" / "kernel-metadata.json"
    for path in (given / "b0" / "notop.h5", metadata):
        path.parent.mkdir(parents=True)
    (given / "b0" / "notop.h5").write_text("of others")
    facts.write_text('{"facts": {"layout": "flat"}}')
    metadata.write_text(json.dumps(METADATA))
    (tmp_path / "kernel" / "work.ipynb").write_text(notebook(TELL))
    options = ["--facts", str(facts), "--offline", "--folder", str(folder)]
    with serving(*options, "--dataset", f"keras/weights={given}") as served:
        hosted = f"# Serving the competitions {', '.join(NAMES)} on 127.0.0.1:"
        assert hosted in served.lines and f". The files are in {folder}\n" in served.lines
        pushed = served.said("kaggle kernels push && echo $KAGGLE_CONFIG_DIR", tmp_path / "kernel")
        assert soon(lambda: list(folder.glob("sessions/*/working/told"))), pushed
    (told,) = folder.glob("sessions/*/working/told")

    assert pushed.startswith("Kernel version 1 successfully pushed.")
    assert pushed.endswith(f"{folder}/home/.kaggle\n") and "not valid" not in pushed
    given = "of others ['lo']" if namespaces() else "of others"
    assert told.read_text().startswith(given)


KILLED, SLOW = signal.SIGKILL, pytest.mark.slow
SANDBOX = pytest.mark.skipif(not namespaces(), reason="namespaces are not permitted")


@pytest.mark.parametrize(
    ("number", "sandboxed"),
    [
        pytest.param(KILLED, True, marks=SANDBOX),
        pytest.param(signal.SIGINT, True, marks=SLOW),
        pytest.param(KILLED, False, marks=SLOW),
        pytest.param(signal.SIGTERM, True, marks=SLOW),
    ],
)
def test_no_session_survives_a_server(tmp_path, monkeypatch, number, sandboxed):
    """A shell interrupts all processes of the group. After SIGKILL the system ends the session, or
    the session notices that its parent has ended.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if not sandboxed:
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent))  # without `unshare`
    with serving() as served:
        (folder,) = tmp_path.iterdir()
        key = re.search(r"_KEY=(\S+)", served.lines)[1]
        port = int(re.search(r"127\.0\.0\.1:(\d+)", served.lines)[1])
        push(
            SimpleNamespace(oauth=SimpleNamespace(key=key), port=port),
            *[APART] * sandboxed,
            ENDLESS,
        )
        assert soon(lambda: list(folder.glob("sessions/*/working/begun")))
        sessions = psutil.Process(served.process.pid).children(recursive=True)
        (os.kill if number == KILLED else os.killpg)(served.process.pid, number)
        out, errors = served.process.communicate(timeout=SECONDS_AT_MOST)

    # papermill, the notebook's kernel, and the process that it started
    assert len(sessions) >= 2 + sandboxed
    assert not psutil.wait_procs(sessions, timeout=SECONDS_AT_MOST)[1]
    ended = (-9, "") if number == KILLED else (0, "# Stopped the server and all its sessions.\n")
    assert (served.process.returncode, out, errors) == (*ended, "")
    assert bool(list(tmp_path.iterdir())) == (number == KILLED)
