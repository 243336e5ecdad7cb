"""No config that ships, and none that `inspect` proposes, scales a rate beyond what was checked."""

from collections.abc import Iterator

from localkaggle import competitions
from pipeline import config as configs
from pipeline.config import Config, Data, config_files
from pipeline.inspection import recipes
from pipeline.inspection.recipes import Task
from pipeline.inspection.training_speed import CPU, TPU, Plan, Speed
from pipeline.runtime import backend
from pipeline.training import learning_rate
from proofs.shared.results_table import Row

SIDES, ROWS = (8, 32, 96, 224), (60, 300, 1_500, 6_000, 40_000, 150_000)
REHEARSED = 0.8  # of the rows: a rehearsal hides the others
ELSEWHERE = {"cifar100": 50_000}  # images of the competition that is not embedded


def row() -> Row:
    """Return the row."""
    backend.choose("jax")
    shipped = dict(_shipped())
    proposed = [(config, rows) for config, rows in _proposed()]
    scaled = sorted({round(each.batch / each.optimizer.base_batch) for each, _ in proposed})
    beyond = [
        f"{config.name} at {config.batch / config.optimizer.base_batch:g} times, {rows:,} rows"
        for config, rows in (*shipped.values(), *proposed)
        if beyond_what_was_seen(config, rows)
    ]
    times = {name: each.batch / each.optimizer.base_batch for name, (each, _) in shipped.items()}
    return Row(
        "No shipped or proposed config scales its rate beyond what the check saw hold",
        f"0 of {len(shipped)} that ship, and of {len(proposed)} proposals for a CPU and a TPU:"
        f" Adam's at most {learning_rate.SEEN_FACTOR} times, for tables with"
        f" {learning_rate.ADAM_STEPS_PER_EPOCH} steps an epoch",
        f"{len(beyond)}{': ' * bool(beyond)}{'; '.join(beyond)}; those that ship and scale:"
        f" {', '.join(f'{name} {each:g} times' for name, each in times.items() if each > 1)};"
        f" proposals scale {', '.join(map(str, scaled))} times",
        not beyond and len(shipped) >= 8,
    )


def beyond_what_was_seen(config: Config, rows: int) -> bool:
    """Return whether a config scales its rate where the check missed, or was not made."""
    factor = config.batch / config.optimizer.base_batch
    if factor <= 1:
        return False
    if config.optimizer.name == "sgd":
        return factor > learning_rate.SEEN_FACTOR
    return not learning_rate.adam_was_seen_to_hold(config, rows)


def _shipped() -> Iterator[tuple[str, tuple[Config, int]]]:
    for name in config_files.named_files():
        config = configs.load(name)
        if config.competition in competitions.NAMES:
            table = competitions.EMBEDDED[config.competition]().training["train.csv"]
            rows = len(table.splitlines()) - 1
        elif config.competition in ELSEWHERE:
            rows = ELSEWHERE[config.competition]
        else:
            continue  # somebody's own
        held = 1 / config.folds if config.folds else config.data.validation_fraction
        yield name, (config, round(rows * (1 - held)))


def _proposed() -> Iterator[tuple[Config, int]]:
    given = {"name": "proposed", "competition": "proposed", "num_classes": 3, "target": "classes"}
    table = Data(kind="table", numeric_columns=("x",), label_column="label")
    kinds = [table, *(Data(height=side, width=side, channels=3) for side in SIDES)]
    for data in kinds:
        for rows in ROWS:
            for machine in (CPU, TPU):
                task = Task(given, data, rows, rows // 3)
                made = recipes.recipe(task, Plan(machine, 3600.0), lambda config: Speed(1e-3, 5.0))
                yield made.config, int(REHEARSED * task.split(made.config.folds or 1)[0])
