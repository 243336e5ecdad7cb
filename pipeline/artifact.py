"""Artifact: trained weights and a manifest. The contract between training and inference, which meet nowhere else.

Weights travel as arrays by name into a model that shared code rebuilds, never as a serialized model: Keras 3.15 on Kaggle's TPU image
saves models that 3.13.2 on its GPU image cannot load, and loading a model can run code. No pickle is read or written.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import config as config_module
from pipeline.config import Config
from pipeline.errors import ArtifactError, PipelineError, writing

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


@dataclass(frozen=True)
class Artifact:
    """A loaded and verified artifact.

    Attributes:
        manifest: everything in manifest.json.
        config: the run's config, rebuilt.
        classes: the labels' texts; the model's outputs are in this order.
        weights: arrays by name, in the model's order.
        golden_images: uint8 (g, height, width, channels).
        golden_outputs: float32 (g, num_classes), probabilities computed in float32 by the run that trained.
    """

    manifest: Mapping[str, Any]
    config: Config
    classes: tuple[str, ...]
    weights: Mapping[str, np.ndarray]
    golden_images: np.ndarray
    golden_outputs: np.ndarray


def sha256(path: Path) -> str:
    """Return the file's sha256 as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def save(
    folder: Path,
    *,
    model: Any,
    config: Config,
    classes: tuple[str, ...],
    golden_images: np.ndarray,
    golden_outputs: np.ndarray,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the artifact folder in one rename, replacing an older one, and return its manifest.

    Args:
        folder: where; its parent exists.
        model: the trained Keras model.
        config, classes: of the run.
        golden_images: uint8 (g, height, width, channels). golden_outputs: float32 (g, num_classes), probabilities.
        details: run_id, status, versions, git_commit, bundle_sha256, metrics, and what else the manifest should say.

    Raises:
        DiskError: if there is no space; an older artifact is still there.
    """
    with writing(folder):
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _write(fresh / WEIGHTS, _npz(weights_of(model)))
            _write(fresh / GOLDEN, _npz({"images": golden_images, "outputs": golden_outputs.astype(np.float32)}))
            files = {
                name: {"sha256": sha256(fresh / name), "size": (fresh / name).stat().st_size}
                for name in (WEIGHTS, GOLDEN)
            }
            manifest = {
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
            _write(fresh / MANIFEST, (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode())
            fresh.chmod(0o755)
            old = folder.with_name(f".{folder.name}-old")
            shutil.rmtree(old, ignore_errors=True)
            if folder.exists():
                folder.rename(old)
            fresh.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return manifest


def load(folder: Path, expect: Mapping[str, str] | None = None) -> Artifact:
    """Return the artifact in a folder, after every byte in it was checked against its manifest.

    Args:
        folder: holds manifest.json and the files it names.
        expect: values that the manifest must have, for example run_id and weights_sha256 of the run that was pushed.

    Raises:
        ArtifactError: if an announced file is missing or changed, or the manifest is not what `expect` says. Other files are not read.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise ArtifactError(
            f"{folder} has no {MANIFEST}; expected an artifact as `python -m pipeline train` writes it.\nCorrect --artifact, or train first."
        )
    try:
        manifest = json.loads(path.read_text())
        missing = [key for key in KEYS if key not in manifest]
        files = {
            str(name): (str(entry["sha256"]), int(entry["size"])) for name, entry in manifest.get("files", {}).items()
        }
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ArtifactError(f"{path} is not a manifest: {error}.\nPull or download the artifact again.") from error
    if missing:
        raise ArtifactError(f"{path} lacks {', '.join(missing)}.\nPull or download the artifact again.")
    for key, value in (expect or {}).items():
        if manifest.get(key) != value:
            raise ArtifactError(
                f"{path} has {key}={manifest.get(key)!r}; expected {value!r}: this is the artifact of another run.\n"
                "An old dataset version is mounted, or the files were exchanged. Publish the run again, then push infer again."
            )
    for name, (digest, size) in files.items():
        file = folder / name
        if Path(name).name != name or not file.is_file() or file.is_symlink():
            raise ArtifactError(f"{file} is missing; {MANIFEST} announces it.\nPull or download the artifact again.")
        if file.stat().st_size != size or sha256(file) != digest:
            raise ArtifactError(
                f"{file} has other bytes than {MANIFEST} says: {file.stat().st_size} bytes, sha256 {sha256(file)[:12]}…; "
                f"expected {size} bytes, {digest[:12]}….\nIt was changed or cut off: pull or download the artifact again."
            )
    if manifest["weights_sha256"] != files.get(WEIGHTS, ("", 0))[0] or GOLDEN not in files:
        raise ArtifactError(
            f"{path} contradicts itself about {WEIGHTS} or {GOLDEN}.\nPull or download the artifact again."
        )
    try:
        config = config_module.from_json(manifest["config"])
        golden = _arrays(folder / GOLDEN)
        return Artifact(
            manifest,
            config,
            tuple(map(str, manifest["classes"])),
            _arrays(folder / WEIGHTS),
            golden["images"],
            golden["outputs"],
        )
    except PipelineError as error:
        raise ArtifactError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise ArtifactError(f"{folder} cannot be read: {error}.\nPull or download the artifact again.") from error


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
