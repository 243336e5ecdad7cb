"""Each labelled row is held out once, together with its group and its duplicates. A run of folds is
one run, and the artifact has the weights of every fold.
"""

import json
import os
import re
import shutil
import signal
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from formats import checksums
from pipeline import artifact
from pipeline.config import Config
from pipeline.data import dataset, duplicates, folds
from pipeline.data.dataset import Examples, read_test
from pipeline.data.labels import Target
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.figures import training_figures
from pipeline.infer import check, inference
from pipeline.models import architectures, weight_names
from pipeline.train import training
from tests.pipeline import rounding
from tests.pipeline.handmade import with_data
from tests.shipped import shipped
from tests.small_competition import write_competition

DIGITS = shipped("digits")
COPIES, PATIENTS = {"group_duplicates": True}, {"group_column": "patient"}
seeds = st.integers(0, 2**32 - 1)


def labelled(labels: object, groups: object = None) -> Examples:
    """Return images without pixels, with these labels and groups."""
    names = np.unique(labels)
    return Examples(
        tuple(map(str, range(len(labels)))),
        np.zeros((len(labels), 1, 1, 1), np.uint8),
        np.searchsorted(names, labels).astype(np.int32),
        Target("classes", tuple(map(str, names))),
        None if groups is None else np.asarray(groups, np.int32),
    )


def of_sizes(sizes: list[int], seed: int = 0) -> Examples:
    """Return these numbers of images per class, in random order."""
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return labelled(np.random.default_rng(seed).permutation(rows))


def of_groups(sizes: list[list[int]]) -> Examples:
    """Return images with groups of these sizes for each class."""
    flat = [size for each in sizes for size in each]
    return labelled(
        np.repeat(np.arange(len(sizes)), [sum(each) for each in sizes]),
        np.repeat(np.arange(len(flat)), flat),
    )


def asked(share: float = 0.1, count: int | None = None, seed: int = 0, **data: object) -> Config:
    made = replace(DIGITS, folds=count, seed=seed)
    return with_data(made, validation_fraction=share, **data)


def split(images: Examples, made: Config, show: object = str) -> list[folds.Pair]:
    """Return a split, after checking that it loses no row, divides no group, and is stable."""
    pairs = folds.splits(images, made, show)
    assert len(pairs) == (made.folds or 1)
    for rows, held in pairs:
        assert np.array_equal(np.sort([*rows, *held]), np.arange(len(images)))
        assert list(rows) == sorted(rows) and list(held) == sorted(held) and len(held)
        if images.groups is not None:
            assert not set(images.groups[rows]) & set(images.groups[held])
    if made.folds:
        assert sorted(np.concatenate([held for _, held in pairs])) == list(range(len(images)))
    again = folds.splits(images, made)
    assert all(np.array_equal(one[1], two[1]) for one, two in zip(pairs, again, strict=True))
    return pairs


def counts(images: Examples, rows: np.ndarray) -> np.ndarray:
    """Return how many of the rows each class has."""
    return np.bincount(images.labels[rows], minlength=len(images.classes))


