"""Images that a CPU session decoded, and the trainings that take them.

The embedded digits, enlarged until they fill several shards. Bundles, notebooks and client are the
real ones; the sessions are the local Kaggle's. Their logs say what was decoded, and the sha256 of
the weights says whether anything came out otherwise.
"""

import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.client.client import Kaggle
from deploy.errors import RunFailed
from deploy.project import PREPARE, TRAIN, Project
from deploy.relay import relay
from localkaggle.server import LocalKaggle
from pipeline import config as configs
from pipeline.storage import checksums
from proofs.shared.results_table import Row, Show
from proofs.training.chained_sessions import signed_in

ROOT = Path(__file__).resolve().parents[2]
SLUG, IMAGES = "digits", 1197
CONFIG = '''"""Digits, enlarged, and a model that takes no time."""

from keras import layers

from pipeline.config import Config, Data, Optimizer


def averages(images, num_classes, batchnorm_momentum):
    x = layers.AveragePooling2D(64, name="pool")(images)
    x = layers.Flatten(name="flat")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


CONFIG = Config(
    name="enlarged",
    competition="digits",
    num_classes=10,
    data=Data(height=512, width=512, channels=3, resize="stretch"),
    model="averages",
    optimizer=Optimizer(name="adam", base_rate=1e-2, base_batch=64),
    batch=64,
    epochs=2,
    warmup_epochs=1,
)
'''
# What the notebooks say.
DECODED = re.compile(r"Prepared [\d,]+ images: ([\d,]+) decoded here")
FOUND = re.compile(r"Found ([\d,]+) of [\d,]+ images decoded in")
CHANGED = re.compile(r"([\d,]+) files have changed since they were decoded")


@dataclass
class World:
    """One local Kaggle, and the project of a user who is signed in there."""

    local: LocalKaggle
    kaggle: Kaggle
    project: Project
    show: Show

    def push(self, kernel: str, *, again: bool = False) -> Any:
        """Push a kernel, wait for its end, and return its version on the server."""
        run = relay.push(self.kaggle, self.project, kernel, again=again, show=self._tell)
        try:
            relay.watch(self.kaggle, self.project, run, show=lambda line: None)
        except RunFailed as error:
            self._tell(str(error))
        return self.local.kernels.version(run.handle, run.version)

    def kill_in_the_middle(self) -> int:
        """Push a preparation, kill its session after the first shard; return the whole shards."""
        run = relay.push(self.kaggle, self.project, PREPARE, show=self._tell)
        version: Any = self.local.kernels.version(run.handle, run.version)
        killer = threading.Thread(target=_kill, args=(version,), daemon=True)
        killer.start()
        try:
            relay.watch(self.kaggle, self.project, run, show=lambda line: None)
        except RunFailed:
            return len(_shards(version))
        return 0  # it was too quick

    def change(self) -> None:
        """Write another image over the first training image, as a host may."""
        first, second, *_ = sorted((self.local.competitions.folder(SLUG) / "train").iterdir())
        first.write_bytes(second.read_bytes())

    def _tell(self, line: str) -> None:
        self.show(f"        {line.splitlines()[0][:150]}")


def rows(show: Show) -> Iterator[Row]:
    """Yield the rows."""
    with tempfile.TemporaryDirectory(prefix="prove-prepared-") as temporary:
        folder = Path(temporary)
        show("      trainings without a preparation")
        with _world(folder / "without", show) as world:
            plain = _weights(world.push(TRAIN))
            world.change()
            plain_changed = _weights(world.push(TRAIN, again=True))
        show("      the same with one; then a file changes")
        with _world(folder / "with", show) as world:
            made = world.push(PREPARE)
            adopted = world.push(PREPARE)
            given = world.push(TRAIN)
            whole = {path.stem: checksums.sha256(path) for path in _pixels(made)}
            yield _once(plain, made, adopted, given)
            world.change()
            stale = world.push(TRAIN, again=True)
            again = world.push(PREPARE, again=True)
            fresh = world.push(TRAIN, again=True)
            changed = _changed(plain_changed, stale, again, fresh)
        show("      a preparation that is killed, and pushed again")
        with _world(folder / "killed", show) as world:
            kept = world.kill_in_the_middle()
            resumed = world.push(PREPARE)
            same = whole == {path.stem: checksums.sha256(path) for path in _pixels(resumed)}
            yield _resumed(kept, len(whole), resumed, same)
        yield changed


