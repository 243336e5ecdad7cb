"""Check a config's custom functions before training starts.

Each check in `QUESTIONS` calls a function with a few synthetic rows. If a check finds a
problem, the error message contains the file and line number. Inference on Kaggle's GPUs uses
TensorFlow, so a separate process also runs the model with TensorFlow:
`python -m pipeline.train.custom_check CONFIG FOLDER`.
"""

import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from formats import npz
from pipeline import artifact
from pipeline.augment.augmentation import Augmentation
from pipeline.config import Config, custom_code
from pipeline.config import load as load_config
from pipeline.config.config import OPTIMIZERS
from pipeline.config.config_files import named_files
from pipeline.config.data_layout import Form, sizes
from pipeline.data import custom_readers, sampler
from pipeline.data.labels import Target
from pipeline.errors import ConfigError, PipelineError
from pipeline.evaluate import losses, metrics, postprocess
from pipeline.infer import submission
from pipeline.models import architectures, group_layers
from pipeline.runtime import replicas
from pipeline.train import layer_rates, learning_rate, optimizer, phases

ROWS = 16
# A batch size that no other axis of a model is likely to have.
ODD_ROWS = 37
# Maximum difference between JAX and TensorFlow outputs, relative to the largest output.
# `pipeline.infer.check` has the same limit and would reject the artifact later.
TOLERANCE = 1e-4
# Tolerances for weights that are computed in parts. APART is a fraction of their change in two
# steps. It is far above rounding errors and far below the effect of a missing part. ROUNDING is a
# multiple of the effect of changing the initial weights by one ulp.
APART, ROUNDING = 0.02, 8
SUM_TOLERANCE = 1e-5  # for the sum of probabilities
WEIGHTS, OUTPUTS = "weights.npz", "outputs.npy"  # sent to and received from the other process
ROOT = Path(__file__).resolve().parents[2]

Question = Callable[[Config], str]


class Wrong(PipelineError):
    """An error in a custom function. The message is appended to the function's name."""


def check(config: Config, show: Callable[[str], None]) -> None:
    by_jax(config, show)
    if not (custom_code.function(config, "train_step") or config.fit):
        _ask(config, "model", _compare_parts, show)
    _ask(config, "model", _compare_tensorflow, show)


def by_jax(config: Config, show: Callable[[str], None]) -> None:
    """Check a config's custom functions using only JAX, which takes a few seconds."""
    for field, question in QUESTIONS.items():
        steps = field == "model" and not config.fit  # no gradients are used with `fit`
        if steps or (field != "model" and custom_code.function(config, field)):
            _ask(config, field, question, show)


def _ask(config: Config, field: str, question: Question, show: Callable[[str], None]) -> None:
    name = custom_code.described(config, field)
    try:
        with custom_code.telling(config, field):
            show(f"{name}: {question(config)}")
    except Wrong as problem:
        raise ConfigError(f"{name} {problem}") from None


def check_metric_of(config: Config, truth: np.ndarray) -> None:
    if custom_code.function(config, "metric") and config.target != "custom":
        metrics.of(config)(truth, metrics.best(config, truth))


def check_submission_of(config: Config, columns: Sequence[str] | None, folder: Path) -> None:
    """Call a custom `write_submission` with synthetic predictions.

    `columns` are the sample submission's columns without the id, or None if there is no sample.
    """
    if submission.writer_of(config, folder):
        _submission(config, columns, folder)


def check_postprocess_of(config: Config, target: Target, ids: Sequence[str], folder: Path) -> None:
    if config.postprocess:
        given, changed = target.predictions(_outputs(config)), postprocess.of([config], folder)
        one, two = (changed(ids[:ROWS], given[: len(ids)]) for _ in "12")
        if not np.array_equal(one, two):
            raise ConfigError(
                f"{custom_code.described(config, 'postprocess')} returns different predictions when"
                " it is called again with the same arguments. It must always return the same"
                " predictions.\nUse random numbers with a fixed seed."
            )


# Checks for each function, which return a line for the user


