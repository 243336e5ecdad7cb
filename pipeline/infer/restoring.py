"""Restoring: an artifact's models, checked by computing its golden outputs again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np

from pipeline import artifact as artifact_module
from pipeline.artifact import Artifact
from pipeline.config.data_layout import PIXELS
from pipeline.data import image_decoding, image_files
from pipeline.data.image_decoding import differing
from pipeline.errors import ArtifactError, ConfigError
from pipeline.infer import block_prediction
from pipeline.infer.forward_pass import Forward
from pipeline.models import architectures
from pipeline.runtime import devices

HALF, FULL = "mixed_float16", "float32"
PRECISIONS = ("auto", FULL, HALF)
# Largest difference between two predictions, for numbers in standard deviations. float32: other
# kernels add in another order (measured: below 1e-6 between JAX and TensorFlow on a CPU). float16
# has 11 bits, and its errors grow through the layers (measured 2026-11-22: 2.8e-3 at most over
# 12,000 rows of a small network).
TOLERANCE = {FULL: 1e-4, HALF: 2e-2}


# Grey levels, in the mean over the golden file's pixels, that another version of Pillow or OpenCV
# may differ by: what rounding each pixel in another way may do. Measured on photographs: 0 between
# Pillow 10.4, 11.3, 12.0 and 13.0; 0.6 to 15 with another filter or decode="reduced".
LEVELS = 0.5


@dataclass(frozen=True)
class Checked:
    """What came of the golden outputs.

    Attributes:
        precision: of the models.
        difference: the largest between two predictions, here and where the model was trained.
        tolerance: what was allowed.
        asked: whether the config asks for that tolerance; else it is the usual one.
    """

    precision: str
    difference: float
    tolerance: float
    asked: bool


def restore(
    artifact: Artifact, precision: str = "", show: Callable[[str], None] = print
) -> tuple[Forward, Checked]:
    """Return the artifact's models, one a fold, after computing the golden outputs again.

    "auto" takes float16 with float32 weights on a GPU, if predictions and best labels of the golden
    inputs are then those of the training; else float32. A T4 computes float16 several times as
    fast, and has no bfloat16. Only the forward pass runs, so no gradient can underflow.

    Args:
        precision: one of `PRECISIONS`; "": `infer_precision` of the config.
        show: takes a line if float16 does not agree.

    Raises:
        ArtifactError: if the weights do not fit, or the golden outputs differ.
        ConfigError: if `precision` is not one of `PRECISIONS`.
    """
    wanted = precision or artifact.config.infer_precision
    if wanted not in PRECISIONS:
        raise ConfigError(
            f"precision={wanted!r} cannot work: expected one of {', '.join(PRECISIONS)}.\n"
            "Correct --precision."
        )
    if wanted == "auto" and devices.found().platform == "gpu":
        forward, outputs = _computed(artifact, HALF)
        checked = _compared(artifact, outputs, HALF)
        target = artifact.target
        best = [list(target.best(each)) for each in (outputs, artifact.golden_outputs)]
        same = target.kind in ("regression", "own") or best[0] == best[1]
        if checked.difference <= checked.tolerance and same:
            return forward, checked
        show(
            f"float16 gives other predictions ({checked.difference:.1e} apart on golden inputs;"
            f" {checked.tolerance:.0e} is allowed); float32 is used"
        )
    wanted = FULL if wanted == "auto" else wanted
    forward, outputs = _computed(artifact, wanted)
    checked = _compared(artifact, outputs, wanted)
    if not checked.difference <= checked.tolerance:
        raise ArtifactError(
            "The model gives other outputs here than where it was trained:"
            f" {checked.difference:.2e} apart on {len(outputs)} golden inputs;"
            f" expected at most {checked.tolerance:.0e} in {wanted}.\n"
            f"Trained with {artifact.manifest['versions']}. Infer with the same commit"
            + (", or with precision float32." if wanted == HALF else ".")
            + f" If predictions so far apart will do, set golden_tolerance="
            f"{2 * checked.difference:.1g} in the config; the submission's lineage will say so."
        )
    return forward, checked


def check_decoding(artifact: Artifact, show: Callable[[str], None] = print) -> None:
    """Refuse to predict where files become other pixels than in training.

    Decodes the golden file and compares it with the first golden input. With the versions of the
    training all pixels have to be equal, else within `LEVELS` in the mean. Inputs that are in no
    image files have none to decode.

    Raises:
        ArtifactError: if the pixels differ; it names the rules that do.
    """
    if artifact.golden_file is None:
        return
    shape = image_files.shape(artifact.config.data)
    known, here = artifact.manifest["golden"]["decoded_by"], shape.rules
    other = differing(known, here, "in training")
    try:
        pixels = image_decoding.decode(artifact.golden_file, shape).astype(int)
    except image_decoding.BrokenImage as error:
        gap, found = np.inf, str(error)
    else:
        gap = float(np.abs(pixels - artifact.golden_inputs[0]).mean())
        found = f"it is {gap:.3g} grey levels off in the mean"
    same = all(known.get(name) == here.get(name) for name in ("Pillow", "OpenCV"))
    most = 0.0 if same else LEVELS
    if gap > most or any(known.get(name) != here[name] for name in PIXELS):
        raise ArtifactError(
            f"The artifact's golden file is decoded otherwise here than in training: {found};"
            f" expected at most {most:g}, by the same rules. "
            f"{other or 'The rules are the same: another build of the same versions decodes it'}.\n"
            "Infer with the commit and the versions of the training, or train again."
        )
    if other:
        show(f"The golden file decodes as in training ({gap:.3g} levels off), though {other}")


def averaged(
    artifact: Artifact, forward: Forward, inputs: np.ndarray, batch: int | None = None
) -> np.ndarray:
    """Return the mean of the folds' predictions, float32 (n, k).

    Args:
        batch: rows at once; None: the forward pass's, halved where it does not fit.
    """
    return block_prediction.mean(artifact, forward.outputs(inputs, batch))


def _computed(artifact: Artifact, precision: str) -> tuple[Forward, np.ndarray]:
    """Return the models and their predictions for the golden inputs."""
    before, models = keras.config.dtype_policy(), []
    keras.config.set_dtype_policy(precision)
    try:
        for weights in artifact.folds:
            with _unoptimized():
                models.append(architectures.build(artifact.config))
            artifact_module.assign(models[-1], weights)
    finally:
        keras.config.set_dtype_policy(before)
    forward = Forward(models)
    # With the batch of the first blocks, or a smaller one where the device has no room for it.
    return forward, averaged(artifact, forward, artifact.golden_inputs)


def _compared(artifact: Artifact, outputs: np.ndarray, precision: str) -> Checked:
    unit = np.array(artifact.target.spread or 1.0)
    if artifact.target.log or artifact.target.kind == "own":
        unit = np.abs(artifact.golden_outputs) + 1
    difference = float(np.max(np.abs(outputs - artifact.golden_outputs) / unit))
    asked = artifact.config.golden_tolerance
    return Checked(precision, difference, asked or TOLERANCE[precision], asked is not None)


@contextmanager
def _unoptimized() -> Iterator[None]:
    """Let XLA compile without most optimizations, for random weights that are replaced at once.

    These programs give other bits, so no other code may get them: JAX caches the programs of
    another matmul precision separately.
    """
    if keras.backend.backend() != "jax":
        yield
        return
    import jax

    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)  # type: ignore[no-untyped-call]
    with jax.default_matmul_precision("highest"):
        jax.config.update(name, True)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            jax.config.update(name, before)  # type: ignore[no-untyped-call]
