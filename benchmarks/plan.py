"""What `python -m pipeline plan --for cpu` predicts, beside trainings on this machine.

Four networks as a competitor writes them, in two precisions and with two feeds. Plan and training
take turns. `python -m benchmarks.plan CONFIG DATA OUT` trains in a process of its own.
"""

import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.measure import Table, write

SEED, TURNS, EPOCHS = 20261125, 2, 4
MODELS = ("cnn", "convnext", "vit", "perceptron")
PRECISIONS, FEEDS = ("float32", "mixed_bfloat16"), ("host", "device")
IMAGES, SIDE, BATCH, DISTINCT = 448, 64, 64, 16
FILE = (2000, 1500)
NETWORKS = '''"""Networks of the benchmark of plans."""

from keras import layers

from pipeline.config import Config, Data, Optimizer


def cnn(images, num_classes, batchnorm_momentum):
    x = images
    for number, width in enumerate((24, 48, 64, 64)):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False, name=f"conv{number}")(x)
        x = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"norm{number}")(x)
        x = layers.ReLU(name=f"relu{number}")(x)
        x = layers.MaxPooling2D(name=f"pool{number}")(x) if number < 2 else x
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def convnext(images, num_classes, batchnorm_momentum):
    x = layers.Conv2D(64, 4, strides=4, name="stem")(images)
    for number in range(3):
        y = layers.DepthwiseConv2D(7, padding="same", name=f"depthwise{number}")(x)
        y = layers.LayerNormalization(name=f"norm{number}")(y)
        y = layers.Dense(256, activation="gelu", name=f"wide{number}")(y)
        y = layers.Dense(64, name=f"narrow{number}")(y)
        x = layers.Add(name=f"sum{number}")([x, y])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def vit(images, num_classes, batchnorm_momentum):
    x = layers.Conv2D(192, 8, strides=8, name="patches")(images)
    x = layers.Reshape((-1, 192), name="tokens")(x)
    for number in range(3):
        y = layers.LayerNormalization(name=f"norm{number}")(x)
        y = layers.MultiHeadAttention(4, 48, name=f"attention{number}")(y, y)
        x = layers.Add(name=f"sum{number}")([x, y])
        y = layers.LayerNormalization(name=f"mlp_norm{number}")(x)
        y = layers.Dense(768, activation="gelu", name=f"wide{number}")(y)
        y = layers.Dense(192, name=f"narrow{number}")(y)
        x = layers.Add(name=f"mlp_sum{number}")([x, y])
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def perceptron(images, num_classes, batchnorm_momentum):
    x = layers.Flatten(name="flat")(images)
    for number in range(3):
        x = layers.Dense(1024, activation="relu", name=f"dense{number}")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


CONFIG = Config(
    name=NAME,
    competition="plan-runs",
    num_classes=2,
    model=MODEL,
    data=Data(height=64, width=64, channels=3, crop_padding=2, **DATA),
    optimizer=Optimizer(name="adam", base_rate=1e-3, base_batch=64),
    batch=64,
    batchnorm_batch=32,
    warmup_epochs=1.0,
    progress_seconds=0.2,
    checkpoint_seconds=32400.0,
    **MORE,
)
'''


def main() -> None:
    """Measure, and write the section."""
    begun = time.perf_counter()
    seconds: dict[str, list[float]] = {"epoch, trained": [], "epoch, planned": []}
    memory: dict[str, list[float]] = {"step's MB, trained": [], "step's MB, planned": []}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        write_data(data)
        for case in product(MODELS, PRECISIONS, FEEDS):
            found = compared(Path(folder), data, *case)
            seconds["epoch, trained"] += [median(found["epochs"])]
            seconds["epoch, planned"] += [median(found["planned epochs"])]
            memory["step's MB, trained"] += [found["bytes"] / 1e6]
            memory["step's MB, planned"] += [found["planned bytes"] / 1e6]
            rows.append(" ".join(case))
            print(f"  {rows[-1]}: {found}", file=sys.stderr, flush=True)
    order = f"In the order of the columns: {'; '.join(rows)}."
    tables = [
        Table(f"Epochs of {len(rows)} trainings, {SIDE}x{SIDE}", "s", seconds, order),
        Table("Memory of a step beyond what lies there before it", "MB", memory, order),
    ]
    write("plan", "Plans for this CPU", tables, begun)


