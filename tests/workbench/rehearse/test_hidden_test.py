"""A rehearsal hides labelled rows from its sessions, and scores a submission by the metric."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from formats import archives
from pipeline.config import Baseline, Config
from pipeline.data import dataset, samples, tfrecords
from pipeline.data.dataset import read_test
from pipeline.data.labels import Target
from pipeline.errors import DataError, SubmissionError
from pipeline.evaluate import metrics
from pipeline.infer.submission import Form
from tests.pipeline.data.test_tfrecords import example, written
from tests.small_competition import write_competition
from workbench.rehearse import scoring
from workbench.rehearse.hidden_test import HiddenTest
from workbench.rehearse.own_folder import RehearsedFolder
from workbench.rehearse.short_run import Plan

Made = tuple[Config, Path]


def as_images(folder: Path, config: Config) -> Config:
    return config


def stacked(folder: Path, part: str, ids: list[str]) -> np.ndarray:
    return np.stack([np.asarray(Image.open(folder / part / f"{name}.png")) for name in ids])


def as_array(folder: Path, config: Config) -> Config:
    for part, ids in (("train", labelled(folder)), ("test", asked(folder))):
        np.save(folder / f"{part}.npy", stacked(folder, part, ids))
    return replace(config, data=replace(config.data, kind="arrays"))


def as_pixels(folder: Path, config: Config) -> Config:
    labels = pd.read_csv(folder / "train.csv", dtype=str)["label"]
    for part, ids in (("train", labelled(folder)), ("test", asked(folder))):
        table = pd.DataFrame(stacked(folder, part, ids).reshape(len(ids), -1)).add_prefix("p")
        table.insert(0, "id", ids)
        if part == "train":
            table.insert(1, "label", labels)
        table.to_csv(folder / f"{part}.csv", index=False)
    return replace(config, data=replace(config.data, kind="pixels"))


def as_records(folder: Path, config: Config) -> Config:
    labels = dict(pd.read_csv(folder / "train.csv", dtype=str).to_numpy())
    for part, ids in (("train", labelled(folder)), ("test", asked(folder))):
        records = []
        for name in ids:
            image = (folder / part / f"{name}.png").read_bytes()
            label = {"label": labels[name]} if part == "train" else {}
            records.append(example(id=name, image=image, **label))
        for shard in range(2):
            written(folder / f"{part}{shard}.tfrec", records[shard::2])
    (folder / "train.csv").unlink()
    return replace(config, data=replace(config.data, kind="tfrecords"))


def as_class_folders(folder: Path, config: Config) -> Config:
    for name, label in pd.read_csv(folder / "train.csv", dtype=str).to_numpy():
        (folder / "train" / label).mkdir(exist_ok=True)
        (folder / "train" / f"{name}.png").rename(folder / "train" / label / f"{name}.png")
    (folder / "train.csv").unlink()
    return replace(config, data=replace(config.data, train_csv=None))


def labelled(folder: Path) -> list[str]:
    return list(pd.read_csv(folder / "train.csv", dtype=str)["id"])


def asked(folder: Path) -> list[str]:
    return list(pd.read_csv(folder / "sample_submission.csv", dtype=str)["id"])


KINDS: dict[str, Callable[[Path, Config], Config]] = {
    "images": as_images,
    "class folders": as_class_folders,
    "arrays": as_array,
    "pixels": as_pixels,
    "tfrecords": as_records,
}


@pytest.fixture(params=KINDS)
def made(request, competition, tiny) -> Made:
    """Return a config and its folder, with inputs of each kind."""
    return KINDS[request.param](competition, tiny), competition


@pytest.fixture(scope="module", params=KINDS)
def played(request, tiny, tmp_path_factory) -> Iterator[tuple[Made, HiddenTest, Path]]:
    """Return such a folder with one more file, its hidden test, and the folders of its sessions; no
    test changes them.
    """
    folder, place = tmp_path_factory.mktemp("made") / "in", tmp_path_factory.mktemp("written")
    config = KINDS[request.param](write_competition(folder), tiny)
    (folder / "names.txt").write_text("ant\n")
    hidden = HiddenTest(config, folder)
    hidden.write(place / "seen")
    hidden.write(place / "rerun", hidden=True)
    yield (config, folder), hidden, place
    shutil.rmtree(place)


def test_sessions_train_on_the_visible_rows_and_predict_the_hidden_ones(played):
    """A test set has its rows in the order of the sample."""
    (config, folder), hidden, place = played
    every = dataset.read_training(folder, config)
    for part in ("seen", "rerun"):
        read = dataset.read_training(place / part, config)
        assert np.array_equal(read.inputs, every.inputs[hidden.train])
        assert read.classes == every.classes
        assert np.array_equal(read.labels, every.labels[hidden.train])
    tests = read_test(place / "rerun", config)
    assert np.array_equal(tests.inputs(np.arange(len(tests))), every.inputs[hidden.hidden])
    own, whole = read_test(place / "seen", config), read_test(folder, config)
    assert own.ids == whole.ids
    assert np.array_equal(own.inputs(np.arange(21)), whole.inputs(np.arange(21)))
    assert sorted([*hidden.train, *hidden.hidden]) == list(range(len(every)))
    if config.data.kind == "pixels":
        found = list(pd.read_csv(place / "rerun" / "test.csv")["id"])
        assert found == asked(place / "rerun")
    if config.data.kind == "tfrecords":
        _, table = tfrecords.read(place / "rerun", "test*.tfrec", "image", ("id",))
        assert list(table["id"]) == asked(place / "rerun")


def test_other_files_are_linked_and_no_hidden_image_is_in_the_training_folder(played):
    (config, folder), hidden, place = played
    assert (place / "rerun" / "names.txt").samefile(folder / "names.txt")
    ids = dataset.read_training(folder, config).ids
    away = {Path(ids[row]).stem for row in (*hidden.hidden, *hidden.visible)}
    for part in ("seen", "rerun") if config.data.kind == "images" else ():
        assert not away & {path.stem for path in (place / part / "train").rglob("*.png")}


def test_copies_share_nothing_with_the_users_files(made, tmp_path):
    config, folder = made
    (folder / "names.txt").write_text("ant\n")
    hidden = HiddenTest(config, folder, copied=True)
    hidden.write(tmp_path / "seen")
    hidden.write(tmp_path / "rerun", hidden=True)
    for place in ("seen", "rerun"):
        files = [path for path in (tmp_path / place).rglob("*") if path.is_file()]
        assert tmp_path / place / "names.txt" in files
        assert {path.stat().st_nlink for path in files} == {1}
        assert not [path for path in files if path.is_symlink()]


def test_links_in_the_folder_are_followed(competition, tiny, tmp_path):
    for name in ("train", "train.csv"):
        (competition / name).rename(tmp_path / name)
        (competition / name).symlink_to(tmp_path / name)
    hidden = HiddenTest(tiny, competition)
    hidden.write(tmp_path / "seen")
    assert len(dataset.read_training(tmp_path / "seen", tiny)) == len(hidden.train)


def test_what_came_in_archives_is_packed_again(competition, tiny, tmp_path):
    """As Kaggle mounts it. The user's own files do not change."""
    held = {"train.zip": ["train"], "test.zip": ["test"], "train.csv.zip": ["train.csv"]}
    (competition / archives.NOTE).write_text(json.dumps(held))
    before = sorted(competition.rglob("*"))
    HiddenTest(tiny, competition).write(tmp_path / "rerun", hidden=True)

    names = sorted(path.name for path in (tmp_path / "rerun").iterdir())
    found = archives.beside(tmp_path / "rerun", ["train.csv", "train"], tmp_path / "in", print)
    assert names == ["sample_submission.csv", "test.zip", "train.csv.zip", "train.zip"]
    assert len(dataset.read_training(found, tiny)) > 60 and not (found / "test").exists()
    assert sorted(competition.rglob("*")) == before


