"""A table is read alike whatever separates its fields; a decimal comma is read as a point."""

import csv

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data import csv_files
from pipeline.errors import DataError
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


def test_a_comma_in_a_number_of_a_file_with_semicolons_is_its_point(tmp_path):
    rows = [["id", "price", "labels"], ["1", "3,5", "1,2"], ["2", "-,25", "3"]]
    rows += [["3", "7", "1,2,3"], ["4", "NA", "2"]]
    path = written(tmp_path / "train.csv", rows, ";")

    texts, numbers = read(path), read(path, numbers=["price"])

    assert texts["price"].tolist() == ["3.5", "-.25", "7", "NA"]
    assert texts["labels"].tolist() == ["1,2", "3", "1,2,3", "2"]  # a list, as its third row shows
    found = csv_files.as_numbers(numbers["price"])
    assert found[:3].tolist() == [3.5, -0.25, 7]
    assert found.isna()[3]


def test_a_comma_in_a_file_with_commas_is_no_point(tmp_path):
    path = written(tmp_path / "train.csv", [["id", "sold"], ["1", "1,200"], ["2", "3,5"]], ",")

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

    submission.write(tmp_path / "s.csv", sample, ["2", "1"], {"label": ["4", "3"]})

    assert (tmp_path / "s.csv").read_text() == "id;label\n1;3\n2;4\n"