def compared(folder: Path, data: Path, model: str, precision: str, feed: str) -> dict[str, Any]:
    """Return what was planned for a case and what came of it; both take turns."""
    config = write_config(folder, model, precision, feed)
    planned, ran = [], []
    for turn in range(TURNS):
        plan = ("pipeline", "plan", "--config", config, "--for", "cpu", "--input", data, "--json")
        planned.append(in_process(folder, *plan)["outlooks"][0])
        ran.append(in_process(folder, "benchmarks.plan", config, data, folder / f"run-{turn}"))
    return {
        "planned bytes": planned[0]["computing"] * BATCH / planned[0]["share"],
        "bytes": median(one["bytes"] for one in ran),
        "planned epochs": [one["epoch"]["usual"] for one in planned],
        "epochs": [seconds for one in ran for seconds in one["epochs"]],
    }


def in_process(folder: Path, *words: object) -> Any:
    """Return the JSON value that `python -m` with these words prints last."""
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def train(config: str, data: Path, output: Path) -> dict[str, Any]:
    """Train, and return the bytes of a step and the seconds of each epoch after the second."""
    from pipeline import config as configs
    from pipeline.runtime import backend

    settings = configs.load(config)
    backend.use_every_core(settings.batch)
    import jax

    from pipeline.training import training

    before: list[int] = []
    most: list[int] = []

    def show(line: str) -> None:
        """Measure between two calls of the second epoch: until then programs are compiled."""
        found = json.loads(line) if line.startswith("{") else {}
        if not 1 <= found.get("epoch", 0.0) < 2:
            return
        if before:
            most.append(status("VmHWM") - before[-1])
        for array in jax.live_arrays():  # type: ignore[no-untyped-call]
            with suppress(RuntimeError):  # given to the step that takes its place
                jax.block_until_ready(array)  # type: ignore[no-untyped-call]
        time.sleep(0.5)  # XLA's threads give back what they held
        gc.collect()
        before.append(status("VmRSS"))
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again

    training.train(settings, data, output, show=show)
    table = (output / "history.csv").read_text().splitlines()
    ends = [float(line.rpartition(",")[2]) for line in table[1:]]
    return {"bytes": max(most), "epochs": [b - a for a, b in pairwise(ends)][1:]}


def status(name: str) -> int:
    """Return a size in /proc/self/status, in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise OSError(f"/proc/self/status has no {name}")
    return int(found[1]) * 1024


def write_config(folder: Path, model: str, precision: str, feed: str) -> Path:
    """Write the config of a case, and return its path."""
    files = feed == "host" and model != "convnext"
    name = f"{model}_{precision}_{feed}"
    data = (
        {"kind": "images", "suffix": ".jpg", "resize": "stretch"} if files else {"kind": "arrays"}
    )
    more = {"precision": precision, "feed": "files" if files else feed, "epochs": EPOCHS}
    path = folder / f"{name}.py"
    constants = f"NAME, MODEL, DATA, MORE = {name!r}, {model!r}, {data!r}, {more!r}\n\n"
    path.write_text(NETWORKS.replace("\nCONFIG", f"\n{constants}CONFIG"))
    return path


def write_data(folder: Path) -> None:
    """Write a competition of two classes, as arrays and as JPEG files."""
    draw = np.random.default_rng(SEED)
    labels = draw.integers(0, 2, IMAGES)
    pixels = draw.integers(0, 120, (IMAGES, SIDE, SIDE, 3)) + 100 * labels[:, None, None, None]
    for name in ("train", "test"):
        (folder / name).mkdir(parents=True)
    np.save(folder / "train.npy", pixels.astype(np.uint8))
    np.save(folder / "test.npy", pixels[:2].astype(np.uint8))
    rows = [f"r{number},{label}" for number, label in enumerate(labels)]
    (folder / "train.csv").write_text("\n".join(["id,label", *rows]) + "\n")
    (folder / "sample_submission.csv").write_text("id,label\nt0,0\nt1,0\n")
    for number in range(DISTINCT):
        noise = draw.integers(0, 256, (FILE[1] // 4, FILE[0] // 4, 3)).astype(np.uint8)
        image = Image.fromarray(noise).resize(FILE, Image.Resampling.BICUBIC)
        for row in range(number, IMAGES, DISTINCT):
            image.save(folder / f"train/r{row}.jpg", quality=85)
        if number < 2:
            image.save(folder / f"test/t{number}.jpg", quality=85)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(train(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main()
