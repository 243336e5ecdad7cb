"""A folder without a sample submission is described, rehearsed and predicted like any other."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.config import Data
from pipeline.data import dataset
from pipeline.data.dataset import read_test
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import metrics
from pipeline.infer import submission
from tests.shipped import shipped
from tests.workbench.inspect.test_inspection import csv, noise, pictures, png, proposed, put, table
from tests.workbench.inspect.test_inspection import texts as lines
from workbench.inspect import inspection
from workbench.inspect.tables import Given
from workbench.rehearse.hidden_test import HiddenTest

TEST_IDS = [str(1000 + n) for n in range(9)]
NUMBERS = list(map(str, range(9)))
FILES = [f"b{n}.png" for n in range(6)]


def without_sample(files):
    return {name: content for name, content in files.items() if "sample" not in name}


def of_table(*, key="id", labels=("sold",), of=lambda n: [n * 5 % 2], ids=lambda n: n):
    """Return the files of a table with these label columns; without ids if key is ""."""
    named, rows = [key] if key else [], range(60)
    train = [[*map(ids, [n][: len(named)]), n * 37 % 101 / 8, *of(n)] for n in rows]
    test = [[*map(ids, [1000 + n][: len(named)]), n / 8] for n in range(9)]
    return {
        "train.csv": csv([*named, "size", *labels], *train),
        "test.csv": csv([*named, "size"], *test),
    }


def of_folders(*tests):
    """Return images in a folder for each label, and the test set in these folders."""
    train = {f"train/{'xyz'[n % 3]}/a{n}.png": png(noise(12, 12)) for n in range(24)}
    places = [f"{tests[n % len(tests)]}/b{n}.png" for n in range(6)]
    return train | {place: png(noise(12, 12)) for place in places}


def of_files(*, whole=False, test_table=False):
    files = without_sample(pictures())
    if whole:
        files["train.csv"] = csv("id,kind", *((f"a{n}.png", "xyz"[n % 3]) for n in range(24)))
    if test_table:  # in another order than the files
        files["test.csv"] = csv(["id"], *([f"b{n}"] for n in (3, 1, 0, 5)))
    return files


FOLDERS = {
    "two classes": (of_table(), TEST_IDS, ["id", "sold"]),
    "ids of another name": (of_table(key="PassengerId"), TEST_IDS, ["PassengerId", "sold"]),
    "no ids in the test set": (
        of_table(key="ID") | {"test.csv": of_table(key="")["test.csv"]},
        NUMBERS,
        ["id", "sold"],
    ),
    "several columns of ids": (
        of_table()
        | {"test.csv": csv("user_id,id,size", *((7 * n, 1000 + n, n) for n in range(9)))},
        TEST_IDS,
        ["id", "sold"],
    ),
    "texts as ids": (
        of_table(key="name", ids=lambda n: f"N{n}"),
        [f"N{name}" for name in TEST_IDS],
        ["name", "sold"],
    ),
    "no ids": (of_table(key=""), NUMBERS, ["id", "sold"]),
    "regression": (of_table(of=lambda n: [n * 29 % 97 / 7]), TEST_IDS, ["id", "sold"]),
    "several labels": (
        of_table(labels=("a", "b"), of=lambda n: [n * 5 % 2, n % 3 % 2]),
        TEST_IDS,
        ["id", "a", "b"],
    ),
    "names of classes": (
        without_sample(table()) | {"train.csv": of_table(of=lambda n: ["xyz"[n % 3]])["train.csv"]},
        TEST_IDS,
        ["id", "sold"],
    ),
    "class folders": (of_folders("test"), FILES, ["id", "label"]),
    "class folders in the test set": (
        of_folders("test/x", "test/y"),
        [f"{'xy'[n % 2]}/b{n}.png" for n in (0, 2, 4, 1, 3, 5)],
        ["id", "label"],
    ),
    "a folder in the folder": (of_folders("test/test"), FILES, ["id", "label"]),
    "files of ids": (of_files(), [f"b{n}" for n in range(6)], ["id", "kind"]),
    "ids with endings": (of_files(whole=True), FILES, ["id", "kind"]),
    "a list of the files": (of_files(test_table=True), ["b3", "b1", "b0", "b5"], ["id", "kind"]),
}


@pytest.mark.parametrize(("files", "ids", "columns"), FOLDERS.values(), ids=FOLDERS)
def test_without_a_sample_ids_come_from_the_test_set_and_columns_from_the_labels(
    files, ids, columns, tmp_path
):
    found, config = proposed(put(tmp_path / "data", files))

    every = dataset.read_training(tmp_path / "data", config)
    target, tests = every.target, read_test(tmp_path / "data", config, every.encoding)
    form = submission.form_of(config, target, metrics.of(config), tmp_path / "data")
    assert config.data.sample_submission is None
    assert list(tests.ids) == ids
    assert [*form.sample.table.columns[:1], *form.columns] == columns
    assert "not found, so sample_submission=None. The ids are" in lines(found, "chosen")


@pytest.mark.parametrize("name", ["two classes", "no ids", "class folders", "a list of the files"])
def test_a_rehearsal_hides_rows_by_the_ids_that_a_session_finds(name, tmp_path):
    """No session sees a sample submission, which the competition does not have."""
    _, config = proposed(put(tmp_path / "data", FOLDERS[name][0]))
    hidden = HiddenTest(config, tmp_path / "data")
    hidden.write(tmp_path / "seen")
    hidden.write(tmp_path / "rerun", hidden=True)

    every = dataset.read_training(tmp_path / "data", config)
    tests = read_test(tmp_path / "rerun", config, every.encoding)
    seen = read_test(tmp_path / "seen", config, every.encoding)
    rows = {name: place for place, name in enumerate(tests.ids)}
    (column,) = hidden.solution
    read = tests.inputs(np.array([rows[name] for name in hidden.solution[column]]))
    assert not list(tmp_path.glob("*/*sample*"))
    assert list(seen.ids) == FOLDERS[name][1]
    # The right labels have the best score, and the inputs are those of the hidden rows.
    assert hidden.score(hidden.solution) == 1
    np.testing.assert_allclose(read, every.inputs[hidden.hidden], rtol=1e-6)


def test_a_metric_of_probabilities_gets_a_column_per_class(tmp_path):
    found = proposed(put(tmp_path, FOLDERS["names of classes"][0]), Given(metric="log_loss"))[1]
    target = dataset.read_training(tmp_path, found).target

    form = submission.form_of(found, target, metrics.of(found), tmp_path)

    form.write(tmp_path / "out" / "s.csv", TEST_IDS, np.full((9, 3), 1 / 3, np.float32))
    header, first = (tmp_path / "out" / "s.csv").read_text().splitlines()[:2]
    assert (header, first.split(",")[:1]) == ("id,x,y,z", ["1000"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.csv": table()["train.csv"]}, r"(?s)nothing is named test.*--test FILE"),
        (of_folders("test", "more/test"), r"could be (test, more/test|more/test, test)"),
        (of_table(labels=("a", "b"), of=lambda n: [n, n]), r"(?s)2 columns .*a, b.*--label a"),
    ],
    ids=["no test set", "two test sets", "two columns"],
)
def test_a_folder_without_anything_to_predict_is_refused(files, message, tmp_path):
    with pytest.raises(DataError, match=message):
        inspection.inspect(put(tmp_path, files))


def test_options_name_tables_and_folders(tmp_path):
    """If there are two candidates. A missing one is refused."""
    folder = put(
        tmp_path / "folders", of_folders("test") | {"names.csv": csv("code,name", "1,x", "2,y")}
    )
    both = put(tmp_path / "both", of_table() | {"test_old.csv": of_table(key="")["test.csv"]})

    assert inspection.inspect(folder, Given(train="train")).contents.source.class_folders
    assert inspection.inspect(both, Given(test="test_old.csv")).contents.sample_ids == NUMBERS
    with pytest.raises(ConfigError, match=r"--test new\.csv: no such table"):
        inspection.inspect(both, Given(test="new.csv"))


def test_a_missing_id_column_is_refused(tmp_path):
    """A name with a typo does not become row numbers."""
    _, config = proposed(put(tmp_path, FOLDERS["ids of another name"][0]))
    wrong = replace(config, data=replace(config.data, id_column="PasengerId"))

    with pytest.raises(ConfigError, match="but not the expected PasengerId"):
        read_test(tmp_path, wrong, dataset.read_training(tmp_path, config).encoding)


def test_array_images_without_a_table_are_numbered(tmp_path):
    np.save(tmp_path / "test.npy", noise(5, 12, 12))
    data = Data(kind="arrays", height=12, width=12, channels=1, sample_submission=None)

    tests = read_test(tmp_path, replace(shipped("digits"), data=data))

    assert (tests.ids, tests.source.shape) == (tuple("01234"), (5, 12, 12, 1))


def test_a_missing_sample_submission_is_refused(tmp_path):
    _, config = proposed(put(tmp_path, FOLDERS["files of ids"][0]))
    named = replace(config, data=replace(config.data, sample_submission="sample.csv"))

    with pytest.raises(DataError, match=r"(?s)sample\.csv is missing.*to None"):
        read_test(tmp_path, named)
