"""A network and boosting on the embedded tables: together, they are not below the better one."""

from dataclasses import replace

import numpy as np
import pytest

from localkaggle import competitions
from pipeline import artifact
from pipeline.infer import ensemble, inference
from pipeline.train import training
from tests.shipped import shipped

SEEDS = (1, 2, 3, 4, 5)
BOOSTED = {"model": "columns", "model_options": {}, "fit": "boosting"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diabetes", "breast_cancer"])
def test_both_together_are_not_below_the_better_one_by_a_standard_error(name, tmp_path):
    """On rows that were not used for the weights, and on the hidden test set. Run with -s to see
    the figures: gains over the better member (more is better), and standard errors of a score.
    """
    config = replace(shipped(name), folds=5, keep="last", patience=None)
    table, sign = competitions.EMBEDDED[config.competition](), -1 if name == "diabetes" else 1
    table.write(tmp_path / "table", hidden=True)
    nested, hidden = [], []
    for seed in SEEDS:
        runs = [tmp_path / f"{kind}-{seed}" for kind in ("network", "boosting")]
        for run, fields in zip(runs, ({}, BOOSTED), strict=True):
            training.train(replace(config, seed=seed, **fields), tmp_path / "table", run, show=str)
        found = ensemble.find(runs, tmp_path / f"mean-{seed}", str)
        half, scores = found["other_half"], []
        members = [artifact.load(run / "artifact") for run in runs]
        weights = {each["run_id"]: each["weight"] for each in found["members"]}
        both = [weights[each.manifest["run_id"]] for each in members]
        for given in ([1, 0], [0, 1], both):
            inference.infer(members, tmp_path / "table", tmp_path, weights=given, show=str)
            scores.append(table.judge(tmp_path / "submission.csv"))
        errors = [members[0].manifest["error"], table.standard_error(tmp_path / "submission.csv")]
        nested.append((half["gain"], errors[0], half["error"]))
        hidden.append((sign * scores[2] - max(sign * score for score in scores[:2]), errors[1]))
        print(
            f"{name} seed {seed}: weights {np.round(both, 2)}; nested {half['ensemble']:.4f},"
            f" best {half['best_member']:.4f}, gain {half['gain']:.4f} ± {half['error']:.4f},"
            f" score ± {errors[0]:.4f}; hidden: network {scores[0]:.4f}, boosting {scores[1]:.4f},"
            f" both {scores[2]:.4f} ± {errors[1]:.4f}"
        )

    assert all(gain >= -error for gain, error, _ in nested)
    assert all(gain >= -error for gain, error in hidden)
