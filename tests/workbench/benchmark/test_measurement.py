"""A grid has the most informative cells first, and a small one is really trained: what is counted,
what is compiled, what is kept.
"""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pipeline import config as config_module
from pipeline.errors import ConfigError
from workbench.benchmark import bench_command, cells, images, measurement, own_way
from workbench.benchmark.cells import FEEDS, FIT, OURS, OWN_FEED, PATTERNS, UNSCALED, WAYS, Cell

COUNT, TEST, BATCH, EPOCHS = 50, 10, 16, 3
CELLS = (
    *("fit-1-whole-16", "ours-1-own-16", "fit-6-generator-16", "ours-6-own-16"),
    *("fit-1-truncated-16", "fit-1-generator-16"),
)
trains_a_grid = pytest.mark.slow


NUMBERS = some.sets(some.sampled_from(sorted(PATTERNS)), min_size=1)
SIZES = some.sets(some.integers(1, 4096), min_size=1, max_size=5)


@settings(max_examples=20)
@given(NUMBERS, SIZES)
def test_a_grid_has_every_possible_cell_once_and_compares_both_ways_if_it_is_cut(numbers, sizes):
    """Each cell of ours follows the same of fit, the unscaled rate is for one pattern alone, and
    the smallest batch comes first.
    """
    found = cells.grid(numbers, sizes)

    asked = (Cell(*each) for each in product(WAYS, numbers, (*FEEDS, OWN_FEED), sizes))
    possible = {cell for cell in asked if cells.possible(cell)}
    left_out = possible - set(found)
    assert len(found) == len(set(found)) and set(found) <= possible
    assert {cell.way for cell in left_out} <= {UNSCALED}
    assert len({cell.pattern for cell in found if cell.way == UNSCALED}) <= 1
    assert found[0].batch == min(sizes)
    for before, cell in zip([None, *found], found, strict=False):
        if cell.way != FIT:
            assert before.way == {OURS: FIT, UNSCALED: OURS}[cell.way]
            assert (before.pattern, before.batch) == (cell.pattern, cell.batch)


@pytest.mark.parametrize(
    ("read", "texts", "said"),
    [
        (cells.read_patterns, "0 9 1..9 3..1 x 1,,2 .. -1", "numbers from 1 to 8"),
        (cells.read_batches, "0 64, x 64.5 -64", "images a step"),
    ],
)
def test_a_pattern_or_batch_that_is_none_is_named_with_the_edit(read, texts, said):
    for text in ["", *texts.split()]:
        with pytest.raises(ConfigError, match=rf"expected {said}(.|\n)*--(pattern|batch) \d"):
            read(text)


@pytest.fixture(scope="module")
def small():
    """Return a network of three 1x1 convolutions, which compiles in a second."""
    config = config_module.load("digits")
    return replace(
        config, model="wide_resnet", batch=BATCH,
        model_options={"k": 1, "n": 0, "kernel_size": 1}, folds=None, baseline=None,
        batchnorm_batch=None, optimizer=replace(config.optimizer, base_batch=BATCH),
    )  # fmt: skip


@pytest.fixture(scope="module")
def bench(small, tmp_path_factory):
    """Return a function that gives the command, its folder, and what it measured first."""
    output = tmp_path_factory.mktemp("bench")

    def give(**options: str) -> tuple[list[str], dict[str, measurement.Measured]]:
        shown: list[str] = []
        given = {"pattern": "1,6", "images": str(COUNT), "batch": str(BATCH), **options}
        found = bench_command.run(small, None, output, given, shown.append)
        made = [measurement.of_json(one) for one in found["cells"]]
        return shown, {str(one.cell): one for one in made}

    return give, output, give()[1]


