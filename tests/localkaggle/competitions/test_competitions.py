"""The hosted competitions: real data laid out as Kaggle's, hidden labels in memory alone, and
scores that follow from their definitions.
"""

import csv
import hashlib
import io
import json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from localkaggle.competitions import EMBEDDED, NAMES, Competition, ScoringError, accuracy, auc, rmse
from proofs.competitions.unseen import unseen

ALL = (*NAMES, "unseen")
# Where submissions are files, nothing reruns: everybody sees the test set that is scored.
RERUN = tuple(slug for slug in ALL if slug != "digits-csv")
PERFECT = {**dict.fromkeys((*NAMES, "unseen"), 1.0), "diabetes": 0.0}
# Names and bytes of digits, as they were before there was any other competition: figures that are
# recorded elsewhere stand on them.
DIGITS = {
    "training": "02b26ca37beef2dda2fb03f800e30ff1aa7a7e3eac755a08602c13ac5158ac54",
    "visible_test": "d30f85f15e615413888f0b926458ba86ad35d8cb4b427fb95ec6c2fae19a65b1",
    "hidden_test": "3458326a82cd35fafe3c05c61fd9dbfa1627e2f99c4604dedde7230b9e66c86f",
}
SOLUTION = "093775b5e8f7126bc301b9e73c26925e6f4325104fdca245df58ad3f793046ec"
PAIR = Competition(
    slug="pair",
    title="Two Columns",
    training={},
    visible_test={},
    hidden_test={"sample_submission.csv": b"id,far,near\na,0.0,0.0\nb,0.0,0.0\n"},
    solution={"far": {"a": "1", "b": "2"}, "near": {"a": "3", "b": "4"}},
    score=rmse,
    lower_is_better=True,
)


@pytest.fixture(scope="module")
def made() -> Mapping[str, Competition]:
    """Return each competition by its slug."""
    return {**{name: EMBEDDED[name]() for name in NAMES}, "unseen": unseen(0)}


def rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode())))


def answer(competition: Competition, path: Path) -> Path:
    """Write the right answer, its rows the other way round."""
    header, *sample = rows(competition.hidden_test[competition.sample])
    right = [
        [row[0], *(competition.solution[column][row[0]] for column in header[1:])]
        for row in reversed(sample)
    ]
    return write(path, [header, *right])


def write(path: Path, table: list[list[str]]) -> Path:
    path.write_text("".join(",".join(row) + "\n" for row in table))
    return path


def pieces(files: Mapping[str, bytes], competition: Competition) -> Counter[object]:
    """Return what a model could learn an example by heart from: each picture, and each row without
    its id and its label.
    """
    found: Counter[object] = Counter(
        content for name, content in files.items() if not name.endswith(".csv")
    )
    for name in {"train.csv", "test.csv"} & files.keys():
        header, *body = rows(files[name])
        kept = [
            place
            for place, column in enumerate(header)
            if column not in {"id", "label", *competition.solution}
        ]
        found.update(tuple(row[place] for place in kept) for row in body if kept)
    return found


# Files


def test_digits_are_what_they_were(made):
    """In every byte."""

    def sha256(files: Mapping[str, bytes]) -> str:
        parts = [
            name.encode() + b"\0" + len(files[name]).to_bytes(8, "big") + files[name]
            for name in sorted(files)
        ]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    assert {part: sha256(getattr(made["digits"], part)) for part in DIGITS} == DIGITS
    assert (
        hashlib.sha256(json.dumps(made["digits"].solution["label"]).encode()).hexdigest()
        == SOLUTION
    )


def test_digits_in_a_table_are_laid_out_as_in_the_digit_recognizer(made, tmp_path):
    """The test table has no ids: they are the places of its rows, from 1."""
    made["digits-csv"].write(tmp_path)
    header, *train = rows((tmp_path / "train.csv").read_bytes())
    test_header, *test = rows((tmp_path / "test.csv").read_bytes())

    sample = rows((tmp_path / "sample_submission.csv").read_bytes())

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "sample_submission.csv",
        "test.csv",
        "train.csv",
    ]
    assert header == ["label", *(f"pixel{n}" for n in range(64))] and test_header == header[1:]
    assert (len(train), len(test)) == (1197, 600)
    assert sample == [["ImageId", "Label"], *([str(n), "0"] for n in range(1, 601))]
    assert {row[0] for row in train} == set("0123456789")
    assert {int(pixel) for row in train for pixel in row[1:]} == {
        round(level * 255 / 16) for level in range(17)
    }


