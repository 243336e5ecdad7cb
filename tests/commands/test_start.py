"""`invoke start` leads from a slug to a score, and does each step once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from commands import start
from deploy.errors import UsageError
from localkaggle.competitions import EMBEDDED, NAMES, Competition
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from tests.doors.world import World, opened
from tests.e2e.made_folders import LAYOUTS, goods, images
from tests.e2e.project import by_jax, copied, given, variables
from tests.localkaggle.archived import archived, of_folder

FOLDERS = {"signs": lambda folder: images(folder, 5, LAYOUTS["signs"]), "goods": goods}
ONCE = Counter(GetCompetition=1, DownloadDataFiles=1, storage=1)  # requests of a whole start
CHUNK = 1 << 16
BALLAST = Random(1).randbytes(3_000_000)  # noqa: S311 - guards nothing


def hosted(name: str) -> Competition:
    """Return a competition whose files come in archives."""
    return archived(EMBEDDED[name]()) if name in EMBEDDED else of_folder(name, FOLDERS[name])


def started(world: World, *words: str) -> tuple[int, str, Counter[str]]:
    """Run `invoke start`, and return its exit code, its output and its requests."""
    before = len(world.local.faults.seen)
    code, shown, said = world.prompt("start", *words)
    return code, shown + said, Counter(world.local.faults.seen[before:])


def test_without_a_login_it_shows_how_to_log_in(tmp_path):
    with opened(tmp_path, competitions=[]) as world, pytest.MonkeyPatch.context() as patch:
        for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
            patch.delenv(name)
        code, said, asked = started(world, "digits")

    assert (code, asked) == (3, {}) and "kaggle auth login" in said
    assert not (world.project / "data").exists()


@pytest.mark.parametrize(
    ("slug", "code", "last"),
    [
        ("small", 3, "https://www.kaggle.com/competitions/small/rules"),
        ("https://www.kaggle.com/c/small/data", 3, "https://www.kaggle.com/competitions/small/ru"),
        ("another", 2, "https://www.kaggle.com/competitions/<slug>"),
        ("../small", 2, "invoke start SLUG"),
    ],
)
def test_it_stops_for_unaccepted_rules_and_for_a_wrong_slug(tmp_path, slug, code, last):
    host = {"competitions": [of_folder("small", Path.mkdir)], "facts": Facts(gate="rules")}
    with opened(tmp_path, **host) as world:
        found, said, _ = started(world, slug)

    assert found == code and last in said.splitlines()[-1]
    assert not (world.project / "data").exists()


def test_a_finished_download_is_not_repeated(tmp_path):
    """The folder has no data to train on, so each start ends there."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "read.me").write_text("?")

    with opened(tmp_path, competitions=[of_folder("small", write)]) as world:
        ends = [started(world, "small", "--json") for _ in range(2)]

    assert [(code, asked) for code, _, asked in ends] == [(1, ONCE), (1, {})]
    assert "2/5 download  0.0 MB, unpacked into" in ends[0][1]
    assert "2/5 download  already done" in ends[1][1]
    assert "No tables (.csv) or images were found" in ends[1][1]
    assert (world.project / "data/small/read.me").is_file()


def test_it_notices_whether_pretrained_weights_can_be_downloaded(tmp_path, monkeypatch, capsys):
    """Otherwise the rehearsal uses random ones. No test reaches the host of the weights."""
    assert not start.can_fetch_weights()
    assert "Cannot download" in capsys.readouterr().out

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "weights.h5").touch()
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}"
        found = [start.can_fetch_weights(f"{address}/{name}") for name in ("weights.h5", "gone.h5")]
        server.shutdown()
    assert found == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *FOLDERS])
def test_one_command_leads_from_a_slug_to_a_score(name, tmp_path):
    """Its files come in archives, in a session too."""
    project = by_jax(copied(tmp_path))
    with LocalKaggle(tmp_path / "kaggle", competitions=[hosted(name)]) as local:
        start = partial(given, project, "invoke", "start", name, **local.environment)
        ends = [start(), start()]
        assert Counter(local.faults.seen) == ONCE

    logs = (project / "runs").rglob("*train-tpu-v1/*.log")
    assert all("Unpacked " in path.read_text() for path in logs)
    first, second = ends
    assert isinstance(first["score"], float) and first["next"] == "invoke relay"
    assert {**second, "rehearsed": None} == {**first, "rehearsed": None}


