"""Checks what a config's custom functions return, before a run spends anything.

Each of `QUESTIONS` calls one with a few made-up rows. What is wrong is reported with file and line.
The model is also computed by TensorFlow, which infers on Kaggle's GPUs, in a process of its own:
`python -m pipeline.train.custom_check CONFIG FOLDER`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from formats import npz
from pipeline import artifact
from pipeline.augment.augmentation import Augmentation
from pipeline.config import Config, custom_code
from pipeline.config import load as load_config
from pipeline.config.config_files import named_files
from pipeline.config.data_layout import Form, sizes
from pipeline.data import csv_files, custom_readers
from pipeline.data.labels import Target
from pipeline.errors import ConfigError, PipelineError, SubmissionError
from pipeline.evaluate import losses, metrics
from pipeline.infer import submission
from pipeline.models import architectures, group_layers
from pipeline.train import learning_rate

ROWS = 16
# Rows of a batch that no axis of a model is a multiple of.
ODD_ROWS = 37
# Largest difference of outputs between JAX and TensorFlow, of the largest output: that of
# `pipeline.infer.check`, which would refuse the artifact later.
TOLERANCE = 1e-4
SUM_TOLERANCE = 1e-5  # by which the sum of a softmax may differ from 1
WEIGHTS, OUTPUTS = "weights.npz", "outputs.npy"  # for the other process, and from it
ROOT = Path(__file__).resolve().parents[2]

Question = Callable[[Config], str]


class Wrong(PipelineError):
    """What is wrong with a custom function, to be read after its name, and the edit."""


def check(config: Config, show: Callable[[str], None]) -> None:
    """Check a config's custom functions, and its model with both backends.

    Raises:
        ConfigError: if one cannot work.
    """
    by_jax(config, show)
    _ask(config, "model", _tensorflow, show)


def by_jax(config: Config, show: Callable[[str], None]) -> None:
    """Check what JAX shows alone, in seconds."""
    for field, question in QUESTIONS.items():
        if field == "model" or custom_code.function(config, field):
            _ask(config, field, question, show)


def _ask(config: Config, field: str, question: Question, show: Callable[[str], None]) -> None:
    name = custom_code.described(config, field)
    try:
        with custom_code.telling(config, field):
            show(f"{name}: {question(config)}")
    except Wrong as problem:
        raise ConfigError(f"{name} {problem}") from None


def check_metric_of(config: Config, truth: np.ndarray) -> None:
    """Call a custom metric with the truth of the held-out rows, before a run spends hours.

    Args:
        truth: as `pipeline.evaluate.metrics` takes it.
    """
    if custom_code.function(config, "metric") and config.target != "custom":
        metrics.of(config)(truth, metrics.best(config, truth))


def check_submission_of(config: Config, sample: Path) -> None:
    """Call a custom `write_submission` with made-up predictions, before a run spends hours.

    Args:
        sample: the competition's, whose columns are expected.
    """
    if submission.writer_of(config):
        columns = csv_files.header(sample, SubmissionError, submission.ADVICE)[1:]
        _submission(config, columns)


# What is asked of each function; an answer is what the user reads


def _augment(config: Config) -> str:
    images = _inputs(config)
    first, again = _augmented(config, images), _augmented(config, images)
    if not all(map(np.array_equal, first, again)):
        raise Wrong(
            "gives two results for one image and key.\n"
            "Draw with the key alone (jax.random), not with numpy or Python's random."
        )
    return f"images stay {images.dtype} {images.shape}"


def _augmented(config: Config, images: np.ndarray) -> list[np.ndarray]:
    """Return images, and with target="custom" their labels, as a custom `augment` changes them."""
    changes = Augmentation(config.data, 0, ROWS, custom_code.function(config, "augment"))
    rows = [images, *([_labels(config)] if config.target == "custom" else [])]
    # Traced anew each time: what is drawn without the key is then drawn again.
    program = jax.jit(lambda images, *labels: changes.changed(images, changes.draws(0), *labels))
    return list(map(np.asarray, program(*rows)))


def _loss(config: Config) -> str:
    loss: Any = custom_code.function(config, "loss")
    outputs, labels = _outputs(config), _labels(config)
    # A contrastive loss depends on which labels are equal, and not on their names.
    others = labels[np.random.default_rng(0).permutation(ROWS)]
    values, different = (np.asarray(jax.jit(loss)(each, outputs)) for each in (labels, others))
    if values.shape != (ROWS,) or not np.issubdtype(values.dtype, np.floating):
        raise Wrong(
            f"returns {values.dtype} {values.shape} for {ROWS} rows; expected a float ({ROWS},).\n"
            "Return a number for each row: no mean over the batch."
        )
    if np.array_equal(values, different):
        raise Wrong("does not depend on the labels.\nLet it compare with them.")
    groups = ""
    if compares_rows(config, outputs.shape[1:]):
        group = learning_rate.apply(config, config.batch).batchnorm_batch
        groups = f"; it compares rows: it gets groups of {group} (batchnorm_batch)"
    return f"a number per row, which depends on the labels{groups}"


def compares_rows(config: Config, shape: tuple[int, ...]) -> bool:
    """Return whether a custom loss gives a row another number when other rows are left out.

    Args:
        shape: of the model's outputs for a row.

    Raises:
        ConfigError: if the loss fails.
    """
    loss, labels = custom_code.function(config, "loss"), _labels(config)
    if loss is None:
        return False
    outputs = np.random.default_rng(2).standard_normal((ROWS, *shape), np.float32)
    # Of several sizes, since a loss with a margin is 0 where rows are far apart.
    for size in (0.1, 1, 10):
        with custom_code.telling(config, "loss"), jax.default_matmul_precision("highest"):
            values, of_half = (
                np.asarray(jax.jit(loss)(labels[:rows], size * outputs[:rows]))
                for rows in (ROWS, ROWS // 2)
            )
            if _differ(values[: ROWS // 2], of_half):
                return True
    return False


def _metric(config: Config) -> str:
    metric = metrics.of(config)
    given = metric.takes
    if config.target == "custom":
        metric(_labels(config), _outputs(config))
        given = "labels and outputs"
    better = "greater" if metric.greater_is_better else "smaller"
    return f"{better} is better; it gets {given}"


def _submission(config: Config, columns: list[str] | None = None) -> str:
    write: Any = submission.writer_of(config)
    names = tuple(map(str, range(config.num_classes))) if config.target in metrics.CLASSES else ()
    target = Target(config.target, names, (0.0,) * config.outputs, (1.0,) * config.outputs)
    ids = list(map(str, range(ROWS)))
    return f"columns {', '.join(write(ids, target.predictions(_outputs(config)), columns))}"


# What is asked of the model


def _model(config: Config) -> str:
    images = _inputs(config)
    if custom_code.function(config, "augment"):
        images, *_ = _augmented(config, images)
    architectures.seed(config.seed)
    model = architectures.build(config)
    if not model.trainable_variables:
        raise Wrong(
            "has no weight that trains; expected those of the last layer at least.\n"
            "Set trainable=True there, or make a layer with weights."
        )
    _refuse_infinite_gradients(config, model, images)
    outputs = architectures.outputs(model, images, ROWS)
    others = _inputs(config, 1)
    others[0] = images[0]
    if _differ(outputs[:1], architectures.outputs(model, others, ROWS)[:1]):
        raise Wrong(
            "gives a row other numbers when other rows of the batch change; a batch is computed in"
            " parts, whatever fits.\nCompute each row by itself. Mix rows by data.mixup or"
            " data.cutmix, and compare them in the loss or BatchNormalization, which get groups."
        )
    _refuse_lost_state(config, model, images, outputs)
    softmax = outputs.min() >= 0 and np.abs(outputs.sum(axis=-1) - 1).max() < SUM_TOLERANCE
    if config.target == "classes" and softmax:
        raise Wrong(
            "gives probabilities; expected logits, of which validation and inference take the"
            " softmax.\nLeave the softmax out, and write from_logits=True in a loss of your own."
        )
    return f"{architectures.count(model)['total']:,} parameters, all gradients finite"


def _refuse_infinite_gradients(config: Config, model: Any, images: np.ndarray) -> None:
    """Compute the gradient of a batch as a step does."""
    params = [variable.value for variable in model.trainable_variables]
    buffers = [variable.value for variable in model.non_trainable_variables]
    loss_fn = losses.of(config, training=True)

    def forward(params: Any, images: Any) -> Any:
        part = group_layers.MicroBatch(np.arange(len(images)), len(images), 1)
        with group_layers.computing(model, part):
            return model.stateless_call(params, buffers, images, training=True)[0]

    def loss(params: Any) -> Any:
        return loss_fn(_labels(config), forward(params, images).astype("float32")).sum()

    # A layer that takes another axis for the batch fails here.
    jax.eval_shape(forward, params, np.resize(images, (ODD_ROWS, *images.shape[1:])))
    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    bad = sum(not np.isfinite(gradient).all() for gradient in gradients)
    if bad or not np.isfinite(value):
        culprit = "loss" if custom_code.function(config, "loss") else "model"
        raise Wrong(
            f"gives a loss of {value:g}, and its gradient is not finite in {bad} of {len(params)}"
            f" weights; expected finite numbers.\nLook in {custom_code.described(config, culprit)}"
            " for a division by 0, a root or a logarithm at 0."
        )


def _refuse_lost_state(config: Config, model: Any, images: np.ndarray, outputs: np.ndarray) -> None:
    """Build the model once more, as folds and inference do, and give it the weights."""
    architectures.seed(config.seed + 1)
    again = architectures.build(config)
    if {id(one) for one in again.weights} & {id(one) for one in model.weights}:
        raise Wrong(
            "gives one and the same layer to every model that is built, so folds and inference"
            " would share its weights.\nMake the layers that have weights within the function."
        )
    artifact.assign(again, artifact.weights_of(model))
    if _differ(outputs, architectures.outputs(again, images, ROWS), least=1.0):
        raise Wrong(
            "gives other outputs when it is built again with the same weights. A layer is not part"
            " of the model, or a constant is drawn at random.\nCall a layer of a constant within"
            " another layer's call, keep layers as attributes, in lists or in dicts, and draw from"
            " a fixed seed."
        )


def _tensorflow(config: Config) -> str:
    """Compare the model's outputs with those that TensorFlow computes in another process."""
    model = architectures.build(config)
    with tempfile.TemporaryDirectory(prefix="custom-check-") as scratch:
        (Path(scratch) / WEIGHTS).write_bytes(npz.to_bytes(artifact.weights_of(model)))
        path = custom_code.file(config).resolve()
        file = config.name if path in named_files().values() else str(path)
        command = [sys.executable, "-m", "pipeline.train.custom_check", file, scratch]
        env = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            said = " ".join(done.stderr.rpartition("Error: ")[2].split())  # after the traceback
            raise Wrong(
                f"works with JAX and not with TensorFlow, which infers on a GPU: {said[:500]}\n"
                "Use keras.ops and keras.layers, which both have."
            )
        theirs = np.load(Path(scratch) / OUTPUTS)
    ours = architectures.outputs(model, _inputs(config), ROWS)
    if _differ(ours, theirs, least=1.0):
        raise Wrong(
            f"has outputs that differ by {np.abs(ours - theirs).max():.1e} between JAX and"
            f" TensorFlow; expected at most {TOLERANCE:.0e} of the largest.\n"
            "Use keras.ops and keras.layers alone, and nothing random outside of training."
        )
    return "TensorFlow computes the same outputs as JAX"


