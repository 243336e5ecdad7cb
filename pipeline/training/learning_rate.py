"""Learning rate: numbers tuned at one batch, scaled to another. The only place where a rate is
scaled.

Reads  `config.optimizer` (numbers and the batch they were tuned at) and `config.batch` Gives
`Applied`: every number that depends on the batch, and the steps over which the rate rises and falls

A TPU takes a far larger batch than the GPU a rate was tuned on. With kappa = batch / base_batch:

| number                     | SGD         | Adam, AdamW            | source                                             |
|----------------------------|-------------|------------------------|----------------------------------------------------|
| peak rate                  | x kappa     | x sqrt(kappa)          | Goyal 2017 (1706.02677); Malladi 2022 (2205.10287) |
| momentum                   | unchanged   |                        | Goyal 2017                                         |
| 1 - beta_1, 1 - beta_2     |             | x kappa                | Malladi 2022                                       |
| epsilon                    |             | / sqrt(kappa)          | Malladi 2022                                       |
| weight decay               | unchanged   | x sqrt(kappa) (AdamW)  | Goyal 2017; Wang & Aitchison 2024 (2405.13698)     |
| average of the weights     | to the power of kappa | the same     | Busbridge 2023 (2307.13813)                        |
| BatchNorm momentum         | to the power of kappa | the same     | inferred from the same law; not from a paper       |

A step takes rate x decay off the weights, so what an epoch takes off stays as it was: with SGD the
rate alone sees to that. Adam has no decay here. Momentum is Nesterov's.

No rule holds everywhere (Shallue et al. 2019, 1811.03600): `Applied.warnings` says where one is
left.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.config import Config

# Linear scaling was measured without loss up to a batch of 8,192 (Goyal et al. 2017, figure 1).
LINEAR_RULE_LIMIT = 8192
# From kappa (1 - beta) = 1 on nothing of beta is left, and near it too little to call it the same
# optimizer (Malladi et al. 2022).
EDGE = 0.9
# 1 - 10 x (1 - 0.9) is 2e-16 in floating point, and not 0.
ROUNDING = 1e-9
# The benchmark that never learned had 12 steps an epoch and 240 in all.
LEAST_STEPS = 1000
LEAST_STEPS_PER_EPOCH = 25


@dataclass(frozen=True)
class Applied:
    """The numbers a run uses, as applied.

    Attributes:
        optimizer: "sgd", "adam" or "adamw".
        batch, base_batch: images per optimizer step, over all replicas.
        kappa: batch / base_batch.
        peak_rate: learning rate per step after the warm-up.
        warmup_steps: steps in which the rate rises linearly from 0; included in `total_steps`.
        total_steps: steps of the whole run; the rate falls to 0 along a half cosine until the last.
        momentum (SGD), beta_1, beta_2, epsilon (Adam, AdamW), weight_decay (SGD, AdamW),
        ema_momentum, batchnorm_momentum: as scaled.
        batchnorm_batch: images that BatchNorm normalizes together; it divides `batch`.
        warnings: where the rules are used outside what they were tested for.
    """

    optimizer: str
    batch: int
    base_batch: int
    kappa: float
    peak_rate: float
    warmup_steps: int
    total_steps: int
    momentum: float
    beta_1: float
    beta_2: float
    epsilon: float
    weight_decay: float
    ema_momentum: float | None
    batchnorm_momentum: float
    batchnorm_batch: int
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as what `json.dumps` takes."""
        return asdict(self)


def scaled_average(momentum: float, kappa: float) -> float:
    """Return the momentum of a running average that forgets as fast per image at `kappa` times the
    batch.

    Source: Busbridge et al. 2023, arXiv:2307.13813 (for averages of weights); for BatchNorm's
    statistics it is an inference.

    >>> round(scaled_average(0.99, 8), 3)
    0.923
    """
    return float(momentum**kappa)


def scaled_beta(beta: float, kappa: float) -> tuple[float, bool]:
    """Return Adam's beta with 1 - beta multiplied by `kappa`, and whether that left anything of it:
    if not, beta is returned as it was.

    Source: Malladi et al. 2022, arXiv:2205.10287.

    >>> scaled_beta(0.75, 2)
    (0.5, True)
    >>> scaled_beta(0.75, 4)
    (0.75, False)
    """
    if beta == 0:  # no average: nothing to scale, and no rule to leave
        return 0.0, True
    left = 1 - kappa * (1 - beta)
    return (left, True) if left > ROUNDING or kappa <= 1 else (beta, False)


def scaled_rate(optimizer: str, base_rate: float, kappa: float) -> float:
    """Return the peak rate at `kappa` times the batch: linear for SGD, square root for Adam and
    AdamW.

    Sources: Goyal et al. 2017, section 2.1, arXiv:1706.02677 (SGD); Malladi et al. 2022,
    arXiv:2205.10287 (Adam).

    >>> scaled_rate("sgd", 0.1, 4)
    0.4
    >>> scaled_rate("adam", 0.001, 4)
    0.002
    """
    return base_rate * (kappa if optimizer == "sgd" else math.sqrt(kappa))


