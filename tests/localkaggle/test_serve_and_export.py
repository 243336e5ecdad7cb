"""`python -m localkaggle`, from the outside: what it prints is pasted into a shell, where Kaggle's
own command line is used.
"""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from localkaggle.__main__ import main
from localkaggle.competitions import EMBEDDED, NAMES, Competition, accuracy
from localkaggle.sessions.session import namespaces
from tests.localkaggle.pushed_notebooks import SECONDS_AT_MOST, notebook, soon

ROOT = Path(__file__).resolve().parents[2]
COPY = """
import os, socket
from pathlib import Path

inputs = Path(os.environ.get("LOCALKAGGLE_ROOT", "/kaggle"), "input")
Path("tables/raw").mkdir(parents=True)
Path("tables/raw/copy.csv").write_bytes((inputs / "strange-data/table.csv").read_bytes())
print("networks:", [name for _, name in socket.if_nameindex()])
print("given:", (inputs / "weights/b0/notop.h5").read_text())
print("digits:", len(list((inputs / "digits/train").glob("*.png"))))
"""


# export


def test_an_exported_competition_is_what_everybody_sees(tmp_path):
    """Two tables, and a picture for each of their rows; nothing of the hidden test set."""
    folder = tmp_path / "new" / "digits"
    command = [sys.executable, "-m", "localkaggle", "export", "digits", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_AT_MOST
    )

    train, sample = (
        list(csv.DictReader((folder / name).open()))
        for name in ("train.csv", "sample_submission.csv")
    )
    assert (done.returncode, done.stdout) == (0, f"Wrote the competition digits to {folder}\n")
    assert (len(train), len(sample)) == (1197, 100)
    assert {row["label"] for row in train} == set("0123456789") and {
        row["label"] for row in sample
    } == {"0"}
    assert {path.stem for path in folder.glob("train/*.png")} == {row["id"] for row in train}
    assert {path.stem for path in folder.glob("test/*.png")} == {row["id"] for row in sample}
    assert len([path for path in folder.rglob("*") if path.is_file()]) == 1197 + 100 + 2


def test_an_export_does_not_mix_with_files_that_are_there(tmp_path, capsys):
    """Exit code 2, and the folder is as it was."""
    (tmp_path / "mine.txt").write_text("mine")

    code = main(["export", "digits", str(tmp_path)])

    out, errors = capsys.readouterr()
    assert (code, out) == (2, "")
    assert errors == (
        f"Error: {tmp_path} is not an empty folder; expected one or a new one.\n"
        f"python -m localkaggle export digits {tmp_path}-2\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_export_does_not_take_a_file_for_a_folder(tmp_path, capsys):
    """Exit code 2, and the file is as it was."""
    (tmp_path / "mine.txt").write_text("mine")

    code = main(["export", "digits", str(tmp_path / "mine.txt")])

    assert code == 2 and "is not an empty folder" in capsys.readouterr().err
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_an_export_that_cannot_be_written_is_a_matter_of_the_disk(tmp_path, capsys, monkeypatch):
    """Exit code 8, and one message."""
    (tmp_path / "mine.txt").write_text("mine")
    little = Competition("digits", "Digits", {"train.csv": b"id\n"}, {}, {}, {}, accuracy)
    monkeypatch.setitem(EMBEDDED, "digits", lambda: little)

    code = main(["export", "digits", str(tmp_path / "mine.txt" / "digits")])

    out, errors = capsys.readouterr()
    assert (code, out) == (8, "")
    assert (
        errors.startswith(f"Error: could not write {tmp_path}/mine.txt/digits: ")
        and len(errors.splitlines()) == 2
    )


def test_an_unknown_competition_is_refused_with_those_that_are_there(tmp_path):
    """Exit code 2, one message, and no folder."""
    command = [sys.executable, "-m", "localkaggle", "export", "titanic", tmp_path / "titanic"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_AT_MOST
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"Error: there is no competition 'titanic' here; expected one of: {', '.join(NAMES)}.\n"
        f"python -m localkaggle export digits {tmp_path}/titanic\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("sreve",),
        ("serve", "--layout", "2025"),
        ("serve", "--port", "80000"),
        ("serve", "--session-seconds", "0"),
        ("serve", "--dataset", "keras/weights"),
        ("serve", "--dataset", "keras/weights=/no/such/folder"),
        ("serve", "--dataset", "../weights=."),
        ("export", "digits"),
    ],
)
def test_what_it_does_not_understand_is_answered_with_its_usage(words, capsys):
    """Exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(list(words))

    out, errors = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert errors.startswith("usage: python -m localkaggle") and "Traceback" not in errors


# serve


@dataclass(frozen=True)
class Served:
    """A local Kaggle in a process of its own; `lines` is what it printed for the shell."""

    process: subprocess.Popen[str]
    folder: Path
    lines: str

    def shell(self, script: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Paste the lines into a shell, and run a script there."""
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        words = ["sh", "-c", f"{self.lines}\n{script}"]
        return subprocess.run(
            words,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_AT_MOST,
        )