@pytest.mark.slow
def test_a_folder_on_this_machine_needs_no_account_and_no_slug(tmp_path):
    project, folder = by_jax(copied(tmp_path)), tmp_path / "digits"
    FOLDERS["signs"](folder)

    mine = given(project, "invoke", "start", "--input", folder)
    embedded = given(project, "invoke", "start")

    # A shipped config for something else has the name of the folder.
    assert (project / "relay.toml").read_text().endswith('config = "digits_2"\n')
    assert mine["next"] == "invoke init --competition SLUG" and mine["score"] > 0
    assert embedded["next"] == "invoke start SLUG" and embedded["score"] > 0.9


@pytest.mark.slow  # it inspects three times
def test_each_folder_keeps_its_config_even_with_a_slug(tmp_path):
    """Many folders have the same name, and `invoke init` writes the slug into a config."""
    project = by_jax(copied(tmp_path))
    code = """
import sys
from pathlib import Path
from commands.start import _describe
from workbench.inspect import config_file
one, two = map(Path, sys.argv[1:])
names = [_describe("", folder, "") for folder in (one, two)]
config_file.put(names[0], {"competition": "leaf-diseases"})
print("names", *names, _describe("", one, ""), _describe("leaf-diseases", one, ""))
"""
    for name in ("one", "two"):
        FOLDERS["goods"](tmp_path / name / "data")

    words = [sys.executable, "-c", code, tmp_path / "one/data", tmp_path / "two/data"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    *_, last = (line for line in done.stdout.splitlines() if line.startswith("names"))
    _, one, two, again, begun = last.split()
    assert one == again == begun != two


def test_a_folder_in_place_of_a_slug_gets_advice(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "leaves").mkdir(parents=True)

    with pytest.raises(UsageError, match="invoke start --input data/leaves"):
        start.start.body.__wrapped__("data/leaves")


INSTANTS: tuple[int | str, ...] = (
    *(100_000, 1_000_000, 2_500_000),  # bytes that were downloaded
    *("Inspecting", "2/5", "3/5", "Started a local Kaggle", "RUNNING", "4/5", "5/5"),
)


@pytest.mark.slow
def test_it_resumes_wherever_it_was_killed(tmp_path):
    """By SIGKILL or Ctrl-C; nothing is downloaded or written twice, and nothing is pushed."""

    def write(folder: Path) -> None:
        FOLDERS["signs"](folder)
        (folder / "notes.bin").write_bytes(BALLAST)

    project = by_jax(copied(tmp_path))
    competitions = [of_folder("signs", write)]
    ends, written = [], dict[Path, int]()
    with LocalKaggle(tmp_path / "kaggle", competitions=competitions) as local:
        size = local.competitions.archive("signs").stat().st_size
        for place, instant in enumerate((*INSTANTS, "")):
            said, code = killed(project, local, instant, (signal.SIGKILL, signal.SIGINT)[place % 2])
            ends.append((instant, code, said))
            configs = [project / "relay.toml", project / "pipeline/configs/signs.py"]
            for path in configs:
                if path.is_file():
                    now = path.stat().st_mtime_ns
                    assert written.setdefault(path, now) == now, "written twice"
        seen, down = Counter(local.faults.seen), local.wire.down

    last = ends[-1]
    assert last[1] == 0 and last[2].splitlines()[-1] == "invoke relay", ends
    odd = [end for end in ends if end[1] not in (-signal.SIGKILL, 130, 0)]
    assert not odd, odd
    # Each start that was killed in the download asked again for the rest.
    assert set(seen) == set(ONCE) and max(seen.values()) <= 4
    assert size <= down <= size + 3 * 2 * CHUNK
    assert len(list((project / "runs").glob("dry-run-*/rehearsal.json"))) == 1
    assert not list((project / "data").glob("*.download"))


def came(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


def killed(project: Path, local: LocalKaggle, instant: int | str, sent: int) -> tuple[str, int]:
    """Start, send a signal at an instant (a number of bytes that passed, or a text that was shown),
    and return what was shown and the exit code.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "invoke", "start", "signs"],
        cwd=project,
        env=variables(project, **local.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )

    def strike() -> None:
        if process.poll() is None:
            # Ctrl-C reaches each process of the terminal.
            (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)

    part = project / "data/signs.download/signs.zip.relay-part"
    lost = local.wire.down - came(part)  # when others were killed

    def passed() -> None:
        if isinstance(instant, int) and local.wire.down >= instant and process.poll() is None:
            # What is in the buffers of the connection has not come yet.
            while came(part) < local.wire.down - lost - 2 * CHUNK:
                time.sleep(0.01)
            strike()
            process.wait(60)

    local.wire.passed = passed
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if isinstance(instant, str) and instant and instant in line:
            strike()
            break
    said += process.stdout.read()
    local.wire.passed = lambda: None
    return said, process.wait(600)
