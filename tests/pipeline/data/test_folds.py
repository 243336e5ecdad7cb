"""Every labelled image validates once, by a model that saw neither it nor its group; a run of folds
is one run.
"""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import artifact, config
from pipeline.config import Config
from pipeline.data import dataset, folds
from pipeline.data.labels import Target
from pipeline.data.test_set import read_test
from pipeline.errors import ArtifactError, CheckpointError, ConfigError, DataError
from pipeline.figures import training_figures
from pipeline.inference import predictions, restoring
from pipeline.models import architectures, weight_names
from pipeline.storage import checksums
from pipeline.training import training
from tests.pipeline import rounding
from tests.pipeline.conftest import write_competition

DIGITS = config.load("digits")
STEPS = 12  # of a fold: 64 images, 16 at once, in 3 epochs


def quiet(line: str) -> None:
    """Take a line that a user would see."""


def labelled(labels: object, groups: object = None) -> dataset.Examples:
    """Return images without pixels, of these labels and groups."""
    names = np.unique(labels)
    return dataset.Examples(
        tuple(map(str, range(len(labels)))),
        np.zeros((len(labels), 1, 1, 1), np.uint8),
        np.searchsorted(names, labels).astype(np.int32),
        Target("classes", tuple(map(str, names))),
        None if groups is None else np.asarray(groups, np.int32),
    )


def cut(
    images: dataset.Examples, *, count: int | None, seed: int = 0, share: float = 0.25
) -> list[folds.Pair]:
    column = None if images.groups is None else "patient"
    given = replace(DIGITS.data, group_column=column, validation_fraction=share)
    return folds.splits(images, replace(DIGITS, folds=count, seed=seed, data=given))


# -- the split

labels_of_many = st.lists(st.integers(6, 25), min_size=2, max_size=5).map(
    lambda counts: np.repeat(np.arange(len(counts)), counts)
)


@settings(max_examples=60)
@given(
    labels_of_many, st.integers(2, 6), st.integers(0, 2**32 - 1), st.randoms(use_true_random=False)
)
def test_every_image_validates_once_and_each_label_is_shared_out_evenly(
    labels, count, seed, random
):
    """Two folds differ by one image of a label at most, in whatever order the table is."""
    order = list(labels)
    random.shuffle(order)
    images = labelled(order)

    pairs = cut(images, count=count, seed=seed)

    assert sorted(np.concatenate([held for _, held in pairs])) == list(range(len(images)))
    for rows, held in pairs:
        assert sorted([*rows, *held]) == list(range(len(images)))
        assert list(rows) == sorted(rows) and list(held) == sorted(held)
    shares = np.array(
        [np.bincount(images.labels[held], minlength=len(images.classes)) for _, held in pairs]
    )
    assert np.ptp(shares, axis=0).max() <= 1
    again = cut(images, count=count, seed=seed)
    assert all(
        np.array_equal(a, b)
        for one, two in zip(pairs, again, strict=True)
        for a, b in zip(one, two, strict=True)
    )


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), min_size=20, max_size=120),
    st.one_of(st.none(), st.integers(2, 5)),
    st.integers(0, 2**32 - 1),
)
def test_a_group_is_never_on_both_sides(rows, count, seed):
    """With folds and without; and what cannot be cut so is refused, not cut otherwise."""
    images = labelled([label for label, _ in rows], [group for _, group in rows])
    try:
        pairs = cut(images, count=count, seed=seed)
    except DataError:
        return

    assert len(pairs) == (count or 1)
    for rows, held in pairs:
        assert sorted([*rows, *held]) == list(range(len(images)))
        assert not set(images.groups[rows]) & set(images.groups[held])
        assert len(held) and set(images.labels[rows]) == set(range(len(images.classes)))
    if count:
        assert sorted(np.concatenate([held for _, held in pairs])) == list(range(len(images)))
    again = cut(images, count=count, seed=seed)
    assert all(np.array_equal(one[1], two[1]) for one, two in zip(pairs, again, strict=True))


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), min_size=20, max_size=120),
    st.one_of(st.none(), st.integers(2, 5)),
    st.integers(0, 2**32 - 1),
)
def test_duplicates_are_never_on_both_sides(rows, count, seed):
    """With folds the copies move the share of the pictures by one of each label at most."""
    images = labelled([label for label, _ in rows], [group for _, group in rows])
    given = replace(DIGITS.data, group_duplicates=True, validation_fraction=0.25)
    config = replace(DIGITS, folds=count, seed=seed, data=given)
    try:
        pairs = folds.splits(images, config)
    except DataError as error:
        assert "expected at least" in str(error) or "expected more" in str(error)
        return

    number = len(np.unique(images.groups))
    assert len(pairs) == (count or 1)
    for trained, held in pairs:
        assert sorted([*trained, *held]) == list(range(len(images)))
        assert not set(images.groups[trained]) & set(images.groups[held])
        share = len(np.unique(images.groups[held])) - number / (count or 4)
        assert count is None or abs(share) <= len(images.classes)
        assert len(held) and (count or set(images.labels[trained]) == set(images.labels))
    if count:
        assert sorted(np.concatenate([held for _, held in pairs])) == list(range(len(images)))
    again = folds.splits(images, config)
    assert all(np.array_equal(one[1], two[1]) for one, two in zip(pairs, again, strict=True))


