"""Artifact: trained weights and a manifest. The contract between training and inference, which meet nowhere else.

Weights travel as arrays by name into a model that shared code rebuilds, never as a serialized model: Keras 3.15 on Kaggle's TPU image
saves models that 3.13.2 on its GPU image cannot load, and loading a model can run code. No pickle is read or written.
"""

import errno
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import config as config_module
from pipeline.config import Config
from pipeline.errors import ArtifactError, DivergedError, PipelineError, reading, writing

MANIFEST, WEIGHTS, GOLDEN = "manifest.json", "weights.npz", "golden.npz"
KEYS = (
    "run_id",
    "status",
    "config",
    "classes",
    "versions",
    "git_commit",
    "bundle_sha256",
    "weights_sha256",
    "metrics",
    "golden",
    "files",
)
SEAL = "manifest_sha256"
AGAIN = "Pull or download the artifact again."


@dataclass(frozen=True)
class Artifact:
    """A loaded and verified artifact.

    Attributes:
        manifest: everything in manifest.json.
        config: the run's config, rebuilt.
        classes: the labels' texts; the model's outputs are in this order.
        weights: arrays by name, in the model's order; with folds "fold-1/<name>" and so on, a fold after the other.
        golden_images: uint8 (g, height, width, channels).
        golden_outputs: float32 (g, num_classes), probabilities computed in float32 by the run that trained; the mean over the folds.
    """

    manifest: Mapping[str, Any]
    config: Config
    classes: tuple[str, ...]
    weights: Mapping[str, np.ndarray]
    golden_images: np.ndarray
    golden_outputs: np.ndarray

    @property
    def folds(self) -> tuple[Mapping[str, np.ndarray], ...]:
        """The weights of each fold by the model's own names; of a run without folds there is one."""
        if self.config.folds is None:
            return (self.weights,)
        parts: dict[str, dict[str, np.ndarray]] = {}
        for name, array in self.weights.items():
            fold, _, own = name.partition("/")
            parts.setdefault(fold, {})[own] = array
        return tuple(parts.values())


def sha256(path: Path) -> str:
    """Return the file's sha256 as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as the bytes of its file, with the sha256 of the rest of it inside: nothing else says the same.

    >>> sealed({"b": 1, "a": 2}) == sealed({"a": 2, "b": 1, "manifest_sha256": "of an older text"})
    True
    """
    # Once through JSON: a number as a key is sorted as a number before, and as a text after.
    plain = json.loads(json.dumps({key: value for key, value in manifest.items() if key != SEAL}))
    plain[SEAL] = hashlib.sha256(_text(plain)).hexdigest()
    return _text(plain)


def opened(content: bytes) -> dict[str, Any]:
    """Return the manifest in the bytes that `sealed` gave.

    Raises:
        ValueError: if these are other bytes, be it by a space.
    """
    manifest = json.loads(content)
    if not isinstance(manifest, dict) or SEAL not in manifest:
        raise ValueError(f"it lacks {SEAL}: an older version of this project wrote it, or it was changed")
    if sealed(manifest) != content:
        raise ValueError(f"{SEAL} does not stand for it: it was changed after it was written")
    return manifest


def sync(folder: Path) -> None:
    """Make the names in a folder survive a loss of power; the fsync of a file does not do that for its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Return the model's weights by name: float32 arrays, in the model's order."""
    return {weight.path: np.asarray(weight.numpy(), np.float32) for weight in model.weights}


def assign(model: Any, weights: Mapping[str, np.ndarray]) -> None:
    """Put weights into a model that shared code built.

    Raises:
        ArtifactError: if a name or a shape differs.
    """
    wanted = {weight.path: tuple(weight.shape) for weight in model.weights}
    given = {name: tuple(array.shape) for name, array in weights.items()}
    if wanted != given:
        differing = sorted(name for name in wanted.keys() | given.keys() if wanted.get(name) != given.get(name))
        shown = "; ".join(f"{name}: weights {given.get(name)}, model {wanted.get(name)}" for name in differing[:5])
        raise ArtifactError(
            f"{len(differing)} weights do not fit the model: {shown}.\n"
            "Expected the same names and shapes. Use the commit that the manifest names, or train again."
        )
    for weight in model.weights:
        weight.assign(weights[weight.path])