def _augment(config: Config) -> str:
    images = inputs(config)
    first, again = _augmented(config, images), _augmented(config, images)
    if not all(map(np.array_equal, first, again)):
        raise Wrong(
            "returns different results for the same image and key.\n"
            "Draw random numbers only with the key (jax.random), not with numpy or Python's random."
        )
    return f"keeps images as {images.dtype} {images.shape}"


def _mix(config: Config) -> str:
    changes = Augmentation(
        config.data, 0, ROWS, None, custom_code.function(config, "augment_batch")
    )
    groups = [(inputs(config, seed), _labels(config)) for seed in (0, 1, 0)]
    draws = [changes.draws(step) for step in (0, 1, 0)]
    # Each call is traced again, so random numbers that do not come from the key differ.
    first, _, again = (
        jax.tree.map(np.asarray, jax.jit(lambda *given: changes.mixed(*given))(*group, numbers))
        for group, numbers in zip(groups, draws, strict=True)
    )
    if not all(map(np.array_equal, jax.tree.leaves(first), jax.tree.leaves(again))):
        raise Wrong(
            "returns different results for the same group and key after another group.\n"
            "Draw random numbers only with the key (jax.random), and keep no state between groups."
        )
    images, labels, mixture = first
    if mixture is None and (config.class_weights or config.data.weight_column):
        raise Wrong(
            "returns labels but does not mix the row weights (class_weights or"
            " data.weight_column).\nReturn partners and weights, or remove the row weights."
        )
    if mixture is None:
        return f"images {images.shape} and labels {labels.shape} of a group"
    partners, share = mixture
    if partners.min() < 0 or partners.max() >= ROWS or share.min() < 0 or share.max() > 1:
        raise Wrong(
            f"mixes rows of different groups or has invalid weights: partners from {partners.min()}"
            f" to {partners.max()}, weights from {share.min():g} to {share.max():g}; expected"
            f" partners from 0 to {ROWS - 1} in a group of {ROWS}, and weights from 0 to 1.\n"
            "Get the number of rows from images.shape[0]: a group has batchnorm_batch rows."
        )
    return f"mixes each of the images {images.shape} of a group with another"


def _sampler(config: Config) -> str:
    labels = np.resize(_labels(config), (10 * ROWS, *_labels(config).shape[1:]))
    rows = sampler.of(config, labels)
    assert rows is not None  # noqa: S101 - the config names one
    epochs = [rows(epoch) for epoch in (0, 1, 0)]
    if not np.array_equal(epochs[0], epochs[2]):
        raise Wrong(
            "returns different rows for the same epoch, so a run could not resume.\n"
            "Draw random numbers only with the given generator."
        )
    return f"{len(set(epochs[0].tolist()))} of {len(labels)} rows in an epoch"


def _log(config: Config) -> str:
    log: Any = custom_code.function(config, "log")
    inspect.signature(log).bind({})  # not called, since it might send the record
    return "receives each progress record"


def _augmented(config: Config, images: np.ndarray) -> list[np.ndarray]:
    changes = Augmentation(config.data, 0, ROWS, custom_code.function(config, "augment"))
    rows = [images, *([_labels(config)] if config.target == "custom" else [])]
    # Each call is traced again, so random numbers that do not come from the key differ.
    program = jax.jit(lambda images, *labels: changes.changed(images, changes.draws(0), *labels))
    return list(map(np.asarray, program(*rows)))


