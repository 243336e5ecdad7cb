"""A submission fits the metric, and the sample's ids, order, columns and kinds of values, or it is
refused.
"""

import csv
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.data import samples
from pipeline.data.labels import Target
from pipeline.errors import SubmissionError
from pipeline.evaluate import metrics
from pipeline.infer import submission
from pipeline.infer.submission import Form
from tests.shipped import shipped
from workbench.rehearse import scoring

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


def test_many_equal_predictions_are_refused_without_constant(tmp_path):
    sample = labelled(tmp_path / "sample.csv", many(lambda n: 0.5))
    path = labelled(tmp_path / "s.csv", many(lambda n: 0.25))

    with pytest.raises(SubmissionError, match=r"all 30 rows .*'0\.25'.*--constant"):
        submission.check(path, sample)
    assert submission.check(path, sample, constant=True) == 30


def test_without_a_sample_a_submission_is_checked_by_itself(tmp_path):
    """There is no file with the ids of the competition."""
    good = labelled(tmp_path / "good.csv", many(lambda n: n / 30))
    wrong = written(tmp_path / "s.csv", [("id", "p"), ("a", "0.5"), ("a", "1.5"), ("b", "NaN")])

    assert submission.check(good, None, within=(0, 1)) == 30
    with pytest.raises(SubmissionError, match=r"(?s)repeated.*not filled in.*not from 0 to 1"):
        submission.check(wrong, None, within=(0, 1))


def test_all_problems_are_named_at_once(tmp_path, sample):
    """Numbers out of range are a problem only with a range."""
    path = labelled(tmp_path / "s.csv", {"001": "x", "new": ""})
    with path.open("a") as file:
        file.write("001,1\n")
    halves = labelled(tmp_path / "sample.csv", many(lambda n: 0.5))
    out = labelled(tmp_path / "out.csv", many(lambda n: "nan" if n == 29 else n / 20))

    with pytest.raises(SubmissionError, match=r"(?s)missing.*unknown.*repeated.*whole numbers"):
        submission.check(path, sample)
    with pytest.raises(SubmissionError, match=r"(?s)1 values .* not finite.*8 values .*'1\.05'"):
        submission.check(out, halves, within=(0, 1))


def test_predictions_are_written_in_the_sample_s_order_or_the_older_file_stays(tmp_path):
    """From any order, with any ids, and without leaving other files."""
    ids = [*IDS, "a\nb", 'a"b', " a", "a ", "'", "\u2028", "\x0b"]
    sample = labelled(tmp_path / "sample.csv", dict.fromkeys(ids, "0"))
    path = tmp_path / "submission.csv"
    values = [str(number) for number in range(len(ids))]

    asked = samples.read(sample)
    assert submission.write(path, asked, ids[::-1], {"label": values[::-1]}) == len(ids)
    with pytest.raises(SubmissionError):
        submission.write(path, asked, ids[1:], {"label": values[1:]})

    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [
            ["id", "label"],
            *map(list, zip(ids, values, strict=True)),
        ]
    assert submission.check(path, sample) == len(ids)
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
        submission.check(path, sample)

    assert str(path) in str(caught.value) and caught.value.exit_code == 1


@pytest.mark.parametrize(
    "options", [{"encoding": "utf-8-sig"}, {"lineterminator": "\n"}, {"quoting": csv.QUOTE_ALL}]
)
def test_a_file_that_differs_only_in_spelling_is_accepted(tmp_path, sample, options):
    """A BOM, line ends and quotes do not matter."""
    path = labelled(tmp_path / "s.csv", dict.fromkeys(IDS, "7"), **options)

    assert submission.check(path, sample) == 5


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
    """Kaggle's scorer reads fewer numbers than Python, and some texts as missing values, unless the
    sample contains them.
    """
    sample = labelled(tmp_path / "sample.csv", {"a": placeholder})
    refused = []
    for value in [*good, *bad]:
        try:
            submission.check(labelled(tmp_path / "s.csv", {"a": value}), sample)
        except SubmissionError:
            refused.append(value)

    assert refused == bad


def test_what_is_missing_is_named(tmp_path, sample):
    with pytest.raises(SubmissionError, match=r"nothing\.csv is missing"):
        submission.check(tmp_path / "nothing.csv", sample)


