"""Soft labels: a column of votes or probabilities for each class."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from pipeline import artifact
from pipeline.config import Config, Data
from pipeline.data import dataset
from pipeline.data import labels as targets
from pipeline.data.labels import Target
from pipeline.errors import ConfigError, DataError, ReportError
from pipeline.evaluate import losses, metrics
from pipeline.infer import ensemble, inference
from pipeline.train import boosting, checkpoint, custom_check, frozen_features, training
from tests.pipeline.handmade import with_data
from tests.pipeline.rounding import EPS
from tests.pipeline.train.test_train_step import after, apart, drawn, rounding, small
from tests.shipped import shipped
from tests.small_competition import CLASSES, write_competition
from workbench.rehearse.hidden_test import HiddenTest
from workbench.report import run_results, sections

__all__ = ["small"]


def quiet(line: str) -> None:
    """Ignore a line for the user."""


def soft(config: Config, **fields: object) -> Config:
    """Return the config with a label column for each class."""
    return replace(with_data(config, label_column=CLASSES), num_classes=0, **fields)


def with_columns(folder: Path, shares: np.ndarray | None = None) -> Path:
    """Add a column for each class to train.csv: one-hot, or the given numbers (n, 4)."""
    table = pd.read_csv(folder / "train.csv", dtype=str)
    found = [[int(label == name) for name in CLASSES] for label in table["label"]]
    columns = pd.DataFrame(found if shares is None else shares, columns=list(CLASSES))
    pd.concat([table, columns], axis=1).to_csv(folder / "train.csv", index=False)
    return folder


def labels_of(folder: Path, ids: pd.Index) -> list[str]:
    """Return the labels of some rows of train.csv."""
    table = pd.read_csv(folder / "train.csv", dtype=str, index_col="id")
    return table.loc[ids, "label"].tolist()


def votes(rows: int, seed: int = 0) -> np.ndarray:
    """Return 0 to 4 votes for each class, and 9 for the class of `write_competition`."""
    random = np.random.default_rng(seed)
    return random.integers(0, 5, (rows, 4)) + 9 * np.eye(4, dtype=int)[np.arange(rows) % 4]


@pytest.fixture(scope="module")
def voted(tiny, tmp_path_factory):
    """Return (competition folder, output, config) of a run on votes, scored by their divergence."""
    folder = tmp_path_factory.mktemp("voted") / "competition"
    with_columns(write_competition(folder), votes(96))
    ids = pd.read_csv(folder / "sample_submission.csv")[["id"]]
    sample = ids.assign(**dict.fromkeys(CLASSES, 0.25))
    sample.to_csv(folder / "sample_submission.csv", index=False)
    config = soft(tiny, metric="kl_divergence", folds=2, epochs=4, keep="best")
    training.train(config, folder, folder.parent / "out", show=quiet)
    return folder, folder.parent / "out", config


# -- one-hot columns


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"label_smoothing": 0.1, "class_weights": "balanced"}, id="mixed"),
        pytest.param({"folds": 3, "class_weights": {"9": 3.0}, "keep": "best"}, id="folds"),
        pytest.param({"loss": "focal", "sampler": "balanced"}, id="focal"),
        pytest.param({}, id="plain", marks=pytest.mark.slow),
    ],
)
def test_one_hot_columns_give_the_bits_of_a_label_column(tiny, tmp_path, request, fields):
    """Weights and held-out predictions, with every option that uses labels."""
    folder = with_columns(write_competition(tmp_path / "competition"))
    hard = replace(tiny, epochs=3, **fields)
    if request.node.callspec.id == "mixed":
        hard = with_data(hard, mixup=0.4, cutmix=1.0)

    for name, config in (("hard", hard), ("soft", soft(hard))):
        training.train(config, folder, tmp_path / name, show=quiet)

    for name in ("artifact/weights.npz", "validation.csv"):
        one, other = (tmp_path / each / name for each in ("hard", "soft"))
        assert one.read_bytes() == other.read_bytes()
    one, other = (
        json.loads((tmp_path / each / "artifact/manifest.json").read_text())["metrics"]
        for each in ("hard", "soft")
    )
    assert one == other
    place, columns = "fold-2" if hard.folds else ".", ["loss", "accuracy", "validation_accuracy"]
    one, other = (
        pd.read_csv(tmp_path / each / place / "history.csv")[columns] for each in ("hard", "soft")
    )
    assert one.equals(other)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_hot_labels_fit_the_same_linear_model_and_trees(classes, weighted):
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 5)).astype(np.float32)
    codes = np.digitize(rows[:, 0] + rows[:, 1], np.linspace(-1, 1, classes - 1)).astype(np.int32)
    weights = random.uniform(0.5, 2, 300) if weighted else None
    config = SimpleNamespace(target="classes", outputs=classes, seed=0)

    both = [codes, np.eye(classes, dtype=np.float32)[codes]]
    linear = [frozen_features.fit(config, rows, each, weights, None) for each in both]
    trees = [boosting.fit(config, rows, each, weights) for each in both]

    assert all(map(np.array_equal, *linear))
    assert all(map(np.array_equal, *trees))


@pytest.mark.parametrize("fit", ["linear", "boosting"])
def test_linear_models_and_trees_learn_shares(fit):
    """A model of the most probable classes would be off by 0.2 or more."""
    rows = np.random.default_rng(0).normal(size=(600, 3)).astype(np.float32)
    likely = np.where(rows[:, :1] > 0, [0.8, 0.2, 0], [0.4, 0.2, 0.4]).astype(np.float32)
    config = SimpleNamespace(target="classes", outputs=3, seed=0)

    if fit == "linear":
        sign = np.sign(rows[:, :1])
        found = frozen_features.fit(config, sign, likely, None, None).outputs(sign)
    else:
        found = boosting.fit(config, rows, likely, None).outputs(rows)

    assert np.abs(Target("classes", tuple("abc")).predictions(found) - likely).max() < 0.05


# -- devices and sessions


@pytest.mark.parametrize("replicas", [2, pytest.param(4, marks=pytest.mark.slow), pytest.param(8)])
@pytest.mark.parametrize("mixup", [0.0, pytest.param(0.4, marks=pytest.mark.slow)])
def test_soft_labels_train_alike_on_any_number_of_devices(small, replicas, mixup):
    """Within the same bound as hard labels."""
    config = with_data(soft(small), mixup=mixup)
    shares = np.random.default_rng(1).dirichlet(np.ones(4), (1, 32)).astype(np.float32)
    batch = drawn()[0], shares

    assert apart(after(config, batch, replicas), after(config, batch)) < rounding(config, batch)


def test_a_run_on_votes_resumes_bit_for_bit(voted, tmp_path):
    folder, _, config = voted
    config = replace(config, folds=None)

    for name, steps in (("parts", 3), ("parts", 7), ("whole", 7)):
        training.train(config, folder, tmp_path / name, max_steps=steps, show=quiet)

    parts, whole = (
        checkpoint.latest(tmp_path / each / "checkpoints") for each in ("parts", "whole")
    )
    assert parts is not None and whole is not None and parts.step == 7
    assert all(np.array_equal(whole.arrays[name], parts.arrays[name]) for name in whole.arrays)


# -- votes


def test_votes_are_read_as_shares_of_their_sum(tiny):
    table = pd.DataFrame([["a", "3", "1", "0", "4"], ["b", "0", "0.5", "0", "0"]])
    table.columns = pd.Index(["id", *CLASSES])

    own, found = targets.read(table, soft(tiny), Path("train.csv"))

    assert own == Target("classes", CLASSES)
    assert found.dtype == np.float32
    assert found.tolist() == [[0.375, 0.125, 0, 0.5], [0, 1, 0, 0]]


@pytest.mark.parametrize(
    ("votes", "fields", "said"),
    [
        (["1", "-1", "2", "0"], {}, r"'-1' in '9' .row 2.; expected votes or prob"),
        (["1", "many", "2", "0"], {}, "'many' in '9'"),
        (["1", "", "2", "0"], {}, "'' in '9'"),
        (["1", "inf", "2", "0"], {}, "'inf' in '9'"),
        (["0", "0.0", "0", "0"], {}, r"'b' in 'id' .row 2.; expected a label col"),
        (["0.5", "0.5", "0", "0"], {"target": "multilabel"}, 'use target="classes" for votes'),
    ],
)
def test_invalid_votes_are_refused_with_their_row(tiny, votes, fields, said):
    """A row without votes is listed by its id, and multilabel names the other target."""
    rows = [["a", "1", "0", "0", "0"], ["b", *votes]]
    table = pd.DataFrame(rows, columns=pd.Index(["id", *CLASSES]))

    with pytest.raises(DataError, match=said):
        targets.read(table, soft(tiny, **fields), Path("train.csv"))


def test_the_loss_has_the_gradient_of_the_divergence(seed):
    """It is the cross-entropy, which is the divergence plus the labels' entropy."""
    random = np.random.default_rng(seed)
    logits = random.normal(0, 3, (50, 4)).astype(np.float32)
    shares = random.dirichlet(np.ones(4), 50).astype(np.float32)
    likely = special.softmax(logits.astype(float), axis=1)

    found = np.asarray(targets.losses("classes", shares, logits))
    gradient = jax.grad(lambda each: targets.losses("classes", shares, each).sum())(logits)

    divergence = stats.entropy(shares.astype(float), likely, axis=1)
    entropy = stats.entropy(shares.astype(float), axis=1)
    assert found == pytest.approx(divergence + entropy, rel=1e-5)
    assert np.asarray(gradient) == pytest.approx(likely - shares, abs=1e-6)
    errors = Target("classes", tuple("abcd")).losses(shares, likely)
    assert errors == pytest.approx(divergence + entropy)


