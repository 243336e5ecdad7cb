"""A config that `inspect --for cpu` wrote, trained on this machine and scored on labels that it has
not seen.
"""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pipeline import config as configs
from pipeline.config import Config
from proofs.shared.environment import Checkout
from proofs.shared.results_table import Show

SECONDS = 3600.0


class Scored(NamedTuple):
    """What came of a folder.

    Attributes:
        right, asked: rows of the test set.
        seconds: of training and inference together.
        config: that was written.
    """

    right: int
    asked: int
    seconds: float
    config: Config

    @property
    def accuracy(self) -> float:
        """The share of right rows."""
        return self.right / self.asked

    @property
    def error(self) -> float:
        """Its standard error."""
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.asked)


def proposed(checkout: Checkout, data: Path, config: Path, budget: str, show: Show) -> None:
    """Write the config that `inspect` proposes for this CPU and a budget."""
    words = ["invoke", "inspect", "--input", str(data), "--write", str(config)]
    _run(checkout, [*words, "--for", "cpu", "--budget", budget], config.with_suffix(".log"), show)


def scored(
    checkout: Checkout, data: Path, config: Path, truth: Mapping[str, str], out: Path, show: Show
) -> Scored:
    """Train, infer, and compare the submission with the truth.

    Args:
        config: a file.
        truth: {id: label} of the test set in `data`.
    """
    out.mkdir(parents=True)
    given = ["--config", str(config), "--input", str(data), "--output", str(out / "run")]
    command = ["python", "-m", "pipeline"]
    seconds = _run(checkout, [*command, "train", *given], out / "train.log", show)
    artifact = ["--artifact", str(out / "run" / "artifact")]
    seconds += _run(checkout, [*command, "infer", *given, *artifact], out / "infer.log", show)
    table = pd.read_csv(out / "run" / "submission.csv", dtype=str).to_numpy()
    right = sum(truth[name] == label for name, label in table)
    return Scored(right, len(truth), seconds, configs.load(str(config)))


def _run(checkout: Checkout, words: list[str], log: Path, show: Show) -> float:
    """Run a command, and return its seconds.

    Raises:
        ValueError: if it fails.
    """
    show(f"      {shlex.join(words)}")
    done = checkout.run(shlex.join(words), log=log, timeout_seconds=SECONDS)
    if done.code:
        raise ValueError(f"exit {done.code}: {done.output[-500:]}")
    return done.seconds
