"""Adjust hyperparameters that were tuned at one batch size for use at another.

`apply` is the only function that scales them. TPUs use a far larger batch than the GPU on which a
learning rate was tuned. With kappa = batch / base_batch:

| hyperparameter         | SGD       | Adam, AdamW           | source                          |
|------------------------|-----------|-----------------------|---------------------------------|
| peak learning rate     | x kappa   | x sqrt(kappa)         | Goyal 2017; Malladi 2022        |
| momentum               | unchanged |                       | Goyal 2017                      |
| 1 - beta_1, 1 - beta_2 |           | x kappa               | Malladi 2022                    |
| epsilon                |           | / sqrt(kappa)         | Malladi 2022                    |
| weight decay           | unchanged | x sqrt(kappa) (AdamW) | Goyal 2017; Wang 2024           |
| clipping norm          | unchanged | unchanged             | the gradient is a mean          |
| weight average         | ^ kappa   | ^ kappa               | Busbridge 2023                  |
| BatchNorm momentum     | ^ kappa   | ^ kappa               | same rule, not from a paper     |

Goyal et al. 2017, arXiv:1706.02677; Malladi et al. 2022, arXiv:2205.10287; Wang & Aitchison 2024,
arXiv:2405.13698; Busbridge et al. 2023, arXiv:2307.13813.

For other optimizers, `optimizer.scaling` sets the rule for the learning rate. A custom function
that accepts `kappa` can scale other hyperparameters.

Each step decays the weights by learning rate x weight decay. This product is scaled so that the
decay per epoch does not change. With SGD, scaling the learning rate is enough. Adam is used without
weight decay. Momentum is Nesterov momentum.

No rule holds everywhere (Shallue et al. 2019, arXiv:1811.03600), so check `Applied.warnings`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.config import Config, custom_code
from pipeline.config.config import OPTIMIZERS

# How each learning rate scales with the batch, unless `optimizer.scaling` sets it.
RULES = {"sgd": "linear", "adam": "sqrt", "adamw": "sqrt"}
# Linear scaling did not reduce accuracy up to a batch size of 8,192 (Goyal et al. 2017, figure 1).
LINEAR_RULE_LIMIT = 8192
# At kappa (1 - beta) = 1, the optimizer no longer averages gradients. Near this limit, it behaves
# differently (Malladi et al. 2022).
EDGE = 0.9
# 1 - 10 x (1 - 0.9) is 2e-16 in floating point, not 0.
ROUNDING = 1e-9
# A benchmark failed to learn with 12 steps per epoch (240 in total) at 32 times its base batch.
# `scale_check` tests a factor of 8.
SEEN_FACTOR = 8
# Adam's rule held for tables with this many steps per epoch. It failed with 17 or fewer, and for
# images even with 64 (docs/dev/findings.md).
ADAM_STEPS_PER_EPOCH = 64
LEAST_STEPS = 1000
LEAST_STEPS_PER_EPOCH = 25
REPLICAS = 8  # number of cores of a TPU v5e-8
RISE = 25  # peak / initial learning rate of "one_cycle", as in fastai and PyTorch
DECAY_SHARE = 0.2  # for "constant", as recommended by Hägele et al. 2024 (arXiv:2405.18392)


@dataclass(frozen=True)
class Applied:
    """The hyperparameters of a run, scaled to its batch size.

    Attributes:
        batch, base_batch: images per optimizer step, over all replicas.
        kappa: batch / base_batch.
        peak_rate: learning rate per step after the warm-up.
        frozen_steps: number of initial steps in which only new layers are trained.
        growing_steps: steps after which images grow, one for each item of `progressive`.
        total_steps: number of steps of the whole run. The learning rate ends at 0.
        decay_steps: number of final steps in which the learning rate decreases with "constant".
        momentum, beta_1, beta_2, epsilon, weight_decay: scaled values for SGD, Adam and AdamW.
            Other optimizers ignore them.
        swa_step: number of steps after which the mean of the weights starts. If None, the weights
            are not averaged in this way.
        batchnorm_batch: number of images that BatchNorm normalizes together; divides `batch`.
        warnings: rules that are used outside the range in which they were tested.
    """

    optimizer: str
    arguments: Mapping[str, Any]
    batch: int
    base_batch: int
    kappa: float
    peak_rate: float
    warmup_steps: int
    frozen_steps: int
    growing_steps: tuple[int, ...]
    total_steps: int
    schedule: str
    decay_steps: int
    momentum: float
    beta_1: float
    beta_2: float
    epsilon: float
    weight_decay: float
    clip_norm: float | None
    ema_momentum: float | None
    swa_step: int | None
    batchnorm_momentum: float
    batchnorm_batch: int
    warnings: tuple[str, ...]


def grouped(batch: int, base_batch: int) -> int:
    """Return the number of images that BatchNorm normalizes together.

    This is usually the largest divisor of `batch` that does not exceed `base_batch`. If a size that
    divides an eighth of the batch, or is a multiple of it, is at least half as large, it is used
    instead. Groups then align with the replicas on 8, 4 or 2 cores.

    The group size also determines how noisy BatchNorm is, and models generalize worse if larger
    groups are normalized (Hoffer et al. 2017, arXiv:1705.08741, "ghost batch normalization").

    >>> grouped(1024, 128), grouped(96, 64), grouped(32, 128), grouped(768, 64), grouped(536, 67)
    (128, 48, 32, 48, 67)
    >>> grouped(100, 64), grouped(104, 64)  # an eighth of 104 is 13
    (50, 52)
    """
    sizes = [size for size in range(min(batch, base_batch), 0, -1) if batch % size == 0]
    if batch % REPLICAS:
        return sizes[0]
    share = batch // REPLICAS
    whole = [size for size in sizes if share % size == 0 or size % share == 0]
    return whole[0] if 2 * whole[0] >= sizes[0] else sizes[0]


def apply(config: Config, num_images: int) -> Applied:
    """Return the hyperparameters scaled to `config.batch`.

    Each step takes `config.batch` images from an endless sequence of permutations, so images
    are never dropped. `total_steps` is epochs x num_images / batch, rounded up.
    """
    given, kappa = config.optimizer, config.batch / config.optimizer.base_batch
    root, adam = math.sqrt(kappa), given.name in ("adam", "adamw")
    scaling = given.scaling or RULES.get(given.name)
    total_steps = math.ceil(config.epochs * num_images / config.batch)
    warmup_steps = min(math.ceil(config.warmup_epochs * num_images / config.batch), total_steps - 1)
    decay_steps = 0
    if given.schedule == "constant":
        share = DECAY_SHARE if given.decay_share is None else given.decay_share
        decay_steps = min(math.ceil(share * total_steps), total_steps - warmup_steps)
    betas, warnings = {"beta_1": float(given.beta_1), "beta_2": float(given.beta_2)}, []
    for name, beta in betas.items() if adam else ():
        lost = kappa * (1 - beta)
        if beta and (lost < 1 - ROUNDING or kappa <= 1):  # 0 disables averaging
            betas[name] = 1 - lost
        if beta and kappa > 1 and lost >= EDGE - ROUNDING:
            warnings.append(
                f"kappa={kappa:g} is at or beyond the limit of the square-root rule for"
                f" {name}={beta:g} (kappa x (1 - {name}) must be below 1). Using {betas[name]:.2g}"
                " with a scaled learning rate. Results may differ. Tune base_rate at a larger"
                " base_batch."
            )
    warnings += _warnings(config, num_images, kappa, total_steps)
    return Applied(
        optimizer=given.name,
        arguments=dict(given.arguments),
        batch=config.batch,
        base_batch=given.base_batch,
        kappa=kappa,
        peak_rate=given.base_rate * {"linear": kappa, "sqrt": root}.get(scaling or "none", 1.0),
        warmup_steps=warmup_steps,
        frozen_steps=math.ceil(config.frozen_epochs * num_images / config.batch),
        growing_steps=tuple(
            math.ceil(epoch * num_images / config.batch) for epoch in config.growing_epochs
        ),
        total_steps=total_steps,
        schedule=given.schedule,
        decay_steps=decay_steps,
        momentum=float(given.momentum),  # Keras rejects integers
        **betas,
        epsilon=given.epsilon / root if adam else given.epsilon,
        weight_decay=given.weight_decay * (root if given.name == "adamw" else 1.0),
        clip_norm=given.clip_norm,
        ema_momentum=None if given.ema_momentum is None else float(given.ema_momentum**kappa),
        swa_step=None if given.swa_start is None else int(given.swa_start * total_steps),
        batchnorm_momentum=float(config.batchnorm_momentum**kappa),
        batchnorm_batch=config.batchnorm_batch or grouped(config.batch, given.base_batch),
        warnings=tuple(warnings),
    )


def _warnings(config: Config, num_images: int, kappa: float, total_steps: int) -> Iterator[str]:
    name, steps_per_epoch = config.optimizer.name, num_images / config.batch
    if name not in OPTIMIZERS and kappa > 1:
        yield (
            f"{name}'s learning rate uses scaling={config.optimizer.scaling!r}, which has not been"
            f" tested. Run `scale-check`, or tune base_rate at base_batch={config.batch}."
        )
    if name in ("adam", "adamw") and kappa > 1 and not adam_was_seen_to_hold(config, num_images):
        yield (
            f"{name}'s learning rate is scaled by {math.sqrt(kappa):.3g}, with"
            f" {steps_per_epoch:.1f} steps per epoch. This rule has only been confirmed for tables"
            f" with at least {ADAM_STEPS_PER_EPOCH} steps per epoch and at most {SEEN_FACTOR} times"
            f" the base batch. Tune base_rate at base_batch={config.batch}, or run `scale-check`."
        )
    if name == "sgd" and config.batch > LINEAR_RULE_LIMIT:
        yield (
            f"batch={config.batch} exceeds {LINEAR_RULE_LIMIT}, the largest batch size at which"
            " linear scaling was shown to work. Decrease batch."
        )
    if kappa > 1 and config.warmup_epochs == 0:
        yield (
            "The learning rate is scaled up without the warm-up that both rules require."
            " Set warmup_epochs (usually to 5)."
        )
    few = total_steps < LEAST_STEPS or steps_per_epoch < LEAST_STEPS_PER_EPOCH
    if few and kappa > SEEN_FACTOR:
        yield (
            f"There are {total_steps} steps in total and {steps_per_epoch:.1f} per epoch. At least"
            f" {LEAST_STEPS} steps are recommended for a scaled batch, and {LEAST_STEPS_PER_EPOCH}"
            " per epoch for reliable BatchNorm statistics. Decrease batch or increase epochs."
        )


def adam_was_seen_to_hold(config: Config, num_images: int) -> bool:
    return (
        config.data.kind == "table"
        and config.batch <= SEEN_FACTOR * config.optimizer.base_batch
        and num_images / config.batch >= ADAM_STEPS_PER_EPOCH
    )


def schedule(config: Config, applied: Applied) -> Any:
    """Return the Keras learning rate schedule. Built-in schedules rise to `peak_rate` within
    `warmup_steps` and reach 0 at `total_steps`; custom functions return a fraction of `peak_rate`.

    "cosine" rises linearly from 0 and falls along a half cosine. "one_cycle" (Smith & Topin 2018,
    arXiv:1708.07120, with fastai's cosines) rises from 1/25 of the peak along a half cosine and
    falls along another, while the momentum stays constant. "constant" rises linearly, stays
    constant, and falls linearly within `decay_steps`, so that longer runs start in the same way.
    """
    from keras import backend, ops
    from keras.optimizers.schedules import LearningRateSchedule

    warmup, total = applied.warmup_steps, applied.total_steps
    custom = custom_code.function(config, "optimizer.schedule")

    class Schedule(LearningRateSchedule):  # type: ignore[misc]
        def __call__(self, step: Any) -> Any:
            step = ops.cast(step, backend.floatx())
            if custom:
                share = custom(step, total, warmup)
                return ops.cast(applied.peak_rate * share, backend.floatx())
            risen = ops.minimum(step / warmup, 1.0) if warmup else 1.0
            if applied.schedule == "constant":
                left = ops.clip((total - step) / applied.decay_steps, 0.0, 1.0)
                return applied.peak_rate * risen * left
            if applied.schedule == "one_cycle":
                risen = 1 / RISE + (1 - 1 / RISE) * (1 - ops.cos(math.pi * risen)) / 2
            fallen = ops.clip((step - warmup) / (total - warmup), 0.0, 1.0)
            return applied.peak_rate * risen * (1 + ops.cos(math.pi * fallen)) / 2

    return Schedule()
