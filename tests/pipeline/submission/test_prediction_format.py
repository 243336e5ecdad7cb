"""A submission says what the metric scores, in the columns of the sample."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config as configs
from pipeline import metrics
from pipeline.data.labels import Target
from pipeline.errors import SubmissionError
from pipeline.rehearsal import scoring
from pipeline.submission import prediction_format, submission_csv
from pipeline.submission.prediction_format import Form

TWO, THREE = Target("classes", ("no", "yes")), Target("classes", ("a", "b", "c"))
TAGS = Target("multilabel", ("a", "b", "c"))
BARS = replace(TAGS, separator="|")
PRICE = Target("regression", ("price",), (0.0,), (1.0,))
POINT = Target("regression", ("x", "y"), (0.0, 0.0), (1.0, 1.0))
GRADE = Target("ordinal", ("0", "1", "2"))
DIGITS = configs.load("digits")


def sample(folder: Path, header: str, row: str) -> Path:
    """Write a sample of two ids, "7" and "05", in this order."""
    path = folder / "sample_submission.csv"
    path.write_text(f"{header}\n7,{row}\n05,{row}\n")
    return path


@pytest.mark.parametrize(
    ("target", "metric", "header", "row", "values", "written"),
    [
        (THREE, "accuracy", "id,label", "a", [[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]], ["05,a", "7,b"]),
        (TWO, "auc", "id,target", "0", [[0.75, 0.25], [0.5, 0.5]], ["05,0.5", "7,0.25"]),
        (TWO, "log_loss", "id,p", "0.5", [[0.75, 0.25], [0.5, 0.5]], ["05,0.5", "7,0.25"]),
        (
            THREE,
            "map@2",
            "id,label",
            "a b",
            [[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]],
            ["05,a c", "7,b c"],
        ),
        (
            THREE,
            "log_loss",
            "id,c,a,b",
            "0,0,0",
            [[0.25, 0.5, 0.25], [1, 0, 0]],
            ["05,0,1,0", "7,0.25,0.25,0.5"],
        ),
        (GRADE, "qwk", "id,grade", "0", [[0.1, 0.2, 0.7], [1, 0, 0]], ["05,0", "7,2"]),
        (TAGS, "f1", "id,tags", "a b", [[0.9, 0.1, 0.8], [0, 1, 0]], ["05,b", "7,a c"]),
        (BARS, "f1", "id,tags", "a|b", [[0.9, 0.1, 0.8], [0, 1, 0]], ["05,b", "7,a|c"]),
        (BARS, "f1", "id,tags", "a", [[0.9, 0.1, 0.8], [0, 1, 0]], ["05,b", "7,a|c"]),
        (BARS, "f1", "id,tags", "b c", [[0.9, 0.1, 0.8], [0, 1, 0]], ["05,b", "7,a c"]),
        (BARS, "f1", "id,tags", '"a, b"', [[0.9, 0.1, 0.8], [0, 1, 0]], ["05,b", '7,"a, c"']),
        (TAGS, "f1", "id,a,b,c", "0,0,0", [[0.9, 0.1, 0.8], [0, 1, 0]], ["05,0,1,0", "7,1,0,1"]),
        (
            TAGS,
            "auc",
            "id,a,b,c",
            "0,0,0",
            [[0.5, 0.25, 0.75], [0, 1, 0]],
            ["05,0,1,0", "7,0.5,0.25,0.75"],
        ),
        (
            TAGS,
            "auc",
            "id,c,a,b",
            "0,0,0",
            [[0.5, 0.25, 0.75], [0, 1, 0]],
            ["05,0,0,1", "7,0.75,0.5,0.25"],
        ),
        (PRICE, "rmse", "Id,SalePrice", "0", [[1e6], [-2.5]], ["05,-2.5", "7,1000000"]),
        (POINT, "mae", "id,first,second", "0,0", [[1, 2], [3, 4]], ["05,3,4", "7,1,2"]),
    ],
)
def test_each_kind_of_submission_has_its_form(
    tmp_path, target, metric, header, row, values, written
):
    """In the sample's order of ids and columns, whatever the order of the predictions."""
    path = sample(tmp_path, header, row)

    rows = Form(target, metric, path).write(
        tmp_path / "out.csv", ["7", "05"], np.array(values, np.float32)
    )

    assert rows == 2
    assert (tmp_path / "out.csv").read_text().splitlines() == [header, *reversed(written)]