def joined(folds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the weights of each fold as one mapping.

    >>> list(joined([{"a/kernel": np.zeros(1)}, {"a/kernel": np.ones(1)}]))
    ['fold-1/a/kernel', 'fold-2/a/kernel']
    """
    return {
        f"fold-{number}/{name}": array for number, part in enumerate(folds, start=1) for name, array in part.items()
    }


def save(
    folder: Path,
    *,
    model: Any,
    folds: Sequence[Mapping[str, np.ndarray]] = (),
    config: Config,
    classes: tuple[str, ...],
    golden_images: np.ndarray,
    golden_outputs: np.ndarray,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the artifact folder beside its place, rename it there, and return its manifest.

    An older artifact is renamed to `.<name>-old` first and removed last. If the second rename fails it gets its name back; after a kill
    between the two, the next save gives it back.

    Args:
        folder: where; its parent exists.
        model: the trained Keras model. folds: the weights of each fold, where there are any, which are saved in place of the model's.
        config, classes: of the run.
        golden_images: uint8 (g, height, width, channels). golden_outputs: float32 (g, num_classes), probabilities.
        details: run_id, status, versions, git_commit, bundle_sha256, metrics, and what else the manifest should say.

    Raises:
        DivergedError: if a weight or a golden output is not finite. DiskError: if there is no space. An older artifact is still there.
    """
    weights = joined(folds) if folds else weights_of(model)
    wrong = [
        name for name, array in {**weights, "golden outputs": golden_outputs}.items() if not np.isfinite(array).all()
    ]
    if wrong:
        raise DivergedError(
            f"{len(wrong)} arrays of the trained model are not finite, for example {', '.join(wrong[:3])} "
            f"(optimizer.base_rate={config.optimizer.base_rate:g})"
        )
    old = folder.with_name(f".{folder.name}-old")
    with writing(folder):
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if old.exists() and not folder.exists():
            old.rename(folder)
        for orphan in folder.parent.glob(f".{folder.name}-*"):  # of a save that was killed
            shutil.rmtree(orphan, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _write(fresh / WEIGHTS, _npz(weights))
            _write(fresh / GOLDEN, _npz({"images": golden_images, "outputs": golden_outputs.astype(np.float32)}))
            files = {
                name: {"sha256": sha256(fresh / name), "size": (fresh / name).stat().st_size}
                for name in (WEIGHTS, GOLDEN)
            }
            manifest: dict[str, Any] = {
                **details,
                "config": config.to_json(),
                "classes": list(classes),
                "weights_sha256": files[WEIGHTS]["sha256"],
                "golden": {"file": GOLDEN, "rows": len(golden_images), "outputs": "probabilities, float32"},
                "files": files,
            }
            missing = [key for key in KEYS if key not in manifest]
            if missing:
                raise ValueError(f"The manifest lacks {missing}")
            content = sealed(manifest)
            _write(fresh / MANIFEST, content)
            fresh.chmod(0o755)
            sync(fresh)
            if folder.exists():
                folder.rename(old)
            try:
                fresh.rename(folder)
            except OSError:
                if old.exists():
                    old.rename(folder)
                raise
            sync(folder.parent)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return opened(content)


def load(folder: Path, expect: Mapping[str, str] | None = None) -> Artifact:
    """Return the artifact in a folder, after every byte in it was checked against its manifest, and the manifest against itself.

    Args:
        folder: holds manifest.json and the files it names.
        expect: values that the manifest must have, for example run_id and weights_sha256 of the run that was pushed.

    Raises:
        ArtifactError: if an announced file is missing or changed, the manifest is not what `expect` says, or the parts do not fit each
            other. Files that are not announced are not read.
    """
    path = folder / MANIFEST
    content, manifest, files = _manifest(path)
    for key, value in (expect or {}).items():
        if manifest.get(key) != value:
            raise ArtifactError(
                f"{path} has {key}={manifest.get(key)!r}; expected {value!r}: this is the artifact of another run.\n"
                "An old dataset version is mounted, or the files were exchanged. Publish the run again, then push infer again."
            )
    # After `expect`: of an older version or another run, that is what the user should hear.
    try:
        opened(content)
    except ValueError as error:
        raise ArtifactError(
            f"{path} cannot be trusted: {error}.\n{AGAIN} One of an older version: use the commit that it names, or train again."
        ) from error
    for name, (digest, size) in files.items():
        _verify(folder, name, digest, size)
    if GOLDEN not in files or manifest["weights_sha256"] != files.get(WEIGHTS, ("", 0))[0]:
        raise ArtifactError(f"{path} contradicts itself about {WEIGHTS} or {GOLDEN}.\n{AGAIN}")
    try:
        config = config_module.from_json(manifest["config"])
        classes = _classes(manifest["classes"], config.num_classes)
        weights, golden = _arrays(folder / WEIGHTS), _arrays(folder / GOLDEN)
        found = Artifact(manifest, config, classes, weights, golden["images"], golden["outputs"])
    except PipelineError as error:
        raise ArtifactError(f"{path}: {error}") from error
    except Exception as error:  # what is not ours makes zipfile and numpy raise a dozen kinds
        raise ArtifactError(f"{folder} cannot be read: {type(error).__name__}: {error}.\n{AGAIN}") from error
    problem = _problem(found)
    if problem:
        raise ArtifactError(f"{folder} contradicts itself: {problem}.\n{AGAIN}")
    return found


def _manifest(path: Path) -> tuple[bytes, dict[str, Any], dict[str, tuple[str, int]]]:
    """Return the bytes of manifest.json, what it says, and of each file that it announces the sha256 and the size."""
    with reading(path, ArtifactError, AGAIN):
        if not path.is_file():
            raise ArtifactError(
                f"{path.parent} has no {MANIFEST}; expected an artifact as `python -m pipeline train` writes it.\n"
                "Correct --artifact, or train first."
            )
        try:
            content = path.read_bytes()
            manifest = json.loads(content.decode())
            json.dumps(
                manifest, ensure_ascii=False
            ).encode()  # half of a surrogate pair could be neither shown nor written
            files = {str(name): (entry["sha256"], entry["size"]) for name, entry in manifest.get("files", {}).items()}
            for name, (digest, size) in files.items():
                if not isinstance(digest, str) or not isinstance(size, int):
                    raise ValueError(f"files[{name!r}] has sha256 {digest!r} and size {size!r}")
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ArtifactError(f"{path} is not a manifest: {error}.\n{AGAIN}") from error
    missing = [key for key in KEYS if key not in manifest]
    if missing:
        raise ArtifactError(f"{path} lacks {', '.join(missing)}.\n{AGAIN}")
    return content, manifest, files


def _verify(folder: Path, name: str, digest: str, size: int) -> None:
    """Refuse a file that is not there with these bytes."""
    file = folder / name
    # The name comes over the network: it is no path, and a link could be led elsewhere after it was checked.
    good = re.fullmatch(r"[\w .-]{1,200}", name)
    with reading(file, ArtifactError, AGAIN):
        if not good or not file.is_file() or file.is_symlink():
            raise ArtifactError(f"{folder / name[:200]} is missing; {MANIFEST} announces it.\n{AGAIN}")
        found = file.stat().st_size, sha256(file)
    if found != (size, digest):
        raise ArtifactError(
            f"{file} has other bytes than {MANIFEST} says: {found[0]} bytes, sha256 {found[1][:12]}…; "
            f"expected {size} bytes, {digest[:12]}….\nIt was changed or cut off: pull or download the artifact again."
        )


def _classes(value: object, number: int) -> tuple[str, ...]:
    """Return the labels' texts. Sorted is how `pipeline.data` gives them: in another order each prediction would get a wrong one."""
    if (
        isinstance(value, list)
        and len(value) == number
        and all(isinstance(name, str) for name in value)
        and value == sorted(set(value))
    ):
        return tuple(value)
    raise ArtifactError(f"classes={str(value)[:200]}; expected a sorted list of {number} different texts.\n{AGAIN}")


def _problem(found: Artifact) -> str | None:
    """Return in what weights and golden arrays do not fit the config; None where they fit."""
    config, images, outputs = found.config, found.golden_images, found.golden_outputs
    shape = (config.data.height, config.data.width, config.data.channels)
    if images.dtype != np.uint8 or images.ndim != 4 or len(images) < 1 or images.shape[1:] != shape:
        return (
            f"golden images are {images.dtype} {images.shape}; expected uint8 (1 or more, {', '.join(map(str, shape))})"
        )
    if outputs.dtype != np.float32 or outputs.shape != (len(images), config.num_classes):
        return f"golden outputs are {outputs.dtype} {outputs.shape}; expected float32 ({len(images)}, {config.num_classes})"
    for name, array in {**found.weights, "golden outputs": outputs}.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            return f"{name} is not finite float32"
    if config.folds is None:
        return "it has folds, and its config none" if "folds" in found.manifest else None
    told, first = found.manifest.get("folds"), found.folds[0] if found.folds else {}
    if (
        not isinstance(told, list)
        or len(told) != config.folds
        or list(found.weights) != list(joined([first] * config.folds))
    ):
        return f"the weights are not those of {config.folds} folds of one model"
    for part in found.folds:
        if [array.shape for array in part.values()] != [array.shape for array in first.values()]:
            return "the weights of two folds differ in shape"
    return None


def _text(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays as the bytes of an .npz; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            part = io.BytesIO()
            np.lib.format.write_array(part, np.ascontiguousarray(array), allow_pickle=False)
            # A fixed date: numpy's own savez may stamp the time of writing.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), part.getvalue())
    return buffer.getvalue()


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