@given(st.lists(st.integers(1, 25), min_size=2, max_size=5), st.integers(2, 6), seeds)
def test_folds_share_out_each_label_evenly(sizes, count, seed):
    """Two folds differ by at most one image of each label, in any order of the table."""
    images = of_sizes([*sizes, 6], seed)

    pairs = split(images, asked(count=count, seed=seed))

    assert np.ptp([counts(images, held) for _, held in pairs], axis=0).max() <= 1


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.floats(0.02, 0.5), seeds)
def test_the_held_out_share_is_as_asked_of_the_rows_and_of_each_class(sizes, share, seed):
    """To within one row in total and per class; a single row trains."""
    images, sizes = of_sizes(sizes, seed), np.array(sizes)
    most = sizes[sizes > 1].sum()
    if not most:
        return

    [(rows, held)] = split(images, asked(share, seed=seed))

    assert counts(images, rows).all()
    of_class = counts(images, held)
    assert not of_class[sizes == 1].any()
    wanted = max(share * len(images), 1)
    even = np.where(sizes > 1, sizes * min(wanted / most, 1), 0)
    assert (np.abs(of_class - even) <= 1.5).all()  # one row, and the rounding of `wanted`
    if wanted <= most / 2:  # else a class of two rows has to keep one of them
        assert abs(len(held) - wanted) <= 1


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=20, max_size=120),
    st.one_of(st.none(), st.integers(2, 5)),
    st.sampled_from([COPIES, PATIENTS]),
    seeds,
)
def test_a_group_is_never_on_both_sides(rows, count, grouping, seed):
    """An impossible split is refused. With duplicates, a fold's share of the pictures is off by one
    of each label at most.
    """
    images = labelled(*zip(*rows, strict=True))
    try:
        pairs = split(images, asked(0.25, count, seed, **grouping))
    except DataError as error:
        assert "xpected" in str(error)
        return

    number = len(np.unique(images.groups))
    for trained, held in pairs:
        if grouping is PATIENTS or count is None:
            assert counts(images, trained).all()
        else:
            share = len(np.unique(images.groups[held])) - number / count
            assert abs(share) <= len(images.classes)


def test_many_copies_of_few_pictures_leave_the_share_as_it_is():
    images = of_groups([[10] * 5 + [1] * 50] * 2)

    [(_, held)] = split(images, asked(0.2, **COPIES))

    assert counts(images, held).tolist() == [20, 20]


def test_groups_of_a_column_are_shared_out_by_label_and_by_the_share_that_is_held_back():
    images = of_groups([[5] * 20] * 2)

    [(_, held)] = split(images, asked(0.25, **PATIENTS))

    assert counts(images, held).tolist() == [25, 25]


def test_copies_with_another_label_hide_no_rare_label():
    """The copy with the rarest label represents its group in a split."""
    images = labelled([*range(2)] * 20 + [2, 0, 2, 0], [*range(40), 40, 40, 41, 41])

    assert all(counts(images, rows).all() for rows, _ in split(images, asked(count=2, **COPIES)))


def test_numbers_are_held_out_in_proportion_of_each_tenth():
    numbers = np.random.default_rng(0).normal(size=(100, 1)).astype(np.float32)
    target = Target("regression", ("price",), (0.0,), (1.0,))
    images = replace(labelled(range(100)), labels=numbers, target=target)

    [(_, held)] = split(images, asked(0.2))

    assert np.bincount(target.strata(numbers)[held]).tolist() == [2] * 10


def test_another_seed_is_another_split_with_another_fingerprint():
    images = of_sizes([2] * 100)
    pairs = [pair for seed in (1, 2) for pair in split(images, asked(count=3, seed=seed))]
    one, other = (split(images, asked(seed=seed))[0][1] for seed in (1, 2))

    assert len({folds.fingerprint(images, pair) for pair in pairs}) == 6
    assert set(images.labels[one]) != set(images.labels[other])


# -- messages


@pytest.mark.parametrize(
    ("images", "made", "said"),
    [
        (of_sizes([5, 6]), asked(count=5), ""),
        (of_sizes([10, *[1] * 10]), asked(0.5), ""),  # 9 of the 10 that are asked for
        (of_sizes([500, 500, 3]), asked(count=5), r"1 of 3 labels .* folds=5, .*'2' \(3\)"),
        (of_sizes([50, 1]), asked(count=5), r"'1' \(1\).*one fold does not train on that label"),
        (of_groups([[3]] * 200 + [[1, 1]]), asked(**COPIES), "1 of 602 rows are held out.* 60"),
        (of_groups([[3]] * 200 + [[1, 1]]), asked(**COPIES), "set data.group_duplicates=False"),
        (of_groups([[400, *[1] * 12]]), asked(0.3, **PATIENTS), "change data.group_column"),
    ],
)
def test_a_warning_names_rare_labels_and_few_held_out_rows(images, made, said):
    lines = []

    split(images, made, lines.append)

    assert len(lines) == bool(said)
    assert all(re.search(said, line) and len(line) < 500 for line in lines)