def test_a_note_about_archives_outside_the_folder_is_refused(competition, tiny, tmp_path):
    (tmp_path / "mine").mkdir()
    (competition / archives.NOTE).write_text(json.dumps({"a.zip": ["../mine"]}))
    with pytest.raises(archives.ArchiveError, match="is outside the folder"):
        HiddenTest(tiny, competition).write(tmp_path / "seen")
    assert (tmp_path / "mine").is_dir()


def test_a_file_under_an_unusual_path_is_not_overwritten(competition, tiny, tmp_path):
    path = competition / "train.csv"
    before = path.read_bytes()
    config = replace(tiny, data=replace(tiny.data, train_csv=".//train.csv"))
    HiddenTest(config, competition).write(tmp_path / "rerun", hidden=True)
    assert path.read_bytes() == before
    assert (tmp_path / "rerun" / path.name).read_bytes() != before


TEST_FIELDS = {"images": "test_images", "arrays": "test_array", "tfrecords": "test_records"}


def test_a_misspelt_test_set_or_sample_is_refused(made):
    """The full run would not find it, after hours of training."""
    config, folder = made
    field = TEST_FIELDS.get(config.data.kind, "test_csv")
    wrong = {"test_records": "tset*.tfrec"}.get(field, "tset.npy" if "array" in field else "tset")
    with pytest.raises(DataError, match=rf"data\.{field}='tset|images are missing in .*tset"):
        HiddenTest(replace(config, data=replace(config.data, **{field: wrong})), folder)
    data = replace(config.data, sample_submission="sample.csv")
    with pytest.raises(DataError, match=r"sample\.csv is missing; sample_submission\.csv appears"):
        HiddenTest(replace(config, data=data), folder)