def _loss(config: Config) -> str:
    model, labels = architectures.build(config), _labels(config)
    every, (names, together) = _outputs_of(model), tried_loss(config, model)
    # Shuffle them, since a contrastive loss only depends on which labels are equal.
    others = labels[np.random.default_rng(0).permutation(ROWS)]
    values, different = (_computed(config, each, every) for each in (labels, others))
    for name, each in values.items():
        if each.shape != (ROWS,) or not np.issubdtype(each.dtype, np.floating):
            raise Wrong(
                f"returns {each.dtype} {each.shape} for {ROWS} rows ({name}); expected floats"
                f" with shape ({ROWS},).\nReturn one value per row, not a mean over the batch."
            )
    if _equal(values, different):
        raise Wrong("does not depend on the labels.\nCompare the outputs with the labels.")
    for name in every[1]:
        changed = (every[0], every[1] | {name: 1 + 2 * every[1][name]})
        if _equal(values, _computed(config, labels, changed)):
            raise Wrong(
                f"does not depend on the output {name!r} of"
                f" {custom_code.described(config, 'model')}.\n"
                "Add a loss for it, or remove it from the model's extra outputs."
            )
    groups = ""
    if together:
        group = learning_rate.apply(config, config.batch).batchnorm_batch
        does = "uses a key" if losses.KEY in losses.asked(config) else "compares rows"
        groups = f"; it {does}, so it receives groups of {group} (batchnorm_batch)"
    several = f" for {', '.join(names)}" if names else ""
    return f"one value per row{several}, which depends on the labels{groups}"


