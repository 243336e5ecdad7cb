"""The embedded competitions: laid out as on Kaggle, hidden labels only in memory, and a score for
each submission.
"""

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from localkaggle.competitions import EMBEDDED, NAMES, Competition, ScoringError, accuracy, rmse
from localkaggle.competitions.metrics import auc

PAIR = Competition(
    slug="pair",
    title="Two Columns",
    training={},
    visible_test={},
    hidden_test={"sample_submission.csv": b"id,far,near\na,0.0,0.0\nb,0.0,0.0\n"},
    solution={"far": {"a": "1", "b": "2"}, "near": {"a": "3", "b": "4"}},
    score=rmse,
)


@pytest.fixture(scope="module")
def made() -> Mapping[str, Competition]:
    """Return each competition by its slug."""
    return {name: EMBEDDED[name]() for name in NAMES}


def rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode())))


def write(path: Path, table: list[list[str]]) -> Path:
    path.write_text("".join(",".join(row) + "\n" for row in table))
    return path


def pieces(files: Mapping[str, bytes], competition: Competition) -> set[object]:
    """Return what a model could memorize: each picture, and each row without its id and label."""
    found: set[object] = {data for name, data in files.items() if not name.endswith(".csv")}
    for name in {"train.csv", "test.csv"} & files.keys():
        header, *body = rows(files[name])
        labels = {"id", "label", *competition.solution}
        kept = [place for place, column in enumerate(header) if column not in labels]
        found |= {tuple(row[place] for place in kept) for row in body if kept}
    return found


@pytest.mark.parametrize("slug", NAMES)
def test_no_row_of_the_scored_test_set_can_be_memorized(made, slug):
    """No picture, row or id of it is public, unless submissions are files."""
    competition = made[slug]
    parts = [competition.training, {} if competition.takes_files else competition.visible_test]
    ids = {row[0] for part in parts[1:] if part for row in rows(part[competition.sample])[1:]}

    seen = pieces({**parts[0], **parts[1]}, competition)
    hidden = pieces(competition.hidden_test, competition)

    assert len(hidden) >= 100 and not seen & hidden
    assert not ids & {*next(iter(competition.solution.values()))}
    assert competition.takes_files == (competition.visible_test == competition.hidden_test)


@pytest.mark.parametrize("slug", NAMES)
def test_no_label_of_a_test_set_is_on_the_disk(made, slug, tmp_path):
    """Test tables have no target, and samples have a single value there."""
    competition = made[slug]
    for hidden in (False, True):
        folder = tmp_path / str(hidden)
        competition.write(folder, hidden=hidden)
        tables = {path.name: rows(path.read_bytes()) for path in folder.rglob("*.csv")}
        header, *sample = tables.pop(competition.sample)
        _, *trained = tables.pop("train.csv")

        assert header[1:] == list(competition.solution)
        assert len({tuple(row[1:]) for row in sample}) == 1
        assert competition.takes_files or not {r[0] for r in sample} & {r[0] for r in trained}
        assert all(not {"label", *competition.solution} & {*test[0]} for test in tables.values())


@pytest.mark.parametrize("slug", NAMES)
def test_the_solution_has_the_best_score_in_any_order(made, slug, tmp_path):
    """The sample has a worse one."""
    competition = made[slug]
    header, *sample = rows(competition.hidden_test[competition.sample])
    solution = [competition.solution[column] for column in header[1:]]
    right = [[row[0], *(column[row[0]] for column in solution)] for row in reversed(sample)]

    best, poor = (
        competition.judge(write(tmp_path / "submission.csv", [header, *body]))
        for body in (right, sample)
    )

    lower = competition.score is rmse
    assert best == (0.0 if lower else 1.0)
    assert poor > best if lower else poor < best


MALFORMED = {
    "": "Submission must have the columns id, far, near",
    "id,far,near\n": "Submission has 0 rows but 2 were expected",
    "id,far,near\na,1,2\nb,1\n": "A row has a different number of values than the header",
    "id,far,near\na,1,2\na,1,2\n": "Submission has duplicate ids",
    "id,far,near\na,1,2\nc,1,2\n": "Submission ids do not match those of the test set",
    "id,far,near\na,1,2\nb,1, \n": "Submission contains null values",
    "id,far,near\na,nan,2\nb,1,2\n": "Column far must be a finite number, found 'nan'",
    "id,far,near\na,1,2\nb,1,1_000\n": "Column near must be a finite number, found '1_000'",
    "id,far,near\na,1,2\nb,1,\xe9\n": "The file is not a CSV: ",
}


def test_empty_texts_are_accepted_where_the_solution_has_some(tmp_path):
    """An empty mask has an empty run-length encoding."""
    masks = {"far": {"a": "", "b": "1 2"}, "near": {"a": "3", "b": "4"}}
    competition = replace(
        PAIR, solution=masks, score=lambda given, _: float(given["far"]["b"] == "")
    )
    path = tmp_path / "submission.csv"

    path.write_text("id,far,near\na,,3\nb,,4\n")
    assert competition.judge(path) == 1.0
    path.write_text("id,far,near\na,,\nb,,4\n")
    with pytest.raises(ScoringError, match="null values"):
        competition.judge(path)


@pytest.mark.parametrize("text", MALFORMED)
def test_each_malformed_submission_is_refused_with_its_reason(text, tmp_path):
    path = tmp_path / "submission.csv"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ScoringError, match=f"^{re.escape(MALFORMED[text])}"):
        PAIR.judge(path)
    path.write_text("id,far,near\nb,3,2\na,2,5\n")  # off by one, and by two
    assert PAIR.judge(path) == pytest.approx((1 + 2) / 2)


def test_an_auc_of_one_class_is_undefined():
    """scikit-learn returns NaN or raises ValueError for it, by its version."""
    with pytest.raises(ScoringError, match="one class"):
        auc({"y": {"a": "0.1", "b": "0.2"}}, {"y": {"a": "1", "b": "1"}})


@pytest.mark.parametrize("slug", NAMES)
def test_the_standard_error_of_an_accuracy_is_that_of_a_share(made, slug, tmp_path):
    """Half of the predictions are correct, half are those of the next row."""
    competition = made[slug]
    header, *sample = rows(competition.hidden_test[competition.sample])
    truth = [[competition.solution[name][row[0]] for name in header[1:]] for row in sample]
    given = [truth[place + place % 2 * (place + 1 < len(truth))] for place in range(len(truth))]
    table = [header, *([row[0], *values] for row, values in zip(sample, given, strict=True))]
    file = write(tmp_path / "submission.csv", table)

    score, error = competition.judge(file), competition.standard_error(file)

    assert 0 < error < 0.2 * abs(score)
    if competition.score is accuracy:
        assert error == pytest.approx((score * (1 - score) / len(sample)) ** 0.5, rel=0.25)
