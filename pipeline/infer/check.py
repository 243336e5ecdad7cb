"""Check that models and image decoding produce the same results as in training.

Before the test set is predicted, the golden outputs and the pixels of the golden file are computed
again and compared with the values from training.
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
# Maximum difference between predictions. For numbers, the unit is a standard deviation. In float32,
# kernels add numbers in a different order (measured: below 1e-6 between JAX and TensorFlow on a
# CPU). float16 has 11 bits, and errors accumulate over layers (measured 2026-11-22: at most 2.8e-3
# over 12,000 rows of a small network).
TOLERANCE = {FULL: 1e-4, HALF: 2e-2}
# Maximum mean difference in the golden file's pixels, in grey levels, which allows for rounding.
# Measured on photographs: 0 between Pillow 10.4, 11.3, 12.0 and 13.0; 0.6 to 15 with a different
# filter or decode="reduced".
LEVELS = 0.5


class Checked(NamedTuple):
    """Result of the golden check.

    Attributes:
        difference: maximum difference from the predictions in training.
        tolerance: maximum allowed difference. A `difference` of NaN always fails.
    """

    run_id: str
    precision: str
    difference: float
    tolerance: float


def restore(
    artifact: Artifact, precision: str = "", *, rows: int = 0, show: Show = print
) -> tuple[Forward, Checked]:
    """Restore the artifact's models, one per fold, after checking the golden outputs.

    On a GPU, "auto" uses float16 with float32 weights if the golden outputs agree, and float32
    otherwise. A T4 is several times faster in float16, and does not support bfloat16.

    Args:
        precision: "auto", "float32" or "mixed_float16"; "" uses the config's `infer_precision`.
        rows: number of test set rows, which determines the batch size.
    """
    precision = precision or artifact.config.infer_precision
    # Rounding to float16 can also change a row's path through trees, which golden rows do not show.
    trees = artifact.config.fit == "boosting"
    if precision == "auto" and devices.found().platform == "gpu" and not trees:
        forward, checked = _restored(artifact, HALF, rows, show)
        if checked.difference <= checked.tolerance:
            return forward, checked
        show(
            f"Using float32, because float16 changes the predictions on golden inputs by"
            f" {checked.difference:.1e}. At most {checked.tolerance:.0e} is allowed."
        )
    precision = FULL if precision == "auto" else precision
    forward, checked = _restored(artifact, precision, rows, show)
    if not checked.difference <= checked.tolerance:
        raise ArtifactError(
            f"The model's outputs on {len(artifact.golden_inputs)} golden inputs differ from those"
            f" in training by {checked.difference:.2e}. At most {checked.tolerance:.0e} is allowed"
            f" in {precision}.\nThe model was trained with"
            f" {artifact.manifest['versions']}. Run inference with the same commit, in float32."
        )
    return forward, checked


def _restored(artifact: Artifact, precision: str, rows: int, show: Show) -> tuple[Forward, Checked]:
    models, networks = [], published.carried(artifact.manifest)
    with building(precision):
        for weights in artifact.folds:
            models.append(architectures.build(artifact.config, networks=networks))
            artifact_module.assign(models[-1], weights)
    golden = artifact.golden_inputs
    forward = Forward(models, forward_pass.batch_size(golden, rows), show)
    outputs = forward_pass.mean_of_folds(artifact, forward.outputs(golden))
    apart = difference(artifact, outputs)
    checked = Checked(artifact.manifest["run_id"], precision, apart, TOLERANCE[precision])
    return forward, checked


def difference(artifact: Artifact, outputs: np.ndarray) -> float:
    """Return the maximum difference from the golden outputs. For numeric targets, it is measured in
    standard deviations. For log-scaled and custom targets, it is divided by |output| + 1.
    """
    expected, unit = artifact.golden_outputs, np.array(artifact.target.spread or 1.0)
    if artifact.target.log or artifact.target.kind == "custom":
        unit = np.abs(expected) + 1
    return float(np.max(np.abs(outputs - expected) / unit))


@contextmanager
def building(precision: str) -> Iterator[None]:
    """Let Keras build models with the given precision. Their initial weights must be replaced.

    XLA compiles the initializers without optimizations, which takes a quarter of the time. This
    does not affect other code, because JAX's cache includes the matmul precision.
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
    if artifact.golden_file is None:
        return
    data = artifact.config.data
    known = artifact.manifest["golden"]["decoded_by"]
    try:
        pixels = image_decoding.decode(artifact.golden_file, data).astype(int)
        gap = float(np.abs(pixels - artifact.golden_inputs[0]).mean())
        problem = f"the mean difference is {gap:.3g} grey levels"
    except image_decoding.BrokenImage as error:
        gap, problem = np.inf, str(error)
    if gap > LEVELS:
        other = image_decoding.differing(known, image_decoding.rules(data), "in training")
        raise ArtifactError(
            f"The artifact's golden file is decoded differently than in training: {problem}."
            f" A mean difference of at most {LEVELS:g} is allowed. Apart from library builds, these"
            f" decoding rules differ: {other or 'none'}.\n"
            "Run inference with the commit and the versions used in training, or train again."
        )
