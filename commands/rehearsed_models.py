"""The files of Kaggle's models in a rehearsal: a folder that was given, what kagglehub downloaded
here, or a preset with random weights.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from commands.console import show
from commands.project import in_a_process
from deploy.errors import UsageError
from deploy.project import Project

BLOCKS = 2  # of a transformer with random weights: more take time, and tell nothing
RANDOM = "random_weights.json"  # in a preset that `python -m pipeline preset` wrote
CACHE = "KAGGLEHUB_CACHE"  # the variable by which kagglehub finds its files, and the model side too


def gather(
    ours: Project, given: Sequence[str], home: Path, python: str
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return the folder of each model by its name, and lines that say what they hold.

    From now on this process, and those that it starts, find the models below `home`, as in
    kagglehub's cache.

    Args:
        given: NAME=DIR, each of a model that a notebook mounts.
        home: a folder of the rehearsal.
        python: that runs the training, whose KerasHub writes a preset.

    Raises:
        UsageError: if a text of `given` is wrong, or there are no files and none can be made.
    """
    from deploy import bundle
    from localkaggle.services.models import parse_published

    try:
        folders = dict(map(parse_published, given))
    except ValueError as error:
        raise UsageError(f"--model {error}.\nCorrect it.") from error
    paths = sorted((ours.kernels or ours.root / "kernels").glob("*/kernel-metadata.json"))
    listed = [name for path in paths for name in bundle.read_metadata(path)["model_sources"]]
    mounted = {name.lower(): name for name in (*listed, *ours.models)}
    if unknown := sorted(folders.keys() - mounted.keys()):
        raise UsageError(
            f"--model {unknown[0]}: no notebook mounts it; expected"
            f" {', '.join(mounted.values()) or 'no --model'}.\nCorrect it, or name the model in"
            " pretrained of the config."
        )
    lines, cache = [], Path(os.environ.get(CACHE) or "~/.cache/kagglehub").expanduser()
    for name in mounted.values():
        place, cached = home / "models" / name, cache / "models" / name
        ready = _whole(cached) if name in ours.models else cached.is_dir()
        found = folders.get(name.lower()) or (cached if ready else None)
        if found is None and name not in ours.models:
            continue  # nobody knows what it holds: the push says that it is missing
        if found is None:
            _write_random(name, place, python)
            few = f"{name} has random weights, and {BLOCKS} blocks if it is a transformer"
            lines.append(f"{few}; for the published ones: --model {name}=DIR")
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(found.resolve())
            random = " (random)" if (found / RANDOM).is_file() else ""
            lines.append(f"{name} has the files in {found}{random}")
        folders[name.lower()] = place
    os.environ[CACHE] = str(home)
    return folders, tuple(lines)


def _whole(preset: Path) -> bool:
    """Return whether a folder has numbers and weights: KerasHub downloads file by file, and may
    have asked for config.json alone.
    """
    weights = (*preset.glob("*.weights.h5"), *preset.glob("*.safetensors"))
    return (preset / "config.json").is_file() and bool(weights)


def _write_random(name: str, place: Path, python: str) -> None:
    """Write a preset with random weights; raise `UsageError` if none can be written."""
    show(f"Writing random weights in the shapes of {name}")
    words = "--output", str(place), "--blocks", str(BLOCKS)
    made = in_a_process("pipeline", "preset", name, *words, python=python)
    if "error" in made:
        raise UsageError(
            f"There are no files of the model {name}, and no random weights can stand for them:"
            f" {made['error']}\nGive a folder with its files: --model {name}=DIR"
        )
