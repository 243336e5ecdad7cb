"""How long a training takes: on a TPU by the law of the plan, on this CPU by measuring.

What nobody has shown says so. Nothing here has run on a TPU.
"""

from dataclasses import dataclass, replace

from pipeline.config import Config
from pipeline.errors import ConfigError
from workbench import budget as budgets
from workbench.plan import laws, outlook
from workbench.plan.accelerators import RUNTIMES
from workbench.plan.laws import VALIDATES
from workbench.plan.operation_counts import image_bytes, passes

TPU, CPU = "tpu-v5e-8", "cpu"
BUDGETS = {TPU: "2h", CPU: "8m"}  # by default

DECODES = 1_000  # images per second on two cores: 959 of 500x375 JPEGs, measured 2026-11-21
AGAIN = 0.3  # of the setup, for each later fold, by what XLA kept (19 % measured)
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
        return self.fixed(rows, held, folds) + folds * epochs * self._epoch(rows, held)

    def epochs(self, rows: int, held: int, folds: int, seconds: float) -> int:
        """Return the most epochs that fit, 0 if none does.

        >>> Speed(image=0.01, setup=5, start=10).epochs(900, 100, 1, 120)
        9
        """
        left = FILLED * seconds - self.fixed(rows, held, folds)
        return max(int(left / (folds * self._epoch(rows, held))), 0)

    def slower(self, times: float) -> "Speed":
        """Return the speed of a network with so many times the operations."""
        return replace(self, image=self.image * times)

    def fixed(self, rows: int, held: int, folds: int) -> float:
        """Return the seconds that are no epoch: to start, to read the images and to compile."""
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
    """Return what the plan's law says of a TPU v5e-8, at the slow end of its interval.

    Args:
        config: gives batch and shape.
        operations: of one image's forward pass.
    """
    runtime = RUNTIMES[TPU]
    core, cpus = runtime.core, runtime.cpus
    assert core is not None and cpus is not None  # noqa: S101 - both are known
    operations *= passes(config) * config.batch / runtime.cores
    step = laws.expected(laws.roofline(core, operations)).at_least(laws.CALL)
    feeding = image_bytes(config) / laws.GATHERS / cpus
    image = max(step.most / config.batch, feeding)
    return Speed(image, outlook.COMPILES, laws.DECODES * cpus, outlook.STARTS)


def on_this_cpu(config: Config, least_seconds: float = 1.0) -> Speed:
    """Return how fast a config's network trains here, measured on some steps of random pixels.

    Args:
        config: of images; its epochs do not matter.
        least_seconds: that the timed steps take together; three steps at least.
    """
    from workbench.plan import probe

    found = probe.of_step(config, least_seconds)
    # The evaluation is another program, about half as large.
    return Speed(found.step / config.batch, setup=1.5 * found.setup)
