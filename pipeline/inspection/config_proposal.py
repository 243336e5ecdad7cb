"""A config that runs as it is, made of what `pipeline.inspection.inspection` found.

Model, batch, epochs and learning rate follow from the number of rows and the cost of a forward
pass, so that a small set trains in about a minute on two CPU cores. They are a start, no optimum.
"""

import keyword
import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import config as configs
from pipeline.config import Config, Data, Optimizer
from pipeline.config.config_files import CONFIGS
from pipeline.data import folds, image_files
from pipeline.data import labels as targets
from pipeline.data.dataset import Examples, read_training
from pipeline.data.test_set import read_test
from pipeline.errors import ConfigError, DataError
from pipeline.inspection import config_writer
from pipeline.inspection.inspection import Inspection
from pipeline.inspection.tables import CHOSEN, FOUND, Finding
from pipeline.storage import atomic_file
from pipeline.submission import prediction_format
from pipeline.training.learning_rate import LEAST_STEPS_PER_EPOCH

SECONDS = 60.0  # that a training may take
SPEED = 2e10  # operations per second on two CPU cores, measured on the digits
MOST_EPOCHS, LEAST_EPOCHS = 40, 8
BASE, MOST_BATCH = 32, 256  # the scaled learning rate was checked up to 8 times the base batch
TINY = 40  # pixels: up to this side the small network is right
LEAST_SIDE = 16  # pixels: below, the poolings of the large network leave nothing
FEW_ROWS = 1000  # of a table: with fewer, one held-out part is too small
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Proposal:
    """A config, with a finding for each of its choices."""

    config: Config
    findings: tuple[Finding, ...]


