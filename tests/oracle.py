"""The oracle: small trainings by another commit and by this checkout end with the same numbers.

`python tests/oracle.py --before COMMIT [--only NAME]`. Each side trains and infers in a process of
its own, from its own files. Weights, validation and submission have to be equal to the bit, or as
close as the same training is to itself when its start moves by one unit in the last place. Exit
code 1: something is further apart than that.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
# What a text of ours, as a field's name, is called at another commit: {commit: {ours: theirs}}.
# It is replaced in the configs, and in the names of weights.
THEIRS: Mapping[str, Mapping[str, str]] = {}
# How many times the effect of one rounding another order of additions may have.
TIMES = 32
FLAGS = "--xla_backend_optimization_level=0 --xla_force_host_platform_device_count="
CLASSES = ("10", "9", "A b", "ß")
TRAIN, TEST, SIDE = 72, 10, 8
IMAGES = {"height": SIDE, "width": SIDE, "channels": 1}
SGD = {"name": "sgd", "base_rate": 0.05, "base_batch": 16, "weight_decay": 1e-3}
ADAMW = {"name": "adamw", "base_rate": 5e-3, "base_batch": 16, "weight_decay": 0.01}
CUSTOM = """
import keras
from keras import layers


def plain(images, num_classes, batchnorm_momentum, *, width):
    x = layers.Conv2D(width, 3, padding="same", use_bias=False)(images)
    x = layers.BatchNormalization(momentum=batchnorm_momentum)(x)
    x = layers.GlobalAveragePooling2D()(layers.Activation("relu")(x))
    return layers.Dense(num_classes, dtype="float32")(layers.Dropout(0.2)(x))


def focal(labels, outputs):
    losses = keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
    return (1 - keras.ops.exp(-losses)) ** 2 * losses


def share(truth, labels):
    return float((truth == labels).mean())


def darker(image, key):
    import jax

    return image // (1 + jax.random.randint(key, (), 0, 2)).astype(image.dtype)
"""


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        data, optimizer, fields: of its config, beside the usual ones.
        code: Python above the config.
        devices: that its process has.
        interrupted: steps after which it stops, to be resumed; 0: it runs through.
    """

    data: Mapping[str, Any]
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    devices: int = 1
    interrupted: int = 0

    def text(self, name: str) -> str:
        """Return its config's file."""
        usual = {"competition": "oracle", "num_classes": len(CLASSES), "model": "small_cnn"}
        usual |= {"model_options": {"width": 8, "dropout": 0.2}, "batch": 16, "epochs": 3}
        usual |= {"warmup_epochs": 1, "batchnorm_batch": 8, "progress_seconds": 0}
        optimizer = {"name": "adam", "base_rate": 5e-3, "base_batch": 16} | dict(self.optimizer)
        return (
            f"{self.code}\nfrom pipeline.config import Config, Data, Optimizer\n\n"
            f"CONFIG = Config(name={name!r}, **{usual | dict(self.fields)!r},"
            f" data=Data(**{dict(self.data)!r}), optimizer=Optimizer(**{optimizer!r}))\n"
        )


