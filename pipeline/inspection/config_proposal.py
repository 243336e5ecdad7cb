"""Proposal: what `pipeline.inspection.inspection` found → a config that runs as it is, as an object
and as the text of its file.

Model, batch, epochs and rate follow from the number of rows and what a forward pass costs, so that
a small set trains in about a minute on two CPU cores. They are where to begin, not what wins.
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
from pipeline.data import labels as target
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
SPEED = 2e10  # operations a second of two CPU cores, as the digits train on them
MOST_EPOCHS, LEAST_EPOCHS = 40, 8
BASE, MOST_BATCH = 32, 256  # up to 8 times the base batch the scaled rate was checked
TINY, LEAST_SIDE = (
    32,
    16,
)  # pixels: up to which the small network is right, and from which the other one has some left after its poolings
FOLDED = 1000  # rows of a table, below which one part held back is too small to tell anything
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Proposal:
    """A config with the reasons for what it says, a line each."""

    config: Config
    findings: tuple[Finding, ...]


def propose(found: Inspection, name: str, competition: str) -> Proposal:
    """Return a config of that name for what was found.

    Args:
        name: of the config. competition: its slug on Kaggle.

    Raises:
        ConfigError: if the name or the slug cannot work.
    """
    data, rows = found.inputs.data, len(found.ids)
    several = len(data.labels) > 1 or found.goal.target == "regression"
    outputs = len(data.labels) if several else len(found.goal.classes)
    batch = _batch(rows)
    more: dict[str, Any] = {}
    if data.kind == "table":
        model, options, cost, why = _of_table(data, rows)
        optimizer = Optimizer(
            name="adamw",
            base_rate=3e-3,
            base_batch=BASE,
            weight_decay=0.05 if rows < FOLDED else 0.02,
        )
        counts = (
            [count for _, count in found.goal.classes] if found.goal.target == "classes" else [rows]
        )
        if rows < FOLDED and min(counts) >= 10:
            more["folds"] = 5
    else:
        model, options, cost, why = _of_images(data, outputs)
        optimizer = Optimizer(name="adam", base_rate=2e-3, base_batch=BASE)
        data = replace(data, **_augmented(data))
    trained = more.get("folds", 1)
    wanted = SECONDS * SPEED / (3 * cost * rows * trained)
    epochs = int(min(max(wanted, LEAST_EPOCHS), MOST_EPOCHS))
    seconds = 3 * cost * rows * trained * epochs / SPEED
    config = Config(
        name=name,
        competition=competition,
        num_classes=0 if several else outputs,
        target=found.goal.target,
        metric=found.goal.metric,
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
        **more,
    )
    said = [
        Finding(
            CHOSEN,
            "model",
            f"{model} {', '.join(f'{key}={value}' for key, value in options.items())}: {why}",
        )
    ]
    text = f"{batch} rows a step: fewer than {LEAST_STEPS_PER_EPOCH} steps an epoch show BatchNorm little; {MOST_BATCH} at most"
    said.append(Finding(CHOSEN, "batch", text))
    long = f"about {max(seconds, 5):,.0f} s" if seconds < 120 else f"about {seconds / 60:,.0f} min"
    text = f"{epochs}: {long} of computing on 2 CPU cores{f', {trained} folds' if trained > 1 else ''}, beside the time to compile"
    said.append(Finding(CHOSEN, "epochs", text))
    if trained > 1:
        text = f"{trained}: of {rows:,} rows one part held back would tell little"
        said.append(Finding(CHOSEN, "folds", text))
    if data.kind != "table":
        mirrored = (
            "mirrored, too: set flip=False for writing, or whatever is another thing in a mirror"
            if data.flip
            else "not mirrored, since grey pictures are often writing"
        )
        said.append(
            Finding(
                CHOSEN,
                "augmentation",
                f"images are moved by {data.crop_padding} of their pixels at most; {mirrored}",
            )
        )
    return Proposal(config, tuple(said))


def _batch(rows: int) -> int:
    """Return how many rows a step takes.

    >>> [_batch(rows) for rows in (50, 600, 1200, 50_000)]
    [32, 32, 32, 256]
    """
    batch = BASE
    while batch < MOST_BATCH and 0.9 * rows >= 2 * batch * LEAST_STEPS_PER_EPOCH:
        batch *= 2
    return batch


def _of_table(data: Data, rows: int) -> tuple[str, dict[str, Any], float, str]:
    width, depth, dropout = (32, 1, 0.3) if rows < FOLDED else (128, 2, 0.2)
    cost = (
        2.0 * width * (data.shape[0] + 8 * len(data.categorical_columns) + width * (depth - 1))
        + 2e4
    )
    return (
        "mlp",
        {"width": width, "depth": depth, "dropout": dropout},
        cost,
        f"for the rows of a table; small, for {rows:,} rows"
        if rows < FOLDED
        else "for the rows of a table",
    )


def _of_images(data: Data, outputs: int) -> tuple[str, dict[str, Any], float, str]:
    """Return model, options, operations of a forward pass, and why."""
    area = data.height * data.width
    if max(data.height, data.width) <= TINY + 8 or min(data.height, data.width) < LEAST_SIDE:
        width = 32 if area <= 256 else 16
        first = 9 * (data.channels * width + width**2)
        second = 9 * (2 * width**2 + 4 * width**2)
        cost = 2.0 * area * (first + second / 4) + 2.0 * area / 16 * 2 * width * outputs
        return (
            "small_cnn",
            {"width": width, "dropout": 0.3},
            cost,
            f"right for images of up to {TINY} pixels or so, and quick without accelerators",
        )
    cost = 2.0 * area * (2 * 9 * 16**2 + 2 * 9 * 32**2 / 4 + 2 * 9 * 64**2 / 16)
    return (
        "wide_resnet",
        {"k": 1, "n": 1, "kernel_size": 3},
        cost,
        "the smallest of its kind; on a TPU take a larger k and n",
    )


def _augmented(data: Data) -> dict[str, Any]:
    return {"crop_padding": max(min(data.height, data.width) // 8, 1), "flip": data.channels == 3}


def check(proposal: Proposal, found: Inspection) -> Finding:
    """Return what came of reading the folder with the proposed config, as training and inference
    read it, and of writing a submission.

    Raises:
        DataError, SubmissionError: as they would.
    """
    config, held = proposal.config, found.contents
    if config.data.kind == "images":  # whose files were decoded already
        for broken, looked, most in (
            (found.inputs.broken, len(found.inputs.rows), 0.01),
            (found.inputs.test_broken, len(found.inputs.test_rows), image_files.MOST_BROKEN),
        ):
            if len(broken) > most * looked:
                raise DataError(image_files.describe_broken(broken, looked, config.data))
        read, labels = target.read(held.labelled, config, held.folder / held.train)
        kept = np.array([name not in found.inputs.broken for name in found.ids])
        ids = tuple(name for name, there in zip(found.ids, kept, strict=True) if there)
        examples = Examples(
            ids, np.zeros((len(ids), 1)), labels[kept], read, broken=found.inputs.broken
        )
    else:
        examples = read_training(held.folder, config)
    pairs = folds.splits(examples, config)
    tests = read_test(held.folder, config, examples.encoding)
    sample = held.folder / config.data.sample_submission
    truth = examples.target.truth(examples.labels)
    mean = (
        truth.mean(axis=0)
        if truth.ndim > 1
        else np.bincount(truth, minlength=len(examples.classes)) / len(truth)
    )
    with tempfile.TemporaryDirectory(prefix="inspect-") as scratch:
        values = np.repeat(np.asarray(mean, np.float32)[None], len(tests), axis=0)
        wanted, path = (
            prediction_format.Form(examples.target, config.metric, sample),
            Path(scratch) / "submission.csv",
        )
        wanted.check_labels()
        written = wanted.write(path, tests.ids, values)
    text = (
        f"read with this config: {len(examples):,} examples, {len(pairs[0][1]):,} of them held back, {len(tests):,} to predict; a submission of "
        f"{written:,} rows would be taken"
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
    }
    aim = f"{len(found.goal.classes)} labels" if found.goal.classes else "numbers to predict"
    doc = [
        f"{config.competition}: {what[config.data.kind]}, {aim}, {len(found.ids):,} labelled rows; proposed by `invoke inspect`.",
        "",
        f"Command   invoke relay --config {config.name}",
        "Expect    not yet run; write here what it gave",
    ]
    why = {finding.about: finding.text for finding in proposal.findings}
    comments = {
        "competition": "The last part of its address on Kaggle: after the folder, unless --competition said it.",
        "metric": "What is scored stands on the competition's page alone: correct it here.",
        "epochs": f"Where to begin: {why['epochs'].partition(': ')[2]}.",
    }
    return config_writer.write(config, doc, comments)


def write(path: Path, content: str) -> Config:
    """Write the file of a config, and return the config that is loaded from it.

    Raises:
        ConfigError: if the file is there already, or its name cannot be a config's. DiskError: if
            it cannot be written.
    """
    refuse_taken(path)
    atomic_file.write(path, content.encode())
    return configs.load(str(path))


def refuse_taken(path: Path) -> None:
    """Raise a `ConfigError` unless a new file can be made there."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"{path} is there already; expected a new file, and it stays as it is.\nGive another name: --write NAME"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {path.parent}; expected one.\nMake it, or give another name: --write NAME"
        )


def place(name: str) -> Path:
    """Return the file that a name, or the path of a .py file, means.

    Raises:
        ConfigError: if it cannot name a config.
    """
    path = Path(name) if name.endswith(".py") else CONFIGS / f"{name}.py"
    if (
        not NAME.fullmatch(path.stem)
        or keyword.iskeyword(path.stem)
        or (not name.endswith(".py") and "/" in name)
    ):
        raise ConfigError(
            f"--write {name}: expected a name of lower-case letters, digits and underscores, which begins with a letter, or the path of such a "
            ".py file.\nCorrect it."
        )
    return path


def names(folder: Path, path: Path | None, competition: str) -> tuple[str, str]:
    """Return the name of the config and the slug of the competition: as given, or else after the
    file and the folder.

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