TWO, THREE = Target("classes", ("no", "yes")), Target("classes", ("a", "b", "c"))
TAGS = Target("multilabel", ("a", "b", "c"))
BARS = replace(TAGS, separator="|")
PRICE = Target("regression", ("price",), (0.0,), (1.0,))
POINT = Target("regression", ("x", "y"), (0.0, 0.0), (1.0, 1.0))
FATE = Target("classes", ("dead", "recovered"))
GRADE = Target("ordinal", ("0", "1", "2"))
DIGITS = shipped("digits")


def form(target: Target, metric: str, sample: Path, *more) -> Form:
    """Return the form of a submission for a metric of that name."""
    return Form(
        target, metrics.find(metric, target.kind), samples.read(sample, SubmissionError), *more
    )


def two_rows(folder: Path, header: str, row: str) -> Path:
    """Write a sample of two ids, "7" and "05", in this order."""
    path = folder / "sample_submission.csv"
    rows = "".join(",".join(filter(None, (name, row))) + "\n" for name in ("7", "05"))
    path.write_text(f"{header}\n{rows}")
    return path


OF_THREE = [[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]
HALVES, QUARTERS = [[0.75, 0.25], [0.5, 0.5]], [[0.5, 0.25, 0.75], [0, 1, 0]]
SURE = [[0.9, 0.1, 0.8], [0, 1, 0]]


@pytest.mark.parametrize(
    ("target", "metric", "header", "row", "values", "seven", "five"),
    [
        (THREE, "accuracy", "id,label", "a", OF_THREE, "b", "a"),
        (TWO, "auc", "id,target", "0", HALVES, "0.25", "0.5"),
        (THREE, "map@2", "id,label", "a b", OF_THREE, "b c", "a c"),
        (THREE, "log_loss", "id,c,a,b", "0,0,0", QUARTERS, "0.75,0.5,0.25", "0,0,1"),
        (GRADE, "qwk", "id,grade", "0", [[0.1, 0.2, 0.7], [1, 0, 0]], "2", "0"),
        (TAGS, "f1", "id,tags", "a b", SURE, "a c", "b"),
        (TAGS, "f1", "id,tags", "a b", [[0.1, 0.4, 0.2], [0.5] * 3], "b", "a"),  # no empty text
        (BARS, "f1", "id,tags", "a|b", SURE, "a|c", "b"),
        (BARS, "f1", "id,tags", '"a, b"', SURE, '"a, c"', "b"),
        (TAGS, "f1", "id,a,b,c", "0,0,0", SURE, "1,0,1", "0,1,0"),
        (PRICE, "rmse", "Id,SalePrice", "0", [[1e6], [-2.5]], "1000000", "-2.5"),
        (POINT, "mae", "id,y,x", "0,0", [[1, 2], [3, 4]], "2,1", "4,3"),
        # By rounding, the mean of probabilities may be the next float beyond 1.
        (TWO, "log_loss", "id,no,yes", "0,0", [[1 + 1e-7, -1e-7], [0, 1]], "1,0", "0,1"),
    ],
)
def test_each_kind_of_submission_has_its_form(
    tmp_path, target, metric, header, row, values, seven, five
):
    """In the sample's order of ids and columns, for any order of predictions."""
    path, out = two_rows(tmp_path, header, row), tmp_path / "out.csv"

    rows = form(target, metric, path).write(out, ["05", "7"], np.array(values[::-1]))

    assert rows == 2
    assert out.read_text().splitlines() == [header, f"7,{seven}", f"05,{five}"]
    within = None if metric in ("accuracy", "qwk") else submission.ANY_NUMBER
    assert submission.check(out, path, within=within) == 2


@pytest.mark.parametrize(
    ("positive", "column", "place"),
    [("dead", "has_died", 0), (None, "has_died", 1), (None, "dead", 0), ("recovered", "dead", 1)],
)
def test_a_column_of_probabilities_is_about_the_label_that_the_config_names(
    tmp_path, positive, column, place
):
    """And a rehearsal scores it as such."""
    path = two_rows(tmp_path, f"id,{column}", "0.5")
    values = np.array([[0.75, 0.25], [0.5, 0.5]], np.float32)

    texts = form(FATE, "auc", path, positive).texts(values)

    assert [float(text) for text in texts[column]] == list(values[:, place])
    found = scoring.predictions(FATE, metrics.find("auc", "classes"), texts, positive)
    assert np.array_equal(found, values)


def test_an_unknown_positive_label_is_refused(tmp_path):
    path = two_rows(tmp_path, "id,has_died", "0.5")
    with pytest.raises(SubmissionError, match=r"'ded' is not a label.* one of 'dead', 'recovered'"):
        form(FATE, "auc", path, "ded")


@pytest.mark.parametrize(
    ("target", "metric", "header", "said"),
    [
        (THREE, "log_loss", "id,p", "columns p .* single column or one for each of a, b, c"),
        (THREE, "accuracy", "id,a,b", "target='classes' and metric='accuracy'"),
        (TAGS, "auc", "id,tags", "columns tags"),
        (POINT, "mae", "id,y,other", "for each of x, y"),  # by position they would be exchanged
        (THREE, "accuracy", "id", "must have a single column"),
    ],
)
def test_a_sample_of_another_form_is_refused(tmp_path, target, metric, header, said):
    """Before anything is predicted, with the columns and the edit."""
    path = two_rows(tmp_path, header, ",".join("0" * header.count(",")))

    with pytest.raises(SubmissionError, match=f"{said}(.|\n)*Correct target, metric"):
        form(target, metric, path)


@pytest.mark.parametrize(
    ("values", "bounds"),
    [
        ({}, None),
        ({"metric": "log_loss"}, (0, 1)),
        ({"target": "multilabel"}, (0, 1)),
        ({"target": "regression", "num_classes": 0, "metric": "mae"}, submission.ANY_NUMBER),
    ],
)
def test_a_placeholder_of_0_stands_for_any_number_where_scores_are_asked_for(values, bounds):
    """Zeros in a sample do not turn probabilities or a regression into integers."""
    config = replace(DIGITS, **values)

    assert submission.limits(config) == bounds


@pytest.mark.parametrize(
    ("target", "metric", "header"),
    [(TWO, "accuracy", "id,x"), (TAGS, "f1", "id,x"), (POINT, "rmse", "id,x,y")],
)
def test_predictions_that_are_not_finite_are_refused(tmp_path, target, metric, header):
    """`argmax` would turn NaNs into a label. The older file stays."""
    path, out = two_rows(tmp_path, header, ",".join("0" * header.count(","))), tmp_path / "out.csv"
    out.write_text("older")
    values = np.linspace(0.1, 0.9, 2 * len(target.names), dtype=np.float32).reshape(2, -1)

    for one in (np.nan, np.inf):
        bad = np.where(values == values.max(), one, values)
        with pytest.raises(
            SubmissionError, match=r"(?s)out\.csv would contain 1 .* inference again"
        ):
            form(target, metric, path).write(out, ["7", "05"], bad)

    assert sorted(file.name for file in tmp_path.iterdir()) == ["out.csv", path.name]
    assert out.read_text() == "older"


MISSING = Target("classes", ("NA", "yes"))


@pytest.mark.parametrize(
    ("target", "metric", "header", "row", "wrong"),
    [
        (MISSING, "accuracy", "id,label", "yes", "NA"),
        (MISSING, "accuracy", "id,label", "NA", ""),
        (Target("multilabel", ("a", "None")), "f1", "id,tags", "a", "None"),
        # Blanks stand between the labels of a ranking.
        (Target("classes", ("big cat", "elk")), "map@2", "id,label", "elk elk", "big cat"),
        (MISSING, "auc", "id,label", "0.5", ""),
        (PRICE, "rmse", "id,price", "0", ""),
    ],
)
def test_labels_that_cannot_be_submitted_are_reported_before_training(
    target, metric, header, row, wrong, tmp_path
):
    """A text for missing values is allowed if the sample contains it, or if the submission has
    numbers.
    """
    made = form(target, metric, two_rows(tmp_path, header, row))

    with pytest.raises(SubmissionError, match=f"'{wrong}'") if wrong else nullcontext():
        made.check_labels()
