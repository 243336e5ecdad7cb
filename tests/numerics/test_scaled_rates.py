"""No shipped config, and none that `inspect` proposes, scales a rate further than was checked."""

from itertools import product

import pytest

from localkaggle import competitions
from pipeline import config as configs
from pipeline.config import Data, config_files
from pipeline.train import learning_rate
from workbench.inspect import recipes
from workbench.inspect.recipes import CPU, TPU, Plan, Speed, Task

SIDES, ROWS = (8, 32, 96, 224), (60, 300, 1_500, 6_000, 40_000, 150_000)
REHEARSED = 0.8  # of the rows: a rehearsal hides the others
ELSEWHERE = {"cifar100": 50_000}  # images of a competition that is not embedded


def beyond_what_was_seen(config, rows):
    """Return whether a config scales its rate further than a check has confirmed."""
    factor = config.batch / config.optimizer.base_batch
    if config.optimizer.name == "sgd" or factor <= 1:
        return factor > learning_rate.SEEN_FACTOR
    return not learning_rate.adam_was_seen_to_hold(config, rows)


@pytest.mark.parametrize("name", config_files.named_files())
def test_no_shipped_config_scales_its_rate_beyond_what_was_seen(name):
    config = configs.load(name)
    rows = ELSEWHERE.get(config.competition)
    if config.competition in competitions.NAMES:
        table = competitions.EMBEDDED[config.competition]().training["train.csv"]
        rows = len(table.splitlines()) - 1
    if rows is None:
        pytest.skip("somebody's own competition")
    held = 1 / config.folds if config.folds else config.data.validation_fraction

    assert not beyond_what_was_seen(config, round(rows * (1 - held)))


def test_no_proposed_config_scales_its_rate_beyond_what_was_seen():
    given = {"name": "proposed", "competition": "proposed", "num_classes": 3, "target": "classes"}
    table = Data(kind="table", numeric_columns=("x",), label_column="label")
    kinds = [table, *(Data(height=side, width=side, channels=3) for side in SIDES)]
    factors = set()
    for data, rows, machine in product(kinds, ROWS, (CPU, TPU)):
        task = Task(given, data, rows, rows // 3)
        plan = Plan(machine, 3600.0)
        config = recipes.recipe(task, plan, lambda config: Speed(1e-3, 5.0)).config
        factors.add(config.batch / config.optimizer.base_batch)
        held = int(REHEARSED * task.split(config.folds or 1)[0])
        assert not beyond_what_was_seen(config, held), (data, rows, machine)

    assert max(factors) > 1
