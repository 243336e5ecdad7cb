"""Benchmark inference, from photographs to submission.csv, against Keras' `model.predict`.

`python -m benchmarks.inference PART …` runs one part in a separate process and prints a JSON value.
"""

import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import jpeg
from benchmarks.measure import Table, in_process, write

SEED = 20261125
NAMES = tuple("0123456789")
ROWS, PROCESSES = 4_000, 3
PREDICTS = ("ours", "model.predict, batch 32", "model.predict, batch 1024")


def main() -> None:
    begun = time.perf_counter()
    tables = [beside_predict(backend) for backend in ("jax", "tensorflow")]
    write("inference", "Inference", tables, begun)


def beside_predict(backend: str) -> Table:
    """Measure the time from a loaded artifact to submission.csv, including compilation."""
    run = partial(in_process, "benchmarks.inference", KERAS_BACKEND=backend)
    taken: dict[str, list[float]] = {name: [] for name in PREDICTS}
    with tempfile.TemporaryDirectory() as folder:
        run("make", folder)
        for turn in range(PROCESSES):
            for name in PREDICTS[turn:] + PREDICTS[:turn]:
                taken[name].append(run("predict", name, folder))
            print(f"  turn {turn + 1} of {PROCESSES}", file=sys.stderr, flush=True)
        same = (Path(folder) / "ours/submission.csv").read_text() == (
            Path(folder) / "theirs.csv"
        ).read_text()
    if not same:
        raise ValueError(
            f"Our submission differs from the submission of model.predict on {backend}."
        )
    title = f"{ROWS:,} JPEGs of 500x375 to submission.csv, {backend}, with startup and compilation"
    note = "Ours also checks the golden outputs, writes a fallback first, and validates the file."
    return Table(title, "s", taken, note)


def untrained(folder: Path) -> None:
    import keras

    from pipeline import artifact
    from pipeline import config as configs
    from pipeline.data.labels import Target
    from pipeline.models import architectures

    digits = configs.load("digits")
    data = replace(digits.data, height=64, width=64, channels=3, suffix=".jpg", resize="stretch")
    options = {"width": 24, "dropout": 0.3}
    config = replace(digits, data=data, model_options=options, session_hours=None)
    keras.utils.set_random_seed(SEED)
    built, target = architectures.build(config), Target("classes", NAMES)
    golden = np.random.default_rng(SEED).integers(0, 256, (8, *config.data.shape), np.uint8)
    made = artifact.Artifact(
        {"run_id": "benchmark", "metric": "accuracy", "versions": {}, "metrics": {}},
        config,
        target,
        encoding=None,
        prior=np.full(len(NAMES), 1 / len(NAMES), np.float32),
        weights=artifact.weights_of(built),
        golden_inputs=golden,
        golden_outputs=target.predictions(architectures.outputs(built, golden, 8)),
    )
    artifact.save(folder, made)


def competition(folder: Path, files: list[Path]) -> None:
    """Write a test set of `ROWS` images, which are hard links to the given files."""
    (folder / "test").mkdir(parents=True)
    ids = [f"t{row:07d}" for row in range(ROWS)]
    for row, name in enumerate(ids):
        os.link(files[row % len(files)], folder / "test" / f"{name}.jpg")
    lines = [f"{name},0\n" for name in ids]
    (folder / "sample_submission.csv").write_text("id,label\n" + "".join(lines))


def predict(name: str, folder: Path) -> float:
    """Return the seconds that one of `PREDICTS` takes, without loading the artifact."""
    import pandas as pd

    from pipeline import artifact
    from pipeline.data.image_arrays import FileImages
    from pipeline.infer import inference
    from pipeline.models import architectures

    loaded, place = artifact.load(folder / "artifact"), folder / "competition"
    begun = time.perf_counter()
    if name == "ours":
        inference.infer(loaded, place, folder / "ours", show=lambda line: None)
        return time.perf_counter() - begun
    built = architectures.build(loaded.config)
    artifact.assign(built, loaded.weights)
    sample = pd.read_csv(place / "sample_submission.csv", dtype=str)
    paths = [place / "test" / f"{row}{loaded.config.data.suffix}" for row in sample["id"]]
    images = FileImages(paths, loaded.config.data)[:]  # decoded by the same code as ours
    found = built.predict(images, batch_size=int(name.split()[-1]), verbose=0)
    sample["label"] = [NAMES[index] for index in found.argmax(axis=1)]
    sample.to_csv(folder / "theirs.csv", index=False)
    return time.perf_counter() - begun


def part(what: str, *words: str) -> Any:
    folder = Path(words[-1])
    if what == "predict":
        return predict(words[0], folder)
    untrained(folder / "artifact")
    competition(folder / "competition", jpeg.photographs(folder / "photographs", 500, 375, 24))
    return None


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(part(*sys.argv[1:])))
    else:
        main()
