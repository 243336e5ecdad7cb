"""The model files that a rehearsal needs from Kaggle.

They come from a folder that the user specifies or from kagglehub's cache on this machine.
Otherwise, a preset with random weights is created.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from commands.console import show
from commands.project import in_a_process
from deploy.errors import UsageError
from deploy.project import Project

BLOCKS = 2  # blocks of a transformer with random weights; more would only take longer
RANDOM = "random_weights.json"  # marks a preset written by `python -m pipeline preset`
CACHE = "KAGGLEHUB_CACHE"  # variable that tells kagglehub and `pipeline` where the files are


def gather(
    ours: Project, given: Sequence[str], home: Path, python: str
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Arrange the model files for a rehearsal in `home`, in the layout of a kagglehub cache.

    This process and its subprocesses use this cache from then on. Missing presets are created with
    the KerasHub that is installed for the interpreter `python`.

    Args:
        given: NAME=DIR strings, each for a model that a notebook mounts.

    Returns:
        The models as {name: folder}, and messages about where their files come from.

    Raises:
        UsageError: if a string in `given` is invalid, or if the files of a model are missing and
            cannot be created.
    """
    from deploy import bundle
    from localkaggle.services import protocol

    try:
        named = protocol.published("model", given)
    except ValueError as error:
        raise UsageError(f"Invalid --model {error}.") from error
    folders = {name.lower(): folder for name, folder in named.items()}
    paths = sorted((ours.kernels or ours.root / "kernels").glob("*/kernel-metadata.json"))
    listed = [name for path in paths for name in bundle.read_metadata(path)["model_sources"]]
    mounted = {name.lower(): name for name in (*listed, *ours.models)}
    if unknown := sorted(folders.keys() - mounted.keys()):
        raise UsageError(
            f"Invalid --model {unknown[0]}: expected a model that a notebook mounts"
            f" ({', '.join(mounted.values()) or 'there are none'}).\nTo use this model, set"
            " pretrained in the config."
        )
    lines, cache = [], Path(os.environ.get(CACHE) or "~/.cache/kagglehub").expanduser()
    for name in mounted.values():
        place, cached = home / "models" / name, cache / "models" / name
        ready = _whole(cached) if name in ours.models else cached.is_dir()
        found = folders.get(name.lower()) or (cached if ready else None)
        if found is None and name not in ours.models:
            continue  # its file format is unknown, so the push will report it as missing
        if found is None:
            _write_random(name, place, python)
            few = f"{name} has random weights, and only {BLOCKS} blocks if it is a transformer"
            lines.append(f"{few}; to use the published weights: --model {name}=DIR")
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(found.resolve())
            random = " (random)" if (found / RANDOM).is_file() else ""
            lines.append(f"{name} uses the files in {found}{random}")
        folders[name.lower()] = place
    os.environ[CACHE] = str(home)
    return folders, tuple(lines)


def _whole(preset: Path) -> bool:
    # KerasHub downloads each file separately, so a cached preset may only contain config.json.
    weights = (*preset.glob("*.weights.h5"), *preset.glob("*.safetensors"))
    return (preset / "config.json").is_file() and bool(weights)


def _write_random(name: str, place: Path, python: str) -> None:
    show(f"Creating random weights with the shapes of {name}")
    words = "--output", str(place), "--blocks", str(BLOCKS)
    made = in_a_process("pipeline", "preset", name, *words, python=python)
    if "error" in made:
        raise UsageError(
            f"The files of {name} are missing, and random weights cannot replace them:"
            f" {made['error']}\nTo use a folder that has the files: --model {name}=DIR"
        )
