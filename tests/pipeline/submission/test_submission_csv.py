"""A submission is equal to the sample in ids, order, columns and kinds, or it is refused, and
nothing is lost.
"""

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import DataError, PipelineError, SubmissionError
from pipeline.submission import submission_csv

IDS = ("001", "NA", "c,d", "ü", "1e5")


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Return a sample with awkward ids and whole-number placeholders."""
    return written(
        tmp_path / "sample_submission.csv", [("id", "label"), *((name, "0") for name in IDS)]
    )


def written(path: Path, rows: list[tuple[str, ...]], **options: str) -> Path:
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        csv.writer(file, **options).writerows(rows)
    return path


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Return a sample of thirty rows that asks for a probability."""
    return written(
        tmp_path / "sample_submission.csv", [("id", "p"), *((f"r{n}", "0.5") for n in range(30))]
    )


def test_many_rows_that_are_all_alike_are_refused_unless_they_are_meant_so(tmp_path, many):
    """Of a few that can be by chance."""
    path = written(
        tmp_path / "submission.csv", [("id", "p"), *((f"r{n}", "0.25") for n in range(30))]
    )

    with pytest.raises(
        SubmissionError, match=r"all 30 rows have the same prediction, p '0\.25'.*--constant"
    ):
        submission_csv.check(path, many)
    assert submission_csv.check(path, many, constant=True) == 30

    few = written(tmp_path / "few.csv", [("id", "p"), *((f"r{n}", "0.5") for n in range(5))])
    assert (
        submission_csv.check(
            written(tmp_path / "s.csv", [("id", "p"), *((f"r{n}", "1") for n in range(5))]), few
        )
        == 5
    )


def test_a_number_out_of_range_is_refused_where_there_is_one(tmp_path, many):
    """As a probability above 1; with every other problem at once."""
    rows = [("id", "p"), *((f"r{n}", str(n / 20)) for n in range(29)), ("r29", "nan")]
    path = written(tmp_path / "submission.csv", rows)

    with pytest.raises(
        SubmissionError,
        match=r"(?s)1 values of 'p' are not finite.*"
        r"8 values of 'p' are not from 0 to 1, for example '1\.05'",
    ):
        submission_csv.check(path, many, within=(0, 1))