@pytest.mark.parametrize(
    ("positive", "column", "place"),
    [
        ("dead", "has_died", 0),
        ("recovered", "has_died", 1),
        (None, "has_died", 1),
        (None, "dead", 0),
        ("recovered", "dead", 1),
    ],
)
def test_a_column_of_probabilities_is_about_the_label_that_the_config_names(
    tmp_path, positive, column, place
):
    """And is scored as such: alone, neither the name of the column nor the alphabet can tell."""
    target, path = Target("classes", ("dead", "recovered")), sample(tmp_path, f"id,{column}", "0.5")
    values = np.array([[0.75, 0.25], [0.5, 0.5]], np.float32)

    texts = Form(target, "auc", path, positive).texts(values)

    assert [float(text) for text in texts[column]] == list(values[:, place])
    found = scoring.predictions(target, metrics.find("auc", "classes"), texts, positive)
    assert np.array_equal(found, values)


def test_a_positive_label_that_is_none_is_refused(tmp_path):
    path = sample(tmp_path, "id,has_died", "0.5")
    with pytest.raises(SubmissionError, match=r"'ded' is no label.* one of 'dead', 'recovered'"):
        Form(Target("classes", ("dead", "recovered")), "auc", path, "ded")


@given(
    st.lists(st.lists(st.floats(0, 1, width=32), min_size=3, max_size=3), min_size=2, max_size=2)
)
def test_no_row_of_several_labels_is_empty(tmp_path_factory, values):
    """Where none is above 1/2, as in the mean prediction, the likeliest stands alone: Kaggle takes
    no empty text.
    """
    folder = tmp_path_factory.mktemp("tags")
    path = sample(folder, "id,tags", "a b")

    Form(TAGS, "f1", path).write(folder / "out.csv", ["7", "05"], np.array(values, np.float32))

    assert submission_csv.check(folder / "out.csv", path) == 2


@pytest.mark.parametrize(
    ("target", "metric", "header", "said"),
    [
        (
            THREE,
            "log_loss",
            "id,p",
            "columns p beside the id; expected one, or one for each of a, b, c",
        ),
        (THREE, "log_loss", "id,a,b,d", "a, b, d"),
        (THREE, "accuracy", "id,a,b", "target='classes', metric='accuracy'"),
        (TAGS, "auc", "id,tags", "columns tags"),
        (POINT, "mae", "id,x", "columns x"),
        (THREE, "accuracy", "id", "expected one"),
    ],
)
def test_a_sample_of_another_form_is_refused(tmp_path, target, metric, header, said):
    """Before anything is predicted, with the columns and the edit."""
    path = tmp_path / "sample_submission.csv"
    path.write_text(f"{header}\n1{',0' * header.count(',')}\n")

    with pytest.raises(SubmissionError, match=said) as caught:
        Form(target, metric, path)

    assert "Correct target, metric or label_column" in str(caught.value)


def test_a_prediction_that_is_not_finite_is_not_written(tmp_path):
    """And no file is left."""
    path = sample(tmp_path, "id,price", "0")

    with pytest.raises(SubmissionError, match="1 of them not finite"):
        Form(PRICE, "rmse", path).write(
            tmp_path / "out.csv", ["7", "05"], np.array([[1], [np.nan]], np.float32)
        )

    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ({}, False),
        ({"metric": "log_loss"}, True),
        ({"target": "ordinal"}, False),
        ({"target": "multilabel"}, True),
    ],
)
def test_a_placeholder_of_0_stands_for_any_number_where_scores_are_asked_for(values, numbers):
    """A sample full of zeros does not make probabilities whole numbers."""
    assert prediction_format.takes_any_number(replace(DIGITS, **values)) == numbers


def test_a_regression_is_of_numbers():
    """Whatever its metric."""
    assert prediction_format.takes_any_number(
        replace(DIGITS, target="regression", num_classes=0, metric="mae")
    )


def test_a_probability_is_that_of_the_class_which_its_column_is_called_by(tmp_path):
    """Else an AUC would be its own opposite."""
    path = sample(tmp_path, "id,no", "0.5")

    assert Form(TWO, "auc", path).texts(np.array([[0.75, 0.25]]))["no"] == ["0.75"]


def test_numbers_whose_columns_are_called_partly_like_the_targets_are_refused(tmp_path):
    """By position they would be exchanged."""
    with pytest.raises(SubmissionError, match="expected one, or one for each of x, y"):
        Form(POINT, "mae", sample(tmp_path, "id,y,other", "0,0"))


