"""A table is read alike whatever separates its fields."""

import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data import csv_files, samples
from pipeline.errors import DataError, SubmissionError
from pipeline.infer import submission

HEADER = ["id", "length, in mm", "note"]
ROWS = [["1", "3.5", "short; red"], ["2", "NA", 'a "b"\tc'], ["3", "12", "x|y"]]


def written(path, rows, between):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=between).writerows(rows)
    return path


def read(path, **options):
    return csv_files.read(path, DataError, "", **options)


@pytest.mark.parametrize("between", csv_files.SEPARATORS)
def test_fields_are_read_alike_whatever_separates_them(tmp_path, between):
    table = read(written(tmp_path / "train.csv", [HEADER, *ROWS], between))

    assert list(table) == HEADER
    assert table.to_numpy().tolist() == ROWS


def test_a_comma_within_a_field_stays(tmp_path):
    """It may be between two labels, or stand for thousands: inspect names such a column."""
    rows = [["id", "sold"], ["1", "1,200"], ["2", "3,5"]]

    for between in csv_files.SEPARATORS:
        path = written(tmp_path / "train.csv", rows, between)
        assert read(path)["sold"].tolist() == ["1,200", "3,5"]


@settings(max_examples=40)
@given(names=st.lists(st.text("ab;,| \t", min_size=1, max_size=5), min_size=2, unique=True))
def test_names_with_separators_in_quotes_do_not_count(tmp_path_factory, names):
    names = [name.strip() or f"n{place}" for place, name in enumerate(names)]
    path = tmp_path_factory.mktemp("table") / "train.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerow(names)

    assert csv_files.separator(path) == ","


def test_a_submission_has_the_separator_of_the_sample(tmp_path):
    sample = written(tmp_path / "sample.csv", [["id", "label"], ["1", "0"], ["2", "0"]], ";")

    columns = {"label": ["4", "3"]}
    submission.write(tmp_path / "s.csv", samples.read(sample), ["2", "1"], columns)

    assert (tmp_path / "s.csv").read_text() == "id;label\n1;3\n2;4\n"
    other = written(tmp_path / "other.csv", [["id", "label"], ["1", "3"], ["2", "4"]], ",")
    with pytest.raises(SubmissionError, match="',' separates fields; expected ';'"):
        submission.check(other, sample)