def test_the_number_of_classes_follows_from_the_columns(tiny):
    assert (soft(tiny).outputs, soft(tiny).classes) == (4, 4)
    assert replace(soft(tiny), num_classes=4).soft
    with pytest.raises(ConfigError, match="num_classes=3"):
        replace(soft(tiny), num_classes=3)


def test_a_run_on_votes_writes_a_probability_for_each_class(voted, tmp_path):
    """It is scored by the divergence from the votes, and accuracy uses the most frequent one."""
    folder, output, _ = voted
    shares = votes(96) / votes(96).sum(axis=1, keepdims=True)

    loaded = artifact.load(output / "artifact")
    inference.infer(loaded, folder, tmp_path / "inferred", show=quiet)

    written = pd.read_csv(tmp_path / "inferred" / "submission.csv", index_col="id")
    assert list(written) == list(CLASSES)
    assert written.sum(axis=1).to_numpy() == pytest.approx(1, abs=1e-6)
    with np.load(output / "validation.npz") as file:
        truth, found = file["truth"], file["probabilities"].astype(float)
    assert truth == pytest.approx(shares, abs=EPS)  # with folds, every row in order
    scores = loaded.manifest["metrics"]
    expected = stats.entropy(truth, found / found.sum(axis=1, keepdims=True), axis=1).mean()
    assert scores["validation_kl_divergence"] == pytest.approx(expected, rel=1e-4)
    right = (found.argmax(axis=1) == truth.argmax(axis=1)).mean()
    assert scores["validation_accuracy"] == pytest.approx(right)
    table = pd.read_csv(output / "validation.csv", dtype=str)
    assert table["label"].tolist() == [CLASSES[code] for code in truth.argmax(axis=1)]


