"""Speed records: how fast earlier runs were, by the progress lines in their output folders.

What a run reached of its cores' limits refines what is assumed of others: much for the same
network, a little for another one on the same runtime.
"""

import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from pipeline import config as configs
from pipeline.config import Config, custom_code
from pipeline.errors import ConfigError, PipelineError, reading
from pipeline.train.progress_log import LINES
from workbench.plan import accelerators, kept_plans, laws, operation_counts
from workbench.plan.accelerators import RUNTIMES
from workbench.plan.laws import EFFICIENCY, AffineLaw
from workbench.plan.operation_counts import Counts

MANIFEST = Path("artifact", "manifest.json")
FIX = "Give the --output of a training that is complete, or a folder that `invoke pull` made."
# Between networks the share of a core's limit differs by about this factor either way (its
# interval, `EFFICIENCY`); what is usual there, by less. Of one network, between runs: assumed.
NETWORKS = math.log(EFFICIENCY[2] / EFFICIENCY[0]) / 2
USUAL, AGAIN = NETWORKS / 2, 1.15


@dataclass(frozen=True)
class Seen:
    """A run.

    Attributes:
        runtime: where it ran.
        config: of the run. precision: that it trained in.
        step: seconds of a step.
        folder: of its output. source: for people. custom_code: sha256 of its functions, or "".
    """

    runtime: str
    config: Config
    precision: str
    step: float
    folder: Path
    source: str
    custom_code: str

    def same_network(self, config: Config) -> bool:
        """Return whether its network is that of a config, on images of the same size."""
        ours, theirs = (
            (one.model, dict(one.model_options), one.data.shape, one.outputs)
            for one in (config, self.config)
        )
        return ours == theirs and not custom_code.functions(config) and not self.custom_code


def read(folder: Path) -> Seen:
    """Return the speed of a run.

    Args:
        folder: the output of a complete training.

    Raises:
        ConfigError: if there is none, or the plan does not know its machine.
    """
    path = folder / MANIFEST
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for a long name
        raise ConfigError(f"--probe {folder}: there is no {MANIFEST}.\n{FIX}")
    with reading(path, ConfigError, FIX):
        content = path.read_bytes()
    try:
        manifest = json.loads(content)
        config = configs.from_json(manifest["config"])
        precision, machine = str(manifest["precision"]), str(manifest["devices"])
        run, custom_code = str(manifest["run_id"]), str(manifest["custom_code"])
        speeds = [_last_speed(one) for one in sorted(folder.glob(f"**/{LINES}"))]
    except (OSError, ValueError, LookupError, TypeError, RecursionError, PipelineError) as error:
        raise ConfigError(f"--probe {folder}: {path} is no run's: {error}\n{FIX}") from error
    name = accelerators.named(machine)
    known = [speed for speed in speeds if 0 < speed < math.inf]
    if not name or not known:
        what = f"ran on {machine}" if not name else "has no progress lines with a speed"
        raise ConfigError(f"--probe {folder}: the run {run} {what}, of which no plan is made.")
    step = config.batch / median(known)
    source = f"run {run} in {folder.name}"
    return Seen(name, config, precision, step, folder, source, custom_code)


def _last_speed(path: Path) -> float:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [line["images_per_second"] for line in lines if "images_per_second" in line]
    return float(found[-1]) if found else 0.0


def pulled(folder: Path) -> list[Seen]:
    """Return the speeds of the complete runs that lie in a folder of pulled ones."""
    found = []
    for path in sorted(folder.glob(f"*/{MANIFEST}")):
        with suppress(ConfigError):  # an infer's folder, or of a machine that no plan is made of
            found.append(read(path.parents[1]))
    return found


def law(seen: Sequence[Seen], config: Config, runtime: str) -> tuple[AffineLaw, str] | None:
    """Return the time of a step by runs of this network on a runtime with two batches, and their
    sources; None: there are none.
    """
    ours = {
        one.config.batch: one for one in seen if one.runtime == runtime and one.same_network(config)
    }
    if len(ours) < 2:
        return None
    first, second = (ours[batch] for batch in (min(ours), max(ours)))
    if second.step <= first.step:  # too noisy for a law
        return None
    points = ((one.config.batch, one.step) for one in (first, second))
    return AffineLaw.through(*points), f"{first.source} and {second.source}"


def efficiency(
    seen: Sequence[Seen], config: Config, runtime: str
) -> tuple[tuple[float, float, float], str]:
    """Return which share of a core's limit a network is expected to reach, as an interval, and what
    it rests on: "" where no run was seen.

    Shares are compared as ratios. Runs of the same network say it themselves; those of others move
    what is usual on the runtime, each as much as it tells beside the spread between networks.
    """
    here = [one for one in seen if one.runtime == runtime]
    same = [one for one in here if one.same_network(config)]
    shares = [(one, share) for one in same or here if (share := _share(one))]
    if not shares:
        return EFFICIENCY, ""
    sources = ", ".join(one.source for one, _ in shares[:3])
    if same:
        found = median(share for _, share in shares)
        return (found / AGAIN, found, found * AGAIN), sources
    weight, before = 1 / NETWORKS**2, 1 / USUAL**2
    total = before * math.log(EFFICIENCY[1]) + weight * sum(math.log(s) for _, s in shares)
    usual = math.exp(total / (before + weight * len(shares)))
    moved = usual / EFFICIENCY[1]
    return (EFFICIENCY[0] * moved, usual, EFFICIENCY[2] * moved), sources


def _share(one: Seen) -> float:
    runtime = RUNTIMES.get(one.runtime)
    if runtime is None or runtime.core is None or one.custom_code:
        return 0.0
    try:
        made = kept_plans.found(
            "counts", one.config, lambda: asdict(operation_counts.of(one.config))
        )
    except ConfigError:  # of an older version of its model
        return 0.0
    operations = Counts(**made).in_bounds * one.config.batch / runtime.cores
    half = one.precision != "float32"
    return laws.roofline(runtime.core, operations, half=half) / one.step
