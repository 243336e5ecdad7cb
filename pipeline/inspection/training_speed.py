"""How long a training takes: on a TPU by what is published and assumed, on this CPU by measuring.

What nobody has shown says so. Nothing here has run on a TPU.
"""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.config import Config
from pipeline.config import budget as budgets
from pipeline.errors import ConfigError
from pipeline.plan.accelerators import V5E
from pipeline.plan.step_time import CALL, VALIDATES

TPU, CPU = "tpu-v5e-8", "cpu"
BUDGETS = {TPU: "2h", CPU: "8m"}  # by default

PEAK = 8 * V5E.operations  # a second
# The share of it that a network reaches. Read: ResNet-50 at 224 pixels has 19 % on an A100 and
# 20.5 % on TPU v3 (NVIDIA DeepLearningExamples; arXiv:1811.06992). Assumed: half of that for the
# depthwise convolutions of EfficientNetV2 and ConvNeXt. A first run on Kaggle would show it.
SHARE = 0.1
# Measured on one core of a laptop-class CPU: batches of 32x32x3, cropped and flipped, in bytes a
# second (docs/LOG.md, 2026-11-21). Assumed: a core of the TPU's host is as fast.
FED = 149_000 * 32 * 32 * 3
# Measured 175 s on two busy cores for a network of 103 million parameters (2026-11-21); assumed
# for the TPU's host.
TPU_COMPILES = 180.0
# JPEGs of 500x375 a second and core, measured (docs/results.md); assumed: 48 of the host's cores.
TPU_DECODES = 600 * 48
DECODES = 1_000  # images a second on two cores, the slower ones of docs/results.md

AGAIN = 0.3  # of the setup, for each later fold, by what XLA kept (19 % in docs/results.md)
STARTS = 12.0  # seconds of imports, and of what ends a run: the last evaluation and the pictures
FILLED = 0.85  # of a budget that is planned: no machine is always equally fast


@dataclass(frozen=True)
class Plan:
    """Where a config is to train, and for how long.

    Attributes:
        machine: "tpu-v5e-8" or "cpu".
        seconds: from the start of the training to its artifact.
    """

    machine: str = TPU
    seconds: float = 2 * 3600.0


@dataclass(frozen=True)
class Speed:
    """How fast a network trains.

    Attributes:
        image: seconds an image, batches and augmentation included.
        setup: seconds to build and compile, in the first fold.
        decodes: images a second that are read from files.
        start: seconds that come once in a run.
    """

    image: float
    setup: float
    decodes: float = DECODES
    start: float = STARTS

    def seconds(self, rows: int, held: int, epochs: int, folds: int = 1) -> float:
        """Return how long a training takes.

        Args:
            rows, held: examples that train and validate, in each fold.
            epochs: in each fold.
            folds: 1 without cross-validation.
        """
        return self._fixed(rows, held, folds) + folds * epochs * self._epoch(rows, held)

    def epochs(self, rows: int, held: int, folds: int, seconds: float) -> int:
        """Return the most epochs that fit, 0 if none does.

        >>> Speed(image=0.01, setup=5, start=10).epochs(900, 100, 1, 120)
        9
        """
        left = FILLED * seconds - self._fixed(rows, held, folds)
        return max(int(left / (folds * self._epoch(rows, held))), 0)

    def slower(self, times: float) -> "Speed":
        """Return the speed of a network with so many times the operations."""
        return replace(self, image=self.image * times)

    def _fixed(self, rows: int, held: int, folds: int) -> float:
        setups = self.setup * (1 + AGAIN * (folds - 1))
        return self.start + setups + (rows + held) / self.decodes

    def _epoch(self, rows: int, held: int) -> float:
        return self.image * (rows + VALIDATES * held)


def plan(machine: str = "", budget: str = "") -> Plan:
    """Return the plan that `--for` and `--budget` ask for.

    Raises:
        ConfigError: if there is no such machine, or the budget is no time.

    >>> plan("cpu", "8m"), plan("", "1.5h").seconds
    (Plan(machine='cpu', seconds=480.0), 5400.0)
    """
    machine = machine or TPU
    if machine not in BUDGETS:
        raise ConfigError(
            f"--for {machine[:40]}: expected one of {', '.join(BUDGETS)}.\nCorrect it: --for {CPU}"
        )
    return Plan(machine, budgets.seconds(budget or BUDGETS[machine]))


def on_tpu(config: Config, operations: float) -> Speed:
    """Return what is assumed of a TPU v5e-8.

    Args:
        config: gives batch and shape.
        operations: of one image's forward pass; a step takes three times as many.
    """
    computing = 3 * operations / (SHARE * PEAK)
    feeding = float(np.prod(config.data.shape)) / FED
    image = max(computing, feeding, CALL / config.batch)
    return Speed(image, setup=TPU_COMPILES, decodes=TPU_DECODES, start=60.0)


def on_this_cpu(config: Config, least_seconds: float = 1.0) -> Speed:
    """Return how fast a config's network trains here, measured on some steps of random pixels.

    Args:
        config: of images; its epochs do not matter.
        least_seconds: that the timed steps take together; three steps at least.
    """
    from pipeline.plan import probe

    step, setup = probe.of_step(config, least_seconds)
    # The evaluation is another program, about half as large.
    return Speed(step / config.batch, setup=1.5 * setup)
