"""An ensemble predicts the weighted mean of the members that there is time for. Its weights are
found on rows that every member held out, where they never score worse than the best member.
"""

import json
import shutil
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import checksums
from pipeline import artifact
from pipeline.__main__ import main
from pipeline.config import config_files
from pipeline.data.labels import Target
from pipeline.errors import ArtifactError, ConfigError, ReportError
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import Metric
from pipeline.infer import ensemble, inference
from tests.pipeline import members
from tests.pipeline.rounding import EPS

WEIGHTS = {"run-1": 0.2, "run-2": 0.5, "run-3": 0.3}
CLASSES = ("10", "9", "A b", "ß")
BEST = ["run-3", "run-2", "run-1"]  # by their validation


@pytest.fixture(scope="module")
def folders(trained, tmp_path_factory):
    """Return the artifacts of three members; read-only."""
    folder = tmp_path_factory.mktemp("ensemble")
    for run, sharper in zip(WEIGHTS, (0.2, 0.5, 0.1), strict=True):
        scores = {"validation_accuracy": 0.9 - BEST.index(run) / 10}
        members.write(folder / run, trained[1] / "artifact", run, sharper=sharper, scores=scores)
    return {run: folder / run / "artifact" for run in WEIGHTS}


@pytest.fixture(scope="module")
def loaded(folders):
    """Return the artifacts."""
    return [artifact.load(folders[run]) for run in WEIGHTS]


def file(folders, path):
    """Write an ensemble.json of these members."""
    listed = [
        {
            "run_id": run,
            "weights_sha256": artifact.load(folder).manifest["weights_sha256"],
            "config": "tiny",
            "folder": str(folder),
            "weight": WEIGHTS[run],
        }
        for run, folder in folders.items()
    ]
    path.write_bytes(checksums.sealed({"members": listed}))
    return path


def test_predictions_are_the_weighted_mean(loaded, trained, tmp_path):
    """The lineage names each member with its weight, and each was checked; the best first."""
    infer, lines = partial(inference.infer, show=str), list[str]()
    alone = [infer(each, trained[0], tmp_path).values for each in loaded]

    found = infer(loaded, trained[0], tmp_path, weights=[2, 5, 3], show=lines.append)

    wanted = np.average(np.array(alone, float), axis=0, weights=[*WEIGHTS.values()])
    assert np.abs(found.values - wanted).max() <= 8 * EPS
    assert np.ptp(alone, axis=0).max() > 0.1  # they do differ
    assert [line.split()[1].strip(":") for line in lines if line.startswith("Artifact")] == BEST
    told = json.loads((tmp_path / "members.json").read_text())
    assert [(each["run_id"], each["weight"], each["used"]) for each in told] == [
        (run, WEIGHTS[run], WEIGHTS[run]) for run in BEST
    ]
    golden = json.loads((tmp_path / "golden.json").read_text())
    assert [each["run_id"] for each in golden] == BEST


def test_the_command_infers_with_the_members_of_a_file(
    folders, trained, tiny, written_config, tmp_path, capsys
):
    """Each with its weight; one whose folder holds another member is refused."""
    path = file(folders, tmp_path / "ensemble.json")
    words = ["infer", "--config", str(written_config(tiny)), "--input", str(trained[0])]
    one, two = tmp_path / "one", tmp_path / "two"
    moved, pinned = tmp_path / "moved.json", json.loads(path.read_bytes())["members"]
    pinned[1]["folder"] = str(folders["run-1"])
    moved.write_bytes(checksums.sealed({"members": pinned}))

    assert main([*words, "--ensemble", str(path), "--output", str(one)]) == 0
    assert main([*words, "--ensemble", str(moved), "--output", str(two)]) == 1

    assert json.loads((one / "members.json").read_text())[0]["used"] == WEIGHTS[BEST[0]]
    said = capsys.readouterr()
    assert "This artifact is from a different run" in said.err and "Warning" not in said.out
    assert main([*words, "--output", str(one), "--artifact", str(folders["run-1"])]) == 0
    (only,) = json.loads((one / "members.json").read_text())
    assert (only["run_id"], only["used"]) == ("run-1", 1.0)


