"""Save trained models as artifacts, and load them for inference.

An artifact consists of a manifest, weights, and golden inputs and outputs. The weights are stored
as arrays, keyed by their index in the model (`pipeline.models.weight_names`). To load them, the
same code rebuilds the model and assigns the weights.

Keras' own format is not used: Keras 3.13.2 on Kaggle's GPU image cannot load models from Keras 3.15
on its TPU image, and loading a model can run code. Pickle is never used either.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from formats import npz, sealed_folder
from formats.checksums import opened
from pipeline import config as config_module
from pipeline.config import Config, custom_code
from pipeline.data import image_decoding
from pipeline.data.labels import Target
from pipeline.data.table_features import Encoding
from pipeline.errors import ArtifactError
from pipeline.models import weight_names

MANIFEST, WEIGHTS, GOLDEN = sealed_folder.MANIFEST, "weights.npz", "golden.npz"


@dataclass(frozen=True)
class Artifact:
    """A trained model that is ready to be saved, or that was loaded and verified.

    Attributes:
        manifest: contents of manifest.json. When passed to `save`, it must contain run_id, status,
            versions, git_commit, bundle_sha256 and metrics, and can contain other values. `save`
            adds the remaining ones.
        encoding: encoding of a table, state of a custom reader, or None for images.
        prior: mean prediction over the validation examples, float32 (k,), or in the shape of one
            output if target="custom". It is used for corrupt inputs.
        weights: arrays by key (`weight_names`), in the model's order. With folds, these are the
            arrays returned by `joined`, whose keys start with "fold-1/", "fold-2/" and so on.
        golden_inputs: uint8 (g, height, width, channels), or float32 (g, features).
        golden_outputs: float32 (g, k), predictions that the training run computed in float32,
            averaged over the folds.
        golden_file: contents of the first golden input's image file, or None if it has no file.
    """

    manifest: Mapping[str, Any]
    config: Config
    target: Target
    encoding: Encoding | str | None
    prior: np.ndarray
    weights: Mapping[str, np.ndarray]
    golden_inputs: np.ndarray
    golden_outputs: np.ndarray
    golden_file: bytes | None = None

    @property
    def folds(self) -> tuple[Mapping[str, np.ndarray], ...]:
        """The weights of each fold, keyed as in the model. Identical folds have only one entry."""
        if self.config.folds is None:
            return (self.weights,)
        parts: dict[str, dict[str, np.ndarray]] = {}
        for name, array in self.weights.items():
            fold, _, key = name.partition("/")
            parts.setdefault(fold, {})[key] = array
        first, *others = parts.values()
        return first, *({key: part.get(key, first[key]) for key in first} for part in others)

    @property
    def fitted_to_all(self) -> bool:
        """Whether there are folds, but a single model that was fitted to the rows of all folds."""
        return self.config.folds is not None and len(self.folds) == 1

    @property
    def may_have_seen_held_out(self) -> bool:
        """Whether an earlier stage may have been trained on rows that this run held out."""
        return bool((self.manifest.get("init_from") or {}).get("may_have_seen_held_out"))


def weights_of(model: Any) -> dict[str, np.ndarray]:
    """Return the model's weights as {key: float32 array}, in model order (see `weight_names`)."""
    keys = weight_names.keys(model)
    return {keys[id(one)]: np.asarray(one.numpy(), np.float32) for one in model.weights}


def assign(model: Any, weights: Mapping[str, np.ndarray]) -> None:
    """Assign weights to a Keras model, or raise `ArtifactError` if an index or a shape differs."""
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
            "Expected the same layers in the same order, with the same weight shapes. "
            "Check out the commit listed in the manifest, or train again."
        )
    for weight in model.weights:
        weight.assign(weights[keys[id(weight)]])


