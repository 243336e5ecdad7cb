"""Score averages of weights on the hidden rows of two embedded competitions, for five seeds.

A run with `optimizer.swa_start` yields two variants: its last weights, and the mean of its weights.
A soup averages three runs with different learning rates. All three continue the same run, which was
trained for half the epochs, and train for the other half. Only the local Kaggle has the labels of
the hidden rows. We propose an average if it scores at least as well as the last epoch in at least
four of five seeds. This must be true in both competitions.

`python -m benchmarks.averages CONFIG SEED KIND` trains the runs of one seed in a separate process.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.measure import Rows, in_process, write
from localkaggle import competitions
from pipeline import artifact
from pipeline import config as configs
from pipeline.artifact import Artifact
from pipeline.augment.augmentation import Augmentation
from pipeline.config import Config
from pipeline.data import dataset, folds
from pipeline.data.dataset import Batches
from pipeline.evaluate import metrics
from pipeline.infer import submission
from pipeline.models import architectures
from pipeline.train import checkpoint, training
from workbench import soup

# Fixed before the first measurement.
SEEDS, SWA_START, RATES = range(5), 0.75, (0.25, 0.5, 1.0)
NAMES = "digits", "diabetes"
BATCH = 256  # rows per call of a prediction
Weights = Mapping[str, np.ndarray]
Scores = dict[str, float]
AGAIN = ", new BatchNorm statistics"
LAST, SWA = "last epoch", f"swa_start={SWA_START}"
BEST, SOUP = "best of three runs", "their soup"
# {kind: variants to compare with the first one}
KINDS = {"swa": (LAST, SWA, SWA + AGAIN), "soup": (BEST, SOUP, SOUP + AGAIN)}


def main() -> None:
    begun, rows, notes = time.perf_counter(), [], []
    for name in NAMES:
        metric, found = metrics.of(configs.load(name)), dict[str, list[Scores]]()
        for kind in KINDS:
            words = ((name, seed, kind) for seed in SEEDS)
            found[kind] = [in_process("benchmarks.averages", *each) for each in words]
            print(f"  {name} {kind}: {found[kind]}", file=sys.stderr, flush=True)
        for kind, compared in KINDS.items():
            rows += rows_of(name, metric, compared, found[kind])
        nested, best, members = (
            numbers([each[part] for each in found["soup"]], digits)
            for part, digits in (("nested", 4), ("nested best", 4), ("members", 0))
        )
        notes.append(
            f"For {name}, each seed's soup used this many of the three runs: {members}. On"
            f" held-out rows that were not used to choose runs, the soups scored {nested}, and the"
            f" best runs scored {best}."
        )
    columns = "competition", "weights", "hidden score, by seed", "mean", "at least as good"
    title = f"Averages of weights, seeds {SEEDS[0]} to {SEEDS[-1]}"
    note = (
        "The last column counts the seeds in which the score is at least as good as the reference."
        " The reference is the last epoch or, for a soup, the run with the best held-out score. The"
        f" runs of a soup use {', '.join(map(str, RATES))} times the config's learning rate. New"
        " BatchNorm statistics are means over an epoch of augmented training batches. "
        + " ".join(notes)
    )
    write("averages", "Averages of weights", [Rows(title, columns, rows, note)], begun)


def rows_of(
    name: str, metric: metrics.Metric, compared: Sequence[str], found: Sequence[Scores]
) -> list[list[str]]:
    """Return each variant's scores, their mean, and how often they match or beat the first.

    >>> accuracy = metrics.find("accuracy", "classes")
    >>> found = [{"a": 1, "b": 0, "c": 1}]
    >>> [row[-1] for row in rows_of("digits", accuracy, ("a", "b", "c"), found)]
    ['', '0 of 1', '1 of 1']
    """
    rows = []
    for what in compared:
        better = [metric.sign * (each[what] - each[compared[0]]) >= 0 for each in found]
        count = "" if what == compared[0] else f"{sum(better)} of {len(found)}"
        scores = [each[what] for each in found]
        rows.append(
            [f"{name}, {metric.name}", what, numbers(scores), numbers([np.mean(scores)]), count]
        )
    return rows


def numbers(values: Sequence[Any], digits: int = 4) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values)


@dataclass(frozen=True)
class Trial:
    """The runs of a competition with one seed. All of them hold out the same rows."""

    name: str
    seed: int
    folder: Path

    def scores(self, kind: str) -> Scores:
        config = replace(configs.load(self.name), seed=self.seed, checkpoint_seconds=32400)
        competitions.EMBEDDED[config.competition]().write(self.folder / "data", hidden=True)
        if kind == "soup":
            return self._soup(config)
        averaged = replace(config.optimizer, swa_start=SWA_START)
        mean = self._trained("swa", replace(config, optimizer=averaged))
        weights = self._last(mean), mean.folds, self._new_statistics(mean)
        scores = (self._hidden(mean, each) for each in weights)
        return dict(zip(KINDS[kind], scores, strict=True))

    def _soup(self, config: Config) -> Scores:
        half = replace(config, **config.with_epochs(config.epochs // 2))
        self._trained("first", half)
        runs = [self.folder / f"run-{number}" for number in range(len(RATES))]
        for run, rate in zip(runs, RATES, strict=True):
            given = replace(half.optimizer, base_rate=rate * half.optimizer.base_rate)
            first = str(self.folder / "first")
            self._trained(run.name, replace(half, optimizer=given, init_from=first))
        made = soup.make(runs, self.folder / "data", self.folder / "soup", lambda line: None)
        sign = 1 if made["greater_is_better"] else -1
        alone = {each["run_id"]: sign * each["alone"] for each in made["members"]}
        loaded = [artifact.load(run / "artifact") for run in runs]
        best = max(loaded, key=lambda each: alone[each.manifest["run_id"]])
        mixed = artifact.load(self.folder / "soup" / "artifact")
        pairs = (best, best.folds), (mixed, mixed.folds), (mixed, self._new_statistics(mixed))
        scores = (self._hidden(*pair) for pair in pairs)
        return dict(zip(KINDS["soup"], scores, strict=True)) | {
            "nested": made["other_half"]["ensemble"],
            "nested best": made["other_half"]["best_member"],
            "members": sum(each["weight"] > 0 for each in made["members"]),
        }

    def _trained(self, place: str, config: Config) -> Artifact:
        output = self.folder / place
        training.train(config, self.folder / "data", output, show=lambda line: None)
        return artifact.load(output / "artifact")

    def _last(self, made: Artifact) -> Sequence[Weights]:
        """Return the weights after the last step, which only the checkpoints have."""
        run, model, weights = self.folder / "swa", architectures.build(made.config), []
        folders = sorted(run.glob("fold-*")) if made.config.folds else [run]
        for folder in folders:
            saved = checkpoint.latest(folder / "checkpoints")
            assert saved is not None  # noqa: S101 - the run is complete
            kinds = {
                "params/": model.trainable_variables,
                "buffers/": model.non_trainable_variables,
            }
            for kind, variables in kinds.items():
                arrays = [saved.arrays[name] for name in saved.arrays if name.startswith(kind)]
                for variable, array in zip(variables, arrays, strict=True):
                    variable.assign(array)
            weights.append(artifact.weights_of(model))
        return weights

    def _new_statistics(self, made: Artifact) -> Sequence[Weights]:
        """Return the weights after their BatchNorm statistics were recomputed in an epoch."""
        config = made.config
        examples = dataset.read_training(self.folder / "data", config)
        model, weights = architectures.build(config), []
        norms = [
            layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)
        ]
        changes = Augmentation(config.data, config.seed, config.batch)
        for fold, (rows, _) in zip(made.folds, folds.splits(examples, config), strict=True):
            artifact.assign(model, fold)
            order = Batches(
                examples.inputs, examples.labels, batch=config.batch, seed=config.seed, rows=rows
            )
            for step in range(-(-len(rows) // config.batch)):
                inputs: Any = order.at(step)[0]
                if config.data.images:
                    inputs, _ = changes.applied(inputs, changes.draws(step))
                for norm in norms:
                    norm.momentum = step / (step + 1)
                model(inputs, training=True)
            weights.append(artifact.weights_of(model))
        return weights

    def _hidden(self, made: Artifact, weights: Sequence[Weights]) -> float:
        """Score the predictions on the hidden rows, averaged over folds."""
        config, data = made.config, self.folder / "data"
        test = dataset.read_test(data, config, made.encoding)
        model, each = architectures.build(config), []
        for fold in weights:
            artifact.assign(model, fold)
            outputs = architectures.outputs(model, test.inputs(np.arange(len(test))), BATCH)
            each.append(made.target.predictions(outputs))
        form = submission.form_of(config, made.target, metrics.of(config), data)
        path = self.folder / "submission.csv"
        form.write(path, test.ids, made.target.mean(each))
        return competitions.EMBEDDED[config.competition]().judge(path)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with tempfile.TemporaryDirectory() as folder:
            one = Trial(sys.argv[1], int(sys.argv[2]), Path(folder))
            print(json.dumps(one.scores(sys.argv[3])))
    else:
        main()
