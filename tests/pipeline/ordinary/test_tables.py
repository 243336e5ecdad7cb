"""Ordinary tables: long masks, numbers with gaps, categories, ids such as 007, parquet."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.kernel.push_and_watch import Run
from deploy.relay.relay import Result
from deploy.relay.submit import Submission
from localkaggle.competitions import EMBEDDED, ScoringError
from pipeline import config as configs
from pipeline.data import dataset, table_features
from pipeline.errors import DataError
from pipeline.inspection import inspection
from pipeline.storage import csv_files
from pipeline.submission import submission_csv

MASK = " ".join(f"{start} 3" for start in range(1, 150_000, 7))  # as of a picture of 10^8 pixels


def put(folder: Path, **tables: str) -> Path:
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def the_limit_that_python_starts_with():
    """The limit belongs to the process: each test begins as a new one does."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


# -- a mask of a large picture


def test_a_long_mask_is_written_and_checked(tmp_path):
    put(tmp_path, sample=f"id,rle\na,1 1\nb,{MASK}\n")

    written = submission_csv.write(
        tmp_path / "submission.csv", tmp_path / "sample.csv", ["a", "b"], [MASK, "1 1"]
    )

    assert len(MASK) > 131_072
    assert (
        written == submission_csv.check(tmp_path / "submission.csv", tmp_path / "sample.csv") == 2
    )


def test_a_column_of_long_masks_beside_the_label_is_read_and_inspected(tmp_path):
    rows = "".join(f"{n},{n % 5}.5,{MASK},{'xy'[n % 2]}\n" for n in range(20))
    put(
        tmp_path,
        train=f"id,size,rle,label\n{rows}",
        test="id,size\n7,0.5\n8,1.5\n",
        sample_submission="id,label\n7,x\n8,x\n",
    )

    assert inspection.inspect(tmp_path).inputs.data.numeric_columns == ("size",)
    config = configs.load("breast_cancer")
    data = replace(config.data, label_column="label", numeric_columns=("size",))
    read = dataset.read_training(tmp_path, replace(config, data=data))
    assert read.classes == ("x", "y")


def test_a_long_mask_is_scored_by_the_local_kaggle(tmp_path):
    cells = EMBEDDED["cells"]()
    put(tmp_path, submission="id,rle\n" + "".join(f"{n},{MASK}\n" for n in cells.solution["rle"]))

    with pytest.raises(ScoringError, match="pixels outside of the picture"):  # which has 32 x 32
        cells.judge(tmp_path / "submission.csv")


def test_a_long_mask_is_counted_by_the_relay_that_submitted_it(tmp_path):
    put(tmp_path, submission=f"id,rle\na,{MASK}\nb,1 1\n")
    run = Run("ann/cells-infer-gpu", 1, "", "")

    result = Result(run, None, run, tmp_path, tmp_path, Submission(1, 0.5, "COMPLETE"), 9.0)

    assert result.values()["rows"] == 2


# -- what is in the files


TEXTS = st.text(st.sampled_from('ab ,"\n\r\té\u2028\x0b07.'), max_size=5)
NUMBERS = st.one_of(
    st.integers(-(2**53), 2**53).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-1000, 1000, places=4).map(str),
    st.sampled_from(sorted(csv_files.MISSING)),
)
ODD = st.sampled_from(
    [" 5", "5 ", " NA", "inf", "-Infinity", "1e400", "True", "0x1", "1_0", "1,5", "old", "NAN", "٣"]
)


def written(path: Path, *rows: object) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    return path


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(TEXTS, min_size=3, max_size=3), max_size=6), st.booleans())
def test_every_text_is_read_as_python_reads_it(tmp_path, rows, encoded):
    """As texts, and as categories."""
    path = written(tmp_path / "x.csv", ("a", "b", "c"), *rows)

    found = csv_files.read(path, DataError, "", categories=None if encoded else ())

    assert found.astype(object).to_numpy().tolist() == rows
    assert set(map(str, found.dtypes)) == {"category" if encoded else "object"}
    assert [row[:1] for row in rows] == csv_files.read(path, DataError, "", "a").to_numpy().tolist()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(NUMBERS, st.one_of(NUMBERS, ODD)), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_numbers_from_the_parser_are_those_of_their_texts(tmp_path, monkeypatch, rows, size):
    """To the bit; and what is no number is refused in the same words."""
    path = written(tmp_path / "x.csv", ("clean", "spoiled", "label"), *((*row, "") for row in rows))
    texts = csv_files.read(path, DataError, "")
    monkeypatch.setattr(csv_files, "ROWS", size)

    typed = csv_files.read(path, DataError, "", numbers=("clean", "spoiled"))

    assert typed["clean"].dtype == np.float64 and typed["label"].dtype == object
    for name in ("clean", "spoiled"):
        try:
            wanted = table_features._numbers(texts[name], path)
        except DataError as error:
            with pytest.raises(DataError, match=re.escape(str(error))):
                table_features._numbers(typed[name], path)
            wanted = table_features._numbers(texts[name], path, lenient=True)
        found = table_features._numbers(typed[name], path, lenient=True)
        assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\n1,2\n3\n", r"line 3 has 1 fields and the header 2 \(a, b\)"),
        (b"a,b\n1,2\n3,4,5\n", r"line 3 has 3 fields and the header 2 \(a, b\)"),
        (b"a,b\n1,2,3\n4,5,6\n", r"line 2 has 3 fields and the header 2 \(a, b\)"),
        (b'a,b\n"1\n",2\n3\n', r"line 4 has 1 fields and the header 2 \(a, b\)"),
        (b'a,b\n"1"x,2\n', "',' expected after '\"'"),
        (b'a,b\n1,"2\n', "unexpected end of data"),
        (b"a,b,a\n1,2,3\n", "its header names a column twice: a, b, a"),
        (b"a,b\n1,\xff\n", "'utf-8' codec can't decode byte 0xff"),
        ("a,b\n1,2\n".encode("utf-16"), "'utf-8' codec can't decode byte 0xff in position 0"),
        (b"a,b\n1,\0\n", "line 2 holds a NUL"),
        (b"\n\n", "it is empty"),
    ],
)
def test_a_broken_table_is_refused_by_its_line(tmp_path, content, said):
    (tmp_path / "x.csv").write_bytes(content)

    with pytest.raises(DataError, match=rf"x\.csv could not be read as a CSV: {said}"):
        csv_files.read(tmp_path / "x.csv", DataError, "", numbers=("a",), categories=("b",))


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4", [["1", "2"], ["3", "4"]]),
        (b"\n\na,b\n1,\n\n,2\n\n", [["1", ""], ["", "2"]]),
        (b'a,b\n5" pipe,2\n', [['5" pipe', "2"]]),
        (b"a\n 1\n \n2\n", [[" 1"], [" "], ["2"]]),
        (b"a,b\n", []),
        (b"a,\n1,2\n", [["1", "2"]]),
    ],
)
def test_a_table_as_other_programs_write_it_is_read(tmp_path, content, rows):
    """With a byte order mark, blank lines, a quote within a text, one column, no rows, no name."""
    (tmp_path / "x.csv").write_bytes(content)

    assert csv_files.read(tmp_path / "x.csv", DataError, "").to_numpy().tolist() == rows
