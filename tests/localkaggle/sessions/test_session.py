"""Sessions: real notebooks write down what they find, and each test states one fact about it."""

import json
import os
import pwd
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psutil
import pytest

from localkaggle.competitions import Competition
from localkaggle.facts import SESSION_SECONDS
from localkaggle.server import LocalKaggle
from localkaggle.sessions import session
from tests.localkaggle.pushed_notebooks import finished, publish, push

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("formats", "pipeline", "workbench", "deploy", "localkaggle")
PLANTED = "a token of the developer"
SHARED = [path for path in sorted(Path("/usr/share").iterdir()) if path.is_dir()]
PRIVATE = next(path for path in SHARED if any(path.iterdir()))
READ_ONLY = "OSError: [Errno 30] Read-only file system"
LITTLE = Competition(
    slug="little",
    title="Little",
    training={"train.csv": b"id,label\nt,0\n", "train/t.txt": b"one"},
    visible_test={"sample_submission.csv": b"id,label\nseen,0\n"},
    hidden_test={"sample_submission.csv": b"id,label\nh,0\n", "test/h.txt": b"hidden"},
    solution={"label": {"h": "1"}},
    score=lambda given, solution: 1.0,
)

# Shared by the notebooks below: `attempt` returns the result of an action, or its error as text.
TOOLS = """
import glob, importlib, json, os, socket, stat, subprocess, sys, tempfile
from pathlib import Path

def attempt(action, *arguments):
    try:
        return action(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def change(path):
    with open(path, "a") as file:
        file.write("planted")
    return "written"

def connect(host, port):
    with socket.create_connection((host, port), 5) as plug:
        plug.sendall(b"from a session")
    return "connected"

def mounted(root="/kaggle"):
    names = ("train.csv", "of-a-dataset.txt", "of-a-kernel.txt")
    found = [path for path in glob.glob(f"{root}/input/**", recursive=True) if path.endswith(names)]
    return sorted(os.path.relpath(path, f"{root}/input") for path in found)

def tell(**facts):
    Path("facts.json").write_text(json.dumps(facts, default=str))
"""
ENDLESS = """
import subprocess, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("begun", flush=True)
"""
TPU = """
import jax

folder = Path("charts/by-epoch")
folder.mkdir(parents=True)
Path(folder / "loss.txt").write_text("0.5")
Path("link").symlink_to("/etc/hostname")
Path("of-a-kernel.txt").write_text("of a kernel")
print("to the output")
print("to the error stream", file=sys.stderr)
subprocess.Popen(["sleep", "600"], start_new_session=True)
tell(
    devices=len(jax.devices()),
    environment=dict(os.environ),
    connected=attempt(connect, "127.0.0.1", PORT),
)
"""
GPU = """
import jax

def of_processes(name):
    texts = [attempt(Path(path).read_bytes) for path in glob.glob(f"/proc/[0-9]*/{name}")]
    return str(texts)

needed = [sys.prefix, sys.base_prefix, *map(os.path.realpath, [sys.executable, *sys.path])]
paths = glob.glob("/kaggle/input/**", recursive=True)
files = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
new = ["/kaggle/input/new", "/kaggle/input/datasets/new"]
home = glob.glob(f"{HOME}/*", include_hidden=True)
covered = [SERVER, PRIVATE, *(f"{PROJECT}/{name}" for name in PACKAGES)]
devices = [path for path in glob.glob("/dev/**", recursive=True) if os.path.exists(path)]
remount = ["mount", "-o", "remount,bind,rw", "/usr"]
tell(
    folder=os.getcwd(),
    mounted=mounted(),
    inputs=sorted({attempt(change, path).split(": '")[0] for path in [*files, *new]}),
    host=[attempt(change, f"{folder}/planted") for folder in ("/etc", "/home", "/usr", "/var")],
    output=attempt(change, "/kaggle/working/new"),
    scratch=attempt(change, tempfile.mkdtemp() + "/new"),
    imports=[attempt(importlib.import_module, name) for name in PACKAGES],
    looks_empty=[glob.glob(f"{path}/*") for path in covered],
    home=[path for path in home if not any(f"{part}/".startswith(f"{path}/") for part in needed)],
    temporary=[attempt(change, f"{folder}/{MARK}") for folder in ("/tmp", "/var/tmp")],
    disks=[path for path in devices if stat.S_ISBLK(os.stat(path).st_mode)],
    remounted=subprocess.run(remount, capture_output=True).returncode == 0,
    made_disk=attempt(os.mknod, "/kaggle/tmp/disk", stat.S_IFBLK | 0o600, os.makedev(7, 0)),
    environment=dict(os.environ),
    processes=of_processes("environ") + of_processes("cmdline"),
    interfaces=[name for _, name in socket.if_nameindex()],
    connected=[attempt(connect, "127.0.0.1", PORT), attempt(connect, "192.0.2.1", 80)],
    devices=len(jax.devices()),
)
"""


