"""The files of Kaggle's models in a rehearsal: a given folder, the files that kagglehub downloaded
here, or a preset with random weights.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from commands.console import show
from commands.project import in_a_process
from deploy.errors import UsageError
from deploy.project import Project

BLOCKS = 2  # of a transformer with random weights: more take time and show nothing else
RANDOM = "random_weights.json"  # marks a preset that `python -m pipeline preset` wrote
CACHE = "KAGGLEHUB_CACHE"  # the variable by which kagglehub and `pipeline` find the files


def gather(
    ours: Project, given: Sequence[str], home: Path, python: str
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return {name: folder} of the models, and lines that describe them.

    From now on this process and its children find the models below `home`, as in kagglehub's cache.

    Args:
        ours: the project.
        given: NAME=DIR texts of models that a notebook mounts.
        home: a folder of the rehearsal.
        python: the interpreter of the training, whose KerasHub writes a preset.

    Raises:
        UsageError: if a text of `given` is wrong, or a model has no files and none can be written.
    """
    from deploy import bundle
    from localkaggle.services import protocol

    try:
        named = protocol.published("model", given)
    except ValueError as error:
        raise UsageError(f"--model {error}.\nCorrect it.") from error
    folders = {name.lower(): folder for name, folder in named.items()}
    paths = sorted((ours.kernels or ours.root / "kernels").glob("*/kernel-metadata.json"))
    listed = [name for path in paths for name in bundle.read_metadata(path)["model_sources"]]
    mounted = {name.lower(): name for name in (*listed, *ours.models)}
    if unknown := sorted(folders.keys() - mounted.keys()):
        raise UsageError(
            f"--model {unknown[0]}: no notebook mounts it; expected"
            f" {', '.join(mounted.values()) or 'no --model'}.\nCorrect it, or set pretrained in the"
            " config to this model."
        )
    lines, cache = [], Path(os.environ.get(CACHE) or "~/.cache/kagglehub").expanduser()
    for name in mounted.values():
        place, cached = home / "models" / name, cache / "models" / name
        ready = _whole(cached) if name in ours.models else cached.is_dir()
        found = folders.get(name.lower()) or (cached if ready else None)
        if found is None and name not in ours.models:
            continue  # its format is unknown: the push reports it as missing
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
    """Return whether a preset has config and weights: KerasHub downloads single files, and may have
    needed only config.json.
    """
    weights = (*preset.glob("*.weights.h5"), *preset.glob("*.safetensors"))
    return (preset / "config.json").is_file() and bool(weights)


def _write_random(name: str, place: Path, python: str) -> None:
    """Write a preset with random weights, or raise `UsageError`."""
    show(f"Writing random weights in the shapes of {name}")
    words = "--output", str(place), "--blocks", str(BLOCKS)
    made = in_a_process("pipeline", "preset", name, *words, python=python)
    if "error" in made:
        raise UsageError(
            f"There are no files of the model {name}, and random weights cannot replace them:"
            f" {made['error']}\nTo give a folder with its files: --model {name}=DIR"
        )
