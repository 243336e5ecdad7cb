"""Ordinary tables: long masks, numbers with gaps, categories, ids such as 007, parquet."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.chain import Result
from deploy.competition import Submission
from deploy.runs import Run
from pipeline.config import Data
from pipeline.data import csv_files, dataset, samples, table_features
from pipeline.data.dataset import read_test
from pipeline.errors import DataError
from pipeline.infer import submission
from tests.pipeline.handmade import with_data
from tests.shipped import shipped
from workbench.inspect import inspection, proposal
from workbench.rehearse.hidden_test import HiddenTest

MASK = " ".join(f"{start} 3" for start in range(1, 150_000, 7))  # as of a picture of 10^8 pixels


def test_a_long_mask_is_written_checked_and_counted_by_the_relay(tmp_path):
    """As in a new process, where the limit is still the default."""
    csv.field_size_limit(131_072)
    sample, path = tmp_path / "sample.csv", tmp_path / "submission.csv"
    sample.write_text(f"id,rle\na,1 1\nb,{MASK}\n")

    number = submission.write(path, samples.read(sample), ["a", "b"], {"rle": [MASK, "1 1"]})

    run = Run("ann/cells-infer-gpu", 1, "", "")
    result = Result(run, None, run, tmp_path, tmp_path, Submission(1, 0.5), 9.0)
    assert len(MASK) > 131_072
    assert number == submission.check(path, sample) == result.values()["rows"] == 2


# -- what is in the files


TEXTS = st.text(st.sampled_from('ab ,"\n\r\té\u2028\x0b07.'), max_size=5)
NUMBERS = st.one_of(
    st.integers(-(2**53), 2**53).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=4).map(str),
    st.sampled_from(sorted(csv_files.MISSING)),
)
ODD = st.sampled_from(
    [" 5", "5 ", " NA", "inf", "-Infinity", "1e400", "0x1", "1_0", "1,5", "old", "NAN", "٣"]
)


def written(path: Path, *rows: object) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return path


@settings(max_examples=40)
@given(st.lists(st.lists(TEXTS, min_size=3, max_size=3), max_size=6))
def test_every_text_is_read_as_python_reads_it(tmp_path, rows):
    path = written(tmp_path / "x.csv", ("a", "b", "c"), *rows)

    found = csv_files.read(path, DataError, "")

    assert found.to_numpy().tolist() == rows and set(map(str, found.dtypes)) == {"object"}
    assert [row[:1] for row in rows] == csv_files.read(path, DataError, "", "a").to_numpy().tolist()


@settings(max_examples=40)
@given(st.lists(st.tuples(NUMBERS, NUMBERS | ODD), min_size=1, max_size=8))
def test_numbers_from_the_parser_are_those_of_their_texts(tmp_path, rows):
    """To the bit; and a text that is no number is refused in both."""
    path = written(tmp_path / "x.csv", ("clean", "spoiled", "label"), *((*row, "") for row in rows))
    texts = csv_files.read(path, DataError, "")

    typed = csv_files.read(path, DataError, "", numbers=("clean", "spoiled"))

    assert typed["clean"].dtype != object and typed["label"].dtype == object
    for name in ("clean", "spoiled"):
        try:
            wanted = table_features._numbers(texts[name], path)
        except DataError:
            with pytest.raises(DataError, match="expected finite numbers"):
                table_features._numbers(typed[name], path)
            wanted = table_features._numbers(texts[name], path, lenient=True)
        found = table_features._numbers(typed[name], path, lenient=True)
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n1,2,3\n4,5,6\n", r"line 2 has 3 fields, .*expected 2 \(a, b\)"),
        (b'a,b\n"1\n",2\n3\n', r"line 4 has 1 fields, .*expected 2 \(a, b\)"),
        (b'a,b\n"1"x,2\n', "',' expected after '\"'"),
        (b'a,b\n1,"2\n', "unexpected end of data"),
        (b"a,b,a\n1,2,3\n", "its header contains a column twice: a, b, a"),
        (b"a,b\n1,\xff\n", "'utf-8' codec can't decode byte 0xff"),
        (b"a,b\n1,\0\n", "line 2 .*contains a NUL"),
        (b"\n\n", "it is empty"),
    ],
)
def test_a_broken_table_is_refused_by_its_line(tmp_path, content, said):
    (tmp_path / "x.csv").write_bytes(content)

    with pytest.raises(DataError, match=rf"x\.csv could not be read as a table: {said}"):
        csv_files.read(tmp_path / "x.csv", DataError, "", numbers=("a",))


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4", [["1", "2"], ["3", "4"]]),
        (b"\n\na,b\n1,\n\n,2\n\n", [["1", ""], ["", "2"]]),
        (b'a,b\n5" pipe,2\n', [['5" pipe', "2"]]),
        (b"a\n 1\n\n2\n", [[" 1"], ["2"]]),
        (b"a,b\n", []),
        (b"a,\n1,2\n", [["1", "2"]]),
    ],
)
def test_a_table_as_other_programs_write_it_is_read(tmp_path, content, rows):
    """With a byte order mark, blank lines, a quote in a text, one column, no rows, or no name."""
    (tmp_path / "x.csv").write_bytes(content)

    assert csv_files.read(tmp_path / "x.csv", DataError, "").to_numpy().tolist() == rows


# -- parquet


LAYOUT = replace(
    shipped("digits"),
    num_classes=2,
    data=Data(
        kind="table",
        label_column="label",
        numeric_columns=("size", "age", "count"),
        categorical_columns=("port", "code", "sure"),
        train_csv="train.parquet",
        test_csv="test.parquet",
    ),
    model="mlp",
    model_options={"width": 32, "depth": 1},
)


def passengers(rows: int) -> pd.DataFrame:
    """Return a table of each type that people keep in parquet, with gaps in each column."""
    random = np.random.default_rng(rows)
    table = pd.DataFrame(random.normal(0, 10, (rows, 2)), columns=["size", "count"])
    table = table.astype({"count": np.float32}).mask(random.random((rows, 2)) < 0.2)
    table["id"] = [f"{number:03d}" for number in range(rows)]
    table["age"] = pd.array(random.integers(0, 90, rows), "Int64")
    table["code"] = pd.array(random.integers(0, 3, rows), "Int64")
    table["port"] = pd.Categorical(random.choice(["S", "C", None], rows))
    table["sure"] = random.random(rows) < 0.5
    table.loc[3, ["age", "code"]] = pd.NA
    return table


@pytest.fixture
def voyage(tmp_path):
    """Return a folder with the same tables as CSV and as parquet."""
    pytest.importorskip("pyarrow", reason="pip install -e '.[parquet]'")
    for name, rows in (("train", 60), ("test", 20)):
        table = passengers(rows)
        if name == "train":
            table["label"] = np.where(np.nan_to_num(table["size"]) > 0, "yes", "no")
        table.to_parquet(tmp_path / f"{name}.parquet")
        # As pandas reads numbers that have 32 bits.
        wide = table["count"].astype(np.float64)
        table.assign(count=wide).to_csv(tmp_path / f"{name}.csv", index=False)
    ids = "".join(f"{number:03d},no\n" for number in range(20))
    (tmp_path / "sample_submission.csv").write_text(f"id,label\n{ids}")
    return tmp_path


def test_a_parquet_table_is_read_like_the_same_table_as_csv(voyage):
    """Inputs, labels and ids, of the training and of the test set, to the bit."""
    as_csv, rows = with_data(LAYOUT, train_csv="train.csv", test_csv="test.csv"), np.arange(20)

    found, other = (dataset.read_training(voyage, config) for config in (LAYOUT, as_csv))

    assert found.ids[:2] == ("000", "001") and found.classes == ("no", "yes")
    assert found.fingerprint == other.fingerprint
    assert np.isfinite(found.inputs).all() and found.inputs[:, 3:6].sum() > 1
    tests = [read_test(voyage, each, found.encoding).inputs(rows) for each in (LAYOUT, as_csv)]
    assert np.array_equal(*tests) and tests[0].shape == (20, 9)


def test_a_parquet_folder_is_inspected(voyage):
    for name in ("train", "test"):
        (voyage / f"{name}.csv").unlink()

    found = inspection.inspect(voyage)

    data = proposal.propose(found, "voyage", "voyage").config.data
    assert (data.train_csv, data.test_csv) == ("train.parquet", "test.parquet")


def test_a_parquet_folder_is_rehearsed(voyage, tmp_path):
    """The hidden rows and the others are parquet tables of the same columns."""
    made = HiddenTest(LAYOUT, voyage)

    made.write(tmp_path / "seen", hidden=True)

    whole = csv_files.read(voyage / "train.parquet", DataError, "")
    seen = dataset.read_training(tmp_path / "seen", LAYOUT)
    assert seen.ids == tuple(whole["id"][made.train])
    hidden = csv_files.read(tmp_path / "seen" / "test.parquet", DataError, "")
    assert "label" not in hidden
    assert list(hidden["size"]) == list(whole["size"][made.hidden])


def test_a_parquet_table_holds_pixels_too_and_a_file_of_its_name_that_is_none_is_refused(tmp_path):
    pytest.importorskip("pyarrow", reason="pip install -e '.[parquet]'")
    data, path = replace(shipped("digits_csv").data, height=2, width=2), tmp_path / "x.parquet"
    pd.DataFrame({"label": ["a"], **{f"p{n}": [n] for n in range(4)}}).to_parquet(path)
    assert table_features.pixels(path, data, ("label",))[0].ravel().tolist() == [0, 1, 2, 3]

    path.write_text("id,label\n")
    with pytest.raises(DataError, match=r"x\.parquet could not be read as a table"):
        csv_files.read(path, DataError, "")


def test_without_pyarrow_a_parquet_table_is_refused_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(DataError, match=r"(?s)pyarrow .*pip install -e '.\[parquet]'"):
        csv_files.read(tmp_path / "x.parquet", DataError, "")
