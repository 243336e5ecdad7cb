"""Pseudo-labels: each fold of an earlier run labels rows for the same fold of this one."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import special

from pipeline import artifact
from pipeline.config import Config, Data, Optimizer, PseudoLabels
from pipeline.data import dataset, folds
from pipeline.data.labels import Target
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.train import pseudo_labels, training
from tests.pipeline.handmade import with_data
from tests.small_competition import CLASSES, draw, write_competition

FOLDS = 3


def quiet(line: str) -> None:
    """Ignore a line for the user."""


def learns(config, teacher, **fields):
    """Return the config of a student of the run in a folder."""
    return replace(config, pseudo_labels=PseudoLabels(teacher=str(teacher), **fields))


def found(config, folder, output):
    """Return what a student trains on, without training it."""
    examples = dataset.read_training(folder, config)
    pairs = folds.splits(examples, config)
    held = [folds.held_out(examples, pair) for pair in pairs]
    output.mkdir(exist_ok=True)
    labelled = pseudo_labels.find(config, folder, output, examples, held, quiet, resumes=False)
    return labelled, examples, pairs


@pytest.fixture(scope="module")
def taught(tiny, tmp_path_factory):
    """Return (competition folder, output, config) of a teacher with two folds."""
    folder = write_competition(tmp_path_factory.mktemp("taught") / "competition")
    config = replace(tiny, folds=2, epochs=4)
    training.train(config, folder, folder.parent / "out", show=quiet)
    return folder, folder.parent / "out", config


# -- no leak


def leaky(folder, seed):
    """Write a table whose labels say in which fold a row is held out: column j is 1 in group j, and
    each fold holds out one group. Its test rows are the same rows without labels.
    """
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(FOLDS), 16)
    shown = pd.DataFrame(3.0 * np.eye(FOLDS)[groups] + random.normal(0, 0.1, (48, FOLDS)))
    shown.columns = [f"x{number}" for number in range(FOLDS)]
    labels = pd.DataFrame(np.eye(FOLDS, dtype=int)[groups]).add_prefix("y")
    ids = pd.DataFrame({"id": random.permutation(48), "group": groups})
    order = random.permutation(48)
    folder.mkdir(parents=True)
    pd.concat([ids, shown, labels], axis=1).iloc[order].to_csv(folder / "train.csv", index=False)
    pd.concat([ids, shown], axis=1).to_csv(folder / "test.csv", index=False)
    return Config(
        name="leaky",
        competition="leaky",
        target="multilabel",
        data=Data(
            kind="table",
            numeric_columns=tuple(shown),
            label_column=tuple(labels),
            group_column="group",
            sample_submission=None,
        ),
        model="mlp",
        model_options={"width": 8, "depth": 1},
        optimizer=Optimizer(name="adam", base_rate=0.05, base_batch=32),
        batch=32,
        epochs=20,
        warmup_epochs=1,
        folds=FOLDS,
        seed=seed,
        progress_seconds=3600,
        checkpoint_seconds=3600,
    )


def leaks(labels, pairs, groups):
    """Return how many rows have a label that only the rows held out by this fold have."""
    held = [np.unique(groups[rows]).item() for _, rows in pairs]
    return [int((each[:, group] > 0.5).sum()) for each, group in zip(labels, held, strict=True)]


def leak_of(seed, folder):
    """Return the leaked rows of each fold: with our labels, and with a mean of all teachers, as
    anybody would label by a submission.
    """
    config = leaky(folder / "data", seed)
    training.train(config, folder / "data", folder / "teacher", show=quiet)
    student = learns(config, folder / "teacher")
    labelled, examples, pairs = found(student, folder / "data", folder / "student")
    mean = np.broadcast_to(labelled.labels.mean(axis=0), labelled.labels.shape)
    return leaks(labelled.labels, pairs, examples.groups), leaks(mean, pairs, examples.groups)


@pytest.mark.parametrize("seed", [0, 1])
def test_no_label_comes_from_a_teacher_that_saw_the_held_out_rows(tmp_path, seed):
    ours, mean = leak_of(seed, tmp_path)

    assert ours == [0] * FOLDS
    assert min(mean) > 0  # so a leak would be found


@pytest.mark.slow
def test_a_leak_is_found_in_100_of_100_seeds_and_none_is_made(tmp_path, seed):
    results = []
    for number in range(100):
        results.append(leak_of(seed % 10**6 + number, tmp_path / str(number)))
        shutil.rmtree(tmp_path / str(number))

    ours, means = zip(*results, strict=True)
    found, in_each = (sum(map(count, means)) for count in (any, all))
    print(
        f"leaked rows: {np.sum(ours)} of ours; means leak in {found} seeds, {in_each} in each fold"
    )
    assert not np.any(ours)
    assert found == 100


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"seed": 1}, "held-out rows are different"),
        ({"folds": 3}, "folds=2.*this run has folds=3"),
        ({"folds": None}, "folds=2.*this run has folds=None"),
        ({"competition": "other"}, "classes of digits .*expected classes of other"),
    ],
)
def test_a_teacher_with_other_folds_is_refused(taught, tmp_path, fields, why):
    folder, output, config = taught
    with pytest.raises(ConfigError, match=f"(?s)pseudo_labels.teacher=.*{why}"):
        found(learns(replace(config, **fields), output), folder, tmp_path)


def test_a_teacher_that_may_have_seen_the_held_out_rows_is_refused(taught):
    """By its own first stage, or since one model is fitted to the rows of all folds."""
    _, output, config = taught
    teacher, student = artifact.load(output / "artifact"), learns(config, output)
    held = teacher.manifest["held_out"]
    begun = {"may_have_seen_held_out": True}
    first = replace(teacher, manifest={**teacher.manifest, "init_from": begun})
    one = {name: array for name, array in teacher.weights.items() if "fold-1" in name}

    pseudo_labels.require(teacher, student, teacher.target, held)  # nothing is wrong with it
    for other in (first, replace(teacher, weights=one)):
        with pytest.raises(ConfigError, match=r"may have been|all folds"):
            pseudo_labels.require(other, student, teacher.target, held)


# -- which rows, with which labels


@given(
    logits=arrays.arrays(np.float32, (12, 3), elements=st.floats(-9, 9, width=32)),
    confidence=st.floats(0, 1),
    share=st.floats(0.01, 1),
    power=st.floats(0.1, 10),
)
def test_the_surest_rows_of_each_label_are_used(logits, confidence, share, power):
    likely = special.softmax(logits, axis=1)
    target = Target("classes", ("a", "b", "c"))
    given = PseudoLabels(teacher="t", confidence=confidence, share=share, power=power)

    labels, used = pseudo_labels.choose(likely, given, target)

    np.testing.assert_allclose(labels.sum(axis=1), 1, rtol=1e-6)
    assert (labels.max(axis=1) == labels[np.arange(12), likely.argmax(axis=1)]).all()
    surest, best = likely.max(axis=1), likely.argmax(axis=1)
    assert (surest[used] >= confidence).all()
    for name in range(3):
        rows, chosen = best == name, used & (best == name)
        assert chosen.sum() <= np.ceil(share * rows.sum())
        left = surest[rows & ~used & (surest >= confidence)]
        assert not chosen.any() or not len(left) or left.max() <= surest[chosen].min()


@pytest.mark.parametrize("kind", ["classes", "multilabel"])
def test_probabilities_stay_as_they_are_unless_asked_otherwise(kind):
    likely = np.random.default_rng(0).dirichlet(np.ones(4), 50).astype(np.float32)

    labels, used = pseudo_labels.choose(likely, PseudoLabels(teacher="t"), Target(kind, CLASSES))

    assert used.all()
    np.testing.assert_allclose(labels, likely, rtol=1e-6)


def test_each_fold_learns_its_own_labels_and_its_score_stays_that_of_labelled_rows(
    taught, tmp_path
):
    folder, output, config = taught
    student, lines = learns(config, output, power=2.0), []

    done = training.train(student, folder, tmp_path / "out", show=lines.append)

    said = done.manifest["pseudo_labels"]
    teacher = json.loads((output / "artifact/manifest.json").read_text())
    assert (said["run_id"], said["of"], said["used"]) == (teacher["run_id"], 21, [21, 21])
    assert done.manifest["held_out"] == teacher["held_out"]
    assert any("Fold 1 of 2: 69 images for training, 48 for validation" in line for line in lines)
    assert len(pd.read_csv(tmp_path / "out/validation.csv")) == 96
    # The teacher's own folds, not their mean, are the labels.
    labelled, _, _ = found(learns(config, output), folder, tmp_path / "found")
    one, other = labelled.labels
    assert not np.array_equal(one, other)
    # A student can be a teacher; then both stand in the manifest.
    second, _, _ = found(learns(config, tmp_path / "out"), folder, tmp_path / "second")
    assert second.origin["earlier"] == said


def test_the_weight_of_a_row_counts_in_the_loss(taught, tmp_path):
    """With nearly no weight, the labelled rows alone decide; the count of rows is the divisor."""
    folder, output, config = taught
    labelled, examples, pairs = found(learns(config, output, weight=0.5), folder, tmp_path)
    student = learns(config, output, weight=0.5)

    (fold, rows), _ = labelled.with_labelled(examples, pairs, student)

    assert fold.weights[rows].tolist() == [1.0] * 48 + [0.5] * 21
    assert fold.labels[: len(examples)].tolist() == np.eye(4)[examples.labels].tolist()
    assert np.array_equal(rows[:48], pairs[0][0])
    assert np.array_equal(fold.inputs[rows[48:]], labelled.inputs)


def test_one_held_out_set_without_folds(trained, tiny, tmp_path):
    done = training.train(
        learns(tiny, trained[1], confidence=0.1), trained[0], tmp_path, show=quiet
    )

    assert done.manifest["pseudo_labels"]["used"] == [21]


def test_no_row_is_sure_enough(trained, tiny, tmp_path):
    with pytest.raises(DataError, match=r"below confidence=1(.|\n)*Lower pseudo_labels"):
        found(learns(tiny, trained[1], confidence=1), trained[0], tmp_path)


# -- where the rows are


def test_rows_in_a_table_or_a_folder_of_their_own(trained, tiny, tmp_path):
    """The images of a table are searched in both folders."""
    folder = shutil.copytree(trained[0], tmp_path / "competition")
    more, random = folder / "more", np.random.default_rng(0)
    more.mkdir()
    from PIL import Image

    for number in range(8):
        Image.fromarray(draw(number % 4, random)).save(more / f"m{number}.png")
    (more / "m0.png").write_bytes(b"no image")  # is not used
    table = pd.read_csv(folder / "train.csv", dtype=str)[["id"]].head(10)
    table.to_csv(folder / "some.csv", index=False)

    labelled = pd.read_csv(folder / "train.csv", dtype=str)
    labelled.drop(index=range(2, 10)).to_csv(folder / "train.csv", index=False)
    tiny = with_data(tiny, validation_fraction=0.5)
    training.train(replace(tiny, epochs=1), folder, tmp_path / "teacher", show=quiet)
    trained = None, tmp_path / "teacher"
    in_table, *_ = found(learns(tiny, trained[1], rows="some.csv"), folder, tmp_path / "1")
    in_folder, *_ = found(learns(tiny, trained[1], rows="more"), folder, tmp_path / "2")

    for wrong in ("sum.csv", "mor"):
        with pytest.raises(DataError, match=f"{wrong} does not exist"):
            found(learns(tiny, trained[1], rows=wrong), folder, tmp_path / "4")
    in_train, *_ = found(learns(tiny, trained[1], rows="train"), folder, tmp_path / "3")

    examples = dataset.read_training(folder, tiny)
    assert np.array_equal(in_table.inputs[:2], examples.inputs[:2])
    # Images that have a label are not used again.
    assert in_table.used.tolist() == [[False, False, *[True] * 8]]
    assert in_folder.used.tolist() == [[False, *[True] * 7]]
    assert (in_train.used.sum(), in_train.origin["of"]) == (8, 8)


def test_a_table_and_its_numbers(tmp_path):
    config = leaky(tmp_path / "data", 0)
    columns = [f"y{number}" for number in range(FOLDS)]
    table = pd.read_csv(tmp_path / "data/train.csv")
    table[columns] += np.random.default_rng(0).normal(0, 1, (48, FOLDS))
    table.to_csv(tmp_path / "data/train.csv", index=False)
    table.drop(columns=columns).head(20).to_csv(tmp_path / "data/more.csv", index=False)
    config = replace(config, target="regression", epochs=3)
    training.train(config, tmp_path / "data", tmp_path / "teacher", show=quiet)

    student = learns(config, tmp_path / "teacher", rows="more.csv")
    labelled, examples, _ = found(student, tmp_path / "data", tmp_path / "student")

    assert labelled.labels.shape == (FOLDS, 20, FOLDS)
    assert labelled.labels.dtype == examples.labels.dtype
    assert np.abs(labelled.labels).max() < 10  # standardized, like those of the labelled rows


def test_a_teacher_with_larger_images(taught, tmp_path, tiny):
    """Each model reads the rows in its own size."""
    folder, _, config = taught
    larger = with_data(config, height=12, width=12, resize="stretch")
    training.train(replace(larger, epochs=1), folder, tmp_path / "teacher", show=quiet)

    labelled, *_ = found(learns(config, tmp_path / "teacher"), folder, tmp_path / "student")

    assert labelled.inputs.shape == (21, 8, 8, 1)


@pytest.mark.parametrize(
    ("rows", "more"), [("", ("test.csv", "test")), ("more.csv", ("more.csv",))]
)
def test_a_session_unpacks_the_files_of_these_rows(tiny, rows, more):
    """Kaggle mounts archives, of which the notebook unpacks those that training reads."""
    assert tiny.training_files == ("train.csv", "train")
    assert learns(tiny, "a/b", rows=rows).training_files == ("train.csv", "train", *more)


# -- resuming


def test_a_student_resumes_without_its_teacher_to_the_same_weights(taught, tmp_path):
    folder, output, config = taught
    teacher = shutil.copytree(output / "artifact", tmp_path / "teacher")
    student = learns(config, teacher, confidence=0.3)
    training.train(student, folder, tmp_path / "whole", show=quiet)

    training.train(student, folder, tmp_path / "out", max_steps=7, show=quiet)
    shutil.rmtree(teacher)
    training.train(student, folder, tmp_path / "out", show=quiet)

    one, other = (tmp_path / name / "artifact/weights.npz" for name in ("whole", "out"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("what", ["missing", "corrupt", "changed"])
def test_a_run_does_not_resume_with_other_labels(taught, tmp_path, what):
    folder, output, config = taught
    student, path = learns(config, output), tmp_path / "out" / pseudo_labels.FILE
    training.train(student, folder, tmp_path / "out", max_steps=3, show=quiet)
    if what == "missing":
        path.unlink()
    elif what == "corrupt":
        path.write_bytes(path.read_bytes()[:100])
    else:
        found(learns(config, output, power=3.0), folder, tmp_path / "other")[0].write(path.parent)

    with pytest.raises(CheckpointError, match="--fresh"):
        training.train(student, folder, tmp_path / "out", show=quiet)

    training.train(student, folder, tmp_path / "out", max_steps=1, fresh=True, show=quiet)
    aside = [*(tmp_path / "out").glob(f"*set-aside*/{pseudo_labels.FILE}")]
    assert path.is_file() and len(aside) == (what != "missing")


# -- the config


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"target": "ordinal"}, "None with target='ordinal'"),
        ({"fit": "linear"}, "pseudo_labels, because fit does not run training steps"),
    ],
)
def test_a_config_that_cannot_use_them_is_refused(tiny, fields, expected):
    with pytest.raises(ConfigError, match=expected):
        replace(learns(tiny, "a/b"), **fields)


@pytest.mark.parametrize(
    "fields", [{"power": 2.0}, {"confidence": 0.5}, {"share": 0.5}, {"share": 0.0}, {"rows": "/x"}]
)
def test_numbers_have_no_confidence(tmp_path, fields):
    config = replace(leaky(tmp_path / "data", 0), target="regression")
    with pytest.raises(ConfigError, match="pseudo_labels"):
        learns(config, "a/b", **fields)


def test_a_config_with_pseudo_labels_survives_json(tiny):
    from pipeline import config as configs

    student = learns(tiny, "ann/digits-artifact/2", power=2)
    assert configs.from_json(json.loads(json.dumps(student.to_json()))) == student
