"""The arms of `proofs.competitions.inference_speed`, each in a process of its own.

`python -m proofs.competitions.inference_arms PART …` prints one JSON object.
"""

import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
from PIL import Image

from pipeline import artifact
from pipeline import config as configs
from pipeline.artifact import Artifact
from pipeline.config import Config
from pipeline.data import parallel_decoding, test_set
from pipeline.data.image_decoding import Shape
from pipeline.data.image_files import shape
from pipeline.data.labels import Target
from pipeline.inference import forward_pass as forwards
from pipeline.inference import inference, predictions, restoring
from pipeline.models import architectures
from pipeline.submission import submission_csv
from pipeline.submission.prediction_format import Form
from proofs.competitions import jpeg_speed

SEED, TURNS, BATCH = 20261121, 9, 64
NAMES = tuple("0123456789")
# Files, which of them are JPEGs of how many pixels, and the side and width of the network: rows,
# (file's width, height) or None for 8x8 PNGs, side, width.
FLOWS: dict[str, tuple[int, tuple[int, int] | None, int, int]] = {
    "decoding": (480, (2000, 1500), 32, 2),
    "computing": (2000, None, 8, 256),
    "both": (2000, (500, 375), 64, 24),
}
VIEWS, FOLDS = 5, 3


def settings(side: int = 8, width: int = 32, channels: int = 1, suffix: str = ".png") -> Config:
    """Return the config of a network of that width, for images of that side."""
    digits = configs.load("digits")
    own = replace(
        digits.data, height=side, width=side, channels=channels, suffix=suffix, resize="stretch"
    )
    return replace(
        digits, data=own, model_options={"width": width, "dropout": 0.3}, session_hours=None
    )


def trained(folder: Path, config: Config, folds: int = 1) -> Artifact:
    """Return an artifact of random weights, equal in each fold, saved and loaded as always."""
    keras.utils.set_random_seed(SEED)
    built, target = architectures.build(config), Target("classes", NAMES)
    golden = np.random.default_rng(SEED).integers(0, 256, (8, *config.data.shape), np.uint8)
    details: dict[str, Any] = {"run_id": "proof", "status": "complete", "metric": "accuracy"}
    details |= {"versions": {}, "metrics": {}}
    if folds > 1:
        details["folds"] = [{}] * folds
    own = artifact.weights_of(built)
    artifact.save(
        folder,
        model=built,
        folds=[own] * folds if folds > 1 else (),
        config=replace(config, folds=folds if folds > 1 else None),
        target=target,
        encoding=None,
        prior=np.full(len(NAMES), 1 / len(NAMES), np.float32),
        golden_inputs=golden,
        golden_outputs=target.predictions(architectures.outputs(built, golden, 8)),
        details={**details, "git_commit": "0" * 40, "bundle_sha256": "0" * 64},
    )
    return artifact.load(folder)


def competition(folder: Path, rows: int, files: list[Path] | None = None) -> Path:
    """Write a test set of that many rows, each with a name of its own for one of these files, or
    of 64 PNGs of noise.
    """
    (folder / "test").mkdir(parents=True)
    if files is None:
        draw, files = np.random.default_rng(SEED), []
        for number in range(64):
            files.append(folder / f"{number}.png")
            Image.fromarray(draw.integers(0, 256, (8, 8), np.uint8)).save(files[-1])
    ids = [f"t{row:07d}" for row in range(rows)]
    for row, name in enumerate(ids):
        os.link(files[row % len(files)], folder / "test" / f"{name}{files[0].suffix}")
    (folder / "sample_submission.csv").write_text(
        "id,label\n" + "".join(f"{name},0\n" for name in ids)
    )
    return folder