def test_copies_with_another_label_hide_no_rare_label():
    """One of the rarest label stands for its copies in a split."""
    images = labelled([*range(2)] * 20 + [2, 0, 2, 0], [*range(40), 40, 40, 41, 41])
    given = replace(DIGITS, folds=2, data=replace(DIGITS.data, group_duplicates=True))

    pairs = folds.splits(images, given)

    assert all(set(images.labels[rows]) == {0, 1, 2} for rows, _ in pairs)


def test_groups_are_shared_out_by_label_and_by_the_share_that_is_held_back():
    """40 groups of one label each, five images in a group: a quarter of each label is held back."""
    images = labelled(np.repeat(np.arange(40) % 2, 5), np.repeat(np.arange(40), 5))

    ((rows, held),) = cut(images, count=None)

    assert list(np.bincount(images.labels[held])) == [25, 25]
    assert len(rows) == 150


def test_another_seed_is_another_split():
    """And the fingerprint, by which a run goes on, is another one."""
    images = labelled(np.arange(60) % 3)
    one, two = cut(images, count=3, seed=1), cut(images, count=3, seed=2)

    assert not np.array_equal(one[0][1], two[0][1])
    assert len({folds.fingerprint(images, pair) for pair in (*one, *two)}) == 6


def test_a_label_in_one_row_alone_trains(tmp_path):
    """What was never seen cannot be told; the others validate as ever."""
    [(rows, held)] = cut(labelled([0] * 8 + [1] + [2] * 8), count=None)

    assert 8 in rows and 8 not in held and len(held) == 4