@pytest.mark.parametrize(
    "target",
    [TWO, THREE, TAGS, PRICE, POINT, GRADE],
    ids=lambda target: f"{target.kind} {len(target.names)}",
)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda values: values[:1],
        lambda values: np.vstack([values, values]),
        lambda values: values[:, 1:],
        lambda values: values[:0],
        lambda values: np.where(values == values.max(), np.nan, values),
        lambda values: np.where(values == values.max(), np.inf, values),
    ],
    ids=["a row less", "rows twice", "a column less", "none", "NaN", "infinite"],
)
def test_predictions_that_are_not_one_finite_number_each_are_refused(tmp_path, target, spoil):
    """Of NaNs a label could be made like of others, and a missing row once ended in a traceback.
    The older file stays.
    """
    metric = {"regression": "rmse", "ordinal": "qwk"}.get(target.kind, "accuracy")
    header = f"id,{','.join(target.names)}" if target is POINT else "id,x"
    path = sample(tmp_path, header, "0,0" if target is POINT else "0")
    (tmp_path / "submission.csv").write_text("older")
    values = np.linspace(0.1, 0.9, 2 * len(target.names), dtype=np.float32).reshape(2, -1)

    with pytest.raises(SubmissionError, match=r"(?s)submission\.csv would hold .* Infer again"):
        Form(target, metric, path).write(tmp_path / "submission.csv", ["7", "05"], spoil(values))

    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "sample_submission.csv",
        "submission.csv",
    ]
    assert (tmp_path / "submission.csv").read_text() == "older"


@pytest.mark.parametrize(
    ("target", "metric", "header"),
    [(TWO, "auc", "id,p"), (THREE, "log_loss", "id,a,b,c"), (TAGS, "auc", "id,a,b,c")],
)
@pytest.mark.parametrize("value", [1.5, -0.25])
def test_a_probability_beyond_0_and_1_is_refused(tmp_path, target, metric, header, value):
    """A metric would refuse the whole file, or clip it in silence."""
    path = sample(tmp_path, header, ",".join("0" * (header.count(","))))
    values = np.full((2, len(target.names)), 0.5)
    values[1, 1] = value

    with pytest.raises(SubmissionError, match="1 of them not finite or out of range"):
        Form(target, metric, path).write(tmp_path / "submission.csv", ["7", "05"], values)


def test_the_rounding_of_a_mean_is_no_reason_to_refuse(tmp_path):
    """A mean over folds may be the next float beyond 1."""
    path = sample(tmp_path, "id,p", "0")

    assert (
        Form(TWO, "auc", path).write(
            tmp_path / "submission.csv", ["7", "05"], np.array([[0, 1 + 1e-7], [0.5, 0.5]])
        )
        == 2
    )


@pytest.mark.parametrize(
    ("target", "metric", "header", "row", "wrong"),
    [
        (Target("classes", ("NA", "yes")), "accuracy", "id,label", "yes", "NA"),
        (Target("classes", ("NA", "yes")), "accuracy", "id,label", "NA", ""),
        (Target("classes", ("0", "one")), "accuracy", "id,label", "0", "one"),
        (Target("multilabel", ("a", "None")), "f1", "id,tags", "a", "None"),
        (Target("classes", ("NA", "yes")), "auc", "id,label", "0.5", ""),
        (Target("classes", ("NA", "yes")), "log_loss", "id,NA,yes", "0.5,0.5", ""),
        (GRADE, "qwk", "id,grade", "0", ""),
        (PRICE, "rmse", "id,price", "0", ""),
    ],
)
def test_labels_that_cannot_be_submitted_are_told_before_they_are_predicted(
    target, metric, header, row, wrong, tmp_path
):
    """A sample that says such a text itself is read by a metric that keeps it; and where numbers
    are asked for, no label is written.
    """
    made = Form(target, metric, sample(tmp_path, header, row))

    if not wrong:
        made.check_labels()
    else:
        with pytest.raises(
            SubmissionError, match=f"1 labels that cannot be submitted, for example '{wrong}'"
        ):
            made.check_labels()


def test_a_ranking_of_labels_with_blanks_is_refused_before_a_training(tmp_path):
    """Blanks stand between the labels of a row, and nothing would tell them from those within."""
    made = Form(
        Target("classes", ("brown bear", "wolf", "elk")),
        "map@2",
        sample(tmp_path, "id,label", "wolf elk"),
    )

    with pytest.raises(
        SubmissionError, match="1 labels with blanks in them, for example 'brown bear'"
    ):
        made.check_labels()


def test_a_probability_beyond_one_by_rounding_is_written_as_one(tmp_path):
    """Else what inference wrote would be refused before it is submitted."""
    path = sample(tmp_path, "id,NA,yes", "0.5,0.5")
    made = Form(Target("classes", ("NA", "yes")), "log_loss", path)

    made.write(
        tmp_path / "out.csv", ("05", "7"), np.array([[1.0000001, -1e-7], [0.25, 0.75]], np.float32)
    )

    assert (tmp_path / "out.csv").read_text().splitlines()[1:] == ["7,0.25,0.75", "05,1,0"]
    assert submission_csv.check(tmp_path / "out.csv", path, numbers=True, within=(0, 1)) == 2