def test_predictions_are_written_in_the_sample_s_order(tmp_path, sample):
    """Whatever order they come in."""
    rows = submission_csv.write(
        tmp_path / "submission.csv", sample, IDS[::-1], ["5", "4", "3", "2", "1"]
    )

    with (tmp_path / "submission.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.reader(file))
    assert rows == 5
    assert found == [["id", "label"], *([name, str(n)] for n, name in enumerate(IDS, 1))]
    assert submission_csv.check(tmp_path / "submission.csv", sample) == 5


MUTATIONS = {
    "a row is missing": lambda rows: rows[:-1],
    "a row is twice": lambda rows: [*rows, rows[1]],
    "an id is another": lambda rows: [*rows[:-1], ("zzz", "1")],
    "an id lost its zeros": lambda rows: [rows[0], ("1", "1"), *rows[2:]],
    "rows are in another order": lambda rows: [rows[0], *rows[:0:-1]],
    "a column is missing": lambda rows: [row[:1] for row in rows],
    "a column is too many": lambda rows: [(*row, "x") for row in rows],
    "columns are exchanged": lambda rows: [row[::-1] for row in rows],
    "a column is renamed": lambda rows: [("id", "target"), *rows[1:]],
    "a value is empty": lambda rows: [*rows[:-1], (rows[-1][0], "")],
    "a value is NaN": lambda rows: [*rows[:-1], (rows[-1][0], "nan")],
    "a value is infinite": lambda rows: [*rows[:-1], (rows[-1][0], "inf")],
    "a value is a fraction": lambda rows: [*rows[:-1], (rows[-1][0], "1.5")],
    "a value is a word": lambda rows: [*rows[:-1], (rows[-1][0], "three")],
    "every row has a field too many": lambda rows: [rows[0], *(("junk", *row) for row in rows[1:])],
    "a row ends with a comma": lambda rows: [*rows[:-1], (*rows[-1], "")],
    "a value has an underscore": lambda rows: [*rows[:-1], (rows[-1][0], "1_0")],
    "a value is of another script": lambda rows: [*rows[:-1], (rows[-1][0], "٣")],
    "a value has a blank": lambda rows: [*rows[:-1], (rows[-1][0], " 1")],
    "it has only a header": lambda rows: rows[:1],
    "it is empty": lambda rows: [],
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_file_that_kaggle_would_refuse_is_refused_here(tmp_path, sample, mutation):
    """Before a submission is spent."""
    rows = [("id", "label"), *((name, "1") for name in IDS)]
    path = written(tmp_path / "submission.csv", MUTATIONS[mutation](rows))

    with pytest.raises(SubmissionError) as caught:
        submission_csv.check(path, sample)

    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    "options", [{"encoding": "utf-8-sig"}, {"lineterminator": "\n"}, {"quoting": "ALL"}]
)
def test_a_file_that_differs_only_in_spelling_is_accepted(tmp_path, sample, options):
    """A BOM, line ends and quotes mean nothing."""
    chosen = {name: csv.QUOTE_ALL if value == "ALL" else value for name, value in options.items()}
    path = written(tmp_path / "s.csv", [("id", "label"), *((name, "7") for name in IDS)], **chosen)

    assert submission_csv.check(path, sample) == 5


def test_all_problems_are_named_at_once(tmp_path, sample):
    """One correction, not one submission a problem."""
    path = written(tmp_path / "s.csv", [("id", "label"), ("001", "x"), ("001", "1"), ("new", "")])

    with pytest.raises(SubmissionError) as caught:
        submission_csv.check(path, sample)

    for word in ("missing", "unknown", "repeated", "whole numbers"):
        assert word in str(caught.value)


def test_a_refused_write_leaves_the_older_file_as_it_was(tmp_path, sample):
    """And no other file beside it."""
    path = tmp_path / "submission.csv"
    submission_csv.write(path, sample, IDS, ["1"] * 5)
    before = path.read_bytes()

    with pytest.raises(SubmissionError):
        submission_csv.write(path, sample, IDS[1:], ["2"] * 4)

    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["sample_submission.csv", "submission.csv"]


def test_a_sample_with_text_takes_text(tmp_path):
    """The kind is the sample's own."""
    sample = written(tmp_path / "sample.csv", [("image", "breed"), ("a", "dog"), ("b", "cat")])

    assert submission_csv.write(tmp_path / "s.csv", sample, ["b", "a"], ["lynx", "wolf"]) == 2


@pytest.mark.parametrize("text", ["nan", "NaN", "NULL", "None", "", "  ", "NA", "n/a", "<NA>"])
def test_a_text_that_is_read_as_missing_is_refused(tmp_path, text):
    """Kaggle's metrics read with pandas, and then it is no text."""
    sample = written(tmp_path / "sample.csv", [("image", "breed"), ("a", "dog")])
    written(tmp_path / "s.csv", [("image", "breed"), ("a", text)])

    with pytest.raises(SubmissionError, match="not filled in"):
        submission_csv.check(tmp_path / "s.csv", sample)


def test_a_text_that_the_sample_has_itself_is_accepted(tmp_path):
    """Its metric keeps it."""
    sample = written(tmp_path / "sample.csv", [("image", "kind"), ("a", "None"), ("b", "cat")])
    written(tmp_path / "s.csv", [("image", "kind"), ("a", "cat"), ("b", "None")])

    assert submission_csv.check(tmp_path / "s.csv", sample) == 2


@pytest.mark.parametrize("text", ["1_0.5", "٣.٥", "1e999", "0x1", " 0.5", ".", "1e", "infinity"])
def test_a_text_that_only_python_reads_as_a_number_is_refused(tmp_path, text):
    """What scores is another program."""
    sample = written(tmp_path / "sample.csv", [("id", "p"), ("a", "0.5")])
    written(tmp_path / "s.csv", [("id", "p"), ("a", text)])

    with pytest.raises(SubmissionError, match="finite"):
        submission_csv.check(tmp_path / "s.csv", sample)


@pytest.mark.parametrize("text", ["1", "-0.5", "+.5", "1.", "1e-3", "2E+05"])
def test_every_way_to_write_a_number_is_accepted(tmp_path, text):
    """As pandas does."""
    sample = written(tmp_path / "sample.csv", [("id", "p"), ("a", "0.5")])
    written(tmp_path / "s.csv", [("id", "p"), ("a", text)])

    assert submission_csv.check(tmp_path / "s.csv", sample) == 1


def test_a_sample_without_rows_is_no_sample(tmp_path):
    """An empty submission would be equal to it."""
    sample = written(tmp_path / "sample.csv", [("id", "label")])
    written(tmp_path / "s.csv", [("id", "label")])

    with pytest.raises(DataError, match="no rows"):
        submission_csv.check(tmp_path / "s.csv", sample)


@pytest.mark.parametrize("name", ["submission.csv", "sample_submission.csv"])
def test_a_file_that_may_not_be_read_is_named(tmp_path, sample, unreadable, name):
    """Neither missing nor wrong."""
    submission_csv.write(tmp_path / "submission.csv", sample, IDS, ["1"] * 5)

    with (
        unreadable(tmp_path / name),
        pytest.raises(PipelineError, match=rf"{name}: Permission denied"),
    ):
        submission_csv.check(tmp_path / "submission.csv", sample)


def test_a_sample_with_fractions_takes_finite_numbers(tmp_path):
    """NaN and infinity are not scored."""
    sample = written(tmp_path / "sample.csv", [("id", "p"), ("a", "0.5")])
    written(tmp_path / "good.csv", [("id", "p"), ("a", "1e-3")])
    written(tmp_path / "bad.csv", [("id", "p"), ("a", "NaN")])

    assert submission_csv.check(tmp_path / "good.csv", sample) == 1
    with pytest.raises(SubmissionError, match="finite"):
        submission_csv.check(tmp_path / "bad.csv", sample)


def test_a_missing_file_is_named(tmp_path, sample):
    """It is not an empty one."""
    with pytest.raises(DataError, match=r"nothing\.csv is missing"):
        submission_csv.check(tmp_path / "nothing.csv", sample)


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_is_accepted_equals_the_sample_in_ids_and_order(tmp_path_factory, data):
    """No mixture of changes goes through."""
    folder = tmp_path_factory.mktemp("s")
    sample = written(folder / "sample.csv", [("id", "label"), *((name, "0") for name in IDS)])
    names = data.draw(st.lists(st.sampled_from([*IDS, "x", ""]), max_size=6))
    values = data.draw(
        st.lists(
            st.sampled_from(["1", "2.0", "", "a", "-3", "nan"]),
            min_size=len(names),
            max_size=len(names),
        )
    )
    path = written(folder / "s.csv", [("id", "label"), *zip(names, values, strict=True)])

    try:
        submission_csv.check(path, sample)
        accepted = True
    except SubmissionError:
        accepted = False

    assert accepted == (tuple(names) == IDS and set(values) <= {"1", "-3"})