def test_digits_in_a_table_are_the_digits_of_the_pictures(made):
    """The same 1,797, pixel by pixel."""
    pictures, table = (
        {
            **made[slug].training,
            **{
                f"{part}/{name}": content for part in tests for name, content in tests[part].items()
            },
        }
        for slug in ("digits", "digits-csv")
        for tests in [{"seen": made[slug].visible_test, "hidden": made[slug].hidden_test}]
    )
    drawn = [
        np.asarray(Image.open(io.BytesIO(c))).ravel().tolist()
        for n, c in pictures.items()
        if n.endswith(".png")
    ]
    _, *train = rows(table["train.csv"])

    listed = [row[1:] for row in train] + rows(table["hidden/test.csv"])[1:]

    assert sorted(drawn) == sorted([int(pixel) for pixel in row] for row in listed)


def test_diabetes_is_a_table_with_gaps_and_a_category(made, tmp_path):
    """A few per cent of four columns are empty, in the test sets too."""
    competition = made["diabetes"]
    competition.write(tmp_path)
    header, *train = rows((tmp_path / "train.csv").read_bytes())
    tests = [rows(part["test.csv"]) for part in (competition.visible_test, competition.hidden_test)]

    assert header == [
        "id",
        "age",
        "sex",
        "bmi",
        "bp",
        "s1",
        "s2",
        "s3",
        "s4",
        "s5",
        "s6",
        "progression",
    ]
    assert [test[0] for test in tests] == [header[:-1]] * 2
    assert (len(train), *(len(test) - 1 for test in tests)) == (292, 50, 100)
    for body in (train, *(test[1:] for test in tests)):
        assert {header[place] for row in body for place, cell in enumerate(row) if not cell} == {
            "sex",
            "bp",
            "s4",
            "s6",
        }
    share = [sum(not row[place] for row in train) / len(train) for place in range(len(header))]
    assert 0 < max(share) < 0.1
    assert {row[2] for row in train} == {"1", "2", ""}
    assert all(float(cell) > 0 for row in train for cell in row[1:] if cell)
    assert rows(competition.visible_test["sample_submission.csv"])[:2] == [
        ["id", "progression"],
        [tests[0][1][0], "0.0"],
    ]


def test_breast_cancer_asks_for_a_probability(made):
    """Thirty measurements, and a sample that says one half everywhere."""
    competition = made["breast-cancer"]
    header, *train = rows(competition.training["train.csv"])

    assert (header[0], header[1], header[-1], len(header)) == ("id", "mean radius", "malignant", 32)
    assert rows(competition.visible_test["test.csv"])[0] == header[:-1]
    assert {row[-1] for row in train} == {"0", "1"}
    assert sum(row[-1] == "1" for row in train) / len(train) == pytest.approx(212 / 569, abs=0.01)
    for part in (competition.visible_test, competition.hidden_test):
        sample = rows(part["sample_submission.csv"])
        assert sample == [
            ["id", "malignant"],
            *([row[0], "0.5"] for row in rows(part["test.csv"])[1:]),
        ]


def test_the_unseen_competition_shares_no_name_with_the_others(made, tmp_path):
    """Folders, tables, columns; and its pictures have endings in the tables and many sizes."""
    competition = made["unseen"]
    competition.write(tmp_path)
    header, *train = rows((tmp_path / "labels.csv").read_bytes())
    sample_header, *sample = rows((tmp_path / "submission_format.csv").read_bytes())

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("images_test", "images_train", "labels.csv", "submission_format.csv")
    ]
    assert header == sample_header == ["file", "variety"] and (len(train), len(sample)) == (
        600,
        200,
    )
    assert {row[0] for row in train} == {
        path.name for path in (tmp_path / "images_train").iterdir()
    }
    assert {row[0] for row in sample} == {
        path.name for path in (tmp_path / "images_test").iterdir()
    }
    assert {row[1] for row in train} == {"sky", "temple", "petals", "leaves"}
    assert min(Counter(row[1] for row in train).values()) > 100
    pictures = [Image.open(path) for path in (tmp_path / "images_train").iterdir()]
    assert {(picture.format, picture.mode) for picture in pictures} == {("JPEG", "RGB")}
    assert len({picture.size for picture in pictures}) > 50
    assert all(28 <= side <= 40 for picture in pictures for side in picture.size)