@contextmanager
def cores() -> Iterator[None]:
    """Let one core compute, as an accelerator would, and another one read files.

    Enter it before the backend starts its threads: a thread stays on the cores of the one that
    started it.
    """
    before = os.sched_getaffinity(0)
    host, device, *_ = sorted(before)
    own: dict[str, Callable[..., Any]] = {
        "blocks": parallel_decoding.blocks,
        "read": parallel_decoding.read,
    }

    def blocks(*words: Any, **more: Any) -> Iterator[Any]:
        found = own["blocks"](*words, **more)
        os.sched_setaffinity(0, {host})
        first = next(found, None)
        os.sched_setaffinity(0, {device})
        if first is not None:
            yield first
            yield from found

    def read(*words: Any, **more: Any) -> Any:
        os.sched_setaffinity(0, {host})
        try:
            return own["read"](*words, **more)
        finally:
            os.sched_setaffinity(0, {device})

    os.sched_setaffinity(0, {device})
    parallel_decoding.blocks, parallel_decoding.read = blocks, read
    try:
        yield
    finally:
        parallel_decoding.blocks, parallel_decoding.read = own["blocks"], own["read"]
        os.sched_setaffinity(0, before)


def flow(name: str, folder: Path) -> dict[str, Any]:
    """Return the median seconds of decoding alone, computing alone, and inference with its file,
    and the share of inference that the slower of the first two takes.
    """
    rows, photograph, side, width = FLOWS[name]
    files = None if photograph is None else jpeg_speed.make(folder, *photograph, 24)
    config = settings(side, width, 1 if files is None else 3, ".png" if files is None else ".jpg")
    loaded = trained(folder / "artifact", config)
    place = competition(folder / "competition", rows, files)
    test, forward = test_set.read_test(place, config), restoring.restore(loaded)[0]
    held = replace(
        test, blocks=test_set.in_blocks(np.concatenate([block for _, block, _ in test.blocks(256)]))
    )
    form = Form(loaded.target, "accuracy", place / "sample_submission.csv")

    def decode() -> None:
        size = forwards.block(loaded.golden_inputs, rows)
        if sum(len(block) for _, block, _ in test.blocks(size)) != rows:
            raise AssertionError("rows are missing")

    def compute() -> None:
        predictions.predict(loaded, held, forward, batch=BATCH, show=_quiet)

    def whole() -> None:
        found = predictions.predict(loaded, test, forward, batch=BATCH, show=_quiet)
        form.write(folder / "submission.csv", found.ids, found.values)

    arms = {"decode": decode, "compute": compute, "whole": whole}
    taken: dict[str, list[float]] = {arm: [] for arm in arms}
    for turn in range(TURNS + 1):
        for arm, function in arms.items():
            seconds = _seconds(function)
            if turn:
                taken[arm].append(seconds)
    # Of each turn, since a virtual machine is faster and slower from minute to minute.
    shares = [
        max(decode, compute) / both for decode, compute, both in zip(*taken.values(), strict=True)
    ]
    return {
        "rows": rows,
        "seconds": {arm: statistics.median(values) for arm, values in taken.items()},
        "share": statistics.median(shares),
    }


