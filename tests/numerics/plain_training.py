"""A plain training with Keras and JAX: one device, one batch at a time.

It defines the result of this project's training, from which it takes the numbers of the config, the
augmented batches, and the layer that draws dropout by (seed, step, place).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
import numpy as np

from pipeline.models import group_layers
from pipeline.train.learning_rate import Applied

DROPOUT_SEED = 7


class Trained(NamedTuple):
    """Weights, BatchNorm's statistics, and the averages of both, if enabled."""

    params: list[Any]
    statistics: list[Any]
    ema: list[Any]


def network(images: Any, num_classes: int, batchnorm_momentum: float) -> Any:
    """Return logits; no layer has a corner, at which rounding jumps."""
    layers, penalty = keras.layers, keras.regularizers.L2(1e-3)
    x = layers.Conv2D(6, 3, use_bias=False, kernel_regularizer=penalty, name="conv")(images)
    x = layers.BatchNormalization(momentum=batchnorm_momentum, name="norm")(x)
    x = layers.AveragePooling2D(2, name="pool")(keras.ops.gelu(x))
    x = layers.Dropout(0.3, seed=DROPOUT_SEED, name="drop")(layers.Flatten(name="flat")(x))
    return layers.Dense(num_classes, kernel_regularizer=penalty, name="logits")(x)


def model(applied: Applied, shape: Sequence[int], num_classes: int) -> keras.Model:
    """Return the network for images, uint8 (batch, *shape)."""
    images = keras.Input(shape, dtype="uint8")
    scaled = keras.layers.Rescaling(1 / 255)(images)
    return keras.Model(images, network(scaled, num_classes, applied.batchnorm_momentum))


def optimizer(applied: Applied, variables: Sequence[Any]) -> Any:
    """Return the optimizer, without decay of biases and of BatchNorm's scale and offset."""
    rate = keras.optimizers.schedules.CosineDecay(
        0.0,
        applied.total_steps - applied.warmup_steps,
        warmup_target=applied.peak_rate,
        warmup_steps=applied.warmup_steps,
    )
    numbers = {"weight_decay": applied.weight_decay or None}
    if applied.optimizer == "sgd":
        made = keras.optimizers.SGD(rate, momentum=applied.momentum, nesterov=True, **numbers)
    else:
        kind = {"adam": keras.optimizers.Adam, "adamw": keras.optimizers.AdamW}[applied.optimizer]
        numbers |= {name: getattr(applied, name) for name in ("beta_1", "beta_2", "epsilon")}
        made = kind(rate, **numbers)
    made.exclude_from_weight_decay(var_list=[one for one in variables if one.ndim == 1])
    made.build(variables)
    return made


def step(built: keras.Model, applied: Applied, update: Any) -> Any:
    """Return the compiled step, from (params, statistics, opt_state, dropout's seed, images,
    labels) to the first three after it.

    The model is called for each group of `batchnorm_batch` images, which BatchNorm normalizes.
    """
    group = applied.batchnorm_batch

    def loss_fn(params: Any, moving: Any, seed: Any, images: Any, labels: Any) -> Any:
        losses, penalties, statistics = [], [], []
        for start in range(0, len(images), group):
            places = start + jnp.arange(group)
            outputs, after, added = forward(built, params, moving, seed, images[places], places)
            chances = jax.nn.log_softmax(outputs)
            losses.append(-jnp.take_along_axis(chances, labels[places][:, None], axis=1))
            penalties.append(sum(added))
            statistics.append(after)
        mean = jax.tree.map(lambda *each: sum(each) / len(each), *statistics)
        return jnp.concatenate(losses).mean() + sum(penalties) / len(penalties), mean

    @jax.jit
    def updated(
        params: Any, moving: Any, opt_state: Any, seed: Any, images: Any, labels: Any
    ) -> Any:
        gradient = jax.grad(loss_fn, has_aux=True)
        grads, moving = gradient(params, moving, seed, images, labels)
        params, opt_state = update.stateless_apply(opt_state, grads, params)
        return params, moving, opt_state

    return updated


def train(
    built: keras.Model,
    applied: Applied,
    starts: Sequence[list[np.ndarray]],
    batches: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Iterator[Trained]:
    """Train from each start on the batches, (images uint8, labels int32), and yield the ends."""
    update = optimizer(applied, built.trainable_variables)
    take = step(built, applied, update)
    for start in starts:
        built.set_weights(start)
        params = [variable.value for variable in built.trainable_variables]
        opt_state = [variable.value for variable in update.variables]
        moving = [variable.value for variable in built.get_layer("norm").non_trainable_variables]
        seed = built.get_layer("drop").seed_generator.state.value
        ema: list[Any] = [] if applied.ema_momentum is None else [*params, *moving]
        passed = []
        for done, (images, labels) in enumerate(batches):
            params, moving, opt_state = take(params, moving, opt_state, seed, images, labels)
            seed = seed + jnp.array([0, 1], seed.dtype)  # another dropout in each step
            passed.append([*params, *moving])
            if ema:
                momentum = min(applied.ema_momentum or 0.0, (1 + done) / (10 + done))
                pairs = zip(ema, passed[-1], strict=True)
                ema = [momentum * average + (1 - momentum) * value for average, value in pairs]
        if applied.swa_step is not None:
            some = zip(*passed[applied.swa_step :], strict=True)
            ema = [np.mean(np.stack(each), axis=0) for each in some]
        yield Trained(params, moving, ema)


def forward(
    built: keras.Model, params: Any, moving: Any, seed: Any, images: Any, places: Any
) -> tuple[Any, list[Any], list[Any]]:
    """Return outputs in training, BatchNorm's moved statistics, and what regularizers add."""
    drop = built.get_layer("drop")
    variables = built.get_layer("norm").non_trainable_variables
    values = {id(one): value for one, value in zip(variables, moving, strict=True)}
    buffers = [values.get(id(one), seed) for one in built.non_trainable_variables]
    norm, part = built.get_layer("norm"), group_layers.MicroBatch(places, len(images), 1)
    calls = [(drop, partial(group_layers.draw, drop, part)), (norm, partial(normalize, norm))]
    with group_layers.replaced_calls(calls):
        called = built.stateless_call(params, buffers, images, training=True, return_losses=True)
    outputs, after, added = called
    kept = zip(built.non_trainable_variables, after, strict=True)
    return outputs, [value for one, value in kept if id(one) in values], added


def normalize(layer: Any, inputs: Any, **_: Any) -> Any:
    """Normalize a batch by its own statistics, and move the layer's. Keras' own rounds to float32,
    in float64 too (3.15.0, measured 2026-11-26: 6e-9 of the mean).
    """
    mean, variance = inputs.mean((0, 1, 2)), inputs.var((0, 1, 2))
    for moving, value in ((layer.moving_mean, mean), (layer.moving_variance, variance)):
        moving.assign(layer.momentum * moving.value + (1 - layer.momentum) * value)
    scaled = (inputs - mean) / jnp.sqrt(variance + layer.epsilon)
    return scaled * layer.gamma.value + layer.beta.value
