"""Members of an ensemble made by hand: whole artifacts with held-out predictions beside them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.evaluate import metrics
from pipeline.infer import check, forward_pass, inference

ROWS = 60


def write(
    output: Path,
    trained: Path,
    run: str,
    *,
    sharper: float = 1.0,
    scores: Mapping[str, float] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Write a run of two folds and return its manifest: the trained model, but for its logits,
    which are larger by this factor.

    Args:
        trained: an artifact. scores: as for `save`. more: fields of its config that differ.
    """
    loaded = artifact.load(trained)
    weights = {
        name: array * np.float32(sharper if " logits/" in name else 1)
        for name, array in loaded.weights.items()
    }
    config = replace(loaded.config, folds=2, **more)
    made = replace(loaded, config=config, weights=artifact.joined(alike(weights, 2)))
    return save(output, made, run, scores)


def alike(weights: Mapping[str, np.ndarray], folds: int) -> list[dict[str, np.ndarray]]:
    """Return so many folds that differ in the last bits of one array: equal ones count once."""
    name, array = [*weights.items()][-1]
    made = []
    for _ in range(folds):
        made.append({**weights, name: array})
        array = np.nextafter(array, np.float32(np.inf))
    return made


def save(output: Path, made: Artifact, run: str, scores: Mapping[str, float] | None = None) -> Any:
    """Write an artifact with its golden outputs; and held-out predictions, without `scores`."""
    output.mkdir(parents=True, exist_ok=True)
    scores = scores or held_out(output, int(run[-1]), made.target.names)
    forward, _ = check._restored(made, check.FULL, 0, print)
    outputs = forward_pass.mean_of_folds(made, forward.outputs(made.golden_inputs))
    details = {**made.manifest, "run_id": run, "metrics": scores, "folds": [{}, {}]}
    made = replace(made, manifest=details, golden_outputs=outputs)
    return artifact.save(output / "artifact", made)


def held_out(
    output: Path, seed: int, classes: tuple[str, ...], rows: int = ROWS, first: int = 0
) -> dict[str, float]:
    """Write predictions that are right about two times out of three, and return their score.

    Args:
        first: the number of the first row, of which id and label follow.
    """
    random, names = np.random.default_rng(seed), np.arange(first, first + rows)
    labels = names % len(classes)
    scores = random.gumbel(size=(rows, len(classes))) + 1.5 * np.eye(len(classes))[labels]
    order = random.permutation(rows)  # each run has its own
    found = (np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)).astype(np.float32)
    output.mkdir(parents=True, exist_ok=True)
    table = pd.DataFrame({"id": [f"r{name:03d}" for name in names[order]], "label": labels[order]})
    table.to_csv(output / "validation.csv", index=False)
    np.savez(
        output / "validation.npz",
        probabilities=found[order],
        truth=labels[order].astype(np.int32),
    )
    metric = metrics.find("accuracy", "classes")
    return {"validation_accuracy": metric(labels, found)}


class Clock:
    """A clock that predictions advance: each block takes a second per fold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
        self.now, outputs = 0.0, forward_pass.Forward.outputs

        def timed(forward: forward_pass.Forward, inputs: np.ndarray) -> list[np.ndarray]:
            found = outputs(forward, inputs)
            self.now += len(found)
            return found

        monkeypatch.setattr(forward_pass.Forward, "outputs", timed)
        monkeypatch.setattr(forward_pass, "MOST_ROWS", rows)
        monkeypatch.setattr(inference, "clock", self)

    def __call__(self) -> float:
        """Return its time, in seconds."""
        return self.now