def test_the_unseen_competition_can_be_learned(made):
    """The nearest of four mean colours is the right one for most of the hidden pictures."""

    def colour(content: bytes) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(content)), float).mean((0, 1))

    competition = made["unseen"]
    labels = dict(rows(competition.training["labels.csv"])[1:])
    seen = {name: colour(competition.training[f"images_train/{name}"]) for name in labels}
    means = {
        kind: np.mean([seen[name] for name in labels if labels[name] == kind], 0)
        for kind in set(labels.values())
    }

    def nearest(name: str) -> str:
        asked = colour(competition.hidden_test[f"images_test/{name}"])
        return min(means, key=lambda kind: float(np.linalg.norm(asked - means[kind])))

    predicted = {name: nearest(name) for name in competition.solution["variety"]}

    assert accuracy({"variety": predicted}, competition.solution) > 0.9


def test_no_pixel_of_the_unseen_competition_is_in_two_sets(monkeypatch):
    """Its photographs are replaced by one whose colours say where they are; pictures of two sets
    then never overlap.
    """
    down, across = np.mgrid[:427, :640]
    charts = {
        name: np.stack([across * 255 / 640, down * 255 / 427, np.full_like(down, blue)], -1).astype(
            np.uint8
        )
        for name, blue in (("china.jpg", 0), ("flower.jpg", 200))
    }
    monkeypatch.setattr("sklearn.datasets.load_sample_image", charts.__getitem__)
    competition = unseen(0)

    def places(files: Mapping[str, bytes]) -> np.ndarray:
        """Return left, top, right, bottom of each picture; those of the flower lie 1,000 pixels
        further to the right.
        """
        found = []
        for picture in (
            Image.open(io.BytesIO(content))
            for name, content in files.items()
            if name.endswith(".jpg")
        ):
            red, green, blue = np.asarray(picture, float).mean((0, 1))
            middle = np.array([red * 640 / 255 + 1000 * (blue > 100), green * 427 / 255])
            found.append(
                [*(middle - np.array(picture.size) / 2), *(middle + np.array(picture.size) / 2)]
            )
        return np.array(found)

    sets = [
        places(files)
        for files in (competition.training, competition.visible_test, competition.hidden_test)
    ]

    def deepest(one: np.ndarray, other: np.ndarray) -> float:
        """Return by how many pixels two pictures overlap at most."""
        common = np.minimum(one[:, None, 2:], other[:, 2:]) - np.maximum(
            one[:, None, :2], other[:, :2]
        )
        return float(common.min(-1).max())

    assert [len(pictures) for pictures in sets] == [600, 200, 200]
    assert all(
        deepest(one, other) < 4 for one, other in combinations(sets, 2)
    )  # the colours tell it to a pixel or two
    assert deepest(sets[0], sets[0][1:]) > 20


def test_the_unseen_competition_follows_from_its_seed(made):
    """Another seed is another competition, the same one the same."""
    parts = ("training", "visible_test", "hidden_test", "solution")

    again, other = unseen(0), unseen(1)

    assert all(getattr(again, part) == getattr(made["unseen"], part) for part in parts)
    assert not {*other.training} & {*again.training} - {"labels.csv"}


@pytest.mark.parametrize(
    ("slug", "model", "enough"),
    [
        ("digits-csv", KNeighborsClassifier(1), 0.96),
        ("diabetes", LinearRegression(), 60.0),  # their standard deviation is 77
        ("breast-cancer", make_pipeline(StandardScaler(), LogisticRegression()), 0.98),
    ],
)
def test_what_is_learned_from_a_table_holds_in_the_hidden_one(made, slug, model, enough):
    """So each hidden row has the label that is its own. An empty cell is read as zero here."""
    competition = made[slug]
    (target, solution), (header, *train) = (
        *competition.solution.items(),
        rows(competition.training["train.csv"]),
    )
    place = header.index(target.lower())
    test_header, *test = rows(competition.hidden_test["test.csv"])
    ids = [row[0] for row in rows(competition.hidden_test["sample_submission.csv"])[1:]]
    kept = [column for column in test_header if column != "id"]

    def measured(names: list[str], body: list[list[str]]) -> np.ndarray:
        return np.array([[float(row[names.index(column)] or 0) for column in kept] for row in body])

    model.fit(measured(header, train), np.array([float(row[place]) for row in train]))
    learned = measured(test_header, test)
    predicted = (
        model.predict_proba(learned)[:, 1] if slug == "breast-cancer" else model.predict(learned)
    )
    text = [str(int(value)) if slug == "digits-csv" else repr(float(value)) for value in predicted]
    score = competition.score({target: dict(zip(ids, text, strict=True))}, {target: solution})

    assert score < enough if competition.lower_is_better else score > enough


