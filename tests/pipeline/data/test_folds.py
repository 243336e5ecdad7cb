"""A run of folds is one run: each image validates by a model that saw neither it nor its group, and
the artifact has the weights of every fold.
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

from pipeline import artifact
from pipeline.config import Config
from pipeline.data import dataset, folds
from pipeline.data.test_set import read_test
from pipeline.errors import ArtifactError, CheckpointError, ConfigError, DataError
from pipeline.figures import training_figures
from pipeline.inference import predictions, restoring
from pipeline.models import architectures, weight_names
from pipeline.storage import checksums
from pipeline.training import training
from tests.pipeline import rounding
from tests.pipeline.conftest import write_competition
from tests.pipeline.handmade import resealed, with_data

STEPS = 8  # of a fold: 64 images, 16 at once, in 2 epochs


def with_patients(folder: Path, patients: list[str]) -> Path:
    """Add a column to train.csv."""
    head, *rows = (folder / "train.csv").read_text().splitlines()
    added = [f"{row},{patient}" for row, patient in zip(rows, patients, strict=True)]
    (folder / "train.csv").write_text("\n".join([f"{head},patient", *added]) + "\n")
    return folder


def test_groups_are_read_as_the_texts_that_they_are(competition, tiny):
    """01 is another patient than 1, and who is exchanged changes the fingerprint."""
    with_patients(competition, ["01", "1", "NA"] * 32)

    images = dataset.read_training(competition, with_data(tiny, group_column="patient"))

    assert list(images.groups[:6]) == [0, 1, 2, 0, 1, 2] and images.groups.dtype == np.int32
    others = replace(images, groups=images.groups[::-1]), replace(images, groups=None)
    assert len({each.fingerprint for each in (images, *others)}) == 3


def test_a_missing_group_column_and_a_row_without_a_group_are_named(competition, tiny):
    """An empty text would make one group of all whose group is not known."""
    grouped = with_data(tiny, group_column="patient")
    with pytest.raises(ConfigError, match="expected also patient"):
        dataset.read_training(competition, grouped)

    with_patients(competition, ["a", ""] * 48)
    with pytest.raises(DataError, match="48 rows without a text in 'patient'"):
        dataset.read_training(competition, grouped)


# -- runs


@pytest.fixture(scope="module")
def three(tiny: Config) -> Config:
    """Return a config of three folds by group."""
    return replace(with_data(tiny, group_column="patient"), folds=3, epochs=2)


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
    """What is held out in a fold is predicted by its weights alone; golden outputs are means."""
    folder, output, _ = folded
    loaded = artifact.load(output / "artifact")
    images, test = dataset.read_training(folder, three), read_test(folder, three)
    probabilities = np.load(output / "validation.npz")["probabilities"]
    built = architectures.build(three)
    names = list(weight_names.keys(built).values())

    found = predictions.predict(loaded, test, restoring.restore(loaded)[0])

    assert loaded.config == three and [list(part) for part in loaded.folds] == [names] * 3
    assert list(loaded.weights) == [
        f"fold-{number}/{name}" for number in (1, 2, 3) for name in names
    ]
    for weights, (_, held) in zip(loaded.folds, folds.splits(images, three), strict=True):
        own, bound = answers(built, weights, images.target, images.inputs[held])
        assert np.abs(own - probabilities[held]).max() <= bound
    assert found.values.dtype == np.float32
    pixels = test.inputs(np.arange(len(test)))
    for means, inputs in (
        (found.values, pixels),
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
    assert "Fold 2 of 3: 64 images to train, 32 to validate" in lines


def test_a_run_that_stops_between_folds_or_in_one_resumes_there_and_ends_the_same(
    folded, three, tmp_path
):
    """Bit for bit. A fold that is complete is not trained again, and a stop at its end begins no
    other; the end of a session counts for all folds, and to load those before is no progress.
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
    assert told == ["Stopped in the final evaluation. The same command again resumes it."]
    before = first.stat()
    runs = [
        stopped,
        training.train(replace(three, session_hours=1e-4), folder, out, show=str),
        training.train(three, folder, out, max_steps=STEPS + 5, show=lines.append),
        done := training.train(three, folder, out, show=lines.append),
    ]

    assert [run.status for run in runs] == ["partial"] * 3 + ["complete"]
    assert first.stat() == before
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
    """At its beginning: killed before the second fold, it does not resume from an old one."""
    run = training.train(three, folded[0], copied, max_steps=1, fresh=True, show=str)

    assert run.status == "partial"
    beside = {"history.csv", "progress.jsonl", "held-out.npz"}
    for number in (1, 2, 3):
        aside = copied / f"fold-{number}" / "checkpoints-set-aside-1"
        assert (aside / f"step-{STEPS:08d}").is_dir()
        assert {path.name for path in aside.glob("*.*")} == beside
    assert [path.name for path in copied.glob("fold-*/checkpoints/step-*")] == ["step-00000001"]
    # Else the old model would stand beside the new run, which has none yet.
    old = {"artifact", "validation.csv", "validation.npz"}
    assert not old & {path.name for path in copied.iterdir()}
    assert (copied / "checkpoints-set-aside-1" / "artifact" / "manifest.json").is_file()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"folds": None}, "fold-1/checkpoints holds a run with other folds"),
        ({"folds": 4}, "folds: 3 then, 4 now"),
        ({"name": "leaves"}, "of the config 'tiny', and this is 'leaves'.*\n.*another --output"),
        ({}, "inputs or labels, or which of them validate"),  # with another group
    ],
)
def test_a_run_of_other_folds_groups_or_configs_is_not_resumed(
    folded, three, copied, competition, change, said
):
    with_patients(competition, [f"p{index // 8 if change or index else 5}" for index in range(96)])

    with pytest.raises(CheckpointError, match=said):
        training.train(replace(three, **change), competition, copied, show=str)

    assert manifest_of(copied) == manifest_of(folded[1])


