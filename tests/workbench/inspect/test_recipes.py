"""A proposal fits the budget of its machine, and has reasons."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config import Config, Data
from pipeline.models import architectures, backbones
from workbench.inspect import recipes
from workbench.inspect.recipes import CPU, TPU, Plan, Speed, Task

GIVEN = {"name": "leaves", "competition": "leaves", "num_classes": 7, "target": "classes"}


def task(rows: int, side: int, channels: int = 3, *, photographs: int = 0) -> Task:
    """Return a task of images; `photographs`: a side of files that can be read at any size."""
    size = (photographs, photographs) if photographs else None
    data = Data(height=side, width=side, channels=channels)
    return Task({**GIVEN, "metric": ""}, data, rows, rows // 7, size)


def speeds(seconds: float, setup: float):
    """Return what measures a network: seconds for each 10 million operations of an image."""

    def measure(config: Config) -> Speed:
        networks = recipes.for_cpu(Task(GIVEN, config.data, 5000, 700))
        mine = next(each for each in networks if each.options == config.model_options)
        return Speed(seconds * mine.operations / 1e7, setup)

    return measure


@pytest.mark.parametrize(
    ("rows", "wanted"), [(1_000, (15, 0.5)), (4_999, (15, 0.5)), (999, (40, 0.3))]
)
def test_a_small_table_gets_a_network_that_does_not_overfit(rows, wanted):
    """With 40 epochs and a dropout of 0.2, an AUC of 0.802 was 0.731 (docs/dev/findings.md)."""
    given = Task({**GIVEN, "metric": ""}, Data(kind="table", numeric_columns=("x",)), rows, 50)

    config = recipes.recipe(given, Plan(CPU, 480)).config

    assert (config.epochs, config.model_options["dropout"]) == wanted


@settings(max_examples=60)
@given(
    rows=st.integers(20, 100_000),
    side=st.integers(8, 64),
    seconds=st.floats(1e-4, 0.1),
    setup=st.floats(0.5, 20),
    budget=st.integers(30, 7200),
)
def test_a_cpu_trains_for_the_budget(rows, side, seconds, setup, budget):
    """At the measured speed, with compiling, validating and all folds. It trains for at least one
    epoch, and at most for as many as are useful.
    """
    given, measure = task(rows, side), speeds(seconds, setup)

    made = recipes.recipe(given, Plan(CPU, budget), measure)

    config = made.config
    assert made.seconds <= budget or config.epochs == 1
    assert made.seconds <= budget or " epochs, pass --budget " in made.reasons["epochs"]
    folds, more = config.folds or 1, config.epochs + 1
    steps = measure(config).image * given.split(folds)[0] * folds * config.epochs
    assert setup + steps <= budget or config.epochs == 1
    longer = measure(config).seconds(given, folds, more)
    rounding = 1e-9 * budget
    filled = longer > recipes.FILLED * budget - rounding
    assert filled or config.epochs == 400


@pytest.mark.parametrize(
    ("seconds", "options"),
    [(1e-2, {"stride": 4, "width": 32}), (1e-5, {"stride": 2, "width": 48})],
)
def test_a_faster_cpu_gets_a_larger_network(seconds, options):
    """5,000 pictures of 48 pixels, in eight minutes."""
    made = recipes.recipe(task(5000, 48), Plan(CPU, 480), speeds(seconds, 5.0))

    assert made.config.model_options.items() >= options.items()


def test_networks_for_a_cpu_grow_and_can_be_built():
    """The first is the fastest, so that timing can stop at one that is too slow."""
    given = task(600, 34)
    networks = list(recipes.for_cpu(given))

    assert len(networks) == 4
    assert sorted(networks, key=lambda each: each.operations) == networks
    config = recipes.recipe(given, Plan(CPU, 480), speeds(1e-2, 5.0)).config
    with architectures.without_numbers():
        assert architectures.count(architectures.build(config))["trainable"] > 10_000


@pytest.mark.parametrize(
    ("photographs", "side", "model", "size"),
    [
        (300, 64, "convnext_base", 288),
        (0, 100, "convnext_base", 100),
        (48, 48, "wide_resnet", 48),
        (0, 8, "small_cnn", 8),
    ],
)
def test_a_tpu_gets_a_pretrained_network_unless_images_are_tiny(photographs, side, model, size):
    """At the largest usual size that the files have; arrays keep theirs."""
    made = recipes.recipe(task(5000, side, photographs=photographs), Plan())

    config = made.config
    assert (config.model, config.data.height) == (model, size)
    assert (config.model in backbones.BACKBONES) == ("weights" in made.reasons)
    assert config.optimizer.ema_momentum and config.warmup_epochs and config.folds == 5
    assert config.batch % 8 == 0 and config.views > 1


def test_a_small_budget_of_a_tpu_takes_a_smaller_network_and_no_folds():
    """90,000 photographs in eight minutes, and in nine hours."""
    given = task(90_000, 64, photographs=400)

    large = recipes.recipe(given, Plan(TPU, 9 * 3600)).config
    small = recipes.recipe(given, Plan(TPU, 480)).config

    assert large.pretrained and large.folds == 5
    assert small.folds is None
    assert small.data.height < large.data.height or small.epochs < large.epochs


def test_the_reason_for_flips_has_both_fields_to_edit():
    """Views that training did not make are refused. For numbers there is no cutmix: a part of a
    picture has no part of its number.
    """
    numbers = {**GIVEN, "num_classes": 0, "target": "regression", "metric": ""}
    given = task(5000, 64, photographs=400)

    made, other = (recipes.recipe(one, Plan()) for one in (given, replace(given, given=numbers)))

    views = re.search(r"flip=False and views=(\d+)", made.reasons["augmentation"])
    assert made.config.data.flip and views
    replace(made.config, views=int(views[1]), data=replace(made.config.data, flip=False))
    assert (other.config.data.cutmix, other.config.data.mixup) == (0.0, 0.2)


def test_a_networks_speed_is_timed_with_training_steps(tiny):
    """The distribution over devices is restored afterwards."""
    import keras

    speed = recipes.on_this_cpu(tiny, least_seconds=0.0)

    assert 0 < speed.image < speed.setup
    assert keras.distribution.distribution() is None
