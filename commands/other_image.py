"""The check, before a training is pushed to a TPU, that the image which infers builds the same
model as the one that trains. A verdict is kept, so the same push again costs nothing.
"""

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from commands.console import show
from commands.project import in_a_process
from deploy.errors import UsageError
from formats import atomic_file

KEPT = "both-images.json"  # in runs/: verdicts by the digest of what they rest on
LABEL = "images      "
INDENT = " " * len(LABEL)


def require(config: str, code: str, runs: Path, agreed: Callable[[str], bool]) -> None:
    """Show how both images build a config's model; of layers of Keras alone nothing is said.

    Args:
        config: as --config names it.
        code: sha256 of what travels.
        runs: the folder that keeps verdicts.
        agreed: asks before gigabytes are downloaded; without a yes the shipped table answers.

    Raises:
        UsageError: if the model that one image builds is not that of the other one.
    """
    from pipeline import config as configs
    from workbench import image_check, image_environments

    settings = configs.load(config)
    if not image_check.concerns(settings):
        return
    images = image_environments.IMAGES
    digest = _digest(code, *settings.presets, *(image.folder.name for image in images))
    kept = _kept(runs)
    if told := kept.get(digest):
        show(f"{LABEL}{told}")
        return
    path = str(Path(config).resolve()) if config.endswith(".py") else config
    words = ["images", "--config", path]
    if missing := image_environments.missing():
        told = _told(*words, "--table")  # what it refuses needs no download
        size = image_environments.GIGABYTES * len(missing)
        show(
            f"{LABEL}to see that both of Kaggle's images build one and the same model, it is built"
        )
        show(f"{INDENT}here with the versions of each, before hours of a TPU are spent on it:")
        for image in missing:
            show(f"{INDENT}{image.in_words}")
        show(f"{INDENT}They take {size:.1f} GB in {missing[0].folder.parent}, once, and minutes.")
        if not agreed("Download them? Without them a table of known networks answers."):
            _show(told)
            return
    began = time.monotonic()
    made = in_a_process("workbench", *words, quiet=False)
    _refuse(made)
    if "error" in made:
        show(f"Warning: the images could not be compared: {made['error']}")
        return
    _show(made["told"])
    if made["seen"]:
        show(f"{INDENT}compared in {time.monotonic() - began:.0f} seconds; kept for the same code")
        kept[digest] = f"{made['told']} ({time.strftime('%Y-%m-%d %H:%M')})"
        atomic_file.write(runs / KEPT, json.dumps(kept, indent=1).encode())


def _digest(*parts: str) -> str:
    """Return the digest of what a verdict rests on: of presets in folders the numbers, too."""
    numbers = [Path(part) / "config.json" for part in parts]
    texts = [path.read_text("utf-8") for path in numbers if path.is_file()]
    return hashlib.sha256("\n".join([*parts, *texts]).encode()).hexdigest()


def _kept(runs: Path) -> dict[str, str]:
    path = runs / KEPT
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def _told(*words: str) -> str:
    made = in_a_process("workbench", *words)
    _refuse(made)
    return str(made.get("told") or f"Warning: {made['error']}")


def _refuse(made: dict[str, object]) -> None:
    if made.get("exit_code") == UsageError.exit_code:
        raise UsageError(f"Nothing was pushed. {made['error']}")


def _show(told: str) -> None:
    for line in told.splitlines():
        show(line if line.startswith("Warning") else f"{LABEL}{line}")