def test_a_config_of_no_member_or_of_another_competition(loaded, trained, tiny, tmp_path):
    """The former causes a warning; the latter is refused before anything is written."""
    lines: list[str] = []
    inference.infer(
        loaded[:1], trained[0], tmp_path, config=replace(tiny, name="none"), show=lines.append
    )
    assert "no model was trained with the config none" in lines[1]

    elsewhere = replace(tiny, competition="elsewhere")
    with pytest.raises(ConfigError, match="elsewhere, but the artifact run-3 is for"):
        inference.infer(loaded, trained[0], tmp_path / "out", config=elsewhere, show=str)
    assert not (tmp_path / "out").exists()


def test_a_member_that_moved_is_named_with_what_to_do(
    folders, trained, tiny, written_config, tmp_path, capsys
):
    """And only an ensemble takes several --config."""
    moved = shutil.copytree(folders["run-2"], tmp_path / "run-2")
    path = file({**folders, "run-2": moved}, tmp_path / "e.json")
    shutil.rmtree(moved)
    words = ["--config", written_config(tiny), "--input", trained[0], "--output", tmp_path / "out"]

    assert main(["infer", *map(str, words), "--ensemble", str(path)]) == 2

    assert f"The artifact {moved}: there is no such folder" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["train", *map(str, words), "--config", "digits"])
    assert "was given twice (" in capsys.readouterr().err


def test_a_member_whose_bytes_changed_is_refused(folders, tmp_path):
    """On Kaggle and at home."""
    inputs, path = (
        tmp_path / "input" / "datasets" / "ann",
        file(folders, tmp_path / "ensemble.json"),
    )
    expect = json.loads(path.read_bytes())
    path.write_text(path.read_text().replace("0.5", "0.6"))  # it would count members otherwise
    with pytest.raises(ConfigError, match=r"is not an ensemble: .*changed after it was written"):
        ensemble.read(path)
    for run, folder in folders.items():
        shutil.copytree(folder, inputs / run)
    found, weights = ensemble.mounted(inputs, expect)
    assert [each.manifest["run_id"] for each in found] == list(folders)
    assert weights == list(WEIGHTS.values())
    loud = {name: array + 1 for name, array in found[2].weights.items()}
    members.save(tmp_path, replace(found[2], weights=loud), "run-3")
    shutil.rmtree(inputs / "run-3")
    shutil.copytree(tmp_path / "artifact", inputs / "run-3")

    with pytest.raises(ArtifactError, match=r"weights_sha256=.*artifact is from a different run"):
        ensemble.mounted(inputs, expect)


@pytest.mark.parametrize("share", [0.0, 0.32, 0.88, 1.2])
def test_members_are_left_out_in_time(share, loaded, trained, tmp_path, monkeypatch):
    """Views first, then whole members, whose weights go to the rest. The best member always counts,
    and there is a submission in any case.
    """
    clock, passes, compute = members.Clock(monkeypatch, 4), [], inference._predicted  # six blocks

    def noted(*given):
        before = clock.now
        found = compute(*given)
        passes.append((clock.now - before, found.left_out))
        return found

    monkeypatch.setattr(inference, "_predicted", noted)
    two = [replace(each, config=replace(each.config, views=2)) for each in loaded]
    # Of each: the golden inputs by two folds, and six blocks by two folds and two views.
    one_view, whole = 2 + 6 * 2, 2 + 6 * 2 * 2
    seconds = share * 3 * whole / inference.SHARE
    short = replace(two[0].config, infer_hours=max(seconds, 1e-6) / 3600)
    given = {"weights": list(WEIGHTS.values()), "config": short, "show": str}

    found = inference.infer(two, trained[0], tmp_path, **given)

    told = json.loads((tmp_path / "members.json").read_text())
    used = {each["run_id"]: each["used"] for each in told if each["used"]}
    total = sum(WEIGHTS[run] for run in used)
    assert used == pytest.approx({run: WEIGHTS[run] / total for run in used}, abs=1e-12)
    assert BEST[0] in used and len(used) == {0.0: 1, 0.32: 1, 0.88: 3, 1.2: 3}[share]
    # Of a member nothing is known before its golden inputs and its first block.
    assert clock.now <= max(seconds, 2 + 2 * 2) + 2 + 2 * 2
    assert bool(found.left_out) == (share == 0)
    if len(used) < 3:
        # Views were left out first: but for the first block of each, there was one.
        assert all(spent <= one_view + 2 + 2 for spent, _ in passes)
    else:
        assert all(left == 0 for _, left in passes)
    assert all(spent == whole for spent, _ in passes) == (share > 1)
    assert len((tmp_path / "submission.csv").read_text().splitlines()) == 22


