"""Check that Kaggle's training image and inference image build the same model.

The check runs before a push to a TPU. Its verdict is cached, so that it does not delay another push
of the same code.
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

KEPT = "both-images.json"  # file in runs/ with {digest of code and presets: verdict}
LABEL = "images      "
INDENT = " " * len(LABEL)


def require(config: str, code: str, runs: Path, agreed: Callable[[str], bool]) -> None:
    """Check that both images build the same model, or raise `UsageError`.

    The verdict is printed, and cached in `runs`. Models that consist only of standard Keras layers
    are not checked. The function `agreed` asks the user for confirmation before several gigabytes
    are downloaded. If the user declines, the verdict is based on the table of known networks.
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
        table = _compared(*words, "--table")  # may find a difference without a download
        size = image_environments.GIGABYTES * len(missing)
        show(f"{LABEL}Before you spend hours of TPU quota, the model can be built on this machine")
        show(f"{INDENT}with the library versions of both Kaggle images, to check that they build")
        show(f"{INDENT}the same model:")
        for image in missing:
            show(f"{INDENT}{image.in_words}")
        place = missing[0].folder.parent
        show(f"{INDENT}The download takes several minutes and needs {size:.1f} GB in {place}.")
        if not agreed("Download them? Otherwise, a table of known networks is used."):
            _show(table)
            return
    began = time.monotonic()
    made = _compared(*words, quiet=False)
    _show(made)
    if made.get("seen"):
        show(f"{INDENT}This took {time.monotonic() - began:.0f} seconds; the result is cached.")
        verdicts[digest] = f"{made['told']} ({time.strftime('%Y-%m-%d %H:%M')})"
        atomic_file.write(file, json.dumps(verdicts, indent=1).encode())


def _digest(*parts: str) -> str:
    numbers = [Path(part) / "config.json" for part in parts]
    texts = [path.read_text("utf-8") for path in numbers if path.is_file()]
    return hashlib.sha256("\n".join([*parts, *texts]).encode()).hexdigest()


def _compared(*words: str, quiet: bool = True) -> dict[str, object]:
    made = in_a_process("workbench", *words, quiet=quiet)
    if made.get("exit_code") == UsageError.exit_code:
        raise UsageError(f"Nothing was pushed. {made['error']}")
    if "error" in made:
        return {"told": f"Warning: the images could not be compared: {made['error']}"}
    return made


def _show(made: dict[str, object]) -> None:
    for line in str(made["told"]).splitlines():
        show(line if line.startswith("Warning") else f"{LABEL}{line}")