def test_a_report_shows_the_cross_entropy_of_the_votes(voted):
    results = run_results.read(voted[1])

    shown = sections.describe(results)

    with np.load(voted[1] / "validation.npz") as file:
        loss = -(file["truth"] * np.log(file["probabilities"])).sum(axis=1)
    assert shown is not None and shown.measures["log loss"] == sections.number(float(loss.mean()))
    assert float(shown.worst["rows"][0][-1]) == pytest.approx(loss.max(), rel=1e-3)


def test_a_rehearsal_scores_the_hidden_votes(voted):
    """Probabilities that are the votes have no divergence from them."""
    folder, _, config = voted
    hidden = HiddenTest(config, folder)
    examples = dataset.read_training(folder, config)
    rows = [examples.ids.index(name) for name in hidden._called(hidden.hidden)]
    columns = {
        name: dict(zip(hidden._called(hidden.hidden), map(str, column), strict=True))
        for name, column in zip(CLASSES, examples.labels[rows].T.astype(float), strict=True)
    }

    assert hidden.score(columns) == pytest.approx(0, abs=1e-6)


def test_members_with_soft_and_hard_labels_are_scored_by_the_hard_ones(voted, tiny, tmp_path):
    """A distilled model and its teacher can be averaged, if they agree on each row's class."""
    folder, _, config = voted
    hard = replace(tiny, folds=2, epochs=1, metric="log_loss")
    training.train(replace(config, metric="log_loss", epochs=1), folder, tmp_path / "a", show=quiet)
    training.train(hard, folder, tmp_path / "b", show=quiet)

    found = ensemble.common_rows([tmp_path / "a", tmp_path / "b"], quiet)

    assert found.truth.tolist() == [CLASSES.index(name) for name in labels_of(folder, found.ids)]
    with np.load(tmp_path / "a" / "validation.npz") as file:
        np.savez(tmp_path / "a" / "validation.npz", **{**file, "truth": file["truth"][:, ::-1]})
    with pytest.raises(ReportError, match="different labels"):
        ensemble.common_rows([tmp_path / "a", tmp_path / "b"], quiet)


