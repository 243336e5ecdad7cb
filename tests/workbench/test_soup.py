"""A soup has the mean weights of runs, fold by fold, and is scored on rows that no member of a fold
was trained on.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pipeline import artifact
from pipeline.__main__ import main
from pipeline.data.dataset import read_training
from pipeline.errors import ArtifactError
from pipeline.evaluate import metrics
from pipeline.evaluate.metrics import Metric
from pipeline.infer import check, ensemble, forward_pass, inference
from pipeline.models import architectures
from pipeline.train import training
from tests.pipeline.rounding import EPS
from tests.small_competition import write_competition
from workbench import soup
from workbench.__main__ import main as local


@pytest.fixture(scope="module")
def base(tiny, tmp_path_factory):
    """Return (competition folder, output folder) of a run with two folds, which learned a bit."""
    folder = tmp_path_factory.mktemp("soup")
    data = write_competition(folder / "competition")
    training.train(replace(tiny, folds=2, epochs=3), data, folder / "out", show=str)
    return data, folder / "out"


def member(base, place, run, noise=0.0, seed=0, **manifest):
    """Write a run whose weights are those of `base` plus noise, and return its folder."""
    made = artifact.load(base[1] / "artifact")
    draw = np.random.default_rng(seed)
    weights = {
        name: array + np.float32(noise) * draw.normal(size=array.shape).astype(np.float32)
        for name, array in made.weights.items()
        if "variance" not in name
    }
    made = replace(made, weights={**made.weights, **weights})
    forward, _ = check._restored(made, check.FULL, 0, print)
    golden = forward_pass.mean_of_folds(made, forward.outputs(made.golden_inputs))
    details = {**made.manifest, "run_id": f"tiny-20261129-120000-{run}", **manifest}
    place.mkdir()
    for name in ("validation.csv", "validation.npz"):
        shutil.copy(base[1] / name, place)
    artifact.save(place / "artifact", replace(made, manifest=details, golden_outputs=golden))
    return place


@pytest.fixture
def opposite(base, tmp_path):
    """Return two runs whose errors cancel out, and a third one without any relation to them."""
    given = [("a", 0.4, 1), ("b", -0.4, 1), ("c", 3.0, 2)]
    return [member(base, tmp_path / run, run, noise, seed) for run, noise, seed in given]


def test_a_soup_has_the_mean_weights_of_each_fold_and_their_predictions(base, opposite, tmp_path):
    """Two runs differ from a good one in opposite directions, so their mean is that one; a third
    would make the mean worse. The out-of-fold predictions of a fold are those of its mean.
    """
    data, out = base
    wanted, lines = artifact.load(out / "artifact"), list[str]()

    found = soup.make(opposite, data, tmp_path / "soup", lines.append)

    made = artifact.load(tmp_path / "soup" / "artifact")
    assert made.weights.keys() == wanted.weights.keys()
    for name, array in wanted.weights.items():
        assert np.abs(made.weights[name] - array).max() <= 4 * EPS * (1 + np.abs(array).max())
    assert {each["run_id"][-1]: each["weight"] for each in found["members"]} == {
        "a": 0.5, "b": 0.5, "c": 0.0,
    }  # fmt: skip
    assert made.manifest["soup"]["members"] == found["members"]
    assert found["score"] == pytest.approx(wanted.manifest["metrics"]["validation_accuracy"])
    assert found["score"] == made.manifest["metrics"]["validation_accuracy"]
    assert found["score"] > max(each["alone"] for each in found["members"])
    one, two = (np.load(place / "validation.npz") for place in (out, tmp_path / "soup"))
    assert np.array_equal(one["truth"], two["truth"])
    assert np.abs(one["probabilities"] - two["probabilities"]).max() < 1e-4
    examples = read_training(data, made.config)
    table = pd.read_csv(tmp_path / "soup" / "validation.csv", dtype=str)
    model = architectures.build(made.config)
    for number, weights in enumerate(made.folds, 1):
        artifact.assign(model, weights)
        rows = pd.Index(examples.ids).get_indexer(table["id"][table["fold"] == str(number)])
        outputs = architectures.outputs(model, examples.inputs[rows], 16)
        apart = (
            made.target.predictions(outputs) - two["probabilities"][table["fold"] == str(number)]
        )
        assert len(rows) == 48 and np.abs(apart).max() < 1e-5
    assert "Warning" not in "".join(lines)


def test_the_command_makes_a_model_like_any_other(
    base, opposite, tiny, written_config, tmp_path, capsys
):
    """It infers, is a member of an ensemble, and can be published by its ensemble.json."""
    place, words = tmp_path / "soup", [*map(str, opposite), "--json"]
    assert local(["soup", *words, "--input", str(base[0]), "--output", str(place)]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])

    (only,) = ensemble.read(place / "ensemble.json")["members"]
    assert (only["run_id"], only["folder"]) == (told["run_id"], told["artifact"])
    config = str(written_config(replace(tiny, folds=2, epochs=3)))
    given = [
        "--config",
        config,
        "--input",
        str(base[0]),
        "--ensemble",
        str(place / "ensemble.json"),
    ]
    assert main(["infer", *given, "--output", str(tmp_path / "out")]) == 0
    (lineage,) = json.loads((tmp_path / "out" / inference.MEMBERS).read_text())
    assert lineage["run_id"] == told["run_id"]
    assert main(["ensemble", str(place), str(opposite[2]), "--output", str(tmp_path / "mean")]) == 0


def test_a_soup_that_is_not_better_names_the_best_member(base, tmp_path):
    """A score that does not change is not better. The choice and the score use different rows."""
    runs = [member(base, tmp_path / run, run, noise) for run, noise in (("a", 0.0), ("b", 1e-6))]
    lines: list[str] = []

    found = soup.make(runs, base[0], tmp_path / "soup", lines.append)

    assert [each["weight"] for each in found["members"]] == [0.5, 0.5]
    assert found["other_half"]["ensemble"] == found["other_half"]["best_member"]
    told = "Warning: the soup is not better than its best member on new rows: tiny-20261129-120000-"
    assert f"{told}a" in lines
    nothing = {"without": None, "adds": None, "adds_error": None}
    one, two = ({"run_id": run, **nothing} for run in ("x", "y"))
    scores = {"metric": "rmse", "greater_is_better": False, "score": 1.0}
    scores["members"] = [one | {"weight": 1.0, "alone": 1.0}, two | {"weight": 0.0, "alone": 2.0}]
    better = {"ensemble": 1.0, "best_member": 1.1, "gain": 0.1, "error": 0.0}
    for half in (None, better):  # it is the best member
        assert ensemble.table({**scores, "other_half": half}, "soup")[-1].endswith("rows: x")
        assert "Warning" not in "".join(ensemble.table({**scores, "other_half": half}))


def test_each_member_is_added_only_if_the_score_does_not_fall():
    """In the order of their scores, each of which is computed from the mean of the weights."""

    class Pot:
        def predictions(self, weights):
            return values[:, weights > 0].mean(axis=1)

    values = np.array([[1.0, 0.8, 1.3, 9.0]])  # the truth is 1

    def score(truth, found):
        return -round(float(np.abs(found - truth).sum()), 2)

    metric = Metric("made", score, True, "numbers", metrics.OWN)
    places, truth = np.zeros(1, int), np.ones(1)
    common = [None] * 4, [], metric, pd.Index(["r"]), truth, np.zeros((4, 1))
    rows = soup.Soups(*common, pot=Pot(), places=places)
    assert soup.greedy(rows).tolist() == [1.0, 0.0, 0.0, 0.0]
    values[0, :2] = 0.9, 1.2  # then the second of the order corrects the first
    assert soup.greedy(rows).tolist() == [0.5, 0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"manifest": {"held_out": ["0" * 64] * 2}}, "did not hold out the same rows"),
        ({"config": {"fit": "linear"}}, "fit='linear' trains no network"),
        (
            {"config": {"model_options": {"width": 8, "depth": 1, "dropout": 0.1}}},
            "different shapes",
        ),
        (
            {"manifest": {"init_from": {"weights_sha256": "0" * 64}}},
            "did not start from the same weights as tiny",
        ),
        ({"inputs": 7}, "its inputs differ from"),
        ({"outputs": 0.01}, "its network differs from the network of tiny"),
    ],
)
def test_runs_that_cannot_be_averaged_are_refused(base, tmp_path, changed, said):
    """With the reason, before anything is written."""
    runs = [member(base, tmp_path / run, run) for run in "ab"]
    made = artifact.load(runs[1] / "artifact")
    fields = dict(changed.get("config", {}))
    weights = made.weights
    if "model_options" in fields:
        weights = {name: array[..., :8] for name, array in weights.items()}
    made = replace(
        made,
        manifest={**made.manifest, **changed.get("manifest", {})},
        config=replace(made.config, **fields),
        weights=weights,
        golden_inputs=made.golden_inputs + np.uint8(changed.get("inputs", 0)),
        golden_outputs=made.golden_outputs + np.float32(changed.get("outputs", 0)),
    )
    artifact.save(runs[1] / "artifact", made)

    with pytest.raises(ArtifactError, match=rf"-b cannot be in this soup: .*{said}"):
        soup.make(runs, base[0], tmp_path / "soup", str)

    assert not (tmp_path / "soup" / "artifact").exists()