def _once(plain: str, made: Any, adopted: Any, given: Any) -> Row:
    weights, found = _weights(given), _number(FOUND, given)
    return Row(
        "Images that a CPU session prepared: the second push adopts it, and a training takes them",
        f"1 version; {IMAGES:,} taken; weights_sha256 as without",
        f"version {adopted.number} adopted, {_number(DECODED, made):,} decoded there; {found:,}"
        f" taken; {weights[:12]} and {plain[:12]} without; {made.seconds:.0f} s on a CPU",
        made.status == "COMPLETE"
        and adopted.number == made.number == 1
        and _number(DECODED, made) == found == IMAGES
        and bool(plain)
        and weights == plain,
        seed=0,
    )


def _resumed(kept: int, count: int, resumed: Any, same: bool) -> Row:
    decoded = _number(DECODED, resumed)
    most = IMAGES - sum(_counts(resumed)[:kept])
    return Row(
        "A preparation SIGKILLed in the middle, and pushed again",
        "no image of a whole shard is decoded again; pixels as of one session, by sha256",
        f"{kept} of {count} shards were whole; {decoded:,} of {IMAGES:,} images decoded again,"
        f" {most:,} were left; pixels {'equal' if same else 'DIFFER'}",
        0 < kept < count and decoded == most and same and resumed.status == "COMPLETE",
    )


def _changed(plain: str, stale: Any, again: Any, fresh: Any) -> Row:
    seen, decoded = _number(CHANGED, stale), _number(DECODED, again)
    both = [_weights(stale), _weights(fresh)]
    return Row(
        "A file that changes after the preparation: in a training before the next one, and after",
        "1 image decoded anew by each; weights_sha256 as of a training that decodes all",
        f"{seen} by the training, {decoded} by the preparation, {_number(CHANGED, fresh)} by the"
        f" training after it; {both[0][:12]} and {both[1][:12]}, {plain[:12]} without",
        seen == decoded == 1
        and _number(CHANGED, fresh) == 0
        and _number(FOUND, fresh) == IMAGES
        and bool(plain)
        and both == [plain, plain],
        seed=0,
    )


@contextmanager
def _world(folder: Path, show: Show) -> Iterator[World]:
    folder.mkdir()
    config = folder / "enlarged.py"
    config.write_text(CONFIG)
    decoding = configs.load(str(config)).data.decoding
    places = (folder / "runs", folder / "build")
    ours = Project(
        ROOT, str(config), SLUG, "dataset", *places, deadline_seconds=1800, decoding=decoding
    )
    local = LocalKaggle(folder / "kaggle", offline=True, competitions=[SLUG])
    with local, signed_in(local):
        yield World(local, Kaggle.connect(), ours, show)


def _kill(version: Any) -> None:
    """Kill a session by SIGKILL as soon as it has a whole shard."""
    while not version.done.is_set():
        if _shards(version):
            version.session.kill()
            return
        time.sleep(0.01)


def _shards(version: Any) -> list[Path]:
    return sorted(version.working.glob("*-of-*.json"))


def _pixels(version: Any) -> list[Path]:
    return sorted(version.working.glob("*-of-*.npy"))


def _counts(version: Any) -> list[int]:
    """Return the images of each shard."""
    return [len(json.loads(path.read_bytes())["origins"]) for path in _shards(version)]


def _weights(version: Any) -> str:
    path = version.working / "artifact" / "manifest.json"
    return str(json.loads(path.read_bytes())["weights_sha256"]) if path.is_file() else ""


def _number(words: re.Pattern[str], version: Any) -> int:
    """Return the number that a version's log says; 0 if it does not."""
    found = words.search(version.log.text())
    return int(found[1].replace(",", "")) if found else 0
