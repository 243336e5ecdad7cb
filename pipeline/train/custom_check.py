"""Checks of a config's custom functions, before a run spends anything.

Each of `QUESTIONS` calls a function with a few made-up rows. A problem is reported with file and
line. TensorFlow, which infers on Kaggle's GPUs, computes the model, too, in a separate process:
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
from pipeline.evaluate import losses, metrics
from pipeline.infer import submission
from pipeline.models import architectures, group_layers
from pipeline.runtime import replicas
from pipeline.train import layer_rates, learning_rate, optimizer, phases

ROWS = 16
# A batch size that divides no axis of a model.
ODD_ROWS = 37
# Largest difference of outputs between JAX and TensorFlow, relative to the largest output; as in
# `pipeline.infer.check`, which would refuse the artifact later.
TOLERANCE = 1e-4
# Largest difference of weights that are computed in parts: a share of the change in two steps, far
# above rounding and far below the effect of a missing part; or a multiple of the effect of an ulp.
APART, ROUNDING = 0.02, 8
SUM_TOLERANCE = 1e-5  # of the sum of a softmax
WEIGHTS, OUTPUTS = "weights.npz", "outputs.npy"  # for the other process, and from it
ROOT = Path(__file__).resolve().parents[2]

Question = Callable[[Config], str]


class Wrong(PipelineError):
    """A problem of a custom function: text that follows its name, and the edit."""


def check(config: Config, show: Callable[[str], None]) -> None:
    """Check a config's custom functions, and its model with both backends.

    Raises:
        ConfigError: if a function cannot work.
    """
    by_jax(config, show)
    if not (custom_code.function(config, "train_step") or config.fit):
        _ask(config, "model", _train_step, show)
    _ask(config, "model", _tensorflow, show)


def by_jax(config: Config, show: Callable[[str], None]) -> None:
    """Check a config's custom functions with JAX alone, in seconds."""
    for field, question in QUESTIONS.items():
        steps = field == "model" and not config.fit  # which has no gradient
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
    """Call a custom metric with the true values of the held-out rows.

    Args:
        truth: as `pipeline.evaluate.metrics` takes it.
    """
    if custom_code.function(config, "metric") and config.target != "custom":
        metrics.of(config)(truth, metrics.best(config, truth))


def check_submission_of(config: Config, columns: Sequence[str] | None, folder: Path) -> None:
    """Call a custom `write_submission` with made-up predictions.

    Args:
        columns: of the sample submission, without the id; None: there is no sample.
        folder: of the competition.
    """
    if submission.writer_of(config, folder):
        _submission(config, columns, folder)


# The questions to each function; they return a line for the user


def _augment(config: Config) -> str:
    images = inputs(config)
    first, again = _augmented(config, images), _augmented(config, images)
    if not all(map(np.array_equal, first, again)):
        raise Wrong(
            "gives different results for the same image and key.\n"
            "Draw with the key alone (jax.random), not with numpy or Python's random."
        )
    return f"images stay {images.dtype} {images.shape}"


def _mix(config: Config) -> str:
    """Mix a group, then another one, then the first again."""
    changes = Augmentation(
        config.data, 0, ROWS, None, custom_code.function(config, "augment_batch")
    )
    groups = [(inputs(config, seed), _labels(config)) for seed in (0, 1, 0)]
    draws = [changes.draws(step) for step in (0, 1, 0)]
    # Each call is traced anew, so draws without the key differ.
    first, _, again = (
        jax.tree.map(np.asarray, jax.jit(lambda *given: changes.mixed(*given))(*group, numbers))
        for group, numbers in zip(groups, draws, strict=True)
    )
    if not all(map(np.array_equal, jax.tree.leaves(first), jax.tree.leaves(again))):
        raise Wrong(
            "gives different results for the same group and key, with another group between.\n"
            "Draw with the key alone (jax.random), and keep nothing of another group."
        )
    images, labels, mixture = first
    if mixture is None and (config.class_weights or config.data.weight_column):
        raise Wrong(
            "returns labels, but rows have weights (class_weights or data.weight_column), which"
            " it does not mix.\nReturn places and shares, or leave the weights out."
        )
    if mixture is None:
        return f"images {images.shape} and labels {labels.shape} of a group"
    partners, share = mixture
    if partners.min() < 0 or partners.max() >= ROWS or share.min() < 0 or share.max() > 1:
        raise Wrong(
            f"mixes rows across groups, or by wrong shares: places from {partners.min()} to"
            f" {partners.max()}, shares from {share.min():g} to {share.max():g}; expected places"
            f" from 0 to {ROWS - 1} in a group of {ROWS}, and shares from 0 to 1.\n"
            "Take the number of rows from images.shape[0]: a group has batchnorm_batch rows."
        )
    return f"images {images.shape} of a group, each mixed with another"