def test_class_weights_count_fractions_of_rows(tiny):
    """All classes get the same total weight."""
    labels = np.array([[0.5, 0.5], [1, 0], [1, 0], [0.75, 0.25]], np.float32)
    target = Target("classes", ("often", "rare"))
    examples = dataset.Examples(tuple("abcd"), np.zeros((4, 1)), labels, target)
    config = soft(tiny, class_weights="balanced")

    found = losses.row_weights(examples, config, np.arange(4))

    assert found is not None
    each = labels @ (1 / np.maximum(labels.sum(axis=0), 1))
    assert found == pytest.approx(each / each.mean(), rel=4 * EPS)


# -- metrics


def test_the_divergence_is_scipys_and_for_hard_labels_the_log_loss(seed):
    """The most probable class, or the first of several, decides every other metric."""
    random = np.random.default_rng(seed)
    truth, found = random.dirichlet(np.ones(4), (2, 300))
    truth[0], codes = [0.1, 0.4, 0.1, 0.4], truth.argmax(axis=1)
    hard, divergence = random.integers(0, 4, 300), metrics.find("kl_divergence", "classes")

    assert divergence(truth, found) == pytest.approx(stats.entropy(truth, found, axis=1).mean())
    loss = metrics.find("log_loss", "classes")
    assert loss(truth, found) == pytest.approx(-(truth * np.log(found)).sum(axis=1).mean())
    assert divergence(hard, found) == loss(hard, found) == loss(np.eye(4)[hard], found)
    assert divergence(truth, truth) == pytest.approx(0, abs=1e-12)
    codes[0] = 1
    for name in ("accuracy", "balanced_accuracy", "f1", "qwk", "auc", "map@2"):
        metric = metrics.find(name, "classes")
        assert metric(truth, found) == metric(codes, found)


OWN = """
def far(truth, probabilities):
    assert truth.shape == probabilities.shape and truth.dtype == "float64"
    return abs(truth - probabilities).sum(axis=1).mean()


def wrong(truth, labels):
    assert truth.dtype == labels.dtype == "int64"
    return (truth != labels).mean()


def brier(labels, outputs):
    return keras.ops.sum(keras.ops.square(labels - keras.ops.softmax(outputs)), axis=-1)


def made(images, num_classes, momentum):
    return layers.Dense(num_classes, name="logits")(layers.Flatten()(images))
"""


@pytest.mark.parametrize("metric", ["far", "wrong"])
def test_custom_functions_receive_the_shares(custom, tiny, metric):
    """A loss and a metric of probabilities; a metric of labels receives the most probable ones."""
    data = replace(tiny.data, label_column=CLASSES)
    config = custom(OWN, data=data, num_classes=0, metric=metric, loss="brier")

    custom_check.by_jax(config, quiet)

    truth = np.array([[0.25, 0.75, 0, 0], [0.5, 0.25, 0.25, 0]], np.float32)
    found = metrics.of(config)
    assert not found.greater_is_better
    assert found(truth, np.eye(4)[[1, 1]]) == (1.0 if metric == "far" else 0.5)


# -- distillation
PAGE = (Path(__file__).resolve().parents[3] / "docs/soft-labels.md").read_text(encoding="utf-8")
(DISTILL,) = (
    code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "held_out" in code
)
NAMES, COLUMNS = ("cat", "dog", "owl"), tuple(f"x{number}" for number in range(6))


