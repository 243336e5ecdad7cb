"""Second stages that begin with the weights of a first one, beside trainings from scratch.

`python -m proofs.custom.warm_starts FOLDER SEED …` trains on digits, first at 8 x 8 pixels and then
at 12 x 12 (progressive resizing), once for each seed, and prints one JSON object.
"""

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from localkaggle.competitions import digits
from pipeline import artifact, warm_start
from pipeline import config as configs
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.models import architectures, weight_names
from pipeline.training import training
from pipeline.training.train_step import Step

EPOCHS = 10
LOSS = 0.2  # of the validation, at which about 94 % are right
BACKBONES = (("mobilenetv3_small", "mobilenetv3_large"), ("efficientnetv2b0", "efficientnetv2b2"))


def settings(seed: int) -> Config:
    """Return the config of the first stage."""
    base = configs.load("digits")
    return replace(
        base,
        seed=seed,
        model="strided_resnet",
        model_options={"width": 16, "stride": 1},
        data=replace(base.data, validation_fraction=0.3),
        epochs=EPOCHS,
        warmup_epochs=1,
        progress_seconds=3600,
    )


def larger(config: Config) -> Config:
    """Return the config of the second stage, of larger images."""
    return replace(config, data=replace(config.data, height=12, width=12, resize="stretch"))


def run(config: Config, folder: Path, output: Path) -> tuple[list[tuple[int, float]], Any]:
    """Train, and return (step, validation loss) of each epoch, and the arrays that the first step
    was given, by name.
    """
    given: dict[str, np.ndarray] = {}
    train = Step.train

    def noted(self: Step, tree: Any, *rest: Any) -> Any:
        if not given:
            variables = (*self.model.trainable_variables, *self.model.non_trainable_variables)
            keys = weight_names.keys(self.model)
            for variable, value in zip(variables, (*tree[0], *tree[1]), strict=True):
                if id(variable) in keys:
                    given[keys[id(variable)]] = np.asarray(value)
        return train(self, tree, *rest)

    Step.train = noted  # type: ignore[method-assign, assignment]
    training.train(config, folder, output, show=lambda line: None)
    Step.train = train  # type: ignore[method-assign]
    with (output / "history.csv").open(newline="") as file:
        rows = [(int(row["step"]), float(row["validation_loss"])) for row in csv.DictReader(file)]
    return rows, given


def compared(seed: int, folder: Path, output: Path) -> dict[str, Any]:
    """Return whether a second stage began with the weights of the first, and how many steps it, and
    a training from scratch, took to `LOSS`.
    """
    first = settings(seed)
    training.train(first, folder, output / "first", show=lambda line: None)
    theirs = artifact.load(output / "first" / "artifact")
    warm, given = run(
        replace(larger(first), init_from=str(output / "first")), folder, output / "second"
    )
    scratch, _ = run(larger(first), folder, output / "scratch")
    steps = [
        next((step for step, value in rows if value <= LOSS), None) for rows in (warm, scratch)
    ]
    return {
        "same": sum(np.array_equal(given[name], theirs.weights[name]) for name in theirs.weights),
        "arrays": len(theirs.weights),
        "warm": steps[0],
        "scratch": steps[1],
        "ends": [warm[-1][1], scratch[-1][1]],
    }


def refused(small: str, large: str, any_run: Artifact) -> str:
    """Return what is said of a backbone that begins with the weights of another one's size."""
    data = replace(any_run.config.data, height=32, width=32, channels=3, resize="stretch")
    options = {"pretrained": "none"}
    theirs, ours = (
        replace(any_run.config, model=name, model_options=options, data=data)
        for name in (small, large)
    )
    weights = artifact.weights_of(architectures.build(theirs))
    first = warm_start.FirstStage(replace(any_run, config=theirs, weights=weights), small)
    try:
        warm_start.begin(architectures.build(ours), first, ours, None, lambda line: None)
    except ConfigError as error:
        return str(error)
    return ""


def main(folder: Path, seeds: list[int]) -> dict[str, Any]:
    """Run all of it and return what was measured."""
    competition = folder / "digits"
    digits().write(competition)
    found = [compared(seed, competition, folder / str(seed)) for seed in seeds]
    any_run = artifact.load(folder / str(seeds[0]) / "first" / "artifact")
    return {
        "loss": LOSS,
        "stages": found,
        "refused": {large: refused(s, large, any_run) for s, large in BACKBONES},
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), [int(seed) for seed in sys.argv[2:]])))