def propose(found: Inspection, name: str, competition: str) -> Proposal:
    """Return a config for what was found.

    Args:
        found: the inspected folder.
        name: of the config.
        competition: its slug on Kaggle.

    Raises:
        ConfigError: if the name or the slug is not valid.
    """
    data, rows, target = found.inputs.data, len(found.ids), found.target
    no_classes = len(data.labels) > 1 or target.kind == "regression"
    outputs = len(data.labels) if no_classes else len(target.classes)
    batch, parts = _batch(rows), 1
    if data.kind == "table":
        model, options, cost, why = _table_model(data, rows)
        decay = 0.05 if rows < FEW_ROWS else 0.02
        optimizer = Optimizer(name="adamw", base_rate=3e-3, base_batch=BASE, weight_decay=decay)
        classes = target.classes if target.kind == "classes" else ()
        if rows < FEW_ROWS and min([rows, *(count for _, count in classes)]) >= 10:
            parts = 5
    else:
        model, options, cost, why = _image_model(data, outputs)
        optimizer = Optimizer(name="adam", base_rate=2e-3, base_batch=BASE)
        padding = max(min(data.height, data.width) // 8, 1)
        data = replace(data, crop_padding=padding, flip=data.channels == 3)
    epoch = 3 * cost * rows * parts / SPEED  # seconds; a step costs three forward passes
    epochs = int(min(max(SECONDS / epoch, LEAST_EPOCHS), MOST_EPOCHS))
    config = Config(
        name=name,
        competition=competition,
        num_classes=0 if no_classes else outputs,
        target=target.kind,
        metric=target.metric,
        data=data,
        model=model,
        model_options=options,
        optimizer=optimizer,
        batchnorm_momentum=0.9 if rows < 20 * BASE else 0.97,
        batch=batch,
        epochs=epochs,
        warmup_epochs=max(epochs // 10, 1),
        progress_seconds=2.0,
        checkpoint_seconds=30.0,
        folds=parts if parts > 1 else None,
    )
    seconds = epoch * epochs
    time = f"about {max(seconds, 5):,.0f} s" if seconds < 120 else f"about {seconds / 60:,.0f} min"
    time += f" of computing on 2 CPU cores{f', {parts} folds' if parts > 1 else ''}"
    settings = ", ".join(f"{key}={value}" for key, value in options.items())
    reasons = {
        "model": f"{model} {settings}: {why}",
        "batch": f"{batch} rows per step, {MOST_BATCH} at most; with under {LEAST_STEPS_PER_EPOCH} "
        "steps per epoch, BatchNorm statistics are unreliable",
        "epochs": f"{epochs}: {time}, plus compilation",
    }
    if parts > 1:
        reasons["folds"] = f"{parts}: with {rows:,} rows, one held-out part is too small"
    if data.kind != "table":
        flips = "no flips, since grey images are often writing"
        if data.flip:
            flips = "flips, too: set flip=False for writing, or where left and right differ"
        reasons["augmentation"] = f"shifts by up to {data.crop_padding} pixels; {flips}"
    return Proposal(config, tuple(Finding(CHOSEN, key, text) for key, text in reasons.items()))


def _batch(rows: int) -> int:
    """Return the rows of a step.

    >>> [_batch(rows) for rows in (50, 600, 1200, 50_000)]
    [32, 32, 32, 256]
    """
    batch = BASE
    while batch < MOST_BATCH and 0.9 * rows >= 2 * batch * LEAST_STEPS_PER_EPOCH:
        batch *= 2
    return batch


def _table_model(data: Data, rows: int) -> tuple[str, dict[str, Any], float, str]:
    """Return model, options, operations of a forward pass, and why."""
    few = rows < FEW_ROWS
    width, depth, dropout = (32, 1, 0.3) if few else (128, 2, 0.2)
    inputs = data.shape[0] + 8 * len(data.categorical_columns)
    cost = 2.0 * width * (inputs + width * (depth - 1)) + 2e4
    options = {"width": width, "depth": depth, "dropout": dropout}
    why = "for the rows of a table" + (f"; small, for {rows:,} rows" if few else "")
    return "mlp", options, cost, why


def _image_model(data: Data, outputs: int) -> tuple[str, dict[str, Any], float, str]:
    """Return model, options, operations of a forward pass, and why."""
    area = data.height * data.width
    if max(data.height, data.width) <= TINY or min(data.height, data.width) < LEAST_SIDE:
        width = 32 if area <= 256 else 16
        first = 9 * (data.channels * width + width**2)
        second = 9 * (2 * width**2 + 4 * width**2)
        cost = 2.0 * area * (first + second / 4) + 2.0 * area / 16 * 2 * width * outputs
        why = f"for images of up to {TINY} pixels, and fast without accelerators"
        return "small_cnn", {"width": width, "dropout": 0.3}, cost, why
    cost = 2.0 * area * (2 * 9 * 16**2 + 2 * 9 * 32**2 / 4 + 2 * 9 * 64**2 / 16)
    why = "the smallest of its kind; on a TPU use a larger k and n"
    return "wide_resnet", {"k": 1, "n": 1, "kernel_size": 3}, cost, why


def check(proposal: Proposal, found: Inspection) -> Finding:
    """Read the folder with the proposed config as training and inference do, write a submission,
    and return the result.

    Raises:
        DataError: as training and inference would.
        SubmissionError: as inference would.
    """
    config, contents, inputs = proposal.config, found.contents, found.inputs
    if config.data.kind == "images":  # the inspection has decoded them already
        for broken, count, most in (
            (inputs.broken, len(inputs.rows), image_files.MOST_SKIPPED),
            (inputs.test_broken, len(inputs.test_rows), image_files.MOST_BROKEN),
        ):
            if len(broken) > most * count:
                raise DataError(image_files.describe_broken(broken, count, config.data))
        path = contents.folder / contents.train
        target, labels = targets.read(contents.train_table, config, path)
        kept = [place for place, name in enumerate(found.ids) if name not in inputs.broken]
        ids = tuple(found.ids[place] for place in kept)
        pixels = np.zeros((len(ids), 1))  # nothing below looks at them
        examples = Examples(ids, pixels, labels[kept], target, broken=inputs.broken)
    else:
        examples = read_training(contents.folder, config)
    pairs = folds.splits(examples, config)
    tests = read_test(contents.folder, config, examples.encoding)
    truth = examples.target.truth(examples.labels)
    count = len(examples.classes)
    sums = truth.sum(axis=0) if truth.ndim > 1 else np.bincount(truth, minlength=count)
    mean = np.asarray(sums / len(truth), np.float32)
    sample = contents.folder / config.data.sample_submission
    form = prediction_format.Form(examples.target, config.metric, sample)
    form.check_labels()
    with tempfile.TemporaryDirectory(prefix="inspect-") as scratch:
        values = np.tile(mean, (len(tests), 1))
        written = form.write(Path(scratch) / "submission.csv", tests.ids, values)
    text = (
        f"read with this config: {len(examples):,} examples, {len(pairs[0][1]):,} of them held "
        f"out, {len(tests):,} to predict; a submission of {written:,} rows would be accepted"
    )
    return Finding(FOUND, "checked", text)


def text(found: Inspection, proposal: Proposal) -> str:
    """Return the file of the config, as `pipeline.config.load` reads it."""
    config = proposal.config
    what = {
        "images": "image files",
        "pixels": "images as columns",
        "arrays": "images in an array",
        "table": "a table",
    }[config.data.kind]
    target = f"{len(found.target.classes)} labels" if found.target.classes else "numbers to predict"
    doc = [
        f"{config.competition}: {what}, {target}, {len(found.ids):,} labelled rows; proposed by "
        "`invoke inspect`.",
        "",
        f"Command   invoke relay --config {config.name}",
        "Expect    not yet run; write the score here",
    ]
    why = {finding.about: finding.text for finding in proposal.findings}
    comments = {
        "competition": "The last part of its address on Kaggle: the folder's name, unless "
        "--competition was given.",
        "metric": "A default: the metric is only on the competition page. Correct it here.",
        "epochs": f"A start: {why['epochs'].partition(': ')[2]}.",
    }
    return config_writer.write(config, doc, comments)


def write(path: Path, content: str) -> Config:
    """Write the file of a config, and return the config that is loaded from it.

    Raises:
        ConfigError: if the file exists, or its name cannot be a config's.
        DiskError: if it cannot be written.
    """
    refuse_existing(path)
    atomic_file.write(path, content.encode())
    return configs.load(str(path))


def refuse_existing(path: Path) -> None:
    """Raise a `ConfigError` unless a new file can be made at this path."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"{path} exists; expected a new file, and this one stays as it is.\n"
            "Give another name: --write NAME"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {path.parent}; expected one.\n"
            "Make it, or give another name: --write NAME"
        )


def place(name: str) -> Path:
    """Return the file that --write means by a name, or by the path of a .py file.

    Raises:
        ConfigError: if it cannot name a config.
    """
    is_path = name.endswith(".py")
    path = Path(name) if is_path else CONFIGS / f"{name}.py"
    valid = NAME.fullmatch(path.stem) and not keyword.iskeyword(path.stem)
    if not valid or ("/" in name and not is_path):
        raise ConfigError(
            f"--write {name}: expected a name of lower-case letters, digits and underscores that "
            "begins with a letter, or the path of such a .py file.\nCorrect it."
        )
    return path


def names(folder: Path, path: Path | None, competition: str) -> tuple[str, str]:
    """Return the name of the config and the slug of the competition: as given, or after the file
    and the folder.

    >>> names(Path("data/Leaf Diseases"), None, "")
    ('leaf_diseases', 'leaf-diseases')
    """
    words = re.findall(r"[a-z0-9]+", folder.resolve().name.lower())
    slug = competition or "-".join(words)[:50].strip("-")
    slug = slug if len(slug) > 2 else f"{slug}-competition"
    if path is not None:
        return path.stem, slug
    name = re.sub(r"[^a-z0-9]+", "_", slug.lower())
    name = name if name[:1].isalpha() else f"c_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name, slug