@pytest.mark.parametrize(
    ("images", "count", "said"),
    [
        (labelled([0, 0, 0, 1, 1]), 6, "There are 5 examples; expected at least 6.*\nLower folds"),
        (
            labelled([0, 1] * 9, [0, 1, 1] * 6),
            3,
            "'patient' has 2 groups; expected at least 3.*\nLower folds",
        ),
        (
            labelled([0, 1] * 9, [0, 1, 1] * 6),
            None,
            "2 groups; expected at least 4.*\nRaise data.validation_fraction",
        ),
        (labelled([0, 1, 2], [0, 1, 2]), 2, "has 1 rows in train.csv; expected at least 2"),
        (labelled([0] * 9 + [1], range(10)), 3, "leave one of 3 folds without the label '1'"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_edit(images, count, said):
    """Too few images of a label, too few groups, a label that lies in one group."""
    with pytest.raises(DataError, match=f"(?s){said}"):
        cut(images, count=count)


@pytest.mark.parametrize("grouping", [{"group_column": "patient"}, {"group_duplicates": True}])
def test_images_that_were_read_without_their_groups_are_refused(grouping):
    """The split would be by image, and nobody would know."""
    given = replace(DIGITS, folds=3, data=replace(DIGITS.data, **grouping))

    with pytest.raises(DataError, match=r"expected those of data\.group_(column='patient'|dup)"):
        folds.splits(labelled(np.arange(60) % 3), given)


@pytest.mark.parametrize("value", [1, 0, 101, 2.5, True, "3"])
def test_another_number_of_folds_is_refused(value):
    """One fold has nothing to train on."""
    with pytest.raises(ConfigError, match=r"folds=.*expected a whole number from 2 to 100"):
        replace(DIGITS, folds=value)


@pytest.mark.parametrize(
    ("column", "share"), [("", 0.1), (3, 0.1), ("id", 0.1), ("label", 0.1), ("patient", 0.6)]
)
def test_a_group_column_that_cannot_work_is_refused(column, share):
    """Neither the id nor the label groups anything; and more than half cannot be one of n equal
    parts.
    """
    with pytest.raises(ConfigError, match=r"data\.(group_column|validation_fraction)="):
        replace(DIGITS.data, group_column=column, validation_fraction=share)


# -- the table


def with_patients(folder: Path, patients: list[str]) -> Path:
    """Add a column to train.csv."""
    head, *rows = (folder / "train.csv").read_text().splitlines()
    added = [f"{row},{patient}" for row, patient in zip(rows, patients, strict=True)]
    (folder / "train.csv").write_text("\n".join([f"{head},patient", *added]) + "\n")
    return folder


def test_groups_are_read_as_the_texts_that_they_are(competition, tiny):
    """01 is another patient than 1, and who is exchanged changes the fingerprint."""
    grouped = replace(tiny, data=replace(tiny.data, group_column="patient"))
    with_patients(competition, ["01", "1", "NA"] * 32)

    images = dataset.read_training(competition, grouped)

    assert list(images.groups[:6]) == [0, 1, 2, 0, 1, 2]
    assert images.groups.dtype == np.int32
    exchanged = replace(images, groups=images.groups[::-1])
    assert len({i.fingerprint for i in (images, exchanged, replace(images, groups=None))}) == 3


def test_a_missing_group_column_and_a_row_without_a_group_are_named(competition, tiny):
    """An empty text would make one group of all whose group is not known."""
    grouped = replace(tiny, data=replace(tiny.data, group_column="patient"))
    with pytest.raises(ConfigError, match=r"expected also patient\.\nSet .*the other columns"):
        dataset.read_training(competition, grouped)

    with_patients(competition, ["a", ""] * 48)
    with pytest.raises(DataError, match="48 rows without a text in 'patient'"):
        dataset.read_training(competition, grouped)


# -- runs


@pytest.fixture(scope="module")
def three(tiny: Config) -> Config:
    """Return a config of three folds by group."""
    return replace(tiny, folds=3, epochs=3, data=replace(tiny.data, group_column="patient"))


@pytest.fixture(scope="module")
def folded(three: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[str]]:
    """Return (competition folder, output folder, shown lines) of one unbroken run of three folds;
    not to be changed.
    """
    folder = write_competition(tmp_path_factory.mktemp("folded") / "competition")
    with_patients(folder, [f"p{index // 8}" for index in range(96)])
    lines: list[str] = []
    training.train(three, folder, folder.parent / "out", show=lines.append)
    return folder, folder.parent / "out", lines


def manifest_of(output: Path) -> dict:
    return dict(json.loads((output / "artifact" / "manifest.json").read_text()))


def test_validation_holds_each_training_image_once_with_its_probabilities(folded):
    """Out of fold, in the table's order; no patient has images in two folds."""
    folder, output, _ = folded
    train = pd.read_csv(folder / "train.csv", dtype=str)
    table = pd.read_csv(
        output / "validation.csv", dtype={"id": str, "label": str, "prediction": str}
    )
    found = np.load(output / "validation.npz", allow_pickle=False)["probabilities"]
    manifest = manifest_of(output)

    assert list(table.columns) == ["id", "label", "prediction", "confidence", "fold"]
    assert list(table["id"]) == list(train["id"])
    assert list(table["label"]) == list(train["label"])
    assert set(table["fold"]) == {1, 2, 3}
    assert table.groupby(train["patient"])["fold"].nunique().max() == 1
    assert (found.dtype, found.shape) == (np.float32, (96, 4))
    assert found.sum(axis=1) == pytest.approx(1, abs=2 * 4 * rounding.EPS)
    assert [manifest["classes"][place] for place in found.argmax(axis=1)] == list(
        table["prediction"]
    )
    right = table["label"] == table["prediction"]
    assert manifest["metrics"]["validation_accuracy"] == pytest.approx(right.mean())
    by_fold = [fold["metrics"]["validation_accuracy"] for fold in manifest["folds"]]
    assert by_fold == pytest.approx(list(right.groupby(table["fold"]).mean()))
    assert manifest["metrics"]["validation_accuracy_mean"] == pytest.approx(np.mean(by_fold))
    assert manifest["metrics"]["validation_accuracy_sd"] == pytest.approx(np.std(by_fold, ddof=1))
    assert [fold["steps"] for fold in manifest["folds"]] == [STEPS] * 3


def answers(built, weights, target, inputs):
    """Return a fold's predictions, and how far rounding may move them."""

    def predicted(arrays):
        artifact.assign(built, dict(zip(weights, arrays, strict=True)))
        return target.predictions(architectures.outputs(built, inputs, 8))

    arrays = list(weights.values())
    return predicted(arrays), rounding.of_outputs(predicted, arrays)


def test_out_of_fold_means_by_the_model_of_that_fold(folded):
    """Each row's probabilities are those of the weights that were not trained on it."""
    folder, output, _ = folded
    loaded = artifact.load(output / "artifact")
    images = dataset.read_training(folder, loaded.config)
    found = np.load(output / "validation.npz")["probabilities"]
    built = architectures.build(loaded.config)

    for weights, (_, held) in zip(loaded.folds, folds.splits(images, loaded.config), strict=True):
        own, bound = answers(built, weights, images.target, images.inputs[held])
        assert np.abs(own - found[held]).max() <= bound


def test_each_line_of_progress_names_the_fold_and_the_time_to_the_end_of_the_last(folded):
    """Whoever watches waits for all of them."""
    _, output, lines = folded
    shown = [json.loads(line) for line in lines if line.startswith("{")]
    second = [
        json.loads(line) for line in (output / "fold-2" / "progress.jsonl").read_text().splitlines()
    ]

    assert [line["fold"] for line in shown] == sorted(line["fold"] for line in shown)
    assert {line["fold"] for line in shown} == {1, 2, 3}
    assert {(line["fold"], line["folds"], line["steps"]) for line in second} == {(2, 3, STEPS)}
    assert second[-1]["eta_seconds"] > 0
    assert shown[-1]["eta_seconds"] == 0
    assert "Fold 2 of 3: 64 images to train, 32 to validate" in lines


def test_a_run_that_stops_in_the_second_fold_goes_on_there_and_ends_the_same(
    folded, three, tmp_path
):
    """Bit for bit; and a fold that is complete is not trained again."""
    folder, output, _ = folded
    out, lines = tmp_path / "out", []
    first = out / "fold-1" / "checkpoints" / f"step-{STEPS:08d}" / "state.npz"

    stopped = training.train(three, folder, out, max_steps=STEPS, show=quiet)
    assert not any((out / "fold-2" / "checkpoints").iterdir())
    before = first.stat()
    again = training.train(three, folder, out, max_steps=STEPS + 5, show=lines.append)
    inside = (out / "fold-2" / "checkpoints" / "step-00000005").is_dir()
    done = training.train(three, folder, out, show=lines.append)

    assert [run.status for run in (stopped, again, done)] == ["partial", "partial", "complete"]
    assert inside
    assert first.stat() == before
    assert any(line.startswith(f"Resuming from step 5 of {STEPS}") for line in lines)
    assert done.manifest["weights_sha256"] == manifest_of(output)["weights_sha256"]
    assert done.manifest["folds"] == manifest_of(output)["folds"]
    for name in ("validation.csv", "validation.npz", "artifact/golden.npz"):
        assert checksums.sha256(out / name) == checksums.sha256(output / name)
    runs = {
        json.loads(path.read_text())["details"]["run_id"]
        for path in out.glob("fold-*/checkpoints/step-*/manifest.json")
    }
    assert runs == {done.manifest["run_id"]}


def test_who_is_asked_to_stop_at_the_end_of_a_fold_begins_no_other(folded, three, tmp_path):
    """The end of the session counts for all folds, not for each."""
    lines: list[str] = []

    def show(line: str) -> None:
        lines.append(line)
        if line.startswith("{") and json.loads(line)["step"] == STEPS:
            os.kill(os.getpid(), signal.SIGTERM)

    run = training.train(three, folded[0], tmp_path / "out", show=show)

    assert run.status == "partial"
    told = [line for line in lines if line.startswith("Stopped")]
    assert told == ["Stopped in the final evaluation. The same command again resumes it."]
    assert not any(line.startswith("Fold 2") for line in lines)


def test_a_session_that_is_too_short_for_anything_still_gets_a_step_further(
    folded, three, tmp_path
):
    """To load the folds before it is no progress."""
    out = tmp_path / "out"
    training.train(three, folded[0], out, max_steps=STEPS, show=quiet)

    run = training.train(replace(three, session_hours=1e-4), folded[0], out, show=quiet)

    assert run.status == "partial"
    assert [path.name for path in (out / "fold-2" / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_fresh_run_sets_the_checkpoints_of_all_folds_aside(folded, three, tmp_path):
    """At its beginning: killed before the second fold, it does not go on from an old one."""
    out = Path(shutil.copytree(folded[1], tmp_path / "out"))

    run = training.train(three, folded[0], out, max_steps=1, fresh=True, show=quiet)

    assert run.status == "partial"
    for number in (1, 2, 3):
        aside = out / f"fold-{number}" / "checkpoints-set-aside-1"
        assert (aside / f"step-{STEPS:08d}").is_dir()
        assert {path.name for path in aside.glob("*.*")} == {
            "history.csv",
            "progress.jsonl",
            "held-out.npz",
        }
    assert [path.name for path in out.glob("fold-*/checkpoints/step-*")] == ["step-00000001"]
    # Else the old model would stand beside the new run, which has none yet.
    assert not {"artifact", "validation.csv", "validation.npz"} & {
        path.name for path in out.iterdir()
    }
    assert (out / "checkpoints-set-aside-1" / "artifact" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (None, "fold-1/checkpoints holds a run with other folds"),
        (2, "other folds"),
        (4, "folds: 3 then, 4 now"),
    ],
)
def test_a_run_of_other_folds_is_not_gone_on_with(folded, three, tmp_path, count, said):
    """Nor is its artifact overwritten."""
    out = Path(shutil.copytree(folded[1], tmp_path / "out"))

    with pytest.raises(CheckpointError, match=said):
        training.train(replace(three, folds=count), folded[0], out, show=quiet)

    assert manifest_of(out) == manifest_of(folded[1])


def test_a_folder_that_is_another_config_s_is_told_so(folded, three, tmp_path):
    """And no list of all in which the two differ."""
    out = Path(shutil.copytree(folded[1], tmp_path / "out"))

    with pytest.raises(
        CheckpointError,
        match=f"of the config {three.name!r}, and this is 'leaves'.*\n.*another --output",
    ):
        training.train(replace(three, name="leaves"), folded[0], out, show=quiet)


def test_a_group_that_changes_ends_a_run(folded, three, tmp_path):
    """Which images train has changed with it."""
    folder, out = Path(shutil.copytree(folded[0], tmp_path / "competition")), tmp_path / "out"
    training.train(three, folder, out, max_steps=1, show=quiet)
    text = (folder / "train.csv").read_text()
    (folder / "train.csv").write_text(text.replace("p1\n", "p0\n"))

    with pytest.raises(CheckpointError, match="inputs or labels, or which of them validate"):
        training.train(three, folder, out, max_steps=2, show=quiet)


# -- the artifact, and inference


def test_an_artifact_holds_the_weights_of_every_fold(folded, three):
    """By the model's own keys, and no two folds alike; the golden outputs are their mean."""
    loaded = artifact.load(folded[1] / "artifact")
    built = architectures.build(three)
    names = list(weight_names.keys(built).values())

    assert loaded.config == three
    assert list(loaded.weights) == [
        f"fold-{number}/{name}" for number in (1, 2, 3) for name in names
    ]
    assert [list(part) for part in loaded.folds] == [names] * 3
    assert len({part["2.0 logits/kernel"].tobytes() for part in loaded.folds}) == 3


def test_inference_gives_the_mean_of_the_folds(folded):
    """Of their probabilities, for golden and for test images."""
    folder, output, _ = folded
    loaded = artifact.load(output / "artifact")
    built, test = architectures.build(loaded.config), read_test(folder, loaded.config)
    pixels = test.inputs(np.arange(len(test)))
    single, golden = (
        [answers(built, weights, loaded.target, inputs) for weights in loaded.folds]
        for inputs in (pixels, loaded.golden_inputs)
    )

    found = predictions.predict(loaded, test, restoring.restore(loaded)[0])

    assert found.values.dtype == np.float32
    for means, folds_of in ((found.values, single), (loaded.golden_outputs, golden)):
        bound = max(bound for _, bound in folds_of)
        assert np.abs(means - np.mean([own for own, _ in folds_of], axis=0)).max() <= bound
        assert np.abs(folds_of[0][0] - folds_of[1][0]).max() > bound


def without_the_last(loaded: artifact.Artifact) -> dict[str, np.ndarray]:
    return dict(list(loaded.weights.items())[:-1])


def renamed(loaded: artifact.Artifact) -> dict[str, np.ndarray]:
    return {name.replace("fold-3", "fold-4"): array for name, array in loaded.weights.items()}


def of_one_model(loaded: artifact.Artifact) -> dict[str, np.ndarray]:
    return dict(loaded.folds[0])


def of_two_folds(loaded: artifact.Artifact) -> dict[str, np.ndarray]:
    return artifact.joined(loaded.folds[:2])


def of_another_shape(loaded: artifact.Artifact) -> dict[str, np.ndarray]:
    return {**loaded.weights, "fold-2/2.1 logits/bias": np.zeros(5, np.float32)}


def not_finite(loaded: artifact.Artifact) -> dict[str, np.ndarray]:
    return {**loaded.weights, "fold-2/2.1 logits/bias": np.full(4, np.nan, np.float32)}


def resealed(folder: Path, weights: dict[str, np.ndarray], **values: object) -> None:
    """Change weights and manifest as somebody would who made all of it."""
    np.savez(folder / "weights.npz", **weights)
    told = {
        "sha256": checksums.sha256(folder / "weights.npz"),
        "size": (folder / "weights.npz").stat().st_size,
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {
        "weights_sha256": told["sha256"],
        "files": {**manifest["files"], "weights.npz": told},
        **values,
    }
    (folder / "manifest.json").write_bytes(checksums.sealed(manifest))


@pytest.mark.parametrize(
    "spoiled", [without_the_last, renamed, of_one_model, of_two_folds, of_another_shape, not_finite]
)
def test_weights_that_are_not_those_of_all_folds_are_refused(folded, tmp_path, spoiled):
    """Also with a manifest that was made for them."""
    folder = Path(shutil.copytree(folded[1] / "artifact", tmp_path / "artifact"))
    resealed(folder, spoiled(artifact.load(folder)))

    with pytest.raises(ArtifactError, match=r"fold|finite"):
        artifact.load(folder)


@pytest.mark.parametrize("told", [None, [], [{}] * 2, 3])
def test_a_manifest_that_counts_other_folds_is_refused(folded, tmp_path, told):
    """The number of its folds is the config's."""
    folder = Path(shutil.copytree(folded[1] / "artifact", tmp_path / "artifact"))
    resealed(folder, dict(artifact.load(folder).weights), folds=told)

    with pytest.raises(ArtifactError, match="3 folds"):
        artifact.load(folder)


def test_other_weights_in_one_fold_are_found_by_its_bytes_or_its_answers(folded, tmp_path, flipped):
    """One fold of several shifts the mean enough."""
    folder = Path(shutil.copytree(folded[1] / "artifact", tmp_path / "artifact"))
    weights = dict(artifact.load(folder).weights)
    flipped(folder / "weights.npz", 40_000)
    with pytest.raises(ArtifactError, match="other bytes"):
        artifact.load(folder)

    weights["fold-2/2.0 logits/kernel"] = weights["fold-2/2.0 logits/kernel"][:, ::-1]
    resealed(folder, weights)
    with pytest.raises(ArtifactError, match="other outputs here"):
        restoring.restore(artifact.load(folder))[0]


def test_curves_and_confusion_of_all_folds_are_drawn(folded, tmp_path):
    """From the files of each."""
    out = Path(
        shutil.copytree(folded[1], tmp_path / "out", ignore=shutil.ignore_patterns("checkpoints"))
    )
    said: list[str] = []

    paths = training_figures.of_training(out, show=said.append)

    assert [path.name for path in paths] == ["curves.png", "confusion.png", "time.png"]
    assert [len(pd.read_csv(path)) for path in training_figures._histories(out)] == [3, 3, 3]
    shutil.rmtree(out / "fold-3")
    assert [
        path.name for path in training_figures.of_training(out, status="partial", show=said.append)
    ] == ["curves.png"]
    assert not said
