"""A grid starts with the most informative cells; a small one is really trained."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pipeline.errors import ConfigError
from tests.shipped import shipped
from workbench.benchmark import command, grid, images, measurement, training
from workbench.benchmark.grid import FIT, GENERATOR, OURS, PATTERNS, Cell

COUNT, TEST, BATCH, EPOCHS = 50, 10, 16, 3
CELLS = (
    *("fit-1-whole-16", "ours-1-own-16", "fit-6-generator-16", "ours-6-own-16"),
    *("fit-1-truncated-16", "fit-1-generator-16"),
)
GRID = {"pattern": "1,6", "images": str(COUNT), "batch": str(BATCH)}
NUMBERS = some.sets(some.sampled_from(sorted(PATTERNS)), min_size=1)
SIZES = some.sets(some.integers(1, 4096), min_size=1, max_size=5)
trains_a_grid = pytest.mark.slow


@settings(max_examples=20)
@given(NUMBERS, SIZES)
def test_a_grid_has_each_cell_once_and_compares_both_ways_if_it_is_interrupted(numbers, sizes):
    """Each cell of ours follows the same cell of fit, and the smallest batch comes first."""
    found = grid.cells(numbers, sizes)

    feeds = sum(len(grid.feeds(number)) for number in numbers)
    alone = sum(number < 7 for number in numbers)
    assert len(found) == len({*found}) == (feeds + alone) * len(sizes)
    assert found[0].batch == min(sizes)
    for before, cell in zip([None, *found], found, strict=False):
        if cell.way == OURS:
            assert before == Cell(FIT, cell.pattern, grid.feeds(cell.pattern)[0], cell.batch)


@pytest.mark.parametrize(
    ("name", "texts", "said"),
    [
        ("pattern", "0 9 1..9 3..1 x 1,,2 -1", "integers, .* from 1 to 8"),
        ("epochs", "1 3,4 0.5", "an integer from 2"),
    ],
)
def test_an_invalid_option_is_named_with_the_edit(name, texts, said):
    for text in texts.split():
        with pytest.raises(ConfigError, match=rf"--{name} .*expected {said}(.|\n)*--{name} \d"):
            command.read(shipped("digits"), {name: text})


@pytest.fixture(scope="module")
def small():
    """Return a network of three 1x1 convolutions, which compiles in a second."""
    config = shipped("digits")
    return replace(
        config, model="wide_resnet", batch=BATCH,
        model_options={"k": 1, "n": 0, "kernel_size": 1}, folds=None, baseline=None,
        batchnorm_batch=None, optimizer=replace(config.optimizer, base_batch=BATCH),
    )  # fmt: skip


@pytest.fixture(scope="module")
def bench(small, tmp_path_factory):
    """Return the output of a grid, and its cells in the order of their measurement."""
    output, shown = tmp_path_factory.mktemp("bench"), list[str]()
    found = command.run(small, None, output, command.read(small, GRID), shown.append)
    assert found["left"] == 0
    names = [line.split()[3] for line in shown if " of 6 " in line]
    (folder,) = output.glob("cells/*")
    return output, {name: measurement.read(folder / f"{name}.json") for name in names}


def again(config, output, **options):
    """Run again, with no time for another cell; return how many remain, and the lines."""
    shown = list[str]()
    asked = command.read(config, {**GRID, **options})._replace(minutes=-1.0)
    return command.run(config, None, output, asked, shown.append)["left"], "\n".join(shown)


@trains_a_grid
def test_each_cell_counts_the_images_that_the_devices_got(bench):
    """Fit's generator leaves images out: it takes three steps of sixteen, where fifty images are
    four batches.
    """
    measured = bench[1]

    def epochs(cell, name):
        return [epoch[name] for epoch in measured[cell].epochs]

    assert tuple(measured) == CELLS
    assert epochs("fit-1-whole-16", "images") == [COUNT] * EPOCHS
    assert epochs("fit-1-truncated-16", "images") == [48] * EPOCHS
    assert 34 in epochs("fit-1-generator-16", "images")
    assert {*epochs("fit-1-generator-16", "images")} <= {48, 34}
    assert sum(epochs("ours-1-own-16", "images")) == -(-COUNT * EPOCHS // BATCH) * BATCH
    assert epochs("ours-6-own-16", "validated") == [TEST] * EPOCHS
    assert epochs("fit-6-generator-16", "validated") == [TEST] * EPOCHS
    assert epochs("fit-1-whole-16", "validated") == [0] * EPOCHS
    about = measured[CELLS[0]].about
    assert not about["real"] and "for throughput only" in about["images"]


@trains_a_grid
def test_compilation_is_known_by_epoch(bench):
    """Programs compile in the first epoch, and its seconds include that."""
    for one in bench[1].values():
        first, *later = one.epochs
        assert 0 < first["compiling"] < first["seconds"]
        if one.cell.feed != GENERATOR:  # its smaller batch may come later
            assert [epoch["compiling"] for epoch in later] == [0.0] * (EPOCHS - 1)


@trains_a_grid
def test_a_grid_resumes_where_a_session_stopped(bench, small, tmp_path):
    """Failed cells are tried again, measured ones are not."""
    output = tmp_path / "bench"
    shutil.copytree(bench[0], output)
    (failed,) = output.glob(f"cells/*/{CELLS[1]}.json")
    cell = json.loads(failed.read_text())
    failed.write_text(json.dumps({**cell, "epochs": [], "reason": "out of memory"}))
    (lost,) = output.glob(f"cells/*/{CELLS[2]}.json")
    lost.unlink()

    left, shown = again(small, output)

    assert left == 2 and not lost.exists()
    assert "4 of 6 cells were already measured" in shown and "2 of 6 cells remain" in shown


@trains_a_grid
def test_a_cell_with_different_settings_or_versions_does_not_count(bench, small):
    output, _ = bench
    assert again(small, output)[0] == 0

    rate = replace(small, optimizer=replace(small.optimizer, base_rate=0.5))

    assert again(rate, output)[0] == again(small, output, images="40")[0] == 6
    about = bench[1][CELLS[0]].about
    updated = {**about, "versions": {**about["versions"], "jax": "0.1"}}
    assert measurement.folder_name(updated) != measurement.folder_name(about)


@trains_a_grid
def test_a_session_takes_the_cells_of_earlier_ones_and_marks_the_last(
    bench, small, tmp_path, monkeypatch
):
    """A session of seconds has no time for a second batch."""
    monkeypatch.setenv("LOCALKAGGLE_ROOT", str(tmp_path))
    shutil.copytree(bench[0] / "cells", tmp_path / "input/notebooks/ann/bench/cells")
    config = replace(small, competition=images.CIFAR100, session_hours=0.001)
    options = command.read(config, GRID)

    command.run_on_kaggle(config, options, tmp_path / "complete", print)
    command.run_on_kaggle(config, options._replace(batch=[8, 16]), tmp_path / "partial", print)

    done, partial = (tmp_path / name for name in ("complete", "partial"))
    for output in (done, partial):
        assert {path.stem for path in output.glob("cells/*/*.json")} == {*CELLS}
    assert (done / command.COMPLETE).exists() and not (partial / command.COMPLETE).exists()


def test_a_config_with_every_augmentation_trains_each_pattern():
    """`invoke inspect` proposes ten views, which need augmentation."""
    config = shipped("cifar100_wrn")
    data = replace(config.data, crop_padding=5, flip=True, mixup=0.2, cutmix=1.0)
    proposed = replace(config, data=data, views=10, folds=5, warmup_epochs=config.epochs / 2)

    for one in grid.cells(PATTERNS, (16, 32)):
        found, augmented = (
            training.of_cell(proposed, one, EPOCHS),
            grid.AUGMENTATION in PATTERNS[one.pattern],
        )
        assert (found.batch, found.views, found.data.mixup) == (one.batch, 1, 0.0)
        assert (found.data.flip, found.data.crop_padding) == (augmented, 4 * augmented)


def test_png_files_have_the_same_images(small, tmp_path):
    made = images.made(small.data.shape, 10).first(COUNT, TEST)
    images.write(made, tmp_path)

    found = training.decoded(tmp_path / "train", small.data)

    pixels, labels = found.pixels.reshape(COUNT, -1), made.train.pixels.reshape(COUNT, -1)
    order = np.lexsort((pixels.sum(axis=1), found.labels))
    expected = np.lexsort((labels.sum(axis=1), made.train.labels))
    assert np.array_equal(found.pixels[order], made.train.pixels[expected])
    assert np.array_equal(found.labels[order], made.train.labels[expected])


def test_images_split_evenly_over_devices_in_the_last_batch_too(small):
    made = images.made(small.data.shape, 10).first(COUNT + 3, TEST)

    found = made.whole(8)

    assert (len(found.train.labels), len(found.test.pixels)) == (48, 8)
    assert "48 and 8 of them" in found.source and found.whole(8) is found