FEW = labelled([0, 1] * 9, [0, 1, 1] * 6)


@pytest.mark.parametrize(
    ("images", "made", "said"),
    [
        (
            labelled([0, 0, 0, 1, 1]),
            asked(count=6),
            "5 rows in 5 groups .* folds=6 .*decrease",
        ),
        (
            FEW,
            asked(count=3, **PATIENTS),
            "18 rows in 2 groups .*too few .* folds=3 .*decrease",
        ),
        (FEW, asked(0.25, **PATIENTS), "in 2 groups .*=0.25\\..*increase data.validation_fraction"),
        (
            labelled([0, 1, 2], [0, 1, 2]),
            asked(count=2, **PATIENTS),
            "rows in some fold: '0'",
        ),
        (labelled([0] * 9 + [1], range(10)), asked(count=3, **PATIENTS), "rows in some fold: '1'"),
        (of_groups([[8], [6], [4]]), asked(**COPIES), "in 3 groups .*group_duplicates=False"),
        (of_sizes([1, 1, 1]), asked(), "3 rows in 3 groups .*Complete train\\.csv"),
    ],
)
def test_an_impossible_split_is_refused_with_the_edit(images, made, said):
    with pytest.raises(DataError, match=f"(?s){said}"):
        split(images, made)


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """Return images of independent random patches, without duplicates."""
    patches = np.random.default_rng(seed).integers(30, 220, (count, 8, 8, 1), dtype=np.uint8)
    return patches.repeat(3, axis=1).repeat(3, axis=2)