def grouped(batch: int, base_batch: int) -> int:
    """Return how many images BatchNorm normalizes together: as many as when the numbers were tuned,
    or the next fewer that divide `batch`.

    BatchNorm's noise is part of what was tuned, and normalizing over a larger batch generalizes
    worse: Hoffer et al. 2017, arXiv:1705.08741 ("ghost batch normalization").

    >>> grouped(1024, 128), grouped(96, 64), grouped(32, 128)
    (128, 48, 32)
    """
    return next(size for size in range(min(batch, base_batch), 0, -1) if batch % size == 0)


def apply(config: Config, num_images: int) -> Applied:
    """Return the numbers for `config.batch`, with the steps that `num_images` training images make.

    Args:
        config: the run.
        num_images: images in the training part, after the validation part is held back.

    A step takes `config.batch` images from an endless row of permutations, so `total_steps` is
    epochs x num_images / batch, rounded up: no image is dropped.
    """
    given = config.optimizer
    kappa = config.batch / given.base_batch
    root = math.sqrt(kappa)
    total_steps = math.ceil(config.epochs * num_images / config.batch)
    warmup_steps = min(math.ceil(config.warmup_epochs * num_images / config.batch), total_steps - 1)
    adam = given.name in ("adam", "adamw")
    betas = {"beta_1": float(given.beta_1), "beta_2": float(given.beta_2)}

    warnings = []
    for name, beta in betas.items() if adam else ():
        betas[name], holds = scaled_beta(beta, kappa)
        if not holds:
            warnings.append(
                f"kappa={kappa:g} is past the square-root rule for {name}={beta:g} (kappa x (1 - {name}) must stay below 1): {name} stays "
                f"{beta:g} while the rate and the other numbers are scaled; expect drift. Tune base_rate at a larger base_batch."
            )
        elif kappa > 1 and beta and kappa * (1 - beta) >= EDGE - ROUNDING:
            warnings.append(
                f"kappa={kappa:g} is at the edge of the square-root rule for {name}={beta:g}: scaled it is {betas[name]:.2g}, and little of "
                "that average is left; expect drift. Tune base_rate at a larger base_batch."
            )
    if given.name == "sgd" and config.batch > LINEAR_RULE_LIMIT:
        warnings.append(
            f"batch={config.batch} is past {LINEAR_RULE_LIMIT}, where linear scaling was last measured without loss. Lower batch."
        )
    if kappa > 1 and config.warmup_epochs == 0:
        warnings.append(
            "The rate is scaled up without a warm-up, which both rules need. Set warmup_epochs (5 is usual)."
        )
    if total_steps < LEAST_STEPS and config.batch > given.base_batch:
        warnings.append(
            f"{total_steps} steps in all is few for a scaled batch (fewer than {LEAST_STEPS}): raise epochs, or lower batch."
        )
    if num_images / config.batch < LEAST_STEPS_PER_EPOCH and config.batch > given.base_batch:
        warnings.append(
            f"{num_images / config.batch:.1f} steps an epoch is few (fewer than {LEAST_STEPS_PER_EPOCH}): "
            "BatchNorm's statistics and the schedule see little of the data between changes. Lower batch."
        )
    return Applied(
        optimizer=given.name,
        batch=config.batch,
        base_batch=given.base_batch,
        kappa=kappa,
        peak_rate=scaled_rate(given.name, given.base_rate, kappa),
        warmup_steps=warmup_steps,
        total_steps=total_steps,
        momentum=float(given.momentum),  # Keras takes no whole number for it
        beta_1=betas["beta_1"],
        beta_2=betas["beta_2"],
        epsilon=given.epsilon / root if adam else given.epsilon,
        weight_decay=given.weight_decay * (root if given.name == "adamw" else 1.0),
        ema_momentum=None
        if given.ema_momentum is None
        else scaled_average(given.ema_momentum, kappa),
        batchnorm_momentum=scaled_average(config.batchnorm_momentum, kappa),
        batchnorm_batch=config.batchnorm_batch or grouped(config.batch, given.base_batch),
        warnings=tuple(warnings),
    )


def schedule(applied: Applied) -> Any:
    """Return the Keras schedule: linear from 0 to `peak_rate` in `warmup_steps`, then a half cosine
    to 0 at `total_steps`.
    """
    import keras

    # Keras counts decay_steps from the end of the warm-up; we count total_steps from the beginning.
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if applied.warmup_steps else applied.peak_rate,
        decay_steps=max(applied.total_steps - applied.warmup_steps, 1),
        warmup_target=applied.peak_rate if applied.warmup_steps else None,
        warmup_steps=applied.warmup_steps,
    )


def optimizer(applied: Applied) -> Any:
    """Return the Keras optimizer with the applied numbers and the schedule inside; SGD's momentum
    is Nesterov's.
    """
    import keras

    rate = schedule(applied)
    if applied.optimizer == "sgd":
        return keras.optimizers.SGD(
            rate,
            momentum=applied.momentum,
            nesterov=True,
            weight_decay=applied.weight_decay or None,
        )
    betas = {"beta_1": applied.beta_1, "beta_2": applied.beta_2, "epsilon": applied.epsilon}
    if applied.optimizer == "adam":
        return keras.optimizers.Adam(rate, **betas)
    return keras.optimizers.AdamW(rate, weight_decay=applied.weight_decay, **betas)