def memory(rows: int, folder: Path) -> dict[str, Any]:
    """Return the largest resident size of this process after that many rows, in bytes."""
    loaded = trained(folder / "artifact", settings())
    found = inference.infer(
        loaded, folder / "competition", folder / "out", batch=BATCH, show=_quiet
    )
    written = submission_csv.check(
        folder / "out" / "submission.csv", folder / "competition" / "sample_submission.csv"
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    # What has to be held of a row in any case: its id and its place in the order, and its
    # prediction.
    needed = sum(map(sys.getsizeof, found.ids)) / rows + 8 + found.values.nbytes / rows
    return {"rows": written, "asked": rows, "peak": peak, "needed": needed}


def arm(name: str, folder: Path) -> dict[str, Any]:
    """Return the seconds from a loaded artifact to submission.csv, with compilation.

    Args:
        name: "ours", or for `model.predict` its batch size, or "fed" for a PyDataset.
        folder: of the artifact and the competition.
    """
    loaded, place = artifact.load(folder / "artifact"), folder / "competition"
    begun = time.perf_counter()
    if name == "ours":
        inference.infer(loaded, place, folder / "ours", show=_quiet)
        return {"seconds": time.perf_counter() - begun}
    built = architectures.build(loaded.config)
    artifact.assign(built, loaded.weights)
    sample = pd.read_csv(place / "sample_submission.csv", dtype=str)
    paths = [place / "test" / f"{row}{loaded.config.data.suffix}" for row in sample["id"]]
    form = shape(loaded.config.data)
    if name == "fed":
        found = built.predict(Fed(paths, form), verbose=0)
    else:
        images, _ = parallel_decoding.read(paths, form)  # by the same code as ours
        found = built.predict(images, batch_size=int(name), verbose=0)
    sample["label"] = [NAMES[index] for index in found.argmax(axis=1)]
    sample.to_csv(folder / f"theirs-{name}.csv", index=False)
    return {"seconds": time.perf_counter() - begun}


class Fed(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of 32 that a thread of Keras decodes by our code while `predict` computes."""

    def __init__(self, paths: list[Path], form: Shape) -> None:
        super().__init__(workers=1, use_multiprocessing=False, max_queue_size=8)
        self._paths, self._form = paths, form

    def __len__(self) -> int:
        return -(-len(self._paths) // 32)

    def __getitem__(self, index: int) -> tuple[np.ndarray]:
        return (parallel_decoding.read(self._paths[index * 32 : index * 32 + 32], self._form)[0],)


def timely(rows: int, runs: int, folder: Path) -> dict[str, Any]:
    """Return how runs ended that had about a third of the time that they need, compilation
    included.
    """
    config = replace(settings(width=64 if rows > 5000 else 8), views=VIEWS)
    loaded = trained(folder / "artifact", config, FOLDS)
    place = competition(folder / "competition", rows)
    whole = _seconds(lambda: inference.infer(loaded, place, folder / "whole", show=_quiet))
    draw = random.Random(SEED)  # noqa: S311 - lengths of time, no secrets
    ended: list[dict[str, Any]] = []
    for _ in range(runs):
        speed, began = 3 * draw.uniform(0.9, 1.1), time.monotonic()
        lines: list[str] = []

        def clock(speed: float = speed, began: float = began) -> float:
            return (time.monotonic() - began) * speed

        with tempfile.TemporaryDirectory(dir=folder) as output:
            given = {"seconds": whole, "clock": clock, "show": lines.append}
            found = inference.infer(loaded, place, Path(output), **given)  # type: ignore[arg-type]
            spent = clock()
            sample = place / "sample_submission.csv"
            # Where there was no time at all, every row keeps the mean.
            written = submission_csv.check(Path(output) / "submission.csv", sample, constant=True)
        short = [line for line in lines if "Time allows" in line]
        ended.append(
            {
                "valid": written == rows,
                "in_time": spent <= whole,
                "spent": spent / whole,
                "left_out": found.left_out,
                "views": bool(short),
                "folds": any(f"{FOLDS} of {FOLDS} folds" not in line for line in short),
            }
        )
    return {"rows": rows, "seconds": whole, "runs": ended}


def _seconds(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def _quiet(line: str) -> None:
    """Show nothing."""


def main(part: str, *words: str) -> None:
    """Print what a part gives."""
    folder = Path(words[-1])
    folder.mkdir(parents=True, exist_ok=True)
    if part == "flow":
        with cores():
            result = flow(words[0], folder)
    elif part == "make":
        _, photograph, side, width = FLOWS["both"]
        trained(folder / "artifact", settings(side, width, 3, ".jpg"))
        files = jpeg_speed.make(folder, *photograph, 24) if photograph else None
        result = {"folder": str(competition(folder / "competition", int(words[0]), files))}
    elif part == "memory":
        result = memory(int(words[0]), folder)
    elif part == "arm":
        with cores():
            result = arm(words[0], folder)
    else:
        result = timely(int(words[0]), int(words[1]), folder)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
