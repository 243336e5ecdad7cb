"""Runner: what a session is. The notebooks here are real; they write down what they find, and each
test states one fact of it.
"""

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

# What the notebooks below share: `attempt` gives what an action gave, or its error as text.
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
    texts = [text.decode(errors="replace") for text in texts if isinstance(text, bytes)]
    return [text.replace("\\0", "\\n") for text in texts]

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
    content=[Path(path).read_text() for path in sorted(files) if "/of-a-" in path],
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
    kaggles=[1 for text in of_processes("environ") if "KAGGLE_KERNEL_RUN_TYPE=Batch" in text],
    planted=[1 for text in of_processes("environ") if PLANTED in text],
    commands=" ".join(of_processes("cmdline")),
    interfaces=[name for _, name in socket.if_nameindex()],
    connected=[attempt(connect, "127.0.0.1", PORT), attempt(connect, "192.0.2.1", 80)],
    devices=len(jax.devices()),
)
"""


class Finished(NamedTuple):
    """A finished version, its kernel's name, and what its notebook wrote into facts.json."""

    version: Any
    slug: str
    facts: dict[str, Any]


def unique(name: str) -> str:
    """Return a slug of this run of the tests alone, so that its processes are nobody else's."""
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
    """Return the processes of a kernel's sessions: all inherit the name of their container."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ended since it was listed, or belongs to another user
            if f"--{slug}--" in process.environ().get("KAGGLE_CONTAINER_NAME", ""):
                found.append(process.pid)
    return found


@pytest.fixture(scope="module")
def begin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LocalKaggle]]:
    """Return a function that starts a local Kaggle, which ends with this file. The developer has a
    secret.
    """
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_TOKEN", PLANTED)

        def start(**options: Any) -> LocalKaggle:
            options = {"competitions": [LITTLE], "queue_seconds": 0, "ready_seconds": 0, **options}
            return stack.enter_context(LocalKaggle(tmp_path_factory.mktemp("kaggle"), **options))

        yield start


@pytest.fixture(scope="module")
def sandboxed() -> None:
    """Without namespaces there is no sandbox to speak of; these notebooks would try to change the
    host.
    """
    if not session.namespaces():
        pytest.skip("namespaces are not permitted on this machine")


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    """Return a server of this machine; a connection to it needs nobody to answer."""
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
    """A GPU session without internet, with a source of each kind; one is the output of the TPU
    session.
    """
    publish(kaggle_2026, **{"of-a-dataset.txt": b"of a dataset"})
    given = {
        "SERVER": str(kaggle_2026.folder),
        "PROJECT": str(ROOT),
        "PRIVATE": str(PRIVATE),
        "HOME": pwd.getpwuid(os.getuid()).pw_dir,
        "PACKAGES": PACKAGES,
        "PLANTED": PLANTED,
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


def test_sources_are_mounted_as_on_kaggle(gpu, tpu):
    """By kind, and by owner."""
    assert gpu.facts["mounted"] == [
        "competitions/little/train.csv",
        "datasets/rehearsal/small-data/of-a-dataset.txt",
        f"notebooks/rehearsal/{tpu.slug}/of-a-kernel.txt",
    ]
    assert gpu.facts["content"] == ["of a dataset", "of a kernel"]


def test_a_session_writes_its_output_and_its_scratch_alone(gpu, tpu):
    """Neither a file of any source, nor the host; a link in the output is no output."""
    assert gpu.facts["inputs"] == [READ_ONLY]
    assert len(gpu.facts["host"]) == 4
    assert all(fact.startswith(READ_ONLY) for fact in gpu.facts["host"])
    assert gpu.facts["folder"] == "/kaggle/working"
    assert gpu.facts["output"] == gpu.facts["scratch"] == "written"
    assert gpu.version.files() == ["__notebook__.ipynb", "facts.json", "new"]
    assert (tpu.version.working / "link").is_symlink() and "link" not in tpu.version.files()
    assert "charts/by-epoch/loss.txt" in tpu.version.files()


def test_the_temporary_folders_are_the_own_of_the_session(gpu, tpu):
    """What it writes there does not reach the host."""
    assert gpu.facts["temporary"] == ["written"] * 2
    assert not Path("/tmp", tpu.slug).exists() and not Path("/var/tmp", tpu.slug).exists()  # noqa: S108 - not written to


def test_the_packages_of_the_project_cannot_be_imported(gpu):
    """A notebook that imports what its bundle lacks fails here as on Kaggle."""
    missing = "ModuleNotFoundError: No module named"
    assert gpu.facts["imports"] == [f"{missing} '{name}'" for name in PACKAGES]


def test_the_server_the_project_and_the_home_of_the_developer_look_empty(gpu, kaggle_2026):
    """They hold the hidden test set, what a bundle may lack, and credentials; so does a folder that
    is private.
    """
    assert list(kaggle_2026.folder.glob("competitions/little/hidden/test/h.txt"))
    assert gpu.facts["looks_empty"] == [[]] * (2 + len(PACKAGES)) and gpu.facts["home"] == []


def test_no_right_of_root_is_kept(gpu):
    """None that would make the host writable again, or reach its disks."""
    assert (gpu.facts["remounted"], gpu.facts["disks"]) == (False, [])
    assert gpu.facts["made_disk"] == "PermissionError: [Errno 1] Operation not permitted"


def test_nothing_of_the_environment_of_the_host_gets_in(gpu):
    """No process of the session has it; the session's own says where it is."""
    inherited = {"GITHUB_TOKEN", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR", "PYTHONPATH", "http_proxy"}
    environment = gpu.facts["environment"]

    assert os.environ["GITHUB_TOKEN"] == PLANTED and gpu.facts["planted"] == []
    assert len(gpu.facts["kaggles"]) >= 2  # papermill and the notebook's kernel
    assert not {*inherited, "KAGGLE_IS_COMPETITION_RERUN", "LOCALKAGGLE_ROOT"} & environment.keys()
    assert environment["KAGGLE_KERNEL_RUN_TYPE"] == "Batch"
    assert environment["TMPDIR"] == "/kaggle/tmp"


def test_a_session_sees_its_own_processes_alone(gpu):
    """The command of the process that runs these tests is not among them."""
    assert "ipykernel_launcher" in gpu.facts["commands"]
    assert "pytest" not in gpu.facts["commands"]


def test_the_network_is_reached_by_who_asked_for_it(listener, tpu, gpu):
    """Without it a session has a loopback of its own."""
    refused = "ConnectionRefusedError: [Errno 111] Connection refused"
    unreachable = "OSError: [Errno 101] Network is unreachable"

    assert tpu.facts["connected"] == "connected"
    assert gpu.facts["interfaces"] == ["lo"] and gpu.facts["connected"] == [refused, unreachable]
    listener.settimeout(10)
    with listener.accept()[0] as plug:
        assert plug.recv(100) == b"from a session"
    listener.settimeout(0)
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_each_machine_has_its_devices_and_its_name(tpu, gpu):
    """As many as JAX sees."""
    assert (tpu.facts["devices"], gpu.facts["devices"]) == (8, 2)
    names = [one.facts["environment"]["LOCALKAGGLE_ACCELERATOR"] for one in (tpu, gpu)]
    assert names == ["TpuV5E8", "NvidiaTeslaT4"]


# Ends


@pytest.fixture(scope="module")
def bench(begin) -> LocalKaggle:
    """A local Kaggle whose sessions may use little."""
    seconds = {**SESSION_SECONDS, "GPU": 2.0}
    limits = {"memory_bytes": 600 * 10**6, "output_bytes": 10**6, "session_seconds": seconds}
    return begin(competitions=(), **limits)


def test_the_log_holds_what_was_printed_and_where_and_nothing_survives_the_end(tpu):
    """Piece by piece, in the order of time. The notebook had started a process that would take ten
    minutes.
    """
    times = [piece["time"] for piece in json.loads(tpu.version.log.text())]

    assert "to the output\n" in printed(tpu.version, "stdout")
    assert "to the error stream\n" in printed(tpu.version, "stderr")
    assert len(times) > 1 and times == sorted(times)
    assert not of_session(tpu.slug)


LARGE, HOLDS = (
    "open('large', 'wb').write(bytes(2 * 10**6))",
    "/kaggle/working holds more than 1,000,",
)
RESTING = "; time.sleep(600)"


@pytest.mark.parametrize(
    ("cell", "shape", "says"),
    [
        ("time.sleep(600)", "NvidiaTeslaT4", "exceeded 2 seconds"),
        pytest.param(
            f"held = b'1' * 10**9{RESTING}",
            "",
            "more than 600,000,000 bytes of memory",
            marks=pytest.mark.slow,
        ),
        (LARGE, "", HOLDS),
        pytest.param(LARGE + RESTING, "", HOLDS, marks=pytest.mark.slow),
    ],
    ids=["time", "memory", "output at its end", "output while it runs"],
)
def test_a_session_that_uses_too_much_ends_with_the_reason(sandboxed, bench, cell, shape, says):
    """And nothing of it survives, although it started a process apart from itself."""
    slug = unique("greedy")

    version = ended(bench, slug, ENDLESS, cell, machineShape=shape)

    assert version.status == "ERROR" and says in version.failure
    assert not of_session(slug)


def test_what_cannot_be_executed_fails_with_the_reason_in_its_log(bench):
    """A push is taken as on Kaggle, which looks into it later."""
    version = ended(bench, "no-notebook", text="print(1)")

    assert version.status == "ERROR"
    assert "Notebook does not appear to be JSON" in printed(version)


REMAPPED = """
subprocess.Popen(["sleep", "600"], start_new_session=True)
root = os.environ["LOCALKAGGLE_ROOT"]
tell(
    mounted=mounted(root),
    same=os.path.samefile(os.getcwd(), f"{root}/working"),
    scratch=tempfile.gettempdir() == f"{root}/tmp",
    environment=dict(os.environ),
    connected=attempt(connect, "127.0.0.1", PORT),
)
"""


@pytest.mark.slow
def test_without_namespaces_paths_are_remapped_and_the_log_says_so(begin, port, monkeypatch):
    """The notebook finds its folders through LOCALKAGGLE_ROOT; what is missing is named, not passed
    over. At the end the links are removed, and not what they lead to.
    """
    monkeypatch.setattr(session, "namespaces", lambda: ())
    fields = {"competitionDataSources": ["little"]}

    done = run_for_facts(begin(), unique("remapped"), port, REMAPPED, **fields)

    first = json.loads(done.version.log.text())[0]
    assert first["stream_name"] == "stderr"
    assert "not available here: Linux's namespaces" in first["data"]
    assert "is not cut from the internet" in first["data"]
    assert done.facts["connected"] == "connected"
    assert done.facts["mounted"] == ["competitions/little/train.csv"]
    assert done.facts["same"] and done.facts["scratch"]
    assert PLANTED not in done.facts["environment"].values()
    assert done.version.files() == ["__notebook__.ipynb", "facts.json"]
    folder = Path(done.facts["environment"]["LOCALKAGGLE_ROOT"])
    assert not folder.exists() and not of_session(done.slug)
    assert list(folder.parents[2].glob("competitions/little/visible/train/t.txt"))