def test_a_member_is_read_by_its_own_config_s_file(
    loaded, trained, tiny, written_config, tmp_path, monkeypatch
):
    """It must have the same functions as in training."""
    manifest = {**loaded[1].manifest, "custom_code": "0" * 64}
    config = replace(loaded[1].config, name="other")
    other = replace(loaded[1], config=config, manifest=manifest)
    path, load = written_config(config), config_files.load
    monkeypatch.setattr(config_files, "named_files", lambda: {"other": path})
    monkeypatch.setattr(config_files, "load", lambda name: load(str(path)))

    with pytest.raises(
        ConfigError, match=r"'other' are not the ones .*no functions.*expected 0000"
    ):
        inference.infer([loaded[0], other], trained[0], tmp_path, config=tiny, show=str)


# The search for weights


@pytest.fixture(scope="module")
def runs(trained, tmp_path_factory):
    """Return the outputs of three runs; read-only."""
    folder = tmp_path_factory.mktemp("members")
    for number in (1, 2, 3):
        members.write(folder / f"run-{number}", trained[1] / "artifact", f"run-{number}")
    return [folder / f"run-{number}" for number in (1, 2, 3)]


@pytest.fixture
def copied(runs, tmp_path):
    """Return copies of them, which a test may change."""
    return [shutil.copytree(run, tmp_path / run.name) for run in runs]


def test_the_command_writes_weights_that_pin_each_member(runs, tmp_path, capsys):
    """The same bytes for any order of the runs, and for folders of artifacts."""
    given = {"one": runs, "two": [run / "artifact" for run in runs[::-1]]}
    for name, folders in given.items():
        words = ["--json", "--output", str(tmp_path / name)]
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
    assert told["rows"] == members.ROWS
    assert told["score"] >= max(each["alone"] for each in told["members"])
    weights = [each["weight"] for each in told["members"]]
    assert weights == sorted(weights, reverse=True) and sum(weights) == pytest.approx(1)
    assert [each["weight"] for each in ensemble.read(one)["members"]] == [
        each for each in weights if each
    ]


def test_what_each_member_adds_is_measured_without_it(runs):
    """With the weights of the others; and on the other half of the rows."""
    rows = ensemble.common_rows(runs, str)
    places = {member.manifest["run_id"]: place for place, member in enumerate(rows.members)}

    found = ensemble.search(rows)

    for each in found["members"]:
        others = np.zeros(3)
        for other in found["members"]:
            others[places[other["run_id"]]] = other["weight"] * (other is not each)
        mean = np.tensordot(others, np.array(rows.predictions, float), 1)
        assert each["without"] == float((mean.argmax(axis=1) == rows.truth).mean())
    assert found["other_half"] is not None


def test_rows_are_brought_together_by_their_ids(runs, copied):
    """In any order, and if a run has fewer rows. A warning names a run that may have seen some."""
    scores = members.held_out(copied[1], 2, CLASSES, rows=40, first=10)
    made = artifact.load(copied[1] / "artifact")
    told = {**made.manifest, "init_from": {"may_have_seen_held_out": True}}
    members.save(copied[1], replace(made, manifest=told), "run-2", scores)
    lines: list[str] = []

    rows, whole = ensemble.common_rows(copied, lines.append), ensemble.common_rows(runs, str)

    assert len(rows.ids) == 40 and set(rows.ids) == {f"r{number:03d}" for number in range(10, 50)}
    assert rows.truth.tolist() == [int(name[1:]) % 4 for name in rows.ids]
    places = whole.ids.get_indexer(rows.ids)
    assert np.array_equal(rows.predictions[0], whole.predictions[0][places])
    (warned,) = [line for line in lines if line.startswith("Warning")]
    assert "run-2 may have been trained on rows" in warned


def test_runs_that_hold_out_few_rows_in_common_are_refused(copied):
    """With what to do."""
    scores = members.held_out(copied[1], 2, CLASSES, first=50)
    made = artifact.load(copied[1] / "artifact")
    members.save(copied[1], made, "run-2", scores)
    with pytest.raises(ConfigError, match=r"60, 60, 60 rows, but have only 10 .*\nTrain each"):
        ensemble.common_rows(copied, str)