# What is hidden


@pytest.mark.parametrize("slug", RERUN)
def test_nothing_of_the_hidden_test_set_is_in_sight(made, slug):
    """Neither a picture, nor a row: none could be learned by heart."""
    competition = made[slug]

    seen = pieces({**competition.training, **competition.visible_test}, competition)
    hidden = pieces(competition.hidden_test, competition)

    assert len(hidden) >= 100 and not seen & hidden


@pytest.mark.parametrize("slug", ALL)
def test_no_label_of_a_test_set_is_on_the_disk(made, slug, tmp_path):
    """Of the columns that are predicted, test tables have none and samples have one value. No id of
    a test set is trained on.
    """
    competition = made[slug]
    for hidden in (False, True):
        folder = tmp_path / str(hidden)
        competition.write(folder, hidden=hidden)
        written = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        tables = {name: rows(content) for name, content in written.items() if name.endswith(".csv")}
        header, *sample = tables.pop(competition.sample)
        trained = tables.pop("labels.csv" if slug == "unseen" else "train.csv")

        assert (
            header[1:] == list(competition.solution)
            and len({tuple(row[1:]) for row in sample}) == 1
        )
        assert (
            not {row[0] for row in sample} & {row[0] for row in trained} or trained[0][0] == "label"
        )
        assert all(not {"label", *competition.solution} & set(test[0]) for test in tables.values())
        assert written == {
            **competition.training,
            **(competition.hidden_test if hidden else competition.visible_test),
        }


def test_where_files_are_submitted_everybody_sees_the_test_set_that_is_scored(made):
    """Nothing of it can be learned by heart."""
    competition = made["digits-csv"]

    trained, asked = (
        pieces(files, competition) for files in (competition.training, competition.visible_test)
    )

    assert competition.takes_files and competition.visible_test == competition.hidden_test
    assert len(asked) >= 500 and not trained & asked


@pytest.mark.parametrize("slug", RERUN)
def test_the_two_test_sets_differ(made, slug):
    """In their ids, where a row has one; and in how many there are, or in all that they hold."""
    competition = made[slug]

    seen, hidden = (
        {row[0] for row in rows(part[competition.sample])[1:]}
        for part in (competition.visible_test, competition.hidden_test)
    )

    assert hidden == {*next(iter(competition.solution.values()))}
    assert competition.visible_test != competition.hidden_test
    assert not seen & hidden


def test_to_know_of_the_competitions_loads_nothing_heavy():
    """A command that only names them answers at once."""
    heavy = {"sklearn", "numpy", "PIL", "pandas"}
    code = f"import sys, localkaggle.competitions; print({heavy} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.stdout == "set()\n", done.stderr


# Judging


@pytest.mark.parametrize("slug", ALL)
def test_the_right_answer_has_the_best_score_in_any_order(made, slug, tmp_path):
    """And the sample a worse one, whichever way better is."""
    competition = made[slug]
    sample = write(tmp_path / "sample.csv", rows(competition.hidden_test[competition.sample]))

    best, poor = (
        competition.judge(answer(competition, tmp_path / "best.csv")),
        competition.judge(sample),
    )

    assert best == PERFECT[slug]
    assert poor > best if competition.lower_is_better else poor < best


def test_the_samples_score_as_the_definitions_say(made, tmp_path):
    """Zero for a tenth of the digits, the length of the answer for zeros, one half for equal
    values.
    """

    def scored(slug: str) -> float:
        return made[slug].judge(
            write(tmp_path / slug, rows(made[slug].hidden_test[made[slug].sample]))
        )

    progression = [float(value) for value in made["diabetes"].solution["progression"].values()]
    assert scored("digits") == pytest.approx(0.1, abs=0.02) and scored(
        "digits-csv"
    ) == pytest.approx(0.1, abs=0.02)
    assert scored("diabetes") == pytest.approx(
        math.sqrt(sum(value**2 for value in progression) / 100)
    )
    assert scored("breast-cancer") == 0.5


def test_several_columns_are_scored_by_their_mean(tmp_path):
    """Off by one in the first, by three in the second."""
    path = write(tmp_path / "s.csv", [["id", "far", "near"], ["b", "3", "1"], ["a", "2", "6"]])

    assert PAIR.judge(path) == pytest.approx((1 + 3) / 2)