def joined(folds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the weights of all folds as one mapping.

    Arrays that are identical in all folds, such as the arrays of a frozen network, are stored only
    with the first fold.

    >>> zero, one = np.zeros(1), np.ones(1)
    >>> list(joined([{"0 a": one, "1 b": one}, {"0 a": one, "1 b": zero}]))
    ['fold-1/0 a', 'fold-1/1 b', 'fold-2/1 b']
    """
    first, *others = folds
    same = {
        name
        for name in first
        if all(first[name].tobytes() == fold[name].tobytes() for fold in others)
    }
    return {
        f"fold-{number}/{name}": array
        for number, fold in enumerate(folds, start=1)
        for name, array in fold.items()
        if number == 1 or name not in same
    }


def save(folder: Path, artifact: Artifact) -> dict[str, Any]:
    """Write an artifact folder, replacing any existing one, and return its manifest.

    The parent of the folder must exist. If the artifact cannot be written, `DiskError` is raised
    and any existing one is kept.
    """
    config, target, encoding = artifact.config, artifact.target, artifact.encoding
    golden = {"inputs": artifact.golden_inputs, "outputs": artifact.golden_outputs}
    decoded_by = None
    if artifact.golden_file is not None:
        golden["file"] = np.frombuffer(artifact.golden_file, np.uint8)
        decoded_by = image_decoding.rules(config.data)
    files = {WEIGHTS: npz.to_bytes(artifact.weights), GOLDEN: npz.to_bytes(golden)}
    manifest = {
        **artifact.manifest,
        "config": config.to_json(),
        "custom_code": custom_code.digest(config),
        "classes": list(target.names),
        "target": asdict(target),
        "encoding": encoding.to_json() if isinstance(encoding, Encoding) else encoding,
        "prior": artifact.prior.astype(float).tolist(),
        "weights_sha256": sha256(files[WEIGHTS]).hexdigest(),
        "golden": {"rows": len(artifact.golden_inputs), "decoded_by": decoded_by},
    }
    return sealed_folder.write(folder, files, manifest)


def load(folder: Path, expect: Mapping[str, str] | None = None) -> Artifact:
    """Load the artifact in a folder and verify each file against the sealed manifest.

    `expect` contains required manifest values, for example the run_id and weights_sha256 pinned by
    a bundle.

    Raises:
        ArtifactError: if a file is missing or was modified, the parts are inconsistent, or a value
            differs from `expect`.
    """
    path = folder / MANIFEST
    try:
        manifest = opened(path.read_bytes())
        for name in (WEIGHTS, GOLDEN):
            sealed_folder.verify(folder / name, manifest["files"][name])
        loaded = _parsed(folder, manifest)
    except Exception as error:  # zipfile and numpy raise many types for invalid files
        raise ArtifactError(
            f"{path}, or another file in its folder, is invalid ({type(error).__name__}:"
            f" {str(error)[:300]}).\nExpected an artifact written by `python -m pipeline train`."
            " Correct the path, or pull or download the artifact again."
        ) from error
    require(path, manifest, expect or {})
    return loaded


def require(path: Path, manifest: Mapping[str, Any], expect: Mapping[str, str]) -> None:
    for key, value in expect.items():
        if manifest.get(key) != value:
            raise ArtifactError(
                f"{path} has {key}={manifest.get(key)!r}; expected {value!r}."
                " This artifact is from a different run.\nEither an old dataset version is mounted,"
                " or files were modified. Publish the run again, then run `invoke push-infer`"
                " again."
            )


def _parsed(folder: Path, manifest: Mapping[str, Any]) -> Artifact:
    config = config_module.from_json(manifest["config"])
    target, prior = Target.from_json(manifest["target"]), np.array(manifest["prior"], np.float32)
    golden = npz.read(folder / GOLDEN)
    inputs, outputs = golden["inputs"], golden["outputs"].astype(np.float32)
    file = golden["file"].tobytes() if "file" in golden else None
    if not isinstance(manifest["golden"]["decoded_by"], dict if file else None | dict):
        raise TypeError("golden.decoded_by is missing its rules")
    for name, kind in (("run_id", str), ("custom_code", str), ("metrics", dict)):
        if not isinstance(manifest[name], kind):
            raise TypeError(f"{name} must be a {kind.__name__}")
    if manifest["weights_sha256"] != manifest["files"][WEIGHTS]["sha256"]:
        raise ValueError(f"weights_sha256 does not match {WEIGHTS}")
    rows, shape = len(inputs), prior.shape if config.target == "custom" else (len(target.names),)
    found = inputs.dtype.name, inputs.shape, outputs.shape, prior.shape
    expected = config.data.dtype, (rows, *config.data.shape), (rows, *shape), shape
    if found != expected or not rows:
        raise ValueError(f"golden inputs, outputs and prior: expected {expected}, got {found}")
    encoding = manifest["encoding"]
    if config.data.kind == "table":
        encoding = Encoding.from_json(encoding, config.data)
    weights = npz.read(folder / WEIGHTS)
    return Artifact(manifest, config, target, encoding, prior, weights, inputs, outputs, file)