def _sampler(config: Config) -> str:
    labels = np.resize(_labels(config), (10 * ROWS, *_labels(config).shape[1:]))
    rows = sampler.of(config, labels)
    assert rows is not None  # noqa: S101 - the config names one
    epochs = [rows(epoch) for epoch in (0, 1, 0)]
    if not np.array_equal(epochs[0], epochs[2]):
        raise Wrong(
            "gives different rows for the same epoch, so a run could not resume.\n"
            "Draw with its generator alone."
        )
    return f"{len(set(epochs[0].tolist()))} of {len(labels)} rows in an epoch"


def _log(config: Config) -> str:
    log: Any = custom_code.function(config, "log")
    inspect.signature(log).bind({})  # not called: it may send the record
    return "gets each record of progress"


def _augmented(config: Config, images: np.ndarray) -> list[np.ndarray]:
    """Return the results of a custom `augment`: images, and with target="custom" labels."""
    changes = Augmentation(config.data, 0, ROWS, custom_code.function(config, "augment"))
    rows = [images, *([_labels(config)] if config.target == "custom" else [])]
    # Each call is traced anew, so draws without the key differ.
    program = jax.jit(lambda images, *labels: changes.changed(images, changes.draws(0), *labels))
    return list(map(np.asarray, program(*rows)))


def _loss(config: Config) -> str:
    model, labels = architectures.build(config), _labels(config)
    every, (names, together) = _outputs_of(model), tried_loss(config, model)
    # Shuffled, since a contrastive loss depends only on which labels are equal.
    others = labels[np.random.default_rng(0).permutation(ROWS)]
    values, different = (_computed(config, each, every) for each in (labels, others))
    for name, each in values.items():
        if each.shape != (ROWS,) or not np.issubdtype(each.dtype, np.floating):
            raise Wrong(
                f"returns {each.dtype} {each.shape} for {ROWS} rows ({name}); expected a float"
                f" ({ROWS},).\nReturn a number for each row, not a mean over the batch."
            )
    if _equal(values, different):
        raise Wrong("does not depend on the labels.\nLet it compare with them.")
    for name in every[1]:
        changed = (every[0], every[1] | {name: 1 + 2 * every[1][name]})
        if _equal(values, _computed(config, labels, changed)):
            raise Wrong(
                f"does not depend on the output {name!r} of"
                f" {custom_code.described(config, 'model')}.\n"
                "Add a loss of it, or leave it out of the model's extra outputs."
            )
    groups = ""
    if together:
        group = learning_rate.apply(config, config.batch).batchnorm_batch
        does = "draws" if losses.KEY in losses.asked(config) else "compares rows"
        groups = f"; it {does}: it gets groups of {group} (batchnorm_batch)"
    several = f" of {', '.join(names)}" if names else ""
    return f"a number per row{several}, which depends on the labels{groups}"


def tried_loss(config: Config, model: Any) -> tuple[tuple[str, ...], bool]:
    """Return the names of the losses, if there are several, and whether the loss needs groups of
    rows: because it draws, or because a row's loss changes when other rows are missing.

    Raises:
        ConfigError: if the loss fails, or the model has extra outputs that no loss takes.
    """
    custom, outputs = custom_code.function(config, "loss"), _outputs_of(model)
    if outputs[1] and losses.EXTRA not in losses.asked(config):
        raise ConfigError(
            f"{custom_code.described(config, 'model')} has the extra outputs"
            f" {', '.join(outputs[1])}, and loss={config.loss!r} takes none.\nWrite a loss with the"
            " parameter extra: def loss(labels, outputs, extra) (docs/custom-training.md)."
        )
    if custom is None:
        return (), False
    labels, together = _labels(config), losses.KEY in losses.asked(config)
    # Several sizes, since a loss with a margin is 0 for distant rows.
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
    """Return the losses of made-up rows, by name, always with the same key, in validation None."""
    key = None if validation else jax.random.key(0, impl="threefry2x32")
    values = jax.jit(losses.of(config, training=True))(labels, *outputs, key)
    return jax.tree.map(np.asarray, values)  # type: ignore[no-any-return]


def _equal(values: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(values[name], others[name]) for name in values)


