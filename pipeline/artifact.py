"""The artifact: trained weights and a manifest, all that training hands to inference.

Weights travel as arrays, by their place in the model (`pipeline.models.weight_names`), into a model
that shared code rebuilds, never as a serialized model: Keras 3.15 on Kaggle's TPU image saves
models that 3.13.2 on its GPU image cannot load, and loading a model can run code. No pickle is read
or written.
"""

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from formats import npz
from formats.atomic_file import sync_folder, write_synced
from formats.checksums import file_entry, opened, sealed
from formats.errors import writing
from pipeline import config as config_module
from pipeline.config import Config
from pipeline.data import image_files, own_rows
from pipeline.data.labels import Target
from pipeline.data.own_rows import State
from pipeline.data.table_features import Encoding
from pipeline.errors import ArtifactError, DivergedError, PipelineError, reading
from pipeline.models import weight_names

MANIFEST, WEIGHTS, GOLDEN = "manifest.json", "weights.npz", "golden.npz"
KEYS = (
    "run_id",
    "status",
    "config",
    "classes",
    "target",
    "encoding",
    "prior",
    "versions",
    "git_commit",
    "bundle_sha256",
    "weights_sha256",
    "metrics",
    "golden",
    "files",
)
AGAIN = "Pull or download the artifact again."


@dataclass(frozen=True)
class Artifact:
    """A loaded and verified artifact.

    Attributes:
        manifest: everything in manifest.json.
        config: the run's config, rebuilt.
        target: what the model's outputs mean, and in which order.
        encoding: of a table, or the state of an own reader; None for images.
        prior: float32 (k,), or as an output of target="own": the mean prediction over the
            validation examples, which a corrupt input gets.
        weights: arrays by key (`weight_names`), in the model's order; with folds "fold-1/<key>" and
            so on, fold after fold.
        golden_inputs: uint8 (g, height, width, channels), or float32 (g, features).
        golden_file: the bytes of the image file that the first golden input was decoded from; None
            where inputs are in no image files.
        golden_outputs: float32 (g, k), predictions that the training run computed in float32; the
            mean over the folds.
    """

    manifest: Mapping[str, Any]
    config: Config
    target: Target
    encoding: Encoding | State | None
    prior: np.ndarray
    weights: Mapping[str, np.ndarray]
    golden_inputs: np.ndarray
    golden_outputs: np.ndarray
    golden_file: bytes | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels' texts."""
        return self.target.names

    @property
    def folds(self) -> tuple[Mapping[str, np.ndarray], ...]:
        """The weights of each fold, by the model's own keys; one without folds."""
        if self.config.folds is None:
            return (self.weights,)
        parts: dict[str, dict[str, np.ndarray]] = {}
        for name, array in self.weights.items():
            fold, _, own = name.partition("/")
            parts.setdefault(fold, {})[own] = array
        return tuple(parts.values())


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Return the model's weights by key (`weight_names`): float32 arrays, in the model's order."""
    keys = weight_names.keys(model)
    return {keys[id(one)]: np.asarray(one.numpy(), np.float32) for one in model.weights}


def assign(model: Any, weights: Mapping[str, np.ndarray]) -> None:
    """Put weights into a model that shared code built.

    Args:
        model: a Keras model.
        weights: arrays by key, as `weights_of` gives them.

    Raises:
        ArtifactError: if a place or a shape differs.
    """
    keys = weight_names.keys(model)
    weights = weight_names.matched(keys.values(), weights)
    wanted = {keys[id(weight)]: tuple(weight.shape) for weight in model.weights}
    given = {name: tuple(array.shape) for name, array in weights.items()}
    differing = [
        f"{name}: weights {given.get(name)}, model {wanted.get(name)}"
        for name in sorted(wanted.keys() | given.keys())
        if wanted.get(name) != given.get(name)
    ]
    if differing:
        raise ArtifactError(
            f"{len(differing)} weights do not fit the model: {'; '.join(differing[:5])}.\n"
            "Expected the same layers, in the same order, with weights of the same shapes. "
            "Use the commit that the manifest names, or train again."
        )
    for weight in model.weights:
        weight.assign(weights[keys[id(weight)]])


def joined(folds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the weights of each fold as one mapping.

    >>> list(joined([{"0.0 a/kernel": np.zeros(1)}, {"0.0 a/kernel": np.ones(1)}]))
    ['fold-1/0.0 a/kernel', 'fold-2/0.0 a/kernel']
    """
    return {
        f"fold-{number}/{name}": array
        for number, part in enumerate(folds, start=1)
        for name, array in part.items()
    }


