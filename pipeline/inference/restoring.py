"""Restoring: an artifact's models, checked by computing its golden outputs again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import keras
import numpy as np

from pipeline import artifact as artifact_module
from pipeline.artifact import Artifact
from pipeline.errors import ArtifactError, ConfigError
from pipeline.inference import block_prediction
from pipeline.inference.forward_pass import Forward
from pipeline.models import architectures
from pipeline.runtime import devices

HALF, FULL = "mixed_float16", "float32"
PRECISIONS = ("auto", FULL, HALF)
# Largest difference between two predictions, for numbers in standard deviations. float32: other
# kernels add in another order (measured: below 1e-6 between JAX and TensorFlow on a CPU). float16
# has 11 bits, and its errors grow through the layers (`invoke prove hardware` has what was measured
# on held-out rows).
TOLERANCE = {FULL: 1e-4, HALF: 2e-2}


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