@trains_a_grid
def test_each_cell_counts_the_images_that_the_devices_were_given(bench):
    """Both ways of both patterns, then the other feeds. Fit's generator leaves some out, three
    steps of sixteen, of fifty images in four batches; it validates no more whole batches than there
    are, but one. A ragged batch costs one compilation more, which a truncated set saves.
    """
    measured = bench[2]

    def epochs(cell, name):
        return [getattr(epoch, name) for epoch in measured[cell].times.epochs]

    assert tuple(measured) == CELLS
    assert epochs("fit-1-whole-16", "images") == [COUNT] * EPOCHS
    assert epochs("fit-1-truncated-16", "images") == [48] * EPOCHS
    generated = epochs("fit-1-generator-16", "images")
    assert set(generated) == {48, 34} and generated[0] == 48
    assert sum(epochs("ours-1-own-16", "images")) == -(-COUNT * EPOCHS // BATCH) * BATCH
    assert epochs("ours-6-own-16", "validated") == [TEST] * EPOCHS
    assert epochs("fit-6-generator-16", "validated") == [TEST] * EPOCHS
    assert epochs("fit-1-whole-16", "validated") == [0] * EPOCHS
    whole, truncated = (epochs(f"fit-1-{feed}-16", "compiled") for feed in ("whole", "truncated"))
    assert whole[0].count("jit(train_step)") == 2 and truncated[0].count("jit(train_step)") == 1
    assert whole[1:] == truncated[1:] == [()] * (EPOCHS - 1)
    about = measured[CELLS[0]].about  # for throughput only: nothing can be learned from noise
    assert not about["real"] and "for throughput only" in about["images"]
    (path,) = bench[1].glob(f"cells/*/{CELLS[0]}.json")
    assert json.loads(path.read_text())["about"] == about


@trains_a_grid
def test_a_cell_of_another_grid_is_not_taken_for_one_of_this(bench, small, monkeypatch):
    """Nor one of another network's settings, or of other versions."""
    give, output, _ = bench

    with pytest.raises(ConfigError, match=r"with work .* on 50 images(.|\n)*--output"):
        give(images="40")
    rate = replace(small.optimizer, base_rate=0.5)
    faster = replace(small, optimizer=rate, patience=2)
    with pytest.raises(ConfigError, match=r"with settings {'optimizer': (?!.*patience)(.|\n)*0\.5"):
        bench_command.run(faster, None, output, {"images": str(COUNT), "batch": "16"}, print)
    here = measurement.provenance.versions()
    monkeypatch.setattr(measurement.provenance, "versions", lambda: here | {"jax": "0.1"})
    with pytest.raises(ConfigError, match=r"with versions {'jax': '[\d.]+'}; .*{'jax': '0.1'}"):
        give()


WHOLE = '"cell": {"way": "fit", "pattern": 1, "feed": "whole", "batch": 4}'


@pytest.mark.parametrize("text", ["[]", f'{{{WHOLE}, "times": null, "reason": "", "about": {{}}}}'])
def test_a_corrupt_cell_is_named(tmp_path, text):
    path = tmp_path / "cells" / "cpu" / "fit-1-whole-16.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)

    with pytest.raises(ConfigError, match=r"fit-1-whole-16.json is no cell(.|\n)*Remove it"):
        measurement.read(path)


def test_a_config_with_every_augmentation_trains_each_pattern():
    """One that `invoke inspect` proposes has ten views, which a pattern without any cannot have."""
    config = config_module.load("cifar100_wrn")
    data = replace(config.data, crop_padding=5, flip=True, mixup=0.2, cutmix=1.0)
    proposed = replace(config, data=data, views=10, folds=5, warmup_epochs=config.epochs / 2)

    for one in cells.grid(PATTERNS, (16, 32), (OURS, UNSCALED)):
        assert own_way.of_cell(proposed, one, EPOCHS).views == 1


def test_files_hold_the_same_images(small, tmp_path):
    """PNG loses nothing."""
    made = images.made(small.data.shape, 10).first(COUNT)
    folder = images.as_files(made, tmp_path / "files", lambda line: None)

    pixels, labels = own_way.decoded(folder / "train", small.data)

    order = np.lexsort((pixels.reshape(COUNT, -1).sum(axis=1), labels))
    expected = np.lexsort((made.train.reshape(COUNT, -1).sum(axis=1), made.train_labels))
    assert np.array_equal(pixels[order], made.train[expected])
    assert PATTERNS[6].files


def test_images_split_over_devices_with_their_ragged_batches(small):
    """Keras splits each batch, the last one too."""
    made = images.made(small.data.shape, 10).first(COUNT + 3)

    found = made.split_over(8)

    assert (len(found.train), len(found.test_labels)) == (48, 8) and "for 8 devices" in found.source
    assert found.split_over(8) is found
