"""Inference beside its own halves, and beside Keras' `model.predict`.

On a machine whose cores do everything, overlap gains nothing. So one core computes, as an
accelerator would, and the other decodes. `python -m benchmarks.inference PART …` is a process of
its own and prints one JSON value.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from benchmarks.measure import Table, in_turn, write

if TYPE_CHECKING:
    from pipeline.artifact import Artifact
    from pipeline.config import Config

SEED, TURNS, BATCH = 20261125, 7, 64
NAMES = tuple("0123456789")
# Rows, the (width, height) of JPEGs or None for 8x8 PNGs, side and width of the network.
FLOWS: dict[str, tuple[int, tuple[int, int] | None, int, int]] = {
    "decoding takes longer (2000x1500 JPEGs, a small network)": (480, (2000, 1500), 32, 2),
    "computing takes longer (8x8 PNGs, a large network)": (2000, None, 8, 256),
    "both take about as long (500x375 JPEGs)": (2000, (500, 375), 64, 24),
}
ROWS, PROCESSES = 4_000, 3
PREDICTS = ("ours", "model.predict, batch 32", "model.predict, batch 1024", "PyDataset")


def main() -> None:
    """Measure, and write the section."""
    begun = time.perf_counter()
    tables = []
    for name, (rows, *_) in FLOWS.items():
        with tempfile.TemporaryDirectory() as folder:
            taken = in_process("jax", "flow", name, folder)
        tables.append(Table(f"{rows:,} rows, {name}", "s", taken))
    for backend in ("jax", "tensorflow"):
        tables.append(beside_predict(backend))
    write("inference", "Inference", tables, begun)


def beside_predict(backend: str) -> Table:
    """Return the seconds from a loaded artifact to submission.csv, compilation included."""
    taken: dict[str, list[float]] = {name: [] for name in PREDICTS}
    with tempfile.TemporaryDirectory() as folder:
        in_process(backend, "make", folder)
        for turn in range(PROCESSES):
            for name in PREDICTS[turn:] + PREDICTS[:turn]:
                taken[name].append(in_process(backend, "predict", name, folder))
            print(f"  turn {turn + 1} of {PROCESSES}", file=sys.stderr, flush=True)
        same = (Path(folder) / "ours/submission.csv").read_text() == (
            Path(folder) / "theirs.csv"
        ).read_text()
    if not same:
        raise ValueError(f"ours and model.predict wrote different files on {backend}")
    title = f"{ROWS:,} JPEGs of 500x375 to submission.csv, {backend}, start and compilation counted"
    note = "Ours also checks the golden outputs, writes a fallback first, and validates the file."
    return Table(title, "s", taken, note)


def in_process(backend: str, *words: str) -> Any:
    """Return what a part of this script prints, in a process of its own on that backend."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.inference", *words],
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def settings(side: int, width: int, channels: int, suffix: str) -> "Config":
    """Return the config of a network of that width for images of that side."""
    from pipeline import config as configs

    digits = configs.load("digits")
    data = replace(
        digits.data, height=side, width=side, channels=channels, suffix=suffix, resize="stretch"
    )
    options = {"width": width, "dropout": 0.3}
    return replace(digits, data=data, model_options=options, session_hours=None)


def untrained(folder: Path, config: "Config") -> "Artifact":
    """Return an artifact of random weights, saved and loaded as always."""
    import keras

    from pipeline import artifact
    from pipeline.data.labels import Target
    from pipeline.models import architectures

    keras.utils.set_random_seed(SEED)
    built, target = architectures.build(config), Target("classes", NAMES)
    golden = np.random.default_rng(SEED).integers(0, 256, (8, *config.data.shape), np.uint8)
    details: dict[str, Any] = {"run_id": "benchmark", "status": "complete", "metric": "accuracy"}
    details |= {"versions": {}, "metrics": {}}
    artifact.save(
        folder,
        model=built,
        folds=(),
        config=config,
        target=target,
        encoding=None,
        prior=np.full(len(NAMES), 1 / len(NAMES), np.float32),
        golden_inputs=golden,
        golden_outputs=target.predictions(architectures.outputs(built, golden, 8)),
        details={**details, "git_commit": "0" * 40, "bundle_sha256": "0" * 64},
    )
    return artifact.load(folder)


def competition(folder: Path, rows: int, files: list[Path] | None) -> Path:
    """Write a test set whose rows are names for these files, or for 64 PNGs of noise."""
    (folder / "test").mkdir(parents=True)
    if files is None:
        draw, files = np.random.default_rng(SEED), []
        for number in range(64):
            files.append(folder / f"{number}.png")
            Image.fromarray(draw.integers(0, 256, (8, 8), np.uint8)).save(files[-1])
    ids = [f"t{row:07d}" for row in range(rows)]
    for row, name in enumerate(ids):
        os.link(files[row % len(files)], folder / "test" / f"{name}{files[0].suffix}")
    lines = [f"{name},0\n" for name in ids]
    (folder / "sample_submission.csv").write_text("id,label\n" + "".join(lines))
    return folder