def main(config: str, folder: Path) -> None:
    """Compute the outputs of a model for weights in a folder, by this process' backend."""
    settings = load_config(config)
    model = architectures.build(settings)
    artifact.assign(model, npz.read(folder / WEIGHTS))
    with custom_code.telling(settings, "model"):
        np.save(folder / OUTPUTS, architectures.outputs(model, _inputs(settings), ROWS))


QUESTIONS: dict[str, Question] = {
    "augment": _augment,
    "loss": _loss,
    "metric": _metric,
    "model": _model,
    "write_submission": _submission,
}


def _differ(values: np.ndarray, others: np.ndarray, least: float = 0.0) -> bool:
    """Return whether two arrays differ by more than rounding, or in where they are not finite.

    Args:
        least: rounding is that of the largest number, or of this one if it is larger.
    """
    largest = np.abs(values[np.isfinite(values)]).max(initial=least)
    return not np.allclose(values, others, rtol=0, atol=TOLERANCE * largest, equal_nan=True)


# Made-up rows


def _made_up(form: Form, seed: int) -> np.ndarray:
    """Return numbers of a form for each row: whole ones from 0 on, small ones of int32, which may
    be places in a list.
    """
    random, shape = np.random.default_rng(seed), (ROWS, *sizes(form))
    if form[0] == "float32":
        return random.standard_normal(shape, np.float32)
    return random.integers(0, 256 if form[0] == "uint8" else 2, shape, str(form[0]))


def _inputs(config: Config, seed: int = 0) -> np.ndarray:
    """Return inputs of the model."""
    if config.data.kind == "custom":
        forms = config.data.forms.items()
        return custom_readers.pack({name: _made_up(form, seed) for name, form in forms})
    return _made_up((config.data.dtype, *config.data.shape), seed)


def _outputs(config: Config) -> np.ndarray:
    """Return outputs of the model: float32 (n, outputs), or as a custom model has them."""
    custom = config.target == "custom"
    shape = architectures.build(config).output.shape[1:] if custom else (config.outputs,)
    return _made_up(("float32", *shape), 1)


def _labels(config: Config) -> np.ndarray:
    """Return labels as `pipeline.data.labels` reads them."""
    rows = np.arange(ROWS)
    if config.target == "custom":
        labels = _made_up(config.data.custom_labels, 0)
        return labels if labels.dtype == np.float32 else labels % 2
    if config.target in metrics.CLASSES:
        # Several rows of each, since a loss may compare rows of one class.
        return (rows % min(config.num_classes, ROWS // 4)).astype(np.int32)
    numbers = np.add.outer(rows, np.arange(config.outputs)).astype(np.float32)
    return numbers % 2 if config.target == "multilabel" else numbers / ROWS - 0.5


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
