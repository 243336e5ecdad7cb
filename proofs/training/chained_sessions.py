"""A training in several sessions, one of them killed, ends with the weights of one long session.

The bundles, the notebooks and the client are the real ones; the sessions are the local Kaggle's,
each with 8 virtual devices.
"""

import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.client.client import Kaggle
from deploy.kernel import artifact_manifest, saved_progress
from deploy.project import Project
from deploy.relay import chained_sessions
from localkaggle.server import SESSION_SECONDS, LocalKaggle
from proofs.shared.results_table import Row, Show

ROOT = Path(__file__).resolve().parents[2]
KILLED = 2  # the version
# A bundle carries its own config alone, so that one cannot build on another.
DIGITS = ROOT / "pipeline" / "configs" / "digits.py"


@dataclass(frozen=True)
class Size:
    """The cap of a session and the seconds after which the run stops itself, and epochs that take
    more than one session.
    """

    cap: float
    own: float
    epochs: int


# A quick machine takes 40 seconds for 140 epochs, which is one session.
SIZE = Size(60, 45, 420)


@dataclass
class Ran:
    """The result of one training.

    Attributes:
        weights_sha256: of the artifact.
        sessions: the status of each version.
        steps: what each version resumed from.
        again: versions that the same command made afterwards.
        seconds: of the training.
        killed_at: the step of the kill, or 0.
    """

    weights_sha256: str
    sessions: list[str]
    steps: list[str]
    again: int
    seconds: float
    killed_at: int = 0


def rows(*, show: Show) -> Iterator[Row]:
    """Yield the rows; a chain and a long session, each in a local Kaggle of its own."""
    size = SIZE
    folder = Path(tempfile.mkdtemp(prefix="prove-chain-"))
    try:
        show(f"      a chain of sessions of {size.cap:g} s, of which one is killed")
        cut = _trained(folder / "cut", size, size.cap, size.own / 3600, show, kill=True)
        show("      the same training in one session")
        whole = _trained(folder / "whole", size, SESSION_SECONDS["TPU"], 9.0, show)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    same = cut.weights_sha256 == whole.weights_sha256
    ended = (
        f"{len(cut.sessions)} sessions ({', '.join(cut.sessions)}), killed at step {cut.killed_at}"
    )
    yield Row(
        f"A chain of sessions of {size.cap:g} s, one of them SIGKILLed, ends with the weights of "
        "one long session",
        "weights_sha256 equal, ≥ 3 sessions",
        f"{cut.weights_sha256[:12]} and {whole.weights_sha256[:12]}; {ended}; "
        f"{cut.seconds:.0f} s and {whole.seconds:.0f} s",
        same
        and len(cut.sessions) >= 3
        and cut.sessions.count("ERROR") == 1
        and whole.sessions == ["COMPLETE"],
        seed=0,
    )
    yield Row(
        "Each session of the chain goes on from the last step that was saved",
        "steps rise",
        "; ".join(cut.steps),
        _rising(cut.steps[:-1]) and cut.steps[-1] == "complete",
    )
    yield Row(
        "The same command after its end makes no version",
        "0 more",
        f"{cut.again} more",
        cut.again == 0,
    )


def _rising(steps: list[str]) -> bool:
    """Return whether each is further than the one before.

    >>> _rising(["partial, step 40 of 120", "partial, step 80 of 120"])
    True
    >>> _rising(["partial, step 40 of 120", "nothing"])
    False
    """
    numbers = [int(text.split("step ")[1].split()[0]) if "step " in text else 0 for text in steps]
    return all(before < after for before, after in zip([0, *numbers], numbers, strict=False))


def _trained(
    folder: Path, size: Size, cap: float, hours: float, show: Show, *, kill: bool = False
) -> Ran:
    folder.mkdir()
    config = folder / "chained.py"
    config.write_text(_config(size.epochs, hours))
    words, places = (str(config), "digits", "dataset"), (folder / "runs", folder / "build")
    ours = Project(ROOT, *words, *places, deadline_seconds=1800)
    began = time.monotonic()

    def tell(line: str) -> None:
        show(f"        {line.splitlines()[0][:150]}")

    with (
        LocalKaggle(folder / "kaggle", offline=True, session_seconds={"TPU": cap}) as local,
        signed_in(local),
    ):
        kaggle = Kaggle.connect()
        killer = Killer(local)
        if kill:
            killer.start()
        done = chained_sessions.train(kaggle, ours, show=tell)
        killer.ended.set()
        seconds = time.monotonic() - began
        made = ours.journal().recent("pushes", 100)
        chained_sessions.train(kaggle, ours, show=tell)
        versions = local.kernels.kernels[done.run.handle].versions
        return Ran(
            artifact_manifest.verify(done.folder / "artifact").weights_sha256,
            [version.status for version in versions],
            [str(row["left"]) for row in reversed(made)],
            len(versions) - done.run.version,
            seconds,
            killer.step,
        )


def _config(epochs: int, hours: float) -> str:
    """Return the config of the digits for so many epochs, in sessions of so many hours."""
    values = {"name": '"chained"', "epochs": epochs, "progress_seconds": 2, "checkpoint_seconds": 4}
    text = DIGITS.read_text(encoding="utf-8")
    for name, value in values.items():
        text, count = re.subn(
            rf"^    {name}=.*,$", f"    {name}={value},", text, flags=re.MULTILINE
        )
        if count != 1:
            raise ValueError(f"{DIGITS} has {count} lines of {name}; expected 1")
    return text.replace("    epochs=", f"    session_hours={hours},\n    epochs=")


class Killer(threading.Thread):
    """Kills one session after it has saved a step of its own."""

    def __init__(self, local: LocalKaggle) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.step = 0
        self._local = local

    def run(self) -> None:
        """Wait until the session's folder has a second step, and kill the session."""
        while not self.ended.wait(0.05):
            for kernel in list(self._local.kernels.kernels.values()):
                version = self._local.kernels.version(f"{kernel.owner}/{kernel.slug}", KILLED)
                if version is None or version.session is None or version.status != "RUNNING":
                    continue
                names = [
                    saved_progress.STEP.fullmatch(path.name)
                    for path in version.working.glob("checkpoints/step-*")
                ]
                steps = sorted(int(name[1]) for name in names if name)
                if len(steps) > 1:
                    self.step = steps[-1]
                    version.session.kill()
                    return


@contextmanager
def signed_in(local: LocalKaggle) -> Iterator[None]:
    """Let the environment name that Kaggle, without the user's token, while the context lasts."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("KAGGLE_")]:
        del os.environ[name]
    os.environ.update(local.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