class Finished(NamedTuple):
    """A finished version, the slug of its kernel, and its facts.json."""

    version: Any
    slug: str
    facts: dict[str, Any]


def unique(name: str) -> str:
    """Return a slug that no other run of the tests uses, to find its processes by."""
    return f"{name}-{uuid4().hex[:8]}"


def ended(kaggle: LocalKaggle, slug: str, *cells: str, **fields: Any) -> Any:
    """Run a notebook to its end and return the version."""
    said = push(kaggle, *cells, slug=f"rehearsal/{slug}", **fields)
    assert not said.get("error")
    return finished(kaggle, slug, said["versionNumber"])


def run_for_facts(kaggle: LocalKaggle, slug: str, *cells: str, **fields: Any) -> Finished:
    """Run a notebook that writes facts, and return them with its version."""
    version = ended(kaggle, slug, TOOLS, *cells, **fields)
    assert version.status == "COMPLETE", printed(version)
    return Finished(version, slug, json.loads((version.working / "facts.json").read_text()))


def printed(version: Any, *streams: str) -> str:
    """Return what a session printed."""
    pieces = json.loads(version.log.text())
    return "".join(
        piece["data"] for piece in pieces if not streams or piece["stream_name"] in streams
    )


def of_session(slug: str) -> list[int]:
    """Return the processes of a kernel's sessions: they inherit the name of their container."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended since it was listed, or belongs to another user
            if f"--{slug}--" in process.environ().get("KAGGLE_CONTAINER_NAME", ""):
                found.append(process.pid)
    return found


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LocalKaggle]]:
    """Return a function that starts a local Kaggle for this file, on a machine with a secret."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_TOKEN", PLANTED)

        def start(**options: Any) -> LocalKaggle:
            options = {"competitions": [LITTLE], "queue_seconds": 0, "ready_seconds": 0, **options}
            return stack.enter_context(LocalKaggle(tmp_path_factory.mktemp("kaggle"), **options))

        yield start


