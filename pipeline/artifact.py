"""The artifact: trained weights and a manifest, all that training hands to inference.

Weights travel as arrays, by their place in the model (`pipeline.models.weight_names`), into a model
that shared code rebuilds, never as a serialized model: Keras 3.15 on Kaggle's TPU image saves
models that 3.13.2 on its GPU image cannot load, and loading a model can run code. No pickle is read
or written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from formats import npz, sealed_folder
from formats.checksums import opened
from pipeline import config as config_module
from pipeline.config import Config, custom_code
from pipeline.data import image_files, own_rows
from pipeline.data.labels import Target
from pipeline.data.own_rows import State
from pipeline.data.table_features import Encoding
from pipeline.errors import ArtifactError, DivergedError, PipelineError, reading
from pipeline.models import weight_names

MANIFEST, WEIGHTS, GOLDEN = sealed_folder.MANIFEST, "weights.npz", "golden.npz"
KEYS = (
    *("run_id", "status", "config", "custom_code", "classes", "target", "encoding", "prior"),
    *("versions", "git_commit", "bundle_sha256", "weights_sha256", "metrics", "golden"),
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


def save(  # noqa: PLR0913 - an artifact has these parts
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
    """Write the artifact folder in place of an older one, and return its manifest.

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
    every = {**weights, "golden outputs": golden_outputs}
    wrong = [name for name, array in every.items() if not np.isfinite(array).all()]
    if wrong:
        raise DivergedError(
            f"{len(wrong)} arrays of the trained model are not finite, "
            f"for example {', '.join(wrong[:3])} "
            f"(optimizer.base_rate={config.optimizer.base_rate:g})"
        )
    golden, decoded_by = (
        {"inputs": golden_inputs, "outputs": golden_outputs.astype(np.float32)},
        None,
    )
    if golden_file is not None:
        golden["file"] = np.frombuffer(golden_file, np.uint8)
        decoded_by = image_files.shape(config.data).rules
    files = {WEIGHTS: npz.to_bytes(weights), GOLDEN: npz.to_bytes(golden)}
    manifest: dict[str, Any] = {
        **details,
        "config": config.to_json(),
        "custom_code": custom_code.digest(config),
        "classes": list(target.names),
        "target": target.to_json(),
        "encoding": None if encoding is None else encoding.to_json(),
        "prior": prior.astype(float).tolist(),
        "weights_sha256": sha256(files[WEIGHTS]).hexdigest(),
        "golden": {
            "file": GOLDEN,
            "rows": len(golden_inputs),
            "outputs": "predictions, float32",
            "decoded_by": decoded_by,
        },
    }
    if missing := [key for key in KEYS if key not in manifest]:
        raise ValueError(f"The manifest lacks {missing}")
    return sealed_folder.write(folder, files, manifest)


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
    with reading(path, ArtifactError, AGAIN):
        if not path.is_file():
            raise ArtifactError(
                f"{folder} has no {MANIFEST}; "
                "expected an artifact as `python -m pipeline train` writes it.\n"
                "Correct --artifact, or train first."
            )
        content = path.read_bytes()
    try:
        manifest = opened(content)
        # Half of a surrogate pair could be neither shown nor written.
        json.dumps(manifest, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} cannot be trusted: {error}.\n{AGAIN}") from error
    for key, value in (expect or {}).items():
        if manifest.get(key) != value:
            raise ArtifactError(
                f"{path} has {key}={manifest.get(key)!r}; expected {value!r}: "
                "this is the artifact of another run.\n"
                "An old version of the dataset is mounted, or the files were exchanged. "
                "Publish the run again, then push infer again."
            )
    try:
        for name, entry in manifest["files"].items():
            with reading(folder / name, ArtifactError, AGAIN):
                sealed_folder.verify(folder, name, entry)
        artifact = _parsed(folder, manifest)
        _refuse_contradictions(artifact)
    except PipelineError as error:
        raise (
            error if isinstance(error, ArtifactError) else ArtifactError(f"{path}: {error}")
        ) from error
    except Exception as error:  # files of others make zipfile and numpy raise a dozen kinds
        raise ArtifactError(
            f"{folder} cannot be used: {type(error).__name__}: {str(error)[:300]}.\n{AGAIN}"
        ) from error
    return artifact


def _parsed(folder: Path, manifest: Mapping[str, Any]) -> Artifact:
    """Return the artifact of a verified folder."""
    config = config_module.from_json(manifest["config"])
    golden = npz.read(folder / GOLDEN)
    return Artifact(
        manifest,
        config,
        Target.from_json(manifest["target"]),
        own_rows.encoding_of(manifest["encoding"], config.data),
        np.array(manifest["prior"], np.float32),
        npz.read(folder / WEIGHTS),
        golden["inputs"],
        golden["outputs"],
        golden["file"].tobytes() if "file" in golden else None,
    )


def _refuse_contradictions(artifact: Artifact) -> None:
    """Raise `ValueError` unless the parts fit each other: somebody's own code may have written
    them.
    """
    manifest, config, target = artifact.manifest, artifact.config, artifact.target
    if manifest["weights_sha256"] != manifest["files"][WEIGHTS]["sha256"]:
        raise ValueError(f"weights_sha256 is not that of {WEIGHTS}")
    if any(not isinstance(value, int | float | None) for value in manifest["metrics"].values()):
        raise ValueError(f"metrics={str(manifest['metrics'])[:80]} are not numbers by name")
    if (artifact.golden_file is None) != (manifest["golden"]["decoded_by"] is None):
        raise ValueError("the golden file and what it was decoded by do not belong together")
    # In any other order, each prediction would get the name of another class.
    names, order = target.names, float if config.target == "ordinal" else str
    expected = tuple(sorted(set(names), key=order))
    if config.target == "regression" or (names and len(config.data.labels) > 1):
        expected = config.data.labels
    count = 0 if config.target == "own" else config.num_classes or config.outputs
    kind = target.kind, list(names), len(names)
    if names != expected or kind != (config.target, manifest["classes"], count):
        raise ValueError(
            f"classes={str(manifest['classes'])[:200]}, target={str(manifest['target'])[:200]};"
            f" expected {count} different texts, in order"
        )
    rows, shape = len(artifact.golden_inputs), (len(names),)
    if config.target == "own":
        shape = artifact.golden_outputs.shape[1:]
    expected_forms: dict[str, tuple[np.ndarray, str, tuple[int, ...]]] = {
        "golden inputs": (artifact.golden_inputs, config.data.dtype, (rows, *config.data.shape)),
        "golden outputs": (artifact.golden_outputs, "float32", (rows, *shape)),
        "the prior": (artifact.prior, "float32", shape),
        **{name: (array, "float32", array.shape) for name, array in artifact.weights.items()},
    }
    for name, (array, dtype, wanted) in expected_forms.items():
        good = rows > 0 and array.dtype == dtype and array.shape == wanted
        if not good or not np.isfinite(array).all():
            raise ValueError(
                f"{name}: {array.dtype} {array.shape}; expected finite {dtype} {wanted}"
            )
    parts, listed = artifact.folds, manifest.get("folds")
    names_of_weights = joined([parts[0]] * config.folds) if config.folds else parts[0]
    shapes = {tuple(array.shape for array in part.values()) for part in parts}
    if (
        (None if listed is None else len(listed)) != config.folds
        or list(artifact.weights) != list(names_of_weights)
        or len(shapes) > 1
    ):
        raise ValueError(f"the weights are not those of {config.folds or 'no'} folds of one model")
