"""Lowered step: the training step of a config, for devices that need not be there.

It is the program that a training compiles; nothing of it is computed. A GPU's compiler wants to see
the GPU: XLA's plan of the buffers for one core of a CPU stands in, and is an estimate.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pipeline.config import Config
from pipeline.config.data_layout import sizes
from workbench.plan.laws import AffineLaw

# What is compiled: the share of one of four GPUs, and that of one alone; at least one group of
# BatchNorm, and two.
PARTS = ((4, 1), (1, 2))


def of(config: Config, devices: Sequence[Any], policy: str, images: int = 0) -> Any:
    """Return the step as JAX lowers it: `jax.stages.Lowered`.

    Args:
        devices: of JAX, over which a batch splits; those of a topology will do.
        policy: of Keras, which is the precision that they train in.
        images: that lie on the devices; 0: the host sends each batch.

    Raises:
        ConfigError: if the batch does not split over them.
    """
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import jax
    import keras
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from pipeline.models import architectures
    from pipeline.runtime import replicas
    from pipeline.train import learning_rate
    from pipeline.train.step import Batch, TrainStep

    mesh = Mesh(np.array(devices), (replicas.AXIS,))

    def there(array: Any, *axes: Any) -> Any:
        where = NamedSharding(mesh, PartitionSpec(*axes))  # type: ignore[no-untyped-call]
        struct: Any = jax.ShapeDtypeStruct
        return struct(array.shape, array.dtype, sharding=where)

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        applied = learning_rate.apply(config, 1000 * config.batch)
        model = architectures.build(config, applied.batchnorm_momentum)
        step = TrainStep(config, applied, model, mesh)
        state = jax.tree.map(there, step.layout.initial())
        pixels, *rest = _given(config, step)
        split = partial(jax.tree.map, lambda array: there(array, None, replicas.AXIS))
        placed = [split(array) for array in (pixels, *rest)]
        held: tuple[Any, ...] = ()
        if images:
            part = -(-images // mesh.size)
            struct: Any = jax.ShapeDtypeStruct
            shape = (mesh.size * part, *config.data.shape)
            held = (there(struct(shape, pixels.dtype), replicas.AXIS),)
            placed[0] = there(struct(pixels.shape[:2], np.int32))
        return step.lowered(state, held, Batch(*placed))
    finally:
        keras.config.set_dtype_policy(before)


def _given(config: Config, step: Any) -> tuple[Any, ...]:
    import jax

    from pipeline.data.dataset import Weighted

    size = step.steps_per_call, config.batch
    whole = config.target in ("classes", "ordinal")
    labels: Any = (size, np.int32) if whole else ((*size, config.outputs), np.float32)
    if config.target == "custom":
        labels = (
            (*size, *sizes(config.data.custom_labels)),
            np.dtype(str(config.data.custom_labels[0])),
        )
    draws = (*size, step.augmentation.draws(0).shape[1])
    struct: Any = jax.ShapeDtypeStruct
    pixels = struct((*size, *config.data.shape), np.dtype(config.data.dtype))
    truth = struct(*labels)
    if config.class_weights or config.data.weight_column is not None:
        truth = Weighted(truth, struct(size, np.float32))
    return pixels, truth, struct(draws, np.int32)


def on_this_cpu(config: Config, policy: str) -> AffineLaw:
    """Return the law by two steps that are compiled for one core of this CPU; nothing is computed.

    Args:
        policy: of Keras, which is the precision that they train in.

    Raises:
        ConfigError: if the model does not take images of this size.
    """
    group = min(config.batchnorm_batch or config.optimizer.base_batch, config.batch)
    shares = [max(config.batch // part // group, times) * group for part, times in PARTS]
    first, second = ((share, compiled_bytes(config, share, group, policy)) for share in shares)
    return AffineLaw.through(first, second)


def compiled_bytes(config: Config, images: int, group: int, policy: str) -> float:
    """Return the bytes of a step of so many images on one core of this CPU.

    Args:
        images: a multiple of `group`, which BatchNorm normalizes together.
    """
    small = replace(
        config, batch=images, batchnorm_batch=group, micro_batch=None,
        optimizer=replace(config.optimizer, base_batch=images),
    )  # fmt: skip
    return of_step(small, 1, policy)[0]


def of_step(config: Config, count: int, policy: str, images: int = 0) -> tuple[float, float]:
    """Return the bytes that a step takes of each of so many devices of this machine's CPU, and
    those of them that are only taken while it computes.

    Args:
        images: that lie on the devices; 0: the host sends each batch.
    """
    import jax

    lowered = of(config, jax.devices("cpu")[:count], policy, images)
    found = lowered.compile().memory_analysis()
    computing = float(
        found.temp_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    )
    return float(found.argument_size_in_bytes) + computing, computing