def _schedule(config: Config) -> str:
    applied, warm = learning_rate.apply(config, config.batch), config.warmup_epochs > 0
    for total in (7, 100):  # a rehearsal has few steps
        numbers = replace(applied, total_steps=total, warmup_steps=total // 7 * warm)
        schedule = learning_rate.schedule(config, numbers)
        rates = np.asarray(jax.jit(jax.vmap(schedule))(np.arange(total)))
        wrong = np.flatnonzero(~(np.isfinite(rates) & (rates >= 0)))
        if rates.shape != (total,) or len(wrong) or not rates.any():
            step = wrong[0] if len(wrong) else 0
            raise Wrong(
                f"gives a rate of {rates[step]} at step {step} of {total}, of which"
                f" {numbers.warmup_steps} are warm-up; expected a finite share of base_rate in each"
                " step, 0 or more, and above 0 in one.\nDo not divide by a number that may be 0"
                " (write max(warmup_steps, 1)), nor take the root of one below 0."
            )
    return f"rates from {rates.min():.3g} to {rates.max():.3g} in a run of 100 steps"


def check_optimizer_of(config: Config) -> None:
    """Check the optimizer, its arguments, the rates of layers, and the sizes of growing images.

    Raises:
        ConfigError: with the edit.
    """
    plain = config.optimizer.name in OPTIMIZERS and not config.optimizer.layer_rates
    if plain and not config.frozen_epochs and not config.progressive:
        return
    model, applied = architectures.build(config), learning_rate.apply(config, config.batch)
    optimizer.optimizer(config, applied, model.trainable_variables)
    layer_rates.factors(model, config)
    layer_rates.frozen(model, config)
    phases.models(config, model)


def _optimizer(config: Config) -> str:
    """Take two steps with made-up gradients, and repeat the second one after a resume."""
    architectures.seed(config.seed)
    variables = architectures.build(config).trainable_variables
    applied = learning_rate.apply(config, 100 * config.batch)
    begin = applied.warmup_steps + 1  # before it the rate may be 0

    def made() -> tuple[Any, list[Any]]:
        one = optimizer.optimizer(config, applied, variables)
        one.build(variables)
        one.iterations.assign(begin)
        return one, [variable.value for variable in one.variables]

    random = np.random.default_rng(0)
    both = [[random.standard_normal(one.shape, np.float32) for one in variables] for _ in "12"]
    one, state = made()
    _refuse_state(one, variables, both[0])
    rate, wanted = float(one.learning_rate), float(learning_rate.schedule(config, applied)(begin))
    if not np.isclose(rate, wanted, rtol=1e-3):
        raise Wrong(
            f"has a learning rate of {rate:.3g} at step {begin}; expected its argument,"
            f" {wanted:.3g}.\nPass it on: keras.optimizers.SGD(learning_rate, …)."
        )
    weights = [variable.value for variable in variables]
    first, saved = jax.jit(one.stateless_apply)(state, both[0], weights)
    second, _ = one.stateless_apply(saved, both[1], first)
    again, _ = made()[0].stateless_apply(saved, both[1], first)
    changed = sum(not np.array_equal(*pair) for pair in zip(weights, second, strict=True))
    if not changed or not all(np.isfinite(each).all() for each in second):
        raise Wrong(
            f"{'makes weights that are not finite' if changed else 'changes no weight'}.\n"
            "Look for a division by 0 or a root, and at the assignments in update_step."
        )
    if not all(np.array_equal(*pair) for pair in zip(second, again, strict=True)):
        raise Wrong(
            "gives different weights after a resume: it keeps state outside Keras variables, which"
            " no checkpoint holds.\nKeep all state in variables that build creates:"
            " self.add_variable_from_reference(variable, name)."
        )
    return f"{len(state)} arrays of state, {changed} of {len(weights)} weights change"


def _refuse_state(made: Any, variables: list[Any], grads: list[np.ndarray]) -> None:
    """Refuse state in variables that are not the optimizer's, which no checkpoint holds."""
    known = {id(one) for one in (*made.variables, *variables)}
    with keras.StatelessScope() as scope:
        made.apply(list(map(jnp.asarray, grads)), variables)
    if not known.issuperset(scope.state_mapping):
        raise Wrong(
            "changes a variable that is not its own, such as that of a SeedGenerator: no checkpoint"
            " holds it, and each step starts with the same value.\nCreate its state in build, by"
            " self.add_variable, or draw from self.iterations."
        )


def _metric(config: Config) -> str:
    metric = metrics.of(config)
    given = metric.takes
    if config.target == "custom":
        metric(_labels(config), _outputs(config))
        given = "labels and outputs"
    better = "greater" if metric.greater_is_better else "smaller"
    return f"{better} is better; it gets {given}"


def _submission(
    config: Config, columns: Sequence[str] | None = None, folder: Path = Path("no folder")
) -> str:
    write: Any = submission.writer_of(config, folder)
    names = tuple(map(str, range(config.num_classes))) if config.target in metrics.CLASSES else ()
    target = Target(config.target, names, (0.0,) * config.outputs, (1.0,) * config.outputs)
    ids = list(map(str, range(ROWS)))
    return f"columns {', '.join(write(ids, target.predictions(_outputs(config)), columns))}"


# The questions to the model


def _model(config: Config) -> str:
    images = inputs(config)
    if custom_code.function(config, "augment"):
        images, *_ = _augmented(config, images)
    architectures.seed(config.seed)
    model = architectures.build(config)
    if not model.trainable_variables:
        raise Wrong(
            "has no weight that trains; expected at least those of the last layer.\n"
            "Set trainable=True there, or add a layer with weights."
        )
    _refuse_infinite_gradients(config, model, images)
    outputs = architectures.outputs(model, images, ROWS)
    others = inputs(config, 1)
    others[0] = images[0]
    if _differ(outputs[:1], architectures.outputs(model, others, ROWS)[:1]):
        raise Wrong(
            "gives a row different outputs when other rows of the batch change, but a batch may be"
            " computed in parts.\nCompute each row by itself. Mix rows by data.mixup or"
            " data.cutmix, and compare them in the loss or BatchNormalization, which get groups."
        )
    _refuse_lost_state(config, model, images, outputs)
    softmax = outputs.min() >= 0 and np.abs(outputs.sum(axis=-1) - 1).max() < SUM_TOLERANCE
    if config.target == "classes" and softmax:
        raise Wrong(
            "returns probabilities; expected logits, since validation and inference apply the"
            " softmax.\nLeave the softmax out, and write from_logits=True in a custom loss."
        )
    return f"{architectures.count(model)['total']:,} parameters, all gradients finite"


def _refuse_infinite_gradients(config: Config, model: Any, images: np.ndarray) -> None:
    """Compute the gradient of a batch as a step does."""
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

    # A layer that mistakes another axis for the batch fails here.
    jax.eval_shape(forward, params, np.resize(images, (ODD_ROWS, *images.shape[1:])))
    value, gradients = jax.jit(jax.value_and_grad(loss))(params)
    bad = sum(not np.isfinite(gradient).all() for gradient in gradients)
    if bad or not np.isfinite(value):
        culprit = "loss" if custom_code.function(config, "loss") else "model"
        raise Wrong(
            f"gives a loss of {value:g}, and its gradient is not finite in {bad} of {len(params)}"
            f" weights; expected finite numbers.\nLook in {custom_code.described(config, culprit)}"
            " for a division by 0, or a root or logarithm of 0."
        )


def _refuse_lost_state(config: Config, model: Any, images: np.ndarray, outputs: np.ndarray) -> None:
    """Build the model again, as folds and inference do, and assign the weights."""
    architectures.seed(config.seed + 1)
    again = architectures.build(config)
    if {id(one) for one in again.weights} & {id(one) for one in model.weights}:
        raise Wrong(
            "uses the same layer in every model that it builds, so folds would share its"
            " weights.\nCreate the layers with weights within the function."
        )
    artifact.assign(again, artifact.weights_of(model))
    if _differ(outputs, architectures.outputs(again, images, ROWS), least=1.0):
        raise Wrong(
            "gives different outputs when it is built again with the same weights: a layer is not"
            " part of the model, or a constant is random.\nCall a layer of a constant within"
            " another layer's call, keep layers as attributes, in lists or in dicts, and draw from"
            " a fixed seed."
        )


def _tensorflow(config: Config) -> str:
    """Compare the model's outputs with those of TensorFlow, in another process."""
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
                f"works with JAX but not with TensorFlow, which infers on a GPU: {said[:500]}\n"
                "Use keras.ops and keras.layers, which run on both."
            )
        theirs = np.load(Path(scratch) / OUTPUTS)
    ours = architectures.outputs(model, inputs(config), ROWS)
    if _differ(ours, theirs, least=1.0):
        raise Wrong(
            f"has outputs that differ by {np.abs(ours - theirs).max():.1e} between JAX and"
            f" TensorFlow; expected at most {TOLERANCE:.0e} of the largest.\n"
            "Use keras.ops and keras.layers alone, and draw nothing outside training."
        )
    return "TensorFlow computes the same outputs as JAX"