def noisy(folder: Path, seed: int, train: int = 400, test: int = 3000) -> np.ndarray:
    """Write a table whose labels are drawn from probabilities, and return the test rows' labels."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(train + test, len(COLUMNS)))
    first, second = random.normal(size=(6, 8)), random.normal(size=(8, 3))
    likely = 1.5 * np.tanh(rows @ first) @ second
    labels = (likely + random.gumbel(size=likely.shape)).argmax(axis=1)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table.insert(0, "id", [f"r{number}" for number in range(len(table))])
    folder.mkdir()
    named = [NAMES[label] for label in labels[:train]]
    table[:train].assign(label=named).to_csv(folder / "train.csv", index=False)
    table[train:].to_csv(folder / "test.csv", index=False)
    sample = table[train:][["id"]].assign(**dict.fromkeys(NAMES, 0.5))
    sample.to_csv(folder / "sample_submission.csv", index=False)
    return labels[train:]


def distilled(place: Path, seed: int, epochs: int = 30, test: int = 3000) -> dict[str, list[float]]:
    """Return the hidden log loss and accuracy, and the local log loss, of a network, a teacher and
    a student of it. They use the code of docs/soft-labels.md.
    """
    truth, folder = noisy(place / "data", seed, test=test), place / "data"
    data = Data(kind="table", numeric_columns=COLUMNS, validation_fraction=0.2)
    few = {"num_classes": 3, "metric": "log_loss", "baseline": None, "warmup_epochs": 1}
    network = replace(shipped("breast_cancer"), data=data, epochs=epochs, seed=seed, **few)
    trees = {"model": "columns", "model_options": {}, "fit": "boosting", "epochs": 1, "folds": 5}
    teacher = with_data(replace(network, **trees), train_csv="train_teacher.csv")
    student = with_data(network, train_csv="train_soft.csv", label_column=NAMES)
    student, scores = replace(student, num_classes=0), {}
    before, after = DISTILL.partition("# now")[::2]
    paths = {"folder": folder, "network": place / "network", "run": place / "teacher"}
    known = globals() | paths
    for name, config, code in (
        ("network", network, ""),
        ("teacher", teacher, before.partition("\n")[2]),
        ("student", student, after.partition("\n")[2]),
    ):
        exec(code, known)  # noqa: S102 - our own page
        done = training.train(config, folder, place / name, show=quiet)
        loaded, inferred = artifact.load(place / name / "artifact"), place / name / "inferred"
        inference.infer(loaded, folder, inferred, show=quiet)
        predicted = pd.read_csv(inferred / "submission.csv")[list(NAMES)].to_numpy()
        measured = [metrics.find(each, "classes") for each in ("log_loss", "accuracy")]
        scores[name] = [metric(truth, predicted) for metric in measured]
        assert done.manifest is not None
        scores[name].append(done.manifest["metrics"]["validation_log_loss"])
    return scores


def test_a_student_holds_out_the_rows_that_its_teacher_has_not_seen(tmp_path):
    """With their true labels, so that its score can be compared with that of the network."""
    scores = distilled(tmp_path, seed=0, epochs=2, test=30)

    table = pd.read_csv(tmp_path / "data" / "train_soft.csv", index_col="id")
    shares = table[list(NAMES)]
    held_out, known = (
        set(pd.read_csv(tmp_path / name / "validation.csv")["id"])
        for name in ("student", "teacher")
    )
    assert held_out == set(pd.read_csv(tmp_path / "network" / "validation.csv")["id"])
    assert len(held_out) == 80 and known == set(table.index) - held_out
    assert shares.idxmax(axis=1).tolist() == table["label"].tolist()
    assert (shares.loc[sorted(held_out)].max(axis=1) == 1).all()
    assert (shares.loc[sorted(known)].max(axis=1) < 1).all()
    assert np.isfinite([each for both in scores.values() for each in both]).all()


@pytest.mark.slow
def test_a_network_learns_from_trees_and_is_better_than_they_are(tmp_path):
    """Its log loss on hidden rows is below its teacher's in at least four of five seeds."""
    lower = []
    for seed in range(20, 25):
        (tmp_path / str(seed)).mkdir()
        scores = distilled(tmp_path / str(seed), seed)
        print(seed, {name: np.round(each, 4).tolist() for name, each in scores.items()}, flush=True)
        lower.append(scores["student"][0] < scores["teacher"][0])

    assert sum(lower) >= 4
