"""What every test stands on: no network but 127.0.0.1, no credentials of the developer, no
accelerator.

The environment is set before anything imports kaggle (which reads it at import) or JAX (which
counts devices once).
"""

import gc
import importlib.util
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.small_competition"]
ROOT = Path(__file__).resolve().parents[1]
GUARD = Path(__file__).resolve().parent / "guard"
STANDIN = Path(__file__).resolve().parent / "standin"
HOME = Path(tempfile.mkdtemp(prefix="relay-tests-"))
VIOLATIONS = HOME / "network-violations.txt"
# The port 9 of this machine answers nobody: what escapes to a real address through a proxy fails at
# once.
DEAD = "http://127.0.0.1:9"
# The files that take longest, the longest first: at the end one worker would work while the others
# wait.
LONG = (
    "doors/test_dry_run.py",
    "doors/test_kaggle.py",
    "faults/test_matrix.py",
    "doors/test_pipeline.py",
    "pipeline/train/test_training.py",
    "pipeline/infer/test_inference.py",
    "deploy/relay/test_chained_sessions.py",
    "commands/test_tasks.py",
    "localkaggle/sessions/test_session.py",
    "faults/test_known_failures.py",
    "pipeline/data/test_folds.py",
    "commands/test_start.py",
    "pipeline/train/test_session.py",
    "pipeline/train/test_train_step.py",
    "pipeline/ordinary/test_models.py",
)

# What XLA compiled, for all workers and every Python that they start: half of the time was spent
# on compiling the same models again.
if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker has it from the process that started it
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(HOME / "compiled")
# `pytest tests/contract --live` asks Kaggle itself, by the person's own credentials and network.
if "--live" in sys.argv:
    os.environ["RELAY_LIVE"] = "1"  # a worker has it from the process that started it
LIVE = os.environ.get("RELAY_LIVE") == "1"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
if not LIVE:
    for name in list(os.environ):
        if name.startswith("KAGGLE") or name.lower() in PROXIES:
            del os.environ[name]
    os.environ.update(
        HOME=str(HOME),
        KAGGLE_API_ENVIRONMENT="LOCALHOST",
        KAGGLE_CONFIG_DIR=str(HOME),
        http_proxy=DEAD,
        https_proxy=DEAD,
        no_proxy="",
        RELAY_NETWORK_VIOLATIONS=str(VIOLATIONS),
    )
os.environ.update(
    TMPDIR=str(HOME),
    KERAS_BACKEND="jax",
    JAX_PLATFORMS="cpu",
    # Unoptimized: tests compile hundreds of small programs, and run each for a moment. The other
    # two flags make that three times quicker (0.8 to 0.25 s for a step of `tiny`). The flags in
    # RELAY_XLA_FLAGS come last and win: fewer instructions of the CPU, or optimized.
    XLA_FLAGS="--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
    + os.environ.get("RELAY_XLA_FLAGS", ""),
    # XLA has a thread for each of the eight, and ends a process that has more than 32 calls in
    # flight without a spare one.
    PJRT_NPROC="16",
    JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    TF_CPP_MIN_LOG_LEVEL="2",
    MPLBACKEND="agg",
    PYTHONPATH=os.pathsep.join(
        [str(GUARD), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    ),
)
tempfile.tempdir = str(HOME)
sys.path.insert(0, str(GUARD))
sys.modules.pop("sitecustomize", None)  # Debian's and Ubuntu's Python bring one of their own

import sitecustomize  # noqa: E402 - the guard; child processes get it through PYTHONPATH

sitecustomize.install()
# No test asks how fast the machine is. The default run draws the same examples each time; `-m slow`
# draws fresh ones, shrinks what fails, and keeps it in .hypothesis/.
UNTIMED = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("fixed", UNTIMED, derandomize=True, database=None)
settings.register_profile("fresh", UNTIMED, print_blob=True)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--live`, which was looked for before anything else."""
    parser.addoption("--live", action="store_true", help="tests/contract: ask Kaggle itself")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples and the seed: fixed ones by default, fresh ones for `-m slow`."""
    asked = [Path(word.split("::")[0]).resolve() for word in config.args]
    if LIVE and not all(path.is_relative_to(ROOT / "tests" / "contract") for path in asked):
        raise pytest.UsageError("--live is for tests/contract alone")
    slow = "slow" in str(config.option.markexpr).replace("not slow", "")
    settings.load_profile("fresh" if slow else "fixed")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts background processes with Ctrl-C ignored, and their children inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # A worker has it from the process that started it.
    os.environ.setdefault("RELAY_TEST_SEED", str(secrets.randbelow(2**31) if slow else 20261125))


def pytest_report_header() -> str:
    """Print what draws the same again: RELAY_TEST_SEED=N pytest …"""
    return f"RELAY_TEST_SEED={os.environ['RELAY_TEST_SEED']}"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail in CI if a test was skipped for a reason that tests/skips.txt does not have."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("CI"):
        return
    known = [line for line in (ROOT / "tests/skips.txt").read_text().splitlines() if line]
    skipped = [str(report.longrepr) for report in reporter.stats.get("skipped", [])]
    surprising = [text for text in skipped if not any(reason in text for reason in known)]
    if surprising:
        reporter.write_line("\n".join(["Not in tests/skips.txt:", *surprising]), red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def seed() -> int:
    """Seed of what a test draws by numpy or random: fixed by default, fresh for `-m slow`."""
    return int(os.environ["RELAY_TEST_SEED"])


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Fail the run if this process or any Python it started asked for an address outside of
    127.0.0.0/8.
    """
    yield
    found = VIOLATIONS.read_text() if VIOLATIONS.exists() else ""
    shutil.rmtree(HOME, ignore_errors=True)
    assert not found, f"Something tried to reach the network:\n{found}"


def pytest_unconfigure() -> None:
    """Leave nothing behind, be it in the process that only gives out the tests: hundreds of folders
    of them are gigabytes.
    """
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test import KerasHub, or what stands in for it."""
    if importlib.util.find_spec("keras_hub") is None:
        monkeypatch.syspath_prepend(str(STANDIN))
    yield
    if str(STANDIN) in str(getattr(sys.modules.get("keras_hub"), "__file__", "")):
        del sys.modules["keras_hub"]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves other credentials, another home or other flags of XLA: they log in
    the next one, or change its numbers.
    """
    before = _inherited()
    yield
    assert _inherited() == before, "a test left other variables of Kaggle, HOME or XLA_FLAGS"


def _inherited() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("KAGGLE") or name in ("HOME", "XLA_FLAGS")
    }


@pytest.fixture(autouse=True)
def nothing_known(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after each test with what it signed in: the same letters may mean something else in
    the next.
    """
    from deploy import secrets as signed_in

    monkeypatch.setattr(signed_in, "_known", set())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, if several workers run; xdist is told to keep that
    order.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    places = {ROOT / "tests" / name: place for place, name in enumerate(LONG)}
    assert all(path.is_file() for path in places), "LONG names a file that is not there"
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


def pytest_collection_finish() -> None:
    """Freeze what was imported, once. Each training would collect, freeze and thaw it, which takes
    a quarter of a second; here it is only counted.
    """
    gc.freeze()
    frozen: list[int] = []
    gc.freeze, gc.unfreeze = partial(frozen.append, 1), frozen.clear
    gc.get_freeze_count = frozen.__len__