def main(config: str, folder: Path) -> None:
    """Write the outputs of a model for the weights in a folder, with this process' backend."""
    settings = load_config(config)
    model = architectures.build(settings)
    artifact.assign(model, npz.read(folder / WEIGHTS))
    with custom_code.telling(settings, "model"):
        np.save(folder / OUTPUTS, architectures.outputs(model, inputs(settings), ROWS))


# Whether the result is the same in parts


def _train_step(config: Config) -> str:
    """Take two steps of 16 rows: whole, in micro-batches, and on two devices if possible."""
    if jax.process_count() > 1:
        return "not compared in parts, which needs a single process: python -m pipeline check"
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
    changed = _length(whole, start)
    # With an optimizer that takes signs, rounding alone moves weights as far as a nudge does.
    allowed = max(APART * changed, ROUNDING * _length(nudged, whole))
    for way, (weights, *_) in ways.items():
        apart = _length(weights, whole)
        if not apart <= allowed:
            raise Wrong(
                f"gives different weights with {way}: {apart:.2g} apart after two steps, which"
                f" changed them by {changed:.2g}; expected at most {allowed:.2g}.\n"
                "Take gradients by step.gradients alone, and losses as sums over the images."
            )
    return f"the same whole and with {' and '.join(ways)}"


def _stepped(
    config: Config, count: int, *, nudge: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Return the weights after two steps with made-up rows, before these steps, and with `nudge`
    after two steps from weights that are an ulp away.

    Args:
        count: of devices.
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
        if mesh is None:  # a CPU may be several devices
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
                f"counts step {state.step} and {state.totals.count} rows after two steps of {ROWS};"
                f" expected 2 and {2 * ROWS}.\nEnd with step.update, which counts them."
            )
        params = {name: array for name, array in start.items() if name.startswith("params/")}
        near = {name: np.nextafter(array, np.float32(np.inf)) for name, array in params.items()}
        nudged = list(map(np.asarray, after(start | near, state).params)) if nudge else weights
        return weights, list(params.values()), nudged
    finally:
        keras.distribution.set_distribution(None)