MLP = {"model": "mlp", "model_options": {"width": 8, "depth": 1, "dropout": 0.1}}
OWN = {"model": "plain", "model_options": {"width": 8}, "loss": "focal", "metric": "share"}
FILES = IMAGES | {"resize": "stretch"}
RECORDS = FILES | {
    "kind": "tfrecords",
    "train_records": "train.tfrec",
    "test_records": "test.tfrec",
}
PIXELS = IMAGES | {"kind": "pixels", "train_csv": "pixels_train.csv", "test_csv": "pixels_test.csv"}
ARRAYS = IMAGES | {"kind": "arrays"}
TABLE = {"kind": "table", "train_csv": "table_train.csv", "test_csv": "table_test.csv"}
TABLE |= {"numeric_columns": ("a", "b"), "categorical_columns": ("kind",)}
MIXED = {"mixup": 0.2, "cutmix": 1.0, "rand_augment": 2}
CASES: Mapping[str, Case] = {
    "images": Case(FILES | {"crop_padding": 1, "flip": True}),
    "pixels": Case(PIXELS, SGD, MLP),
    "arrays": Case(ARRAYS | {"flip": True}, ADAMW, {"keep": "best", "views": 2}),
    "tfrecords": Case(RECORDS, {"clip_norm": 1.0}),
    "class_folders": Case(FILES | {"train_csv": None, "rotate": True}, {"schedule": "constant"}),
    "table_in_folds": Case(TABLE, ADAMW, MLP | {"folds": 3}),
    "ema": Case(ARRAYS, SGD | {"ema_momentum": 0.9}),
    "mixup": Case(ARRAYS | MIXED),
    "custom_code": Case(ARRAYS, {}, OWN | {"augment": "darker"}, CUSTOM),
    "micro_batches": Case(ARRAYS, SGD, {"micro_batch": 8}),
    "devices": Case(ARRAYS | {"crop_padding": 1}, SGD, devices=8),
    "resumed": Case(ARRAYS | {"crop_padding": 1}, interrupted=5),
}
# Runs commands in a tree; NUDGED moves each first weight by one unit in the last place.
COMMANDS = """
import json, os, runpy, sys
import numpy as np
import keras

draw, call = np.random.default_rng(1), keras.initializers.VarianceScaling.__call__

def nudged(self, *given, **named):
    numbers = np.asarray(call(self, *given, **named))
    ends = draw.choice(np.array([-np.inf, np.inf], numbers.dtype), numbers.shape)
    return keras.ops.convert_to_tensor(np.nextafter(numbers, ends))

if os.environ.get("NUDGED"):
    keras.initializers.VarianceScaling.__call__ = nudged
for words in json.load(sys.stdin):
    sys.argv = ["pipeline", *words]
    try:
        runpy.run_module("pipeline", run_name="__main__")
    except SystemExit as end:
        if end.code:
            sys.exit(f"{' '.join(words)}: exit code {end.code}")
"""
Numbers = dict[str, dict[str, np.ndarray]]  # weights, validation, submission: by name