def turned(file):
    """Return another truth with the same score: another version of the labels."""
    truth = ((file["truth"] + 1) % 4).astype(np.int32)
    return {"probabilities": np.roll(file["probabilities"], 1, axis=1), "truth": truth}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file | {"probabilities": np.zeros((59, 4))}, "found 60, 60 and 59"),
        (lambda file: {"probabilities": file["probabilities"]}, "cannot be read: 'truth'"),
        (turned, r"run-3.* and .*run-1.* have different labels"),
        (None, r"validation\.npz cannot be read"),
    ],
)
def test_files_that_contradict_each_other_are_refused(copied, change, said):
    path = copied[2] / "validation.npz"
    if change is None:
        path.write_bytes(b"PK")
    else:
        np.savez(path, **change(dict(np.load(path))))

    with pytest.raises(ReportError, match=said):
        ensemble.common_rows(copied, str)


def test_members_that_predict_different_things_are_refused(runs):
    """Different classes, a different order, or the same run twice."""
    loaded = [artifact.load(run / "artifact") for run in runs]
    other = replace(loaded[1], target=replace(loaded[1].target, names=CLASSES[::-1]))

    with pytest.raises(ArtifactError, match=r"(?s)labels.*run-1: .*run-2: "):
        ensemble.best_first([loaded[0], other], None)
    with pytest.raises(ConfigError, match="can be listed only once"):
        ensemble.best_first([loaded[0], loaded[0]], None)
    with pytest.raises(ConfigError, match="expected two or more"):
        ensemble.common_rows([runs[0], runs[0] / "artifact"], str)


# The climb


def rows_of(truth, predictions, score) -> ensemble.CommonRows:
    """Return held-out rows whose metric is a plain function, greater is better."""
    metric = Metric("made", score, True, "numbers", metrics.OWN)
    artifacts = [SimpleNamespace(target=Target("multilabel", ("a",)))] * len(predictions)
    ids = pd.RangeIndex(len(truth))
    return ensemble.CommonRows(artifacts, [], metric, ids, truth, np.array(predictions))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 5),
    st.sampled_from([(), (3,), (4, 4)]),
    st.booleans(),
)
@settings(max_examples=15)
def test_no_member_scores_better_than_the_mean_where_it_was_found(seed, number, shape, coarse):
    """For predictions of any shape, and for a coarse score."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=(7, *shape))
    predictions = [
        (truth + random.normal(size=truth.shape)).astype(np.float32) for _ in range(number)
    ]

    def score(truth: np.ndarray, values: np.ndarray) -> float:
        error = float(np.abs(values - truth).mean())
        return -round(error, 1) if coarse else -error

    rows = rows_of(truth, predictions, score)
    weights = ensemble.climb(rows)

    assert sum(weights) == pytest.approx(1, abs=1e-12) and min(weights) >= 0
    assert rows.score(weights) >= max(score(truth, each) for each in predictions)


def test_errors_that_cancel_out_are_found():
    """Two members that are wrong in opposite ways, beside one that is less wrong than either."""
    truth = np.linspace(0, 1, 11)

    def score(truth, found):
        return -np.abs(found - truth).sum()

    weights = ensemble.climb(rows_of(truth, [truth + 0.3, truth - 0.3, truth + 0.2], score))

    # 0.3 a - 0.3 b + 0.2 c = 0 has many solutions.
    assert float(np.dot(weights, [0.3, -0.3, 0.2])) == pytest.approx(0, abs=0.3 / 50)
    assert weights[1] > 0


def test_a_member_that_adds_nothing_gets_nothing():
    """Even if the score stays the same, since accuracy has few values."""
    truth = np.arange(40) % 4
    good = np.eye(4, dtype=np.float32)[(truth + (np.arange(40) < 2)) % 4]  # 38 of 40 right
    chance = np.full((40, 4), 0.25, np.float32)

    def right(truth: np.ndarray, found: np.ndarray) -> float:
        return float((found.argmax(axis=1) == truth).mean())

    rows = rows_of(truth, [chance, good], right)
    assert ensemble.climb(rows).tolist() == [0.0, 1.0]