def tried_loss(config: Config, model: Any) -> tuple[tuple[str, ...], bool]:
    """Return the names of the losses if there are several, and whether they require groups of rows.
    A loss requires groups if it uses random numbers, or if a row's loss depends on other rows.
    """
    custom, outputs = custom_code.function(config, "loss"), _outputs_of(model)
    if outputs[1] and losses.EXTRA not in losses.asked(config):
        raise ConfigError(
            f"{custom_code.described(config, 'model')} has the extra outputs"
            f" {', '.join(outputs[1])}, but loss={config.loss!r} ignores them.\nWrite a loss with a"
            " parameter named extra: def loss(labels, outputs, extra) (docs/custom-training.md)."
        )
    if custom is None:
        return (), False
    labels, together = _labels(config), losses.KEY in losses.asked(config)
    # Try several scales, since a loss with a margin is 0 for distant rows.
    for size in (0.1, 1, 10):
        sized = jax.tree.map(lambda array, size=size: size * array, outputs)
        with custom_code.telling(config, "loss"), jax.default_matmul_precision("highest"):
            values = _computed(config, labels, sized)
            half = jax.tree.map(lambda array: array[: ROWS // 2], (labels, sized))
            of_half = _computed(config, *half)
        rows = [name for name, each in values.items() if each.shape == (ROWS,)]
        together |= any(_differ(values[name][: ROWS // 2], of_half[name]) for name in rows)
    if losses.KEY in losses.asked(config):
        with custom_code.telling(config, "loss"):
            _computed(config, labels, outputs, validation=True)
    return tuple(values) if list(values) != ["loss"] else (), together


def _computed(
    config: Config, labels: Any, outputs: Any, *, validation: bool = False
) -> dict[str, np.ndarray]:
    key = None if validation else jax.random.key(0, impl="threefry2x32")
    values = jax.jit(losses.of(config, training=True))(labels, *outputs, key)
    return jax.tree.map(np.asarray, values)  # type: ignore[no-any-return]


def _equal(values: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(values[name], others[name]) for name in values)


def _schedule(config: Config) -> str:
    applied, warm = learning_rate.apply(config, config.batch), config.warmup_epochs > 0
    for total in (7, 100):  # rehearsals only have a few steps
        numbers = replace(applied, total_steps=total, warmup_steps=total // 7 * warm)
        schedule = learning_rate.schedule(config, numbers)
        rates = np.asarray(jax.jit(jax.vmap(schedule))(np.arange(total)))
        wrong = np.flatnonzero(~(np.isfinite(rates) & (rates >= 0)))
        if rates.shape != (total,) or len(wrong) or not rates.any():
            step = wrong[0] if len(wrong) else 0
            raise Wrong(
                f"returns a learning rate of {rates[step]} at step {step} of {total}, with"
                f" {numbers.warmup_steps} warm-up steps; expected a finite fraction of base_rate"
                " that is never negative and not always 0.\nAvoid divisions by 0 (use"
                " max(warmup_steps, 1)) and roots of negative numbers."
            )
    return f"learning rates from {rates.min():.3g} to {rates.max():.3g} in a run of 100 steps"


def check_optimizer_of(config: Config) -> None:
    plain = config.optimizer.name in OPTIMIZERS and not config.optimizer.layer_rates
    if plain and not config.frozen_epochs and not config.progressive:
        return
    model, applied = architectures.build(config), learning_rate.apply(config, config.batch)
    optimizer.optimizer(config, applied, model.trainable_variables)
    layer_rates.factors(model, config)
    layer_rates.frozen(model, config)
    phases.models(config, model)


def _optimizer(config: Config) -> str:
    architectures.seed(config.seed)
    variables = architectures.build(config).trainable_variables
    applied = learning_rate.apply(config, 100 * config.batch)
    begin = applied.warmup_steps + 1  # the learning rate may be 0 at first

    def made() -> tuple[Any, list[Any]]:
        one = optimizer.optimizer(config, applied, variables)
        one.build(variables)
        one.iterations.assign(begin)
        return one, [variable.value for variable in one.variables]

    random = np.random.default_rng(0)
    both = [[random.standard_normal(one.shape, np.float32) for one in variables] for _ in "12"]
    one, state = made()
    _refuse_unsaved_state(one, variables, both[0])
    rate, wanted = float(one.learning_rate), float(learning_rate.schedule(config, applied)(begin))
    if not np.isclose(rate, wanted, rtol=1e-3):
        raise Wrong(
            f"has a learning rate of {rate:.3g} at step {begin}; expected {wanted:.3g}.\n"
            "Pass its first argument to the optimizer: keras.optimizers.SGD(learning_rate, …)."
        )
    weights = [variable.value for variable in variables]
    first, saved = jax.jit(one.stateless_apply)(state, both[0], weights)
    second, _ = one.stateless_apply(saved, both[1], first)
    again, _ = made()[0].stateless_apply(saved, both[1], first)
    changed = sum(not np.array_equal(*pair) for pair in zip(weights, second, strict=True))
    if not changed or not all(np.isfinite(each).all() for each in second):
        raise Wrong(
            f"{'produces weights that are not finite' if changed else 'does not change weights'}.\n"
            "Check divisions, roots, and the assignments in update_step."
        )
    if not all(np.array_equal(*pair) for pair in zip(second, again, strict=True)):
        raise Wrong(
            "produces different weights after resuming, since it keeps state outside its Keras"
            " variables. Checkpoints do not contain such state.\nCreate variables for all state in"
            " build: self.add_variable_from_reference(variable, name)."
        )
    return f"{len(state)} state arrays, changes {changed} of {len(weights)} weights"


def _refuse_unsaved_state(made: Any, variables: list[Any], grads: list[np.ndarray]) -> None:
    known = {id(one) for one in (*made.variables, *variables)}
    with keras.StatelessScope() as scope:
        made.apply(list(map(jnp.asarray, grads)), variables)
    if not known.issuperset(scope.state_mapping):
        raise Wrong(
            "changes a variable of another object, such as a SeedGenerator. That variable is not"
            " saved in checkpoints and has the same value in each step.\nCreate state in build with"
            " self.add_variable, or use self.iterations as the seed."
        )


def _metric(config: Config) -> str:
    metric = metrics.of(config)
    given = metric.takes
    if config.target == "custom":
        metric(_labels(config, soft=config.soft), _outputs(config))
        given = "labels and outputs"
    better = "greater" if metric.greater_is_better else "smaller"
    return f"{better} is better; receives {given}"


def _submission(
    config: Config, columns: Sequence[str] | None = None, folder: Path = Path("no folder")
) -> str:
    write: Any = submission.writer_of(config, folder)
    names = tuple(map(str, range(config.classes))) if config.target in metrics.CLASSES else ()
    target = Target(config.target, names, (0.0,) * config.outputs, (1.0,) * config.outputs)
    ids = list(map(str, range(ROWS)))
    return f"columns {', '.join(write(ids, target.predictions(_outputs(config)), columns))}"


# Checks for the model


def _model(config: Config) -> str:
    images = inputs(config)
    if custom_code.function(config, "augment"):
        images, *_ = _augmented(config, images)
    architectures.seed(config.seed)
    model = architectures.build(config)
    if not model.trainable_variables:
        raise Wrong(
            "has no trainable weights; expected at least the weights of the last layer.\n"
            "Set trainable=True for that layer, or add a layer with weights."
        )
    _refuse_infinite_gradients(config, model, images)
    outputs = architectures.outputs(model, images, ROWS)
    others = inputs(config, 1)
    others[0] = images[0]
    if _differ(outputs[:1], architectures.outputs(model, others, ROWS)[:1]):
        raise Wrong(
            "returns different outputs for a row if other rows change, but batches may be computed"
            " in parts.\nCompute each row independently. To mix rows, use data.mixup or"
            " data.cutmix. To compare rows, use the loss or BatchNormalization, which receive"
            " groups."
        )
    _refuse_lost_state(config, model, images, outputs)
    softmax = outputs.min() >= 0 and np.abs(outputs.sum(axis=-1) - 1).max() < SUM_TOLERANCE
    if config.target == "classes" and softmax:
        raise Wrong(
            "returns probabilities; expected logits, since validation and inference apply the"
            " softmax.\nRemove the softmax, and use from_logits=True in a custom loss."
        )
    return f"{architectures.count(model)['total']:,} parameters, all gradients finite"


def _refuse_infinite_gradients(config: Config, model: Any, images: np.ndarray) -> None:
    kinds = model.trainable_variables, model.non_trainable_variables
    params, buffers = ([one.value for one in variables] for variables in kinds)
    loss_fn, key = losses.of(config, training=True), jax.random.key(0, impl="threefry2x32")

    def forward(params: Any, images: Any) -> Any:
        part = group_layers.MicroBatch(np.arange(len(images)), len(images), 1)
        with group_layers.computing(model, part):
            return architectures.parted(
                model.stateless_call(params, buffers, images, training=True)[0]
            )

    def loss(params: Any) -> Any:
        outputs = jax.tree.map(lambda each: each.astype("float32"), forward(params, images))
        return sum(each.sum() for each in loss_fn(_labels(config), *outputs, key).values())

    # This fails if a layer mistakes another axis for the batch axis.
    jax.eval_shape(forward, params, np.resize(images, (ODD_ROWS, *images.shape[1:])))
    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    bad = sum(not np.isfinite(gradient).all() for gradient in gradients)
    if bad or not np.isfinite(value):
        culprit = "loss" if custom_code.function(config, "loss") else "model"
        raise Wrong(
            f"has a loss of {value:g} and non-finite gradients for {bad} of {len(params)} weights;"
            f" expected finite numbers.\nCheck {custom_code.described(config, culprit)}"
            " for divisions by 0, and for roots or logarithms of 0."
        )


def _refuse_lost_state(config: Config, model: Any, images: np.ndarray, outputs: np.ndarray) -> None:
    architectures.seed(config.seed + 1)
    again = architectures.build(config)
    if {id(one) for one in again.weights} & {id(one) for one in model.weights}:
        raise Wrong(
            "reuses a layer in every model that it builds, so folds would share its weights.\n"
            "Create all layers with weights inside the function."
        )
    artifact.assign(again, artifact.weights_of(model))
    if _differ(outputs, architectures.outputs(again, images, ROWS), least=1.0):
        raise Wrong(
            "returns different outputs when rebuilt with the same weights: a layer is not part of"
            " the model, or a constant is random.\nIf a layer has a constant input, call it inside"
            " another layer's call. Store layers in attributes, lists or dicts, and use a fixed"
            " seed."
        )


def _compare_tensorflow(config: Config) -> str:
    model = architectures.build(config)
    with tempfile.TemporaryDirectory(prefix="custom-check-") as scratch:
        (Path(scratch) / WEIGHTS).write_bytes(npz.to_bytes(artifact.weights_of(model)))
        path = custom_code.file(config).resolve()
        file = config.name if path in named_files().values() else str(path)
        command = [sys.executable, "-m", "pipeline.train.custom_check", file, scratch]
        env = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)  # noqa: S603
        if done.returncode:
            said = " ".join(done.stderr.rpartition("Error: ")[2].split())  # skips the traceback
            raise Wrong(
                f"works with JAX but not with TensorFlow, which runs inference on a GPU:"
                f" {said[:500]}\nUse keras.ops and keras.layers, which support both."
            )
        theirs = np.load(Path(scratch) / OUTPUTS)
    ours = architectures.outputs(model, inputs(config), ROWS)
    if _differ(ours, theirs, least=1.0):
        raise Wrong(
            f"has outputs that differ by {np.abs(ours - theirs).max():.1e} between JAX and"
            f" TensorFlow; expected at most {TOLERANCE:.0e} of the largest output.\n"
            "Only use keras.ops and keras.layers, and use random numbers only in training."
        )
    return "TensorFlow computes the same outputs as JAX"


def main(config: str, folder: Path) -> None:
    settings = load_config(config)
    model = architectures.build(settings)
    artifact.assign(model, npz.read(folder / WEIGHTS))
    with custom_code.telling(settings, "model"):
        np.save(folder / OUTPUTS, architectures.outputs(model, inputs(settings), ROWS))


# Checks that computing in parts gives the same result


def _compare_parts(config: Config) -> str:
    if jax.process_count() > 1:
        return "not checked; run python -m pipeline check, which uses a single process"
    small = replace(
        config,
        batch=ROWS,
        batchnorm_batch=ROWS // 4,
        micro_batch=None,
        warmup_epochs=0 if config.optimizer.schedule != "one_cycle" else config.warmup_epochs,
        optimizer=replace(config.optimizer, base_batch=ROWS),
    )
    whole, start, nudged = _stepped(small, 1, nudge=True)
    ways = {f"micro-batches of {ROWS // 4}": _stepped(replace(small, micro_batch=ROWS // 4), 1)}
    if len(jax.devices()) > 1:
        ways["2 devices"] = _stepped(small, 2)
    changed = _distance(whole, start)
    # If an optimizer uses the signs of gradients, rounding errors can act like the nudge.
    allowed = max(APART * changed, ROUNDING * _distance(nudged, whole))
    for way, (weights, *_) in ways.items():
        apart = _distance(weights, whole)
        if not apart <= allowed:
            raise Wrong(
                f"produces different weights with {way}: they differ by {apart:.2g} after two"
                f" steps that changed them by {changed:.2g}; expected at most {allowed:.2g}.\n"
                "Compute gradients only with step.gradients, and sum losses over the images."
            )
    return f"the same weights with whole batches and {' and '.join(ways)}"


def _stepped(
    config: Config, count: int, *, nudge: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Take two steps on synthetic rows with `count` devices.

    Return three lists: the weights after these steps, the initial weights, and the weights after
    two steps that start with each weight one ulp larger. If `nudge` is False, the third list is the
    same as the first.
    """
    from pipeline.train.step import Batch, TrainStep

    several = keras.distribution.DataParallel(devices=keras.distribution.list_devices()[:count])
    keras.distribution.set_distribution(several if count > 1 else None)
    try:
        architectures.seed(config.seed)
        applied = learning_rate.apply(config, 8 * ROWS)
        mesh = replicas.mesh()
        step = TrainStep(config, applied, architectures.build(config), mesh)
        state = step.layout.initial()
        if mesh is None:  # a CPU may be split into several devices
            state = jax.device_put(state, jax.local_devices()[0])
        step.phase = step.phase._replace(size=0)  # the smallest images
        start = step.layout.to_arrays(state)
        rows = inputs(config), _labels(config), step.augmentation.draws(0)
        calls = [np.repeat(each[None], step.steps_per_call, axis=0) for each in rows]
        batches = Batch(*replicas.put(mesh, *calls, axis=1))

        def after(arrays: dict[str, np.ndarray], state: Any) -> Any:
            state = step.layout.from_arrays(arrays, state)
            for _ in range(2):
                state, _ = step.train(state, (), batches, 1)
            return state

        state = after(start, state)
        weights = list(map(np.asarray, state.params))
        if (int(state.step), int(state.totals.count)) != (2, 2 * ROWS):
            raise Wrong(
                f"counts {state.step} steps and {state.totals.count} rows after two steps of {ROWS}"
                f" rows; expected 2 and {2 * ROWS}.\nFinish with step.update, which counts them."
            )
        params = {name: array for name, array in start.items() if name.startswith("params/")}
        near = {name: np.nextafter(array, np.float32(np.inf)) for name, array in params.items()}
        nudged = list(map(np.asarray, after(start | near, state).params)) if nudge else weights
        return weights, list(params.values()), nudged
    finally:
        keras.distribution.set_distribution(None)


def _distance(arrays: list[np.ndarray], others: list[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.square(a - b).sum() for a, b in zip(arrays, others, strict=True))))


QUESTIONS: dict[str, Question] = {
    "augment": _augment,
    "augment_batch": _mix,
    "sampler": _sampler,
    "optimizer.schedule": _schedule,
    "optimizer.name": _optimizer,
    "loss": _loss,
    "metric": _metric,
    "model": _model,
    "train_step": _compare_parts,
    "log": _log,
    "write_submission": _submission,
}


def _differ(values: np.ndarray, others: np.ndarray, least: float = 0.0) -> bool:
    """Return whether two arrays differ by more than rounding errors, or have NaNs in different
    places. The tolerance is relative to the largest magnitude in `values`, or to `least` if `least`
    is larger.
    """
    largest = np.abs(values[np.isfinite(values)]).max(initial=least)
    return not np.allclose(values, others, rtol=0, atol=TOLERANCE * largest, equal_nan=True)


# Synthetic rows


def _made_up(form: Form, seed: int) -> np.ndarray:
    """Return random values for each row. Integers (int32) are small, since they may be indices."""
    random, shape = np.random.default_rng(seed), (ROWS, *sizes(form))
    if form[0] == "float32":
        return random.standard_normal(shape, np.float32)
    return random.integers(0, 256 if form[0] == "uint8" else 2, shape, str(form[0]))


def inputs(config: Config, seed: int = 0) -> np.ndarray:
    if config.data.kind == "custom":
        forms = config.data.forms.items()
        return custom_readers.pack({name: _made_up(form, seed) for name, form in forms})
    return _made_up((config.data.dtype, *config.data.shape), seed)


def _outputs(config: Config) -> np.ndarray:
    if config.target == "custom":
        return _outputs_of(architectures.build(config))[0]
    return _made_up(("float32", config.outputs), 1)


def _outputs_of(model: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    structure = jax.tree.structure(architectures.parted(model.output))
    arrays = [
        _made_up(("float32", *one.shape[1:]), seed) for seed, one in enumerate(model.outputs, 1)
    ]
    return jax.tree.unflatten(structure, arrays)  # type: ignore[no-any-return]


def _labels(config: Config, *, soft: bool | None = None) -> np.ndarray:
    """Return synthetic labels. If `soft` is None, they have the same form as in training."""
    rows = np.arange(ROWS)
    if config.target == "custom":
        labels = _made_up(config.data.custom_labels, 0)
        return labels if labels.dtype == np.float32 else labels % 2
    if config.target in metrics.CLASSES:
        # Use several rows per class, since a loss may compare them.
        labels = (rows % min(config.classes, ROWS // 4)).astype(np.int32)
        soft = config.learns_shares if soft is None else soft
        return np.eye(config.classes, dtype=np.float32)[labels] if soft else labels
    numbers = np.add.outer(rows, np.arange(config.outputs)).astype(np.float32)
    return numbers % 2 if config.target == "multilabel" else numbers / ROWS - 0.5


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
