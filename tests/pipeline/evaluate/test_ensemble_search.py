"""Weights are found on rows that every member held out, or not at all; and they never lose against
the best member there.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import artifact
from pipeline import config as configs
from pipeline.__main__ import main
from pipeline.data.labels import Target
from pipeline.errors import ArtifactError, ConfigError, ReportError
from pipeline.evaluate import ensemble_search, hill_climb, out_of_fold
from pipeline.infer import ensemble
from tests.pipeline import members

CLASSES = ("10", "9", "A b", "ß")


def quiet(line: str) -> None:
    """Take a line that a user would see."""


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory):
    """Return the outputs of three runs, which no test changes."""
    folder = tmp_path_factory.mktemp("members")
    for number in (1, 2, 3):
        members.write(folder / f"run-{number}", trained[1] / "artifact", f"run-{number}")
    return [folder / f"run-{number}" for number in (1, 2, 3)]


@pytest.fixture
def copied(runs, tmp_path):
    """Return copies of them, which a test may spoil."""
    return [shutil.copytree(run, tmp_path / run.name) for run in runs]


def test_the_command_writes_weights_that_pin_each_member(runs, tmp_path, capsys):
    """The same bytes in whatever order the runs are given, and as folders of artifacts; the table
    says what each adds.
    """
    given = {"one": runs, "two": [run / "artifact" for run in runs[::-1]]}
    for name, folders in given.items():
        words = ["--seed", "3", "--json", "--output", str(tmp_path / name)]
        assert main(["ensemble", *map(str, folders), *words]) == 0

    one, two = (tmp_path / name / "ensemble.json" for name in given)
    assert one.read_bytes() == two.read_bytes()
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = {each["run_id"]: each for each in told["members"]}
    for run in runs:
        manifest = artifact.load(run / "artifact").manifest
        each = found[run.name]
        assert each["weights_sha256"] == manifest["weights_sha256"]
        assert each["alone"] == manifest["metrics"]["validation_accuracy"]
        assert each["folder"] == str(run / "artifact")
    assert told["rows"] == members.ROWS and told["seed"] == 3
    assert told["score"] >= max(each["alone"] for each in told["members"])
    weights = [each["weight"] for each in told["members"]]
    assert weights == sorted(weights, reverse=True) and sum(weights) == pytest.approx(1)
    assert [each.weight for each in ensemble.read(one)] == [each for each in weights if each]


def test_what_each_member_adds_is_measured_without_it(runs):
    """By the weights of the others; and on the half that weights were not found on."""
    rows = out_of_fold.read(runs, quiet)

    found = ensemble_search.search(rows, seed=0)

    def score(values: np.ndarray) -> float:
        return float((values.argmax(axis=1) == rows.truth).mean())

    for place, without in enumerate(found.without):
        others = [weight * (other != place) for other, weight in enumerate(found.weights)]
        mean = np.tensordot(others, np.array(rows.predictions, float), 1)
        assert without == score(mean)
    halves = ensemble_search.halves(len(rows.ids), 0)
    assert sorted(np.concatenate(halves)) == list(range(len(rows.ids)))
    assert found.honest is not None


def test_rows_are_brought_together_by_their_ids(runs, copied):
    """Each run has its own order, and one of them fewer rows; one that may have seen some of
    them is named, since its weight is too large then.
    """
    scores = members.held_out(copied[1], 2, CLASSES, rows=40, first=10)
    made = artifact.load(copied[1] / "artifact")
    told = {**made.manifest, "init_from": {"may_have_seen_held_out": True}}
    members.save(copied[1], replace(made, manifest=told), "run-2", scores)
    lines: list[str] = []

    rows, whole = out_of_fold.read(copied, lines.append), out_of_fold.read(runs, quiet)

    assert len(rows.ids) == 40 and set(rows.ids) == {f"r{number:03d}" for number in range(10, 50)}
    assert rows.truth.tolist() == [int(name[1:]) % 4 for name in rows.ids]
    places = [whole.ids.index(name) for name in rows.ids]
    assert np.array_equal(rows.predictions[0], whole.predictions[0][places])
    (warned,) = [line for line in lines if line.startswith("Warning")]
    assert "run-2 may have been trained on rows" in warned


def test_runs_that_hold_out_few_rows_in_common_are_refused(runs, copied):
    """With what to do. Without folds, they have to hold out the same: other seeds hold out
    others.
    """
    scores = members.held_out(copied[1], 2, CLASSES, first=50)
    made = artifact.load(copied[1] / "artifact")
    members.save(copied[1], made, "run-2", scores)
    single = [replace(made, config=replace(made.config, folds=None))] * 3
    ids = [["a", "b", "c"], ["c", "a", "b"], ["a", "b", "d"]]

    with pytest.raises(ConfigError, match=r"60, 60, 60 rows, 10 of them in common.*\nTrain each"):
        out_of_fold.read(copied, quiet)
    out_of_fold._refuse_other_parts(runs[:2], single[:2], ids[:2])
    with pytest.raises(ConfigError, match=r"run-1 and .*run-3 have no folds"):
        out_of_fold._refuse_other_parts(runs, single, ids)


def turned(file):
    """Return another truth with the same score: another version of the labels."""
    truth = ((file["truth"] + 1) % 4).astype(np.int32)
    return {"probabilities": np.roll(file["probabilities"], 1, axis=1), "truth": truth}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file | {"truth": np.zeros(60, np.int32)}, "scores .* it is of another run"),
        (lambda file: file | {"probabilities": np.zeros((59, 4))}, "60 ids .* 59 predicted rows"),
        (lambda file: {"probabilities": file["probabilities"]}, "no 'truth': an older version"),
        (turned, r"run-3.*has another truth than .*run-1"),
    ],
)
def test_files_that_contradict_each_other_are_refused(copied, change, said):
    """By name, before any weight is found."""
    path = copied[2] / "validation.npz"
    np.savez(path, **change(dict(np.load(path))))

    with pytest.raises(ReportError, match=said):
        out_of_fold.read(copied, quiet)


def test_a_file_that_cannot_be_read_is_named(copied):
    (copied[2] / "validation.npz").write_bytes(b"PK")

    with pytest.raises(ReportError, match=r"validation\.npz cannot be read"):
        out_of_fold.read(copied, quiet)


def test_members_that_predict_different_things_are_refused(runs, copied):
    """Other classes, another order of them, or the same run twice."""
    loaded = [artifact.load(run / "artifact") for run in runs]
    other = replace(loaded[1], target=replace(loaded[1].target, names=CLASSES[::-1]))

    with pytest.raises(ArtifactError, match=r"classes or columns .* in run run-1"):
        ensemble.best_first([loaded[0], other], None)
    with pytest.raises(ConfigError, match="not all different"):
        ensemble.best_first([loaded[0], loaded[0]], None)
    with pytest.raises(ConfigError, match="expected two runs or more"):
        ensemble_search.run(runs[:1], copied[0], seed=0, show=quiet)
    for weights in ([1.0], [0.0, 0.0], [-1.0, 2.0]):
        with pytest.raises(ConfigError, match="cannot work for 2 artifacts"):
            ensemble.best_first(loaded[:2], weights)


def test_a_metric_that_was_corrected_scores_anew_and_says_so(copied, written_config):
    """No weight follows from it, so its run is the same."""
    first = artifact.load(copied[0] / "artifact")
    path = written_config(replace(first.config, name="corrected", metric="", code=""))
    body = "def right(truth, labels):\n    return 0.5 * (truth == labels).mean()\n"
    path.write_text(
        f"from dataclasses import replace\n{path.read_text()}"
        f"{body}CONFIG = replace(CONFIG, metric='right')\n"
    )
    config = configs.load(str(path))
    for number, run in enumerate(copied, 1):
        made = artifact.load(run / "artifact")
        scores = {"validation_right": made.manifest["metrics"]["validation_accuracy"]}
        made = replace(made, config=config, manifest={**made.manifest, "metric": "right"})
        members.save(run, made, f"run-{number}", scores)
    lines: list[str] = []

    rows = out_of_fold.read(copied, lines.append)

    assert rows.metric.name == "right" and len(rows.ids) == members.ROWS
    assert sum("by right as it is now" in line for line in lines) == 3


# The climb


MEAN = Target("multilabel", ("a",)).mean
SHAPES = [(), (3,), (4, 4)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from(SHAPES), st.booleans())
@settings(max_examples=15)
def test_no_member_scores_better_than_the_mean_where_it_was_found(seed, members, shape, coarse):
    """For predictions of any shape, and for a score with many equals; and the seed decides all."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=(7, *shape))
    predictions = [
        (truth + random.normal(size=truth.shape)).astype(np.float32) for _ in range(members)
    ]

    def score(values: np.ndarray) -> float:
        error = float(np.abs(values - truth).mean())
        return -round(error, 1) if coarse else -error

    weights = hill_climb.climb(predictions, score, seed, MEAN)

    assert sum(weights) == pytest.approx(1, abs=1e-12) and min(weights) >= 0
    mean = hill_climb.weighted(predictions, weights, MEAN)
    assert mean.shape == truth.shape and mean.dtype == np.float32
    assert score(mean) >= max(map(score, predictions))
    assert weights == hill_climb.climb(predictions, score, seed, MEAN)


def test_errors_that_cancel_out_are_found():
    """Two members that are wrong in opposite ways, beside one that is less wrong than either."""
    truth = np.linspace(0, 1, 11)
    predictions = [truth + 0.3, truth - 0.3, truth + 0.2]

    weights = hill_climb.climb(
        predictions, lambda found: -np.abs(found - truth).sum(), seed=0, mean=MEAN
    )

    # 0.3 a - 0.3 b + 0.2 c = 0 has many solutions.
    assert float(np.dot(weights, [0.3, -0.3, 0.2])) == pytest.approx(0, abs=0.3 / 50)
    assert weights[1] > 0


def test_a_member_that_adds_nothing_gets_nothing():
    """Not where the score does not move, either: accuracy has few values."""
    truth = np.arange(40) % 4
    good = np.eye(4, dtype=np.float32)[(truth + (np.arange(40) < 2)) % 4]  # 38 of 40 right
    chance = np.full((40, 4), 0.25, np.float32)

    def right(found: np.ndarray) -> float:
        return float((found.argmax(axis=1) == truth).mean())

    assert all(
        hill_climb.climb([chance, good], right, seed, MEAN) == [0.0, 1.0] for seed in range(5)
    )