def test_what_a_session_would_refuse_is_refused_before_it_starts(competition, tiny):
    with pytest.raises(DataError, match="96 of 96 images are missing"):
        HiddenTest(replace(tiny, data=replace(tiny.data, train_images="trian")), competition)
    with pytest.raises(DataError, match="Use fewer folds"):  # too few rows to hide any
        HiddenTest(replace(tiny, folds=24), competition)


def test_few_rows_are_chosen_without_broken_images(competition, tiny):
    """One of 24 is more than the hundredth that may be broken."""
    chosen = HiddenTest(tiny, competition)
    chosen.limit(24, 8)
    ids = dataset.read_training(competition, tiny).ids
    broken = [int(chosen.train[0]), int(chosen.hidden[0])]
    for row in broken:
        (competition / "train" / f"{ids[row]}.png").write_bytes(b"?")
    again = HiddenTest(tiny, competition)
    again.limit(24, 8)
    assert not {*again.train, *again.hidden} & set(broken)
    assert (len(again.train), len(again.hidden)) == (len(chosen.train) - 1, len(chosen.hidden) - 1)
    said = f"1 of 24 selected rows have broken or missing images, such as {ids[broken[0]]}"
    assert said in str(again.made_up)


def test_an_image_that_cannot_be_decoded_has_no_duplicates(tiny, tmp_path):
    folder = write_competition(tmp_path / "broken", train=104)
    (folder / "train" / "r050.png").write_bytes(b"?")
    config = replace(tiny, data=replace(tiny.data, group_duplicates=True))
    hidden = HiddenTest(config, folder)
    assert sorted([*hidden.train, *hidden.hidden]) == list(range(104))


def test_the_id_column_may_have_a_different_name_in_the_test_set(competition, tiny, tmp_path):
    config = as_pixels(competition, tiny)
    table = pd.read_csv(competition / "train.csv", dtype=str).rename(columns={"id": "ID"})
    table.to_csv(competition / "train.csv", index=False)
    config = replace(config, data=replace(config.data, id_column="ID"))
    hidden, every = HiddenTest(config, competition), dataset.read_training(competition, config)
    hidden.limit(None, 8)
    hidden.write(tmp_path / "rerun", hidden=True)
    tests = read_test(tmp_path / "rerun", config)
    assert np.array_equal(tests.inputs(np.arange(8)), every.inputs[hidden.hidden])


def test_a_sample_without_rows_is_replaced_with_a_message(competition, tiny, tmp_path):
    (competition / "sample_submission.csv").write_text("id,label\n")
    hidden = HiddenTest(tiny, competition)
    assert "no sample_submission.csv with rows" in hidden.made_up[0]
    hidden.write(tmp_path / "seen")
    assert len(read_test(tmp_path / "seen", tiny)) == len(hidden.visible)


def test_a_made_up_sample_has_a_column_for_each_scored_label(competition, tiny, tmp_path):
    table = pd.read_csv(competition / "train.csv", dtype=str)
    table["label"] = ["ant|bee", "bee|big cat", "big cat", "dog"] * 24
    table.to_csv(competition / "train.csv", index=False)
    (competition / "sample_submission.csv").unlink()
    data = replace(tiny.data, label_separator="|")
    config = replace(tiny, target="multilabel", metric="auc", data=data)
    HiddenTest(config, competition).write(tmp_path / "seen")
    target = dataset.read_training(competition, config).target
    metric, sample = metrics.find("auc", target.kind), tmp_path / "seen" / "sample_submission.csv"
    Form(target, metric, samples.read(sample)).check_labels()


