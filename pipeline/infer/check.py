"""Check: an artifact's models and its decoding of files give here what they gave in training.

The golden outputs are computed again before anything is predicted, by the program that the test set
goes through, and the golden file is decoded again.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import keras
import numpy as np

from pipeline import artifact as artifact_module
from pipeline.artifact import Artifact
from pipeline.data import image_decoding
from pipeline.errors import ArtifactError
from pipeline.infer import forward_pass
from pipeline.infer.forward_pass import Forward, Show
from pipeline.models import architectures, published
from pipeline.runtime import devices

HALF, FULL = "mixed_float16", "float32"
# Largest difference between two predictions, for numbers in standard deviations. float32: other
# kernels add in another order (measured: below 1e-6 between JAX and TensorFlow on a CPU). float16
# has 11 bits, and its errors grow through the layers (measured 2026-11-22: 2.8e-3 at most over
# 12,000 rows of a small network).
TOLERANCE = {FULL: 1e-4, HALF: 2e-2}
# Grey levels, in the mean over the golden file's pixels, that another version of Pillow or OpenCV
# may differ by: what rounding each pixel in another way may do. Measured on photographs: 0 between
# Pillow 10.4, 11.3, 12.0 and 13.0; 0.6 to 15 with another filter or decode="reduced".
LEVELS = 0.5


class Checked(NamedTuple):
    """The outcome of the golden check.

    Attributes:
        run_id: of the training.
        precision: of the models.
        difference: the largest between two predictions, here and where the model was trained.
        tolerance: the largest that is allowed; a difference of NaN is not.
    """

    run_id: str
    precision: str
    difference: float
    tolerance: float


def restore(
    artifact: Artifact, precision: str = "", *, rows: int = 0, show: Show = print
) -> tuple[Forward, Checked]:
    """Return the artifact's models, one per fold, after computing the golden outputs again.

    "auto" takes float16 with float32 weights on a GPU, if the predictions of the golden inputs are
    then those of the training; else float32. A T4 computes float16 several times as fast, and has
    no bfloat16. Only the forward pass runs, so no gradient can underflow.

    Args:
        precision: "auto", "float32" or "mixed_float16"; "": `infer_precision` of the config.
        rows: of the test set, from which the batch follows.
        show: takes a line if float16 does not agree, or a batch does not fit.

    Raises:
        ArtifactError: if the weights do not fit, or the golden outputs differ.
    """
    precision = precision or artifact.config.infer_precision
    # Rounded to float16, rows that no golden output is of take other ways through trees.
    trees = artifact.config.fit == "boosting"
    if precision == "auto" and devices.found().platform == "gpu" and not trees:
        forward, checked = _restored(artifact, HALF, rows, show)
        if checked.difference <= checked.tolerance:
            return forward, checked
        show(
            f"float16 gives other predictions ({checked.difference:.1e} apart on golden inputs;"
            f" {checked.tolerance:.0e} is allowed); float32 is used"
        )
    precision = FULL if precision == "auto" else precision
    forward, checked = _restored(artifact, precision, rows, show)
    if not checked.difference <= checked.tolerance:
        raise ArtifactError(
            "The model gives other outputs here than where it was trained:"
            f" {checked.difference:.2e} apart on {len(artifact.golden_inputs)} golden inputs;"
            f" expected at most {checked.tolerance:.0e} in {precision}.\n"
            f"Trained with {artifact.manifest['versions']}. Infer with the same commit, in float32."
        )
    return forward, checked


def _restored(artifact: Artifact, precision: str, rows: int, show: Show) -> tuple[Forward, Checked]:
    """Return the models, and how their predictions for the golden inputs compare."""
    models, networks = [], published.carried(artifact.manifest)
    with building(precision):
        for weights in artifact.folds:
            models.append(architectures.build(artifact.config, networks=networks))
            artifact_module.assign(models[-1], weights)
    golden, expected = artifact.golden_inputs, artifact.golden_outputs
    forward = Forward(models, forward_pass.batch_size(golden, rows), show)
    outputs = forward_pass.mean_of_folds(artifact, forward.outputs(golden))
    unit = np.array(artifact.target.spread or 1.0)
    if artifact.target.log or artifact.target.kind == "custom":
        unit = np.abs(expected) + 1
    difference = float(np.max(np.abs(outputs - expected) / unit))
    checked = Checked(artifact.manifest["run_id"], precision, difference, TOLERANCE[precision])
    return forward, checked


@contextmanager
def building(precision: str) -> Iterator[None]:
    """Let Keras build models in a precision, whose random weights are replaced at once.

    So XLA compiles what draws them without optimizations, in a quarter of the time. Such programs
    give other bits. No other code gets them, since JAX keeps the programs of another matmul
    precision apart.
    """
    policy, option = keras.config.dtype_policy(), "jax_disable_most_optimizations"
    keras.config.set_dtype_policy(precision)
    with ExitStack() as after:
        after.callback(keras.config.set_dtype_policy, policy)
        if keras.backend.backend() == "jax":
            import jax

            after.enter_context(jax.default_matmul_precision("highest"))
            after.callback(jax.config.update, option, jax.config.read(option))  # type: ignore[no-untyped-call]
            jax.config.update(option, True)  # type: ignore[no-untyped-call]
        yield


def check_decoding(artifact: Artifact) -> None:
    """Refuse to predict where files become other pixels than in training.

    Decodes the golden file and compares it with the first golden input. The pixels have to be
    within `LEVELS` in the mean. Inputs outside of image files have nothing to decode.

    Raises:
        ArtifactError: if the pixels differ; it names the rules that do.
    """
    if artifact.golden_file is None:
        return
    data = artifact.config.data
    known = artifact.manifest["golden"]["decoded_by"]
    try:
        pixels = image_decoding.decode(artifact.golden_file, data).astype(int)
        gap = float(np.abs(pixels - artifact.golden_inputs[0]).mean())
        problem = f"it is {gap:.3g} grey levels off in the mean"
    except image_decoding.BrokenImage as error:
        gap, problem = np.inf, str(error)
    if gap > LEVELS:
        other = image_decoding.differing(known, image_decoding.rules(data), "in training")
        raise ArtifactError(
            f"The artifact's golden file is decoded differently here than in training: {problem};"
            f" expected at most {LEVELS:g}. What differs beside the build of the libraries:"
            f" {other or 'nothing'}.\n"
            "Infer with the commit and the versions of the training, or train again."
        )