def write_data(folder: Path) -> None:
    """Write the same examples in each kind: the bright quarter of an image tells its label."""
    import tensorflow as tf
    from PIL import Image

    draw, number = np.random.default_rng(0), TRAIN + TEST
    pixels = draw.integers(0, 150, (number, SIDE, SIDE), dtype=np.uint8)
    for row, image in enumerate(pixels):
        image[row % 4 // 2 * 4 :, row % 2 * 4 :][:4, :4] += 90
    ids = [f"{'r' if row < TRAIN else 'e'}{row:03d}" for row in range(number)]
    labels = pd.DataFrame({"id": ids, "label": [CLASSES[row % 4] for row in range(number)]})
    numbers = draw.normal(size=(number, 2)) + np.arange(number)[:, None] % 4
    tables = {
        "": labels,
        "pixels_": labels.join(pd.DataFrame(pixels.reshape(number, -1)).add_prefix("pixel")),
        "table_": labels.join(pd.DataFrame(numbers, columns=["a", "b"])).assign(kind="x"),
    }
    tables["table_"].loc[::3, "kind"] = "y"
    for name, table in tables.items():
        table[:TRAIN].to_csv(folder / f"{name}train.csv", index=False)
        table[TRAIN:].drop(columns="label").to_csv(folder / f"{name}test.csv", index=False)
    labels[TRAIN:].assign(label="x").to_csv(folder / "sample_submission.csv", index=False)
    np.save(folder / "train.npy", pixels[:TRAIN])
    np.save(folder / "test.npy", pixels[TRAIN:])
    for part, rows in (("train", range(TRAIN)), ("test", range(TRAIN, number))):
        with tf.io.TFRecordWriter(str(folder / f"{part}.tfrec")) as writer:
            for row in rows:
                label = labels["label"][row]
                path = folder / part / (label if part == "train" else "") / f"{ids[row]}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels[row]).resize((12, 10)).save(path)
                held = {"id": ids[row].encode(), "image": path.read_bytes()}
                held |= {"label": label.encode()} if part == "train" else {}
                features = {
                    name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
                    for name, value in held.items()
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())


@contextmanager
def worktree(commit: str) -> Iterator[Path]:
    """Yield a folder with the files of a commit, in which nothing is written."""
    with tempfile.TemporaryDirectory(prefix="oracle-tree-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        if subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit]).returncode:
            sys.exit(f"{commit} cannot be checked out; expected a commit of this repository.")
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def run(
    tree: Path, work: Path, names: Sequence[str], theirs: Mapping[str, str], *, nudged: bool = False
) -> dict[str, Numbers]:
    """Train and infer in a tree, and return the numbers of each case."""
    for devices in sorted({CASES[name].devices for name in names}):
        commands: list[list[str]] = []
        for name in (name for name in names if CASES[name].devices == devices):
            case, out = CASES[name], work / name
            out.mkdir(parents=True)
            (out / f"{name}.py").write_text(translated(case.text(name), theirs), encoding="utf-8")
            words = ["--config", str(out / f"{name}.py"), "--output", str(out)]
            words += ["--input", str(work.parent / "data")]
            if case.interrupted:
                commands.append(["train", *words, "--max-steps", str(case.interrupted)])
            commands += [["train", *words], ["infer", *words, "--artifact", str(out / "artifact")]]
        flags = f"{FLAGS}{devices}"
        environment = {"PYTHONPATH": str(tree), "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
        environment |= {"XLA_FLAGS": flags, "PJRT_NPROC": "16", "NUDGED": "1" * nudged}
        environment |= {"JAX_COMPILATION_CACHE_DIR": str(work.parent / "compiled")}
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS],
            cwd=tree,
            env=os.environ | environment,
            input=json.dumps(commands),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{tree}: {done.stdout[-3000:]}")
    return {name: numbers(work / name, theirs) for name in names}


def translated(text: str, theirs: Mapping[str, str]) -> str:
    """Return a text of ours as another commit has it."""
    for ours, other in theirs.items():
        text = text.replace(ours, other)
    return text


def numbers(out: Path, theirs: Mapping[str, str]) -> Numbers:
    """Return what a training and its inference left; a text counts as the place of its class."""
    ours = {other: name for name, other in theirs.items()}
    held: Numbers = {"weights": {}, "validation": {}, "submission": {}}
    for path in sorted((out / "artifact").glob("*.npz")):
        with np.load(path) as file:
            for name, array in file.items():
                held["weights"][f"{path.name} {translated(name, ours)}"] = array
    metrics = json.loads((out / "artifact" / "manifest.json").read_bytes())["metrics"]
    held["validation"] = {name: np.array(value) for name, value in metrics.items()}
    with np.load(out / "validation.npz") as file:
        held["validation"] |= dict(file)
    table = pd.read_csv(out / "submission.csv", dtype=str, keep_default_na=False)
    held["submission"] = {
        name: np.array(CLASSES.index(label)) for name, label in table.itertuples(index=False)
    }
    return held


def apart(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """Return the largest difference; infinite where names, shapes or types differ."""
    same = {name: (array.shape, array.dtype) for name, array in one.items()}
    if same != {name: (array.shape, array.dtype) for name, array in other.items()}:
        return np.inf
    moves = [
        np.abs(array.astype(np.float64) - other[name]).max(initial=0) for name, array in one.items()
    ]
    return float(np.nan_to_num(max(moves), nan=np.inf))


def main() -> int:
    """Compare and print a table; return the exit code."""
    parser = argparse.ArgumentParser("python tests/oracle.py", description=__doc__)
    parser.add_argument("--before", required=True, metavar="COMMIT")
    parser.add_argument("--only", choices=CASES, help="one case alone")
    options = parser.parse_args()
    names = [options.only] if options.only else list(CASES)
    theirs = next((THEIRS[name] for name in THEIRS if options.before.startswith(name)), {})
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder, worktree(options.before) as tree:
        work = Path(folder)
        (work / "data").mkdir()
        write_data(work / "data")
        before = run(tree, work / "before", names, theirs)
        after = run(ROOT, work / "after", names, {})
        parts = ("weights", "validation", "submission")
        found = {name: [apart(before[name][p], after[name][p]) for p in parts] for name in names}
        different = [name for name in names if any(found[name])]
        moved = run(ROOT, work / "nudged", different, {}, nudged=True) if different else {}
        for name in names:
            for part, difference in zip(parts, found[name], strict=True):
                said = "equal"
                if difference:
                    most = TIMES * apart(after[name][part], moved[name][part])
                    far = not difference <= most
                    wrong += far
                    said = f"{difference:.2e} apart, {TIMES} roundings move it by {most:.2e}"
                    said += "  DIFFERENT" * far
                print(f"{name:16}{part:12}{said}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