def test_without_a_test_set_labelled_rows_become_one(made, tmp_path):
    config, folder = made
    (folder / "sample_submission.csv").unlink()
    hidden = HiddenTest(config, folder)
    assert len(hidden.visible)
    assert not set(hidden.visible) & {*hidden.hidden, *hidden.train}
    every = dataset.read_training(folder, config)
    for place, rows in (("seen", hidden.visible), ("rerun", hidden.hidden)):
        hidden.write(tmp_path / place, hidden=place == "rerun")
        tests = read_test(tmp_path / place, config)
        assert np.array_equal(tests.inputs(np.arange(len(tests))), every.inputs[rows])


def test_a_perfect_submission_has_the_best_score(competition, tiny):
    hidden = HiddenTest(tiny, competition)
    assert hidden.score(hidden.solution) == 1.0
    unknown = {name: dict.fromkeys(column, "?") for name, column in hidden.solution.items()}
    with pytest.raises(SubmissionError, match="not a label"):
        hidden.score(unknown)


def test_a_score_is_compared_with_the_baseline_by_their_errors(competition, tiny):
    """With few hidden rows, a better score than the baseline's may be chance."""
    known = Baseline(model="a forest", metric="accuracy", score=0.9, error=0.01, rows=100)
    hidden = HiddenTest(replace(tiny, baseline=known), competition)
    folder = RehearsedFolder(hidden, Plan(), ())
    (name, truth), rows = next(iter(hidden.solution.items())), len(hidden.hidden)
    wrong = next(iter(truth))
    other = next(label for label in truth.values() if label != truth[wrong])

    score = hidden.score({name: {**truth, wrong: other}})

    chance = (score * (1 - score) / rows) ** 0.5
    assert hidden.scored is not None and hidden.scored.error == pytest.approx(chance, rel=0.2)
    apart = math.floor(10 * (score - 0.9) / math.hypot(hidden.scored.error, 0.01)) / 10
    assert folder.about == (
        f"accuracy {score:.4g} ± {hidden.scored.error:.2g} on {rows} hidden rows, higher is better;"
        f" above the baseline by {apart:.1f} standard errors, within the error (less than 2);"
        f" baseline: {known}"
    )
    worse = HiddenTest(replace(tiny, metric="f1", baseline=known), competition)
    worse.score(worse.solution)
    assert "baseline" not in RehearsedFolder(worse, Plan(), ()).about


TARGETS = {
    "accuracy": (Target("classes", ("a", "b", "c")), ["id", "kind"]),
    "log_loss": (Target("classes", ("a", "b", "c")), ["id", "c", "a", "b"]),
    "map@2": (Target("classes", ("a", "b", "c")), ["id", "kind"]),
    "auc": (Target("classes", ("a", "b")), ["id", "kind"]),
    "qwk": (Target("ordinal", ("0", "1", "2")), ["id", "grade"]),
    "f1": (Target("multilabel", ("a", "b", "c")), ["id", "tags"]),
    "rmse": (Target("regression", ("y",), (0.0,), (1.0,)), ["id", "y"]),
    "mae": (Target("regression", ("y", "z"), (0.0, 0.0), (1.0, 1.0)), ["id", "z", "y"]),
}


@pytest.mark.parametrize("name", TARGETS)
def test_the_score_of_a_written_submission_is_that_of_its_predictions(tmp_path, name, seed):
    target, columns = TARGETS[name]
    random, metric = np.random.default_rng(seed), metrics.find(name, target.kind)
    values = random.dirichlet(np.ones(len(target.names)), 12).astype(np.float32)
    truth: np.ndarray = np.arange(12) % len(target.names)
    if target.kind == "multilabel":
        truth = (random.random(values.shape) < 0.5).astype(np.float32)
        truth[:2] = [[1, 0, 1], [0, 1, 0]]
        values = random.uniform(0.6, 1, values.shape).astype(np.float32)
    elif target.kind == "regression":
        truth = random.normal(size=values.shape)
    (tmp_path / "sample.csv").write_text(f"{','.join(columns)}\nr0{',' * (len(columns) - 1)}\n")
    ids = [f"r{row}" for row in range(12)]
    texts = Form(target, metric, samples.read(tmp_path / "sample.csv")).texts(values)
    written = {column: dict(zip(ids, each, strict=True)) for column, each in texts.items()}

    texts = {name: [column[key] for key in ids] for name, column in written.items()}
    found = scoring.predictions(target, metric, texts)

    # Nine digits restore each float32.
    assert metric(truth, found) == pytest.approx(metric(truth, values), rel=1e-6)