MALFORMED = {
    "": "Submission must have the columns id, far, near",
    "id,near,far\na,1,2\nb,1,2\n": "Submission must have the columns id, far, near",
    "id,far\na,1\nb,2\n": "Submission must have the columns id, far, near",
    "id,far,near\n": "Submission has 0 rows but 2 were expected",
    "id,far,near\na,1,2\nb,1,2\nc,1,2\n": "Submission has 3 rows but 2 were expected",
    "id,far,near\na,1,2\nb,1\n": "A row has another number of values than the header",
    "id,far,near\na,1,2\na,1,2\n": "Submission has duplicate ids",
    "id,far,near\na,1,2\nc,1,2\n": "Submission ids do not match those of the test set",
    "id,far,near\na,1,2\nb,1, \n": "Submission contains null values",
    "id,far,near\na,1,2\nb,1,much\n": "Column near must be a finite number, found 'much'",
    "id,far,near\na,nan,2\nb,1,2\n": "Column far must be a finite number, found 'nan'",
    "id,far,near\na,1,2\nb,1,1_000\n": "Column near must be a finite number, found '1_000'",
    "id,far,near\na,1,2\nb,1,\xe9\n": "The file is not a CSV: ",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_each_malformed_submission_is_refused_in_words_of_its_own(text, tmp_path):
    """They say what is wrong with it."""
    path = tmp_path / "submission.csv"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ScoringError, match=f"^{re.escape(MALFORMED[text])}"):
        PAIR.judge(path)


@pytest.mark.parametrize(
    ("slug", "value", "said"),
    [
        ("digits", "three", "Column label must be a whole number, found 'three'"),
        ("digits", "3.0", "Column label must be a whole number, found '3.0'"),
        ("digits-csv", "1_0", "Column Label must be a whole number, found '1_0'"),
        ("diabetes", "inf", "Column progression must be a finite number, found 'inf'"),
        (
            "breast-cancer",
            "malignant",
            "Column malignant must be a finite number, found 'malignant'",
        ),
        ("unseen", "", "Submission contains null values"),
    ],
)
def test_a_value_is_what_the_metric_can_read(made, slug, value, said, tmp_path):
    """One wrong one is enough."""
    header, *body = rows(made[slug].hidden_test[made[slug].sample])

    with pytest.raises(ScoringError) as caught:
        made[slug].judge(write(tmp_path / "s.csv", [header, *body[:-1], [body[-1][0], value]]))

    assert str(caught.value) == said


# Metrics


numbers = st.floats(-1e6, 1e6)
binary = st.lists(
    st.tuples(st.sampled_from([0, 1]), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]) | numbers),
    min_size=2,
)


def column(values) -> dict[str, dict[str, str]]:
    return {"x": {str(place): repr(value) for place, value in enumerate(values)}}


@given(st.lists(st.tuples(numbers, numbers), min_size=1))
def test_rmse_is_that_of_scikit_learn(pairs):
    """Which the local Kaggle does not use."""
    truth, predicted = zip(*pairs, strict=True)

    assert rmse(column(predicted), column(truth)) == pytest.approx(
        sklearn.metrics.root_mean_squared_error(truth, predicted)
    )


@given(binary.filter(lambda pairs: len({label for label, _ in pairs}) == 2))
def test_auc_is_that_of_scikit_learn(pairs):
    """With equal values too."""
    truth, predicted = zip(*pairs, strict=True)

    assert auc(column(predicted), column(truth)) == pytest.approx(
        sklearn.metrics.roc_auc_score(truth, predicted)
    )


@given(binary.filter(lambda pairs: len({label for label, _ in pairs}) == 2))
def test_auc_of_the_opposite_is_what_is_left_of_one(pairs):
    """Only the order of the values counts."""
    truth, predicted = zip(*pairs, strict=True)

    assert auc(column(predicted), column(truth)) + auc(
        column([-value for value in predicted]), column(truth)
    ) == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(-3, 12), st.integers(-3, 12)), min_size=1))
def test_accuracy_is_that_of_scikit_learn(pairs):
    """Whole numbers are compared as numbers."""
    truth, predicted = zip(*pairs, strict=True)
    padded = {"x": {name: f" {value}" for name, value in column(predicted)["x"].items()}}

    assert accuracy(padded, column(truth)) == pytest.approx(
        sklearn.metrics.accuracy_score(truth, predicted)
    )
