"""The check, before a training is pushed to a TPU, that the image for inference builds the same
model as the one for training. A verdict is kept, so that the next push of the same code is instant.
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

KEPT = "both-images.json"  # in runs/: {digest of code and presets: verdict}
LABEL = "images      "
INDENT = " " * len(LABEL)


def require(config: str, code: str, runs: Path, agreed: Callable[[str], bool]) -> None:
    """Check that both images build the same model, and show it; a model of plain Keras layers needs
    no check.

    Args:
        config: as --config names it.
        code: sha256 of the code that is pushed.
        runs: the folder that keeps verdicts.
        agreed: asks before gigabytes are downloaded; after a no, the shipped table answers.

    Raises:
        UsageError: if the two images build different models.
    """
    from pipeline import config as configs
    from workbench import image_check, image_environments

    settings = configs.load(config)
    if not image_check.concerns(settings):
        return
    images, file = image_environments.IMAGES, runs / KEPT
    digest = _digest(code, *settings.presets, *(image.folder.name for image in images))
    verdicts: dict[str, str] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    if verdict := verdicts.get(digest):
        show(f"{LABEL}{verdict}")
        return
    words = [
        "images",
        "--config",
        str(Path(config).resolve()) if config.endswith(".py") else config,
    ]
    if missing := image_environments.missing():
        table = _compared(*words, "--table")  # it may refuse without a download
        size = image_environments.GIGABYTES * len(missing)
        show(
            f"{LABEL}before hours of a TPU are spent, this builds the model here with the versions"
        )
        show(f"{INDENT}of both of Kaggle's images, to check that they build the same one:")
        for image in missing:
            show(f"{INDENT}{image.in_words}")
        show(f"{INDENT}They take {size:.1f} GB in {missing[0].folder.parent}, once, and minutes.")
        if not agreed("Download them? Without them a table of known networks answers."):
            _show(table)
            return
    began = time.monotonic()
    made = _compared(*words, quiet=False)
    _show(made)
    if made.get("seen"):
        show(f"{INDENT}compared in {time.monotonic() - began:.0f} seconds; kept for the same code")
        verdicts[digest] = f"{made['told']} ({time.strftime('%Y-%m-%d %H:%M')})"
        atomic_file.write(file, json.dumps(verdicts, indent=1).encode())


def _digest(*parts: str) -> str:
    """Return a digest of what a verdict depends on, with the numbers of presets in folders."""
    numbers = [Path(part) / "config.json" for part in parts]
    texts = [path.read_text("utf-8") for path in numbers if path.is_file()]
    return hashlib.sha256("\n".join([*parts, *texts]).encode()).hexdigest()


def _compared(*words: str, quiet: bool = True) -> dict[str, object]:
    """Return the verdict of `python -m workbench images`; raise `UsageError` for two models."""
    made = in_a_process("workbench", *words, quiet=quiet)
    if made.get("exit_code") == UsageError.exit_code:
        raise UsageError(f"Nothing was pushed. {made['error']}")
    if "error" in made:
        return {"told": f"Warning: the images could not be compared: {made['error']}"}
    return made


def _show(made: dict[str, object]) -> None:
    for line in str(made["told"]).splitlines():
        show(line if line.startswith("Warning") else f"{LABEL}{line}")