@pytest.fixture(scope="module")
def sandboxed() -> None:
    """Skip without namespaces: these notebooks try to change the host."""
    if not session.namespaces():
        pytest.skip("namespaces are not permitted on this machine")


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    """Return a listening socket of this machine, which accepts connections by itself."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture(scope="module")
def port(listener) -> str:
    return f"PORT = {listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def kaggle_2026(sandboxed, begin) -> LocalKaggle:
    return begin(private=[PRIVATE])


@pytest.fixture(scope="module")
def tpu(kaggle_2026, port) -> Finished:
    """A TPU session that asked for the internet."""
    fields = {"machineShape": "TpuV5E8", "enableInternet": True}
    return run_for_facts(kaggle_2026, unique("tpu-session"), port, TPU, **fields)


@pytest.fixture(scope="module")
def gpu(kaggle_2026, tpu, port) -> Finished:
    """A GPU session without internet, with a source of each kind."""
    publish(kaggle_2026, **{"of-a-dataset.txt": b"of a dataset"})
    given = {
        "SERVER": str(kaggle_2026.folder),
        "PROJECT": str(ROOT),
        "PRIVATE": str(PRIVATE),
        "HOME": pwd.getpwuid(os.getuid()).pw_dir,
        "PACKAGES": PACKAGES,
        "MARK": tpu.slug,
    }
    cells = (port, f"globals().update({given})", GPU)
    fields = {
        "machineShape": "NvidiaTeslaT4",
        "competitionDataSources": ["little"],
        "datasetDataSources": ["rehearsal/small-data"],
        "kernelDataSources": [f"rehearsal/{tpu.slug}"],
    }
    return run_for_facts(kaggle_2026, "gpu-session", *cells, **fields)


# What a session finds

REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"
FACTS: dict[str, Any] = {
    # By kind and owner; no source can be changed, and nothing of the host.
    "inputs": [READ_ONLY],
    "output": "written",
    "scratch": "written",
    "folder": "/kaggle/working",
    # A notebook that imports what its bundle lacks fails here as on Kaggle.
    "imports": [f"ModuleNotFoundError: No module named '{name}'" for name in PACKAGES],
    # The server, the project and a private folder hold the hidden test set, and credentials.
    "looks_empty": [[]] * (2 + len(PACKAGES)),
    "home": [],
    # No right of root is kept that would reach the host.
    "remounted": False,
    "disks": [],
    "made_disk": "PermissionError: [Errno 1] Operation not permitted",
    # Without the internet a session has a loopback of its own.
    "interfaces": ["lo"],
    "connected": [REFUSED, "OSError: [Errno 101] Network is unreachable"],
    "devices": 2,
}


@pytest.mark.parametrize("fact", FACTS)
def test_a_session_finds_what_it_needs_and_reaches_nothing_more(gpu, fact):
    assert gpu.facts[fact] == FACTS[fact]


def test_sources_are_mounted_as_on_kaggle(gpu, tpu, kaggle_2026):
    """By kind and owner. The hidden test set is on the disk and not mounted."""
    assert gpu.facts["mounted"] == [
        "competitions/little/train.csv",
        "datasets/rehearsal/small-data/of-a-dataset.txt",
        f"notebooks/rehearsal/{tpu.slug}/of-a-kernel.txt",
    ]
    assert list(kaggle_2026.folder.glob("competitions/little/hidden/test/h.txt"))


def test_a_session_leaves_only_its_output_on_the_host(gpu, tpu):
    """A link is not listed in the output."""
    assert [fact.split(": '")[0] for fact in gpu.facts["host"]] == [READ_ONLY] * 4
    assert gpu.facts["temporary"] == ["written"] * 2
    assert not Path("/tmp", tpu.slug).exists() and not Path("/var/tmp", tpu.slug).exists()  # noqa: S108 - not written to
    assert gpu.version.files() == ["__notebook__.ipynb", "facts.json", "new"]
    assert (tpu.version.working / "link").is_symlink() and "link" not in tpu.version.files()
    assert "charts/by-epoch/loss.txt" in tpu.version.files()


def test_a_session_does_not_inherit_the_environment_of_the_host(gpu):
    """It has Kaggle's variables, and sees only its own processes."""
    inherited = {"GITHUB_TOKEN", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR", "PYTHONPATH", "http_proxy"}
    environment = gpu.facts["environment"]

    assert os.environ["GITHUB_TOKEN"] == PLANTED and PLANTED not in gpu.facts["processes"]
    assert not {*inherited, "KAGGLE_IS_COMPETITION_RERUN", "LOCALKAGGLE_ROOT"} & environment.keys()
    assert environment["KAGGLE_KERNEL_RUN_TYPE"] == "Batch"
    assert environment["TMPDIR"] == "/kaggle/tmp"
    assert environment["LOCALKAGGLE_ACCELERATOR"] == "NvidiaTeslaT4"
    assert "ipykernel_launcher" in gpu.facts["processes"]
    assert "pytest" not in gpu.facts["processes"]


def test_a_session_with_internet_reaches_it_and_a_tpu_has_eight_devices(listener, tpu, gpu):
    """The session without internet did not connect."""
    assert (tpu.facts["connected"], tpu.facts["devices"]) == ("connected", 8)
    listener.settimeout(10)
    with listener.accept()[0] as plug:
        assert plug.recv(100) == b"from a session"
    listener.settimeout(0)
    with pytest.raises(BlockingIOError):
        listener.accept()


# Ends


@pytest.fixture(scope="module")
def bench(begin) -> LocalKaggle:
    """A local Kaggle with tight limits."""
    seconds = {**SESSION_SECONDS, "GPU": 2.0}
    return begin(competitions=(), session_seconds=seconds)


def test_the_log_has_each_stream_in_order_and_no_process_survives_the_end(tpu):
    """The notebook started a process that would take ten minutes."""
    times = [piece["time"] for piece in json.loads(tpu.version.log.text())]

    assert "to the output\n" in printed(tpu.version, "stdout")
    assert "to the error stream\n" in printed(tpu.version, "stderr")
    assert len(times) > 1 and times == sorted(times)
    assert not of_session(tpu.slug)


def test_a_session_that_takes_too_long_ends_with_the_reason(sandboxed, bench):
    """A detached process that it started ends, too."""
    slug = unique("greedy")

    version = ended(bench, slug, ENDLESS, "time.sleep(600)", machineShape="NvidiaTeslaT4")

    assert version.status == "ERROR" and "exceeded 2 seconds" in version.failure
    assert not of_session(slug)


REMAPPED = """
subprocess.Popen(["sleep", "600"], start_new_session=True)
tell(mounted=mounted(os.environ["LOCALKAGGLE_ROOT"]), environment=dict(os.environ))
"""


@pytest.mark.slow
def test_without_namespaces_paths_are_remapped_and_the_log_says_so(begin, monkeypatch):
    """At the end the links are removed, and their targets stay."""
    monkeypatch.setattr(session, "namespaces", lambda: ())
    fields = {"competitionDataSources": ["little"]}

    done = run_for_facts(begin(), unique("remapped"), REMAPPED, **fields)

    assert session.NO_NAMESPACES in printed(done.version, "stderr")
    assert done.facts["mounted"] == ["competitions/little/train.csv"]
    assert PLANTED not in done.facts["environment"].values()
    folder = Path(done.facts["environment"]["LOCALKAGGLE_ROOT"])
    assert not folder.exists() and not of_session(done.slug)
    assert list(folder.parents[2].glob("competitions/little/visible/train/t.txt"))