# -- an artifact that somebody changed

BIAS, KERNEL = "fold-2/2.1 logits/bias", "fold-2/2.0 logits/kernel"


def changed(output: Path, weights: dict[str, np.ndarray]) -> Path:
    """Exchange an artifact's weights, and return its folder."""
    np.savez(output / "artifact" / "weights.npz", **weights)
    return resealed(output / "artifact")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda weights: {name: weights[name] for name in [*weights][:-1]},
        lambda weights: {name.replace("fold-3", "fold-4"): weights[name] for name in weights},
        lambda weights: weights | {BIAS: np.zeros(5, np.float32)},
        lambda weights: weights | {BIAS: np.full(4, np.nan, np.float32)},
    ],
    ids=["one lacks", "another number", "another shape", "not finite"],
)
def test_weights_that_are_not_those_of_all_folds_are_refused(copied, wrong):
    weights = dict(artifact.load(copied / "artifact").weights)

    with pytest.raises(ArtifactError, match=r"fold|finite"):
        artifact.load(changed(copied, wrong(weights)))


@pytest.mark.parametrize("told", [None, [{}] * 2, 3])
def test_a_manifest_that_counts_other_folds_is_refused(copied, told):
    with pytest.raises(ArtifactError, match="3 folds"):
        artifact.load(resealed(copied / "artifact", folds=told))


def test_other_weights_in_one_fold_are_found_by_its_answers(copied):
    """One fold of several shifts the mean enough."""
    weights = dict(artifact.load(copied / "artifact").weights)
    other = changed(copied, weights | {KERNEL: weights[KERNEL][:, ::-1]})

    with pytest.raises(ArtifactError, match="other outputs here"):
        restoring.restore(artifact.load(other))


def test_curves_and_confusion_of_all_folds_are_drawn(copied):
    said: list[str] = []

    whole = training_figures.of_training(copied, show=said.append)
    shutil.rmtree(copied / "fold-3")
    part = training_figures.of_training(copied, status="partial", show=said.append)

    assert [path.name for path in whole] == ["curves.png", "confusion.png", "time.png"]
    assert [path.name for path in part] == ["curves.png"] and not said