def _length(arrays: list[np.ndarray], others: list[np.ndarray]) -> float:
    """Return the distance of two lists of arrays, the root of the sum of squares."""
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
    "train_step": _train_step,
    "log": _log,
    "write_submission": _submission,
}


def _differ(values: np.ndarray, others: np.ndarray, least: float = 0.0) -> bool:
    """Return whether two arrays differ by more than rounding, or in their NaNs.

    Args:
        least: the rounding is relative to the largest number, and at least to this one.
    """
    largest = np.abs(values[np.isfinite(values)]).max(initial=least)
    return not np.allclose(values, others, rtol=0, atol=TOLERANCE * largest, equal_nan=True)


# Made-up rows


def _made_up(form: Form, seed: int) -> np.ndarray:
    """Return numbers of a form for each row. Of int32 they are small, since they may be indices."""
    random, shape = np.random.default_rng(seed), (ROWS, *sizes(form))
    if form[0] == "float32":
        return random.standard_normal(shape, np.float32)
    return random.integers(0, 256 if form[0] == "uint8" else 2, shape, str(form[0]))


def inputs(config: Config, seed: int = 0) -> np.ndarray:
    """Return made-up inputs of a config's model: (16, …), in the form of `Config.data`."""
    if config.data.kind == "custom":
        forms = config.data.forms.items()
        return custom_readers.pack({name: _made_up(form, seed) for name, form in forms})
    return _made_up((config.data.dtype, *config.data.shape), seed)


def _outputs(config: Config) -> np.ndarray:
    """Return made-up outputs: float32 (16, outputs), or in the form of a custom model's."""
    if config.target == "custom":
        return _outputs_of(architectures.build(config))[0]
    return _made_up(("float32", config.outputs), 1)


def _outputs_of(model: Any) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return made-up outputs of a model, and its extra outputs by name."""
    structure = jax.tree.structure(architectures.parted(model.output))
    arrays = [
        _made_up(("float32", *one.shape[1:]), seed) for seed, one in enumerate(model.outputs, 1)
    ]
    return jax.tree.unflatten(structure, arrays)  # type: ignore[no-any-return]


def _labels(config: Config) -> np.ndarray:
    """Return labels as `pipeline.data.labels` reads them."""
    rows = np.arange(ROWS)
    if config.target == "custom":
        labels = _made_up(config.data.custom_labels, 0)
        return labels if labels.dtype == np.float32 else labels % 2
    if config.target in metrics.CLASSES:
        # Several rows of each class, since a loss may compare them.
        return (rows % min(config.num_classes, ROWS // 4)).astype(np.int32)
    numbers = np.add.outer(rows, np.arange(config.outputs)).astype(np.float32)
    return numbers % 2 if config.target == "multilabel" else numbers / ROWS - 0.5


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