@contextmanager
def serving(folder: Path | None, *words: str) -> Iterator[Served]:
    """Serve until the block ends. The process leads a group, as one that a shell started does."""
    place = ["--folder", str(folder)] if folder is not None else []
    command = [sys.executable, "-m", "localkaggle", "serve", *place, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as process:
        try:
            lines = []
            while (line := process.stdout.readline()) and "Ctrl-C" not in line:
                lines.append(line)
            yield Served(process, folder or Path(), "".join(lines))
        finally:
            process.kill()


def write_kernel(folder: Path, name: str, *cells: str, **sources: list[str]) -> None:
    """Write a folder as any user of Kaggle's command line has it."""
    folder.mkdir()
    metadata = {
        "id": f"rehearsal/{name}",
        "title": name.replace("-", " ").title(),
        "code_file": "work.ipynb",
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "enable_gpu": False,
        "enable_internet": True,
        **sources,
    }
    (folder / "kernel-metadata.json").write_text(json.dumps(metadata))
    (folder / "work.ipynb").write_text(notebook(*cells))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A local Kaggle that was given every option."""
    with socket.create_server(("127.0.0.1", 0)) as plug:
        port = plug.getsockname()[1]
    folder = tmp_path_factory.mktemp("served") / "Ann's own $kaggle"
    given = tmp_path_factory.mktemp("given")
    (given / "b0").mkdir()
    (given / "b0" / "notop.h5").write_text("of others")
    words = (
        "--port",
        str(port),
        "--offline",
        "--layout",
        "flat",
        "--dataset",
        f"keras/weights={given}",
    )
    with serving(folder, *words) as served:
        hosted = f"competitions: {', '.join(NAMES)}"
        said = f"# A Kaggle on 127.0.0.1:{port}, {hosted}; its files are in {folder}\n"
        assert said in served.lines
        yield served


@pytest.fixture(scope="module")
def dataset(served, tmp_path_factory) -> Path:
    """The folder of a dataset that was created, and is ready."""
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "table.csv").write_text("a,b\n1,2\n")
    settings = {
        "title": "Strange Data",
        "id": "rehearsal/strange-data",
        "licenses": [{"name": "CC0-1.0"}],
    }
    (folder / "dataset-metadata.json").write_text(json.dumps(settings))
    ready = "kaggle datasets status rehearsal/strange-data | grep ready"
    done = served.shell(f"kaggle datasets create -q; until {ready}; do :; done", folder)
    assert done.stdout.splitlines()[-1] == "ready", done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pushed(served, dataset, tmp_path_factory) -> list[str]:
    """What `push`, the log while it runs, and `status` said of a stranger's kernel."""
    folder = tmp_path_factory.mktemp("stranger") / "kernel"
    datasets = ["rehearsal/strange-data", "keras/weights"]
    sources = {"dataset_sources": datasets, "competition_sources": ["digits"]}
    write_kernel(folder, "strange-kernel", COPY, **sources)
    words = ("push", "logs --follow rehearsal/strange-kernel", "status rehearsal/strange-kernel")
    done = [served.shell(f"kaggle kernels {word}", folder) for word in words]
    assert [one.returncode for one in done] == [0, 0, 0], done
    return [one.stdout for one in done]


def test_a_folder_of_a_stranger_is_pushed(pushed):
    """One with kernel-metadata.json and a notebook, and with sources that are there."""
    assert pushed[0].startswith("Kernel version 1 successfully pushed.")
    assert "not valid" not in pushed[0]


def test_its_log_can_be_followed_to_its_end(pushed):
    """Where the sources are found flat, as was asked for."""
    assert "digits: 1197" in pushed[1]


def test_it_finds_the_dataset_that_others_published(pushed):
    """Which lies in a folder of this machine."""
    assert "given: of others" in pushed[1]


@pytest.mark.skipif(not namespaces(), reason="namespaces are not permitted on this machine")
def test_it_has_no_internet_from_an_offline_kaggle(pushed):
    """Its metadata asked for it."""
    assert "networks: ['lo']" in pushed[1]


def test_its_status_is_told(pushed):
    """In the words of the site."""
    assert 'has status "KernelWorkerStatus.COMPLETE"' in pushed[2]


def test_its_output_is_downloaded(served, pushed, tmp_path):
    """With the folders in it."""
    done = served.shell("kaggle kernels output rehearsal/strange-kernel -p out", tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/tables/raw/copy.csv").read_text() == "a,b\n1,2\n"
    assert (tmp_path / "out/__notebook__.ipynb").is_file()


def test_its_log_is_there_afterwards(served, pushed, tmp_path):
    """From the first piece on."""
    assert (
        "digits: 1197"
        in served.shell("kaggle kernels logs rehearsal/strange-kernel", tmp_path).stdout
    )


def test_the_files_of_a_dataset_are_listed(served, dataset, tmp_path):
    """With their sizes."""
    rows = served.shell(
        "kaggle datasets files --csv rehearsal/strange-data", tmp_path
    ).stdout.splitlines()

    assert rows[0].startswith("name,") and rows[1].startswith("table.csv,8,") and len(rows) == 2


def test_the_files_of_a_competition_are_listed(served, tmp_path):
    """They are those that a session finds."""
    done = served.shell("kaggle competitions files --csv --page-size 1000 digits", tmp_path)

    names = [
        row["name"]
        for row in csv.DictReader(done.stdout[done.stdout.index("name,") :].splitlines())
    ]
    assert len(names) == 1000 and {"sample_submission.csv", "train.csv"} & set(names)


def test_nobody_else_gets_in(served, tmp_path):
    """The key that was printed is asked for."""
    done = served.shell("KAGGLE_KEY=another kaggle competitions files digits", tmp_path)

    assert done.returncode != 0 and "Authentication required" in done.stdout


def test_a_port_that_is_taken_is_refused(tmp_path, capsys):
    """Exit code 2, one message."""
    with socket.create_server(("127.0.0.1", 0)) as plug:
        code = main(["serve", "--port", str(plug.getsockname()[1]), "--folder", str(tmp_path)])

    out, errors = capsys.readouterr()
    assert (code, out) == (2, "")
    assert errors.startswith("Error: could not serve: ") and len(errors.splitlines()) == 2


@pytest.mark.parametrize("name", ["mine.txt", "."], ids=["a file", "a folder with a file in it"])
def test_a_folder_of_something_else_is_no_place_to_serve_from(tmp_path, capsys, name):
    """Exit code 2, one message with a command that works, and what is there stays as it is."""
    (tmp_path / "mine.txt").write_text("mine")

    code = main(["serve", "--folder", str(tmp_path / name)])

    out, errors = capsys.readouterr()
    assert (code, out) == (2, "")
    assert (
        errors.startswith("Error: ") and str(tmp_path) in errors and len(errors.splitlines()) == 2
    )
    place = (tmp_path / name).resolve()
    assert errors.splitlines()[1] == f"python -m localkaggle serve --folder {place}-2"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mine.txt", "mine")]


def test_what_is_printed_can_be_pasted_whatever_the_folder_is_called(served, tmp_path):
    """Its name has spaces, a quote and a dollar sign."""
    assert (
        served.shell('printf %s "$KAGGLE_CONFIG_DIR"', tmp_path).stdout
        == f"{served.folder}/home/.kaggle"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_its_own_temporary_folder_goes_with_it(tmp_path, monkeypatch, number):
    """So nothing is left behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with serving(None) as served:
        assert [path.name.startswith("localkaggle-") for path in tmp_path.iterdir()] == [True]
        served.process.send_signal(number)
        served.process.communicate(timeout=SECONDS_AT_MOST)

    assert served.process.returncode == 0 and not list(tmp_path.iterdir())


def test_ctrl_c_ends_it_with_its_sessions(tmp_path):
    """Exit code 0, and a folder that was named stays. A shell sends the interrupt to all processes
    of the group, not to the first alone.
    """
    write_kernel(
        tmp_path / "endless",
        "endless-kernel",
        "open('begun', 'w').close(); import time; time.sleep(600)",
    )
    with serving(tmp_path / "kaggle") as served:
        done = served.shell("kaggle kernels push", tmp_path / "endless")
        assert soon(lambda: list(served.folder.glob("sessions/*/working/begun"))), done.stderr
        sessions = psutil.Process(served.process.pid).children(recursive=True)
        os.killpg(served.process.pid, signal.SIGINT)
        out, errors = served.process.communicate(timeout=SECONDS_AT_MOST)

    assert len(sessions) >= 2, done.stdout + done.stderr  # papermill and the notebook's kernel
    assert (served.process.returncode, out, errors) == (
        0,
        "# Ended, with all of its sessions.\n",
        "",
    )
    assert not psutil.wait_procs(sessions, timeout=SECONDS_AT_MOST)[1]
    assert list(served.folder.iterdir())
