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
    return labelled(tmp_path / "sample_submission.csv", dict.fromkeys(IDS, "0"))


def written(path: Path, rows: list[tuple[str, ...]], **options) -> Path:
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        csv.writer(file, **options).writerows(rows)
    return path


def labelled(path: Path, values: dict[str, str], **options) -> Path:
    """Write a value for each id."""
    return written(path, [("id", "label"), *values.items()], **options)


def many(value) -> dict[str, str]:
    return {f"r{n}": str(value(n)) for n in range(30)}


def test_many_rows_that_are_all_alike_are_refused_unless_they_are_meant_so(tmp_path):
    """Of a few that can be by chance."""
    sample = labelled(tmp_path / "sample.csv", many(lambda n: 0.5))
    path = labelled(tmp_path / "s.csv", many(lambda n: 0.25))

    with pytest.raises(SubmissionError, match=r"all 30 rows .*'0\.25'.*--constant"):
        submission_csv.check(path, sample)
    assert submission_csv.check(path, sample, constant=True) == 30


def test_all_problems_are_named_at_once(tmp_path, sample):
    """One correction, not one submission a problem. Out of range is a number only where there is
    a range.
    """
    path = labelled(tmp_path / "s.csv", {"001": "x", "new": ""})
    with path.open("a") as file:
        file.write("001,1\n")
    halves = labelled(tmp_path / "sample.csv", many(lambda n: 0.5))
    out = labelled(tmp_path / "out.csv", many(lambda n: "nan" if n == 29 else n / 20))

    with pytest.raises(SubmissionError, match=r"(?s)missing.*unknown.*repeated.*whole numbers"):
        submission_csv.check(path, sample)
    with pytest.raises(SubmissionError, match=r"(?s)1 values .* not finite.*8 values .*'1\.05'"):
        submission_csv.check(out, halves, within=(0, 1))


def test_predictions_are_written_in_the_sample_s_order_or_the_older_file_stays(tmp_path):
    """Whatever order they come in and whatever their ids hold; and no other file is beside it."""
    ids = [*IDS, "a\rb", "\r", "a\r\nb", "a\nb", 'a"b', " a", "a ", "'", "\u2028", "\x0b"]
    sample = labelled(tmp_path / "sample.csv", dict.fromkeys(ids, "0"))
    path = tmp_path / "submission.csv"
    values = [str(number) for number in range(len(ids))]

    assert submission_csv.write(path, sample, ids[::-1], values[::-1]) == len(ids)
    with pytest.raises(SubmissionError):
        submission_csv.write(path, sample, ids[1:], values[1:])

    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["id", "label"],
            *map(list, zip(ids, values, strict=True)),
        ]
    assert submission_csv.check(path, sample) == len(ids)
    assert {one.name for one in tmp_path.iterdir()} == {"sample.csv", path.name}


MUTATIONS = {
    "rows are in another order": lambda rows: [rows[0], *rows[:0:-1]],
    "a column is missing": lambda rows: [row[:1] for row in rows],
    "columns are exchanged": lambda rows: [row[::-1] for row in rows],
    "every row has a field too many": lambda rows: [rows[0], *(("junk", *row) for row in rows[1:])],
    "a row ends with a comma": lambda rows: [*rows[:-1], (*rows[-1], "")],
    "it has only a header": lambda rows: rows[:1],
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_file_that_kaggle_would_refuse_is_refused_here(tmp_path, sample, mutation):
    """Before a submission is spent."""
    rows = [("id", "label"), *((name, "1") for name in IDS)]
    path = written(tmp_path / "submission.csv", MUTATIONS[mutation](rows))

    with pytest.raises(SubmissionError) as caught:
        submission_csv.check(path, sample)

    assert str(path) in str(caught.value) and caught.value.exit_code == 1


@settings(max_examples=40)
@given(data=st.data())
def test_whatever_is_accepted_equals_the_sample_in_ids_and_order(tmp_path_factory, data):
    """No mixture of changes goes through."""
    folder = tmp_path_factory.mktemp("s")
    sample = labelled(folder / "sample.csv", dict.fromkeys(IDS, "0"))
    some = st.lists(st.sampled_from([*IDS, "1", "x", ""]), max_size=6)
    names = data.draw(st.just([*IDS]) | st.permutations(IDS) | some)
    spelled = st.just("1") | st.sampled_from(["2.0", "", "a", "-3", "nan"])
    values = [data.draw(spelled) for _ in names]
    path = written(folder / "s.csv", [("id", "label"), *zip(names, values, strict=True)])

    try:
        submission_csv.check(path, sample)
        accepted = True
    except SubmissionError:
        accepted = False

    assert accepted == (tuple(names) == IDS and set(values) <= {"1", "-3"})


@pytest.mark.parametrize(
    "options", [{"encoding": "utf-8-sig"}, {"lineterminator": "\n"}, {"quoting": csv.QUOTE_ALL}]
)
def test_a_file_that_differs_only_in_spelling_is_accepted(tmp_path, sample, options):
    """A BOM, line ends and quotes mean nothing."""
    path = labelled(tmp_path / "s.csv", dict.fromkeys(IDS, "7"), **options)

    assert submission_csv.check(path, sample) == 5


NO_NUMBERS = ("1_0", "٣", " 1", "nan", "inf", "", "x")  # some of which Python reads as numbers


@pytest.mark.parametrize(
    ("placeholder", "good", "bad"),
    [
        ("0", ["7", "-1"], ["1.5", *NO_NUMBERS]),
        ("0.5", ["1", "-0.5", "+.5", "1.", "1e-3", "2E+05"], ["1e999", "0x1", ".", *NO_NUMBERS]),
        ("dog", ["lynx", "nano"], ["nan", "NULL", "None", "", "  ", "n/a", "<NA>"]),
        ("None", ["None", "cat"], ["nan", ""]),
    ],
)
def test_a_value_is_of_the_sample_s_own_kind(tmp_path, placeholder, good, bad):
    """What scores is another program: it reads fewer numbers than Python, and with pandas some
    texts as missing ones, unless the sample has them itself.
    """
    sample = labelled(tmp_path / "sample.csv", {"a": placeholder})
    refused = []
    for value in [*good, *bad]:
        try:
            submission_csv.check(labelled(tmp_path / "s.csv", {"a": value}), sample)
        except SubmissionError:
            refused.append(value)

    assert refused == bad


def test_what_is_missing_or_has_no_rows_is_named(tmp_path, sample):
    """An empty submission would be equal to such a sample."""
    empty = labelled(tmp_path / "empty.csv", {})

    with pytest.raises(DataError, match="no rows"):
        submission_csv.check(empty, empty)
    with pytest.raises(DataError, match=r"nothing\.csv is missing"):
        submission_csv.check(tmp_path / "nothing.csv", sample)


@pytest.mark.parametrize("name", ["submission.csv", "sample_submission.csv"])
def test_a_file_that_may_not_be_read_is_named(tmp_path, sample, unreadable, name):
    """Neither missing nor wrong."""
    submission_csv.write(tmp_path / "submission.csv", sample, IDS, ["1"] * 5)

    with unreadable(tmp_path / name), pytest.raises(PipelineError, match=rf"{name}: Permission"):
        submission_csv.check(tmp_path / "submission.csv", sample)