def same_parts(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two numberings put the same places together."""
    return np.array_equal(one[:, None] == one, other[:, None] == other)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 7), min_size=2, max_size=24), st.randoms(use_true_random=False))
def test_copies_are_one_group_whatever_their_order(sources, random):
    """Equal ones, and some that are a level brighter, as after saving again."""
    originals = pictures(8)
    brighter = np.array([random.randint(0, 1) for _ in sources], np.uint8)
    pixels = originals[sources] + brighter[:, None, None, None]

    found = duplicates.groups(pixels)

    assert found.dtype == np.int32 and same_parts(found, np.array(sources))


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 30),
    st.sampled_from([(8, 8, 1), (20, 20, 1), (20, 11, 3), (3, 5, 1)]),
    st.sampled_from([4, 12, 60]),
)
def test_no_pair_is_missed_that_comparing_all_pairs_finds(seed, count, form, contrast):
    """Copies of few pictures of any contrast, with brightness and noise near the limits."""
    random = np.random.default_rng(seed)
    sources = random.normal(128, contrast, (4, *form))
    lighter, noise = random.uniform(-3, 3, (count, 1, 1, 1)), random.normal(0, 1.5, (count, *form))
    pixels = sources[random.integers(0, 4, count)] + lighter + noise
    pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    thumbs = duplicates.thumbnails(pixels)
    seen = np.flatnonzero(thumbs.std(axis=1) > duplicates.FLAT)
    every = np.array(list(combinations(seen, 2)), np.int64).reshape(-1, 2)

    assert duplicates.near(pixels) == duplicates.alike(pixels, thumbs, every)


def test_many_copies_of_one_picture_are_compared_once(monkeypatch):
    """As of "no image available"."""
    compared = []
    alike = duplicates.alike
    monkeypatch.setattr(duplicates, "alike", lambda *given: compared.append(given) or alike(*given))
    pixels = np.concatenate([pictures(2), pictures(1).repeat(300, axis=0) + np.uint8(1)])

    assert same_parts(duplicates.groups(pixels), np.array([0, 1] + [0] * 300))
    assert len(compared[0][2]) == 1


def test_flat_images_are_one_only_if_they_are_equal():
    """All thumbnails of black images look alike."""
    flat = np.stack([np.full((9, 9, 1), level, np.uint8) for level in (0, 1, 0, 2)])

    assert duplicates.groups(flat).tolist() == [0, 1, 0, 2]


def test_groups_of_a_column_hold_the_duplicates_too():
    """A copy of one patient's picture joins another patient's group."""
    pixels = pictures(6)[[0, 1, 2, 3, 4, 0]]

    found = duplicates.groups(pixels, np.array([0, 0, 1, 1, 2, 2]))

    assert same_parts(found, np.array([0, 0, 1, 1, 0, 0]))


def test_training_finds_the_groups_in_the_pixels(competition, tiny):
    """They are in the fingerprint, so that a run does not resume with different groups."""
    first = Image.open(competition / "train" / "r000.png")
    first.save(competition / "train" / "r004.png", compress_level=0)
    shown: list[str] = []

    grouped = with_data(tiny, group_duplicates=True)
    found = dataset.read_training(competition, grouped, show=shown.append)

    assert found.groups[0] == found.groups[4] and len(np.unique(found.groups)) == 95
    assert shown == ["96 images in 95 groups of duplicates, which are kept together"]
    plain = dataset.read_training(competition, tiny)
    assert plain.groups is None and plain.fingerprint != found.fingerprint


STEPS = 8  # of a fold: 64 images, 16 at once, in 2 epochs


def with_patients(folder: Path, patients: list[str]) -> Path:
    """Add a column to train.csv."""
    head, *rows = (folder / "train.csv").read_text().splitlines()
    added = [f"{row},{patient}" for row, patient in zip(rows, patients, strict=True)]
    (folder / "train.csv").write_text("\n".join([f"{head},patient", *added]) + "\n")
    return folder


def test_a_missing_group_column_and_a_row_without_a_group_are_named(competition, tiny):
    """Empty texts would become one group."""
    grouped = with_data(tiny, group_column="patient")
    with pytest.raises(ConfigError, match="but not the expected patient"):
        dataset.read_training(competition, grouped)

    with_patients(competition, ["a", ""] * 48)
    with pytest.raises(DataError, match=r"has '' in 'patient' \(48 rows"):
        dataset.read_training(competition, grouped)


# -- runs


@pytest.fixture(scope="module")
def three(tiny: Config) -> Config:
    """Return a config of three folds by group."""
    return replace(with_data(tiny, group_column="patient"), folds=3, epochs=2)


@pytest.fixture(scope="module")
def folded(three: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[str]]:
    """Return (competition folder, output folder, shown lines) of a three-fold run; read-only."""
    folder = write_competition(tmp_path_factory.mktemp("folded") / "competition")
    with_patients(folder, [f"p{index // 8}" for index in range(96)])
    lines: list[str] = []
    training.train(three, folder, folder.parent / "out", show=lines.append)
    return folder, folder.parent / "out", lines


@pytest.fixture
def copied(folded, tmp_path: Path) -> Path:
    """Return a copy of that output, which the test may change."""
    return Path(shutil.copytree(folded[1], tmp_path / "copied"))


def manifest_of(output: Path) -> dict:
    return dict(json.loads((output / "artifact" / "manifest.json").read_text()))


def test_validation_holds_each_training_image_once_with_its_probabilities(folded):
    """Out of fold, in the table's order; no patient has images in two folds."""
    folder, output, _ = folded
    train = pd.read_csv(folder / "train.csv", dtype=str)
    texts = {"id": str, "label": str, "prediction": str}
    table = pd.read_csv(output / "validation.csv", dtype=texts)
    found = np.load(output / "validation.npz", allow_pickle=False)["probabilities"]
    manifest = manifest_of(output)

    assert list(table.columns) == ["id", "label", "prediction", "confidence", "fold"]
    assert table[["id", "label"]].equals(train[["id", "label"]])
    assert set(table["fold"]) == {1, 2, 3}
    assert table.groupby(train["patient"])["fold"].nunique().max() == 1
    assert (found.dtype, found.shape) == (np.float32, (96, 4))
    assert found.sum(axis=1) == pytest.approx(1, abs=2 * 4 * rounding.EPS)
    best = [manifest["classes"][place] for place in found.argmax(axis=1)]
    assert best == list(table["prediction"])
    right, metrics = table["label"] == table["prediction"], manifest["metrics"]
    by_fold = [fold["metrics"]["validation_accuracy"] for fold in manifest["folds"]]
    assert by_fold == pytest.approx(list(right.groupby(table["fold"]).mean()))
    assert metrics["validation_accuracy"] == pytest.approx(right.mean())
    assert metrics["validation_accuracy_mean"] == pytest.approx(np.mean(by_fold))
    assert metrics["validation_accuracy_sd"] == pytest.approx(np.std(by_fold, ddof=1))
    assert [fold["steps"] for fold in manifest["folds"]] == [STEPS] * 3


def answers(built, weights, target, inputs):
    """Return a fold's predictions, and how far rounding may move them."""

    def predicted(arrays):
        artifact.assign(built, dict(zip(weights, arrays, strict=True)))
        return target.predictions(architectures.outputs(built, inputs, 8))

    arrays = list(weights.values())
    return predicted(arrays), rounding.of_outputs(predicted, arrays)


def test_the_artifact_holds_each_fold_s_weights_and_inference_gives_their_mean(folded, three):
    """A fold's held-out rows are predicted by its weights alone; golden outputs are means."""
    folder, output, _ = folded
    loaded = artifact.load(output / "artifact")
    images, test = dataset.read_training(folder, three), read_test(folder, three)
    probabilities = np.load(output / "validation.npz")["probabilities"]
    built = architectures.build(three)
    names = list(weight_names.keys(built).values())

    found = inference.predict(loaded, test, check.restore(loaded)[0]).values

    assert loaded.config == three and [list(part) for part in loaded.folds] == [names] * 3
    assert list(loaded.weights) == [
        f"fold-{number}/{name}" for number in (1, 2, 3) for name in names
    ]
    for weights, (_, held) in zip(loaded.folds, folds.splits(images, three), strict=True):
        own, bound = answers(built, weights, images.target, images.inputs[held])
        assert np.abs(own - probabilities[held]).max() <= bound
    assert found.dtype == np.float32
    pixels = test.inputs(np.arange(len(test)))
    for means, inputs in (
        (found, pixels),
        (loaded.golden_outputs, loaded.golden_inputs),
    ):
        single = [answers(built, weights, loaded.target, inputs) for weights in loaded.folds]
        bound = max(bound for _, bound in single)
        assert np.abs(means - np.mean([own for own, _ in single], axis=0)).max() <= bound
        assert np.abs(single[0][0] - single[1][0]).max() > bound


def test_each_line_of_progress_names_the_fold_and_the_time_to_the_end_of_the_last(folded):
    _, output, lines = folded
    shown = [json.loads(line) for line in lines if line.startswith("{")]
    second = (output / "fold-2" / "progress.jsonl").read_text().splitlines()
    second = [json.loads(line) for line in second]

    numbers = [line["fold"] for line in shown]
    assert numbers == sorted(numbers) and set(numbers) == {1, 2, 3}
    assert {(line["fold"], line["folds"], line["steps"]) for line in second} == {(2, 3, STEPS)}
    assert second[-1]["eta_seconds"] > 0 and shown[-1]["eta_seconds"] == 0
    assert "Fold 2 of 3: 64 images for training, 32 for validation" in lines


def test_a_run_that_stops_between_folds_or_in_one_resumes_there_and_ends_the_same(
    folded, three, tmp_path
):
    """Bit for bit. A complete fold is not trained again, and a stop at its end starts no other one.
    The session's end is the same for all folds, and loading a complete fold is no progress.
    """
    folder, output, _ = folded
    out, lines = tmp_path / "out", []
    first = out / "fold-1" / "checkpoints" / f"step-{STEPS:08d}" / "state.npz"

    def show(line: str) -> None:
        lines.append(line)
        if line.startswith("{") and json.loads(line)["step"] == STEPS:
            os.kill(os.getpid(), signal.SIGTERM)

    stopped = training.train(three, folder, out, show=show)
    told = [line for line in lines if line.startswith(("Stopped", "Fold 2"))]
    assert told == ["Stopped during the final evaluation. Run the same command to resume."]
    written = first.stat().st_mtime_ns
    runs = [
        stopped,
        training.train(three, folder, out, max_steps=STEPS, show=str),
        training.train(replace(three, session_hours=1e-4), folder, out, show=str),
        training.train(three, folder, out, max_steps=STEPS + 5, show=lines.append),
        done := training.train(three, folder, out, show=lines.append),
    ]

    assert [run.status for run in runs] == ["partial"] * 4 + ["complete"]
    assert first.stat().st_mtime_ns == written
    resumed = [line.split(" of ")[0] for line in lines if line.startswith("Resuming from")]
    assert resumed == ["Resuming from step 1", "Resuming from step 5"]
    for name in ("weights_sha256", "folds"):
        assert done.manifest[name] == manifest_of(output)[name]
    for name in ("validation.csv", "validation.npz", "artifact/golden.npz"):
        assert checksums.sha256(out / name) == checksums.sha256(output / name)
    manifests = out.glob("fold-*/checkpoints/step-*/manifest.json")
    runs = {json.loads(path.read_text())["details"]["run_id"] for path in manifests}
    assert runs == {done.manifest["run_id"]}


def test_a_fresh_run_sets_the_checkpoints_of_all_folds_aside(folded, three, copied):
    """At its start: after a kill in the first fold, none resumes from an old checkpoint."""
    run = training.train(three, folded[0], copied, max_steps=1, fresh=True, show=str)

    assert run.status == "partial"
    beside = {"history.csv", "progress.jsonl"}
    for number in (1, 2, 3):
        aside = copied / f"fold-{number}" / "checkpoints-set-aside-1"
        assert (aside / f"step-{STEPS:08d}").is_dir()
        assert {path.name for path in aside.glob("*.*")} == beside
    assert [path.name for path in copied.glob("fold-*/checkpoints/step-*")] == ["step-00000001"]
    # The old model does not stay beside the new run, which has none yet.
    old = {"artifact", "validation.csv", "validation.npz"}
    assert not old & {path.name for path in copied.iterdir()}
    assert (copied / "checkpoints-set-aside-1" / "artifact" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"folds": None}, "fold-1/checkpoints contains a different run; expected folds=None"),
        ({"folds": 4}, "folds: 3 then, 4 now"),
        ({"name": "leaves"}, "name: 'tiny' then, 'leaves' now.*\n.*another --output"),
        ({}, "inputs or labels, or the held-out set"),  # with another group
    ],
)
def test_a_run_of_other_folds_groups_or_configs_is_not_resumed(
    folded, three, copied, competition, change, said
):
    with_patients(competition, [f"p{index // 8 if change or index else 5}" for index in range(96)])

    with pytest.raises(CheckpointError, match=said):
        training.train(replace(three, **change), competition, copied, show=str)

    assert manifest_of(copied) == manifest_of(folded[1])


def test_curves_and_confusion_of_all_folds_are_drawn(copied):
    said: list[str] = []

    whole = training_figures.of_training(copied, DIGITS, show=said.append)
    shutil.rmtree(copied / "fold-3")
    part = training_figures.of_training(copied, DIGITS, status="partial", show=said.append)

    assert [path.name for path in whole] == ["curves.png", "confusion.png", "time.png"]
    assert [path.name for path in part] == ["curves.png"] and not said