def save(
    folder: Path,
    *,
    model: Any,
    folds: Sequence[Mapping[str, np.ndarray]] = (),
    config: Config,
    target: Target,
    encoding: Encoding | State | None,
    prior: np.ndarray,
    golden_inputs: np.ndarray,
    golden_outputs: np.ndarray,
    golden_file: bytes | None = None,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the artifact folder beside its place, rename it there, and return its manifest.

    An older artifact is renamed to `.<name>-old` first and removed last. If the second rename fails
    it gets its name back; after a kill between the two, the next save gives it back.

    Args:
        folder: of the artifact; its parent exists.
        model: the trained Keras model.
        folds: the weights of each fold, saved in place of the model's; empty without folds.
        config, target, encoding, prior, golden_inputs, golden_outputs, golden_file: as in
            `Artifact`.
        details: run_id, status, versions, git_commit, bundle_sha256, metrics, and what else the
            manifest should say.

    Raises:
        DivergedError: if a weight or a golden output is not finite; an older artifact stays.
        DiskError: if it cannot be written; an older artifact stays.
    """
    weights = joined(folds) if folds else weights_of(model)
    wrong = [
        name
        for name, array in {**weights, "golden outputs": golden_outputs}.items()
        if not np.isfinite(array).all()
    ]
    if wrong:
        raise DivergedError(
            f"{len(wrong)} arrays of the trained model are not finite, "
            f"for example {', '.join(wrong[:3])} "
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
            golden = {"inputs": golden_inputs, "outputs": golden_outputs.astype(np.float32)}
            decoded_by = None
            if golden_file is not None:
                golden["file"] = np.frombuffer(golden_file, np.uint8)
                decoded_by = image_files.shape(config.data).rules
            write_synced(fresh / WEIGHTS, npz.to_bytes(weights))
            write_synced(fresh / GOLDEN, npz.to_bytes(golden))
            files = {name: file_entry(fresh / name) for name in (WEIGHTS, GOLDEN)}
            manifest: dict[str, Any] = {
                **details,
                "config": config.to_json(),
                "classes": list(target.names),
                "target": target.to_json(),
                "encoding": None if encoding is None else encoding.to_json(),
                "prior": prior.astype(float).tolist(),
                "weights_sha256": files[WEIGHTS]["sha256"],
                "golden": {
                    "file": GOLDEN,
                    "rows": len(golden_inputs),
                    "outputs": "predictions, float32",
                    "decoded_by": decoded_by,
                },
                "files": files,
            }
            missing = [key for key in KEYS if key not in manifest]
            if missing:
                raise ValueError(f"The manifest lacks {missing}")
            content = sealed(manifest)
            write_synced(fresh / MANIFEST, content)
            fresh.chmod(0o755)
            sync_folder(fresh)
            if folder.exists():
                folder.rename(old)
            try:
                fresh.rename(folder)
            except OSError:
                if old.exists():
                    old.rename(folder)
                raise
            sync_folder(folder.parent)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return opened(content)


def load(folder: Path, expect: Mapping[str, str] | None = None) -> Artifact:
    """Return the artifact in a folder, verified byte for byte against its sealed manifest.

    Args:
        folder: holds manifest.json and the files that it lists; no other file is read.
        expect: values that the manifest must have, for example run_id and weights_sha256 of the run
            that was pushed.

    Raises:
        ArtifactError: if a listed file is missing or changed, the manifest is not what `expect`
            says, or the parts do not fit each other.
    """
    path = folder / MANIFEST
    content, manifest, files = _read_manifest(path)
    for key, value in (expect or {}).items():
        if manifest.get(key) != value:
            raise ArtifactError(
                f"{path} has {key}={manifest.get(key)!r}; expected {value!r}: "
                "this is the artifact of another run.\n"
                "An old version of the dataset is mounted, or the files were exchanged. "
                "Publish the run again, then push infer again."
            )
    # After `expect`, so that the artifact of another run is called that.
    try:
        opened(content)
    except ValueError as error:
        raise ArtifactError(
            f"{path} cannot be trusted: {error}.\n{AGAIN} "
            "If an older version wrote it, use the commit that it names, or train again."
        ) from error
    for name, entry in files.items():
        _verify(folder, name, entry)
    listed = files.keys() >= {WEIGHTS, GOLDEN}
    if not listed or manifest["weights_sha256"] != files[WEIGHTS]["sha256"]:
        raise ArtifactError(f"{path} contradicts itself about {WEIGHTS} or {GOLDEN}.\n{AGAIN}")
    try:
        config = config_module.from_json(manifest["config"])
        target = _target(manifest, config)
        encoding = own_rows.encoding_of(manifest["encoding"], config.data)
        prior = np.array(manifest["prior"], np.float32)
        weights, golden = npz.read(folder / WEIGHTS), npz.read(folder / GOLDEN)
        file = golden["file"].tobytes() if "file" in golden else None
        if (file is None) != (manifest["golden"]["decoded_by"] is None):
            raise ValueError("the golden file and what it was decoded by do not belong together")
        metrics = manifest["metrics"]
        if not isinstance(metrics, dict) or any(
            isinstance(number, str | list | dict) for number in metrics.values()
        ):
            raise ValueError(f"metrics={str(metrics)[:80]} are not numbers by name")
        arrays = golden["inputs"], golden["outputs"]
        found = Artifact(manifest, config, target, encoding, prior, weights, *arrays, file)
    except PipelineError as error:
        raise ArtifactError(f"{path}: {error}") from error
    except Exception as error:  # files of others make zipfile and numpy raise a dozen kinds
        raise ArtifactError(
            f"{folder} cannot be read: {type(error).__name__}: {str(error)[:300]}.\n{AGAIN}"
        ) from error
    problem = _problem(found)
    if problem:
        raise ArtifactError(f"{folder} contradicts itself: {problem}.\n{AGAIN}")
    return found


def _read_manifest(path: Path) -> tuple[bytes, dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the bytes of manifest.json, what it says, and {"sha256", "size"} of each file."""
    with reading(path, ArtifactError, AGAIN):
        if not path.is_file():
            raise ArtifactError(
                f"{path.parent} has no {MANIFEST}; "
                "expected an artifact as `python -m pipeline train` writes it.\n"
                "Correct --artifact, or train first."
            )
        try:
            content = path.read_bytes()
            manifest = json.loads(content.decode())
            # Half of a surrogate pair could be neither shown nor written.
            json.dumps(manifest, ensure_ascii=False).encode()
            files = {
                name: {"sha256": entry["sha256"], "size": entry["size"]}
                for name, entry in manifest.get("files", {}).items()
            }
            for name, entry in files.items():
                if not isinstance(entry["sha256"], str) or not isinstance(entry["size"], int):
                    raise ValueError(f"files[{name!r}] is {entry}")
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise ArtifactError(f"{path} is not a manifest: {error}.\n{AGAIN}") from error
    missing = [key for key in KEYS if key not in manifest]
    if missing:
        raise ArtifactError(f"{path} lacks {', '.join(missing)}.\n{AGAIN}")
    return content, manifest, files


def _verify(folder: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Refuse a file that is not there with these bytes."""
    file = folder / name
    # The name comes over the network, so it may not be a path. A link could change its target after
    # this check.
    good = re.fullmatch(r"[\w .-]{1,200}", name)
    with reading(file, ArtifactError, AGAIN):
        if not good or not file.is_file() or file.is_symlink():
            raise ArtifactError(f"{folder / name[:200]} is missing; {MANIFEST} lists it.\n{AGAIN}")
        found = file_entry(file)
    if found != entry:
        raise ArtifactError(
            f"{file} has other bytes than {MANIFEST} says: "
            f"{found['size']} bytes, sha256 {found['sha256'][:12]}…; "
            f"expected {entry['size']} bytes, {entry['sha256'][:12]}….\n"
            f"It was changed or is not complete. {AGAIN}"
        )


def _target(manifest: Mapping[str, Any], config: Config) -> Target:
    """Return what the outputs mean, if the classes are in the order of `pipeline.data.labels`.

    In any other order, each prediction would get the name of another class.
    """
    target, value = Target.from_json(manifest["target"]), manifest["classes"]
    if config.target == target.kind == "own" and value == []:
        return target
    number = config.num_classes or config.outputs
    order = float if config.target == "ordinal" else str
    sorts = config.target != "regression" and len(config.data.labels) == 1
    if (
        isinstance(value, list)
        and all(isinstance(name, str) for name in value)
        and len(set(value)) == len(value) == number
        and (value == sorted(value, key=order) if sorts else value == list(config.data.labels))
        and (target.kind, target.names) == (config.target, tuple(value))
    ):
        return target
    raise ArtifactError(
        f"classes={str(value)[:200]}, target={str(manifest['target'])[:200]}; "
        f"expected {number} different texts, in order.\n{AGAIN}"
    )


def _problem(found: Artifact) -> str | None:
    """Return why weights and golden arrays do not fit the config; None if they do."""
    config, inputs, outputs = found.config, found.golden_inputs, found.golden_outputs
    shape = config.data.shape
    dtype = np.dtype(config.data.dtype)
    if inputs.dtype != dtype or inputs.ndim < 1 or not len(inputs) or inputs.shape[1:] != shape:
        expected = f"{dtype} (1 or more, {', '.join(map(str, shape))})"
        return f"golden inputs are {inputs.dtype} {inputs.shape}; expected {expected}"
    if not np.isfinite(inputs).all():
        return "golden inputs are not finite"
    shape = outputs.shape[1:] if config.target == "own" else (len(found.classes),)
    if outputs.dtype != np.float32 or outputs.shape != (len(inputs), *shape):
        expected = f"float32 {(len(inputs), *shape)}"
        return f"golden outputs are {outputs.dtype} {outputs.shape}; expected {expected}"
    if found.prior.shape != shape or not np.isfinite(found.prior).all():
        return f"the prior is {str(found.manifest['prior'])[:200]}; expected finite numbers {shape}"
    for name, array in {**found.weights, "golden outputs": outputs}.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            return f"{name} is not finite float32"
    if config.folds is None:
        return "it has folds, and its config none" if "folds" in found.manifest else None
    listed, first = found.manifest.get("folds"), found.folds[0] if found.folds else {}
    if (
        not isinstance(listed, list)
        or len(listed) != config.folds
        or list(found.weights) != list(joined([first] * config.folds))
    ):
        return f"the weights are not those of {config.folds} folds of one model"
    shapes = {tuple(array.shape for array in part.values()) for part in found.folds}
    return "the weights of two folds differ in shape" if len(shapes) > 1 else None