@contextmanager
def separate_cores() -> Iterator[None]:
    """Let one core compute and another one decode.

    Enter it before the backend starts its threads: a thread stays on the cores of the one that
    started it.
    """
    from pipeline.data import parallel_decoding

    before = os.sched_getaffinity(0)
    host, device, *_ = sorted(before)
    whole: dict[str, Callable[..., Any]] = {
        "blocks": parallel_decoding.blocks,
        "read": parallel_decoding.read,
    }

    def blocks(*words: Any, **more: Any) -> Iterator[Any]:
        found = whole["blocks"](*words, **more)
        os.sched_setaffinity(0, {host})
        first = next(found, None)
        os.sched_setaffinity(0, {device})
        if first is not None:
            yield first
            yield from found

    def read(*words: Any, **more: Any) -> Any:
        os.sched_setaffinity(0, {host})
        try:
            return whole["read"](*words, **more)
        finally:
            os.sched_setaffinity(0, {device})

    os.sched_setaffinity(0, {device})
    parallel_decoding.blocks, parallel_decoding.read = blocks, read
    try:
        yield
    finally:
        parallel_decoding.blocks, parallel_decoding.read = whole["blocks"], whole["read"]
        os.sched_setaffinity(0, before)


def flow(name: str, folder: Path) -> dict[str, list[float]]:
    """Return the seconds of inference with its file, of decoding alone and of computing alone."""
    from benchmarks import jpeg
    from pipeline.data import test_set
    from pipeline.inference import forward_pass, predictions, restoring
    from pipeline.submission.prediction_format import Form

    rows, size, side, width = FLOWS[name]
    files = None if size is None else jpeg.photographs(folder / "photographs", *size, 24)
    config = settings(side, width, 1 if files is None else 3, ".png" if files is None else ".jpg")
    loaded = untrained(folder / "artifact", config)
    place = competition(folder / "competition", rows, files)
    test, forward = test_set.read_test(place, config), restoring.restore(loaded)[0]
    images = np.concatenate([block for _, block, _ in test.blocks(256)])
    held = replace(test, blocks=test_set.in_blocks(images))
    form = Form(loaded.target, "accuracy", place / "sample_submission.csv")

    def whole() -> None:
        found = predictions.predict(loaded, test, forward, batch=BATCH, show=lambda line: None)
        form.write(folder / "submission.csv", found.ids, found.values)

    def decode() -> None:
        size = forward_pass.block(loaded.golden_inputs, rows)
        if sum(len(block) for _, block, _ in test.blocks(size)) != rows:
            raise ValueError("rows are missing")

    def compute() -> None:
        predictions.predict(loaded, held, forward, batch=BATCH, show=lambda line: None)

    work = {"ours, whole": whole, "decoding alone": decode, "computing alone": compute}
    return in_turn({name: partial(seconds, once) for name, once in work.items()}, TURNS)


def predict(name: str, folder: Path) -> float:
    """Return the seconds from a loaded artifact to submission.csv of one of `PREDICTS`."""
    import keras
    import pandas as pd

    from pipeline import artifact
    from pipeline.data import parallel_decoding
    from pipeline.data.image_files import shape
    from pipeline.inference import inference
    from pipeline.models import architectures

    class Fed(keras.utils.PyDataset):  # type: ignore[misc]
        """Batches of 32 that a thread of Keras decodes by our code while `predict` computes."""

        def __len__(self) -> int:
            return -(-len(paths) // 32)

        def __getitem__(self, index: int) -> tuple[np.ndarray]:
            return (parallel_decoding.read(paths[index * 32 : index * 32 + 32], form)[0],)

    loaded, place = artifact.load(folder / "artifact"), folder / "competition"
    begun = time.perf_counter()
    if name == "ours":
        inference.infer(loaded, place, folder / "ours", show=lambda line: None)
        return time.perf_counter() - begun
    built = architectures.build(loaded.config)
    artifact.assign(built, loaded.weights)
    sample = pd.read_csv(place / "sample_submission.csv", dtype=str)
    paths = [place / "test" / f"{row}{loaded.config.data.suffix}" for row in sample["id"]]
    form = shape(loaded.config.data)
    if name == "PyDataset":
        fed = Fed(workers=1, use_multiprocessing=False, max_queue_size=8)
        found = built.predict(fed, verbose=0)
    else:
        images, _ = parallel_decoding.read(paths, form)  # by the same code as ours
        found = built.predict(images, batch_size=int(name.split()[-1]), verbose=0)
    sample["label"] = [NAMES[index] for index in found.argmax(axis=1)]
    sample.to_csv(folder / "theirs.csv", index=False)
    return time.perf_counter() - begun


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that the work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def part(what: str, *words: str) -> Any:
    """Return what a process of this script was started for."""
    from benchmarks import jpeg

    folder = Path(words[-1])
    if what == "make":
        untrained(folder / "artifact", settings(64, 24, 3, ".jpg"))
        competition(
            folder / "competition", ROWS, jpeg.photographs(folder / "photographs", 500, 375, 24)
        )
        return None
    with separate_cores():
        return flow(words[0], folder) if what == "flow" else predict(words[0], folder)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(part(*sys.argv[1:])))
    else:
        main()
