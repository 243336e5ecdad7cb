"""Four small networks as a competitor writes them, in two precisions and with two feeds.

The images are 64x64: arrays that the devices hold, or files far larger than the network sees, which
every epoch decodes. ConvNeXt is fed from arrays in memory, by the host.
"""

from pathlib import Path

import numpy as np
from PIL import Image

MODELS = ("cnn", "convnext", "vit", "perceptron")
PRECISIONS = ("float32", "mixed_bfloat16")
FEEDS = ("host", "device")
IMAGES, SIDE, BATCH = 448, 64, 64
FILE, LARGE_FILE = (2000, 1500), (4000, 3000)
DISTINCT = 16  # files of which the others are copies: another name is another file
TEXT = '''"""A network of the proof of the plan."""

from keras import layers

from pipeline.config import Config, Data, Optimizer


def cnn(images, num_classes, batchnorm_momentum):
    x = images
    for number, width in enumerate((24, 48, 64, 64)):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False, name=f"conv{{number}}")(x)
        x = layers.BatchNormalization(momentum=batchnorm_momentum, name=f"norm{{number}}")(x)
        x = layers.ReLU(name=f"relu{{number}}")(x)
        x = layers.MaxPooling2D(name=f"pool{{number}}")(x) if number < 2 else x
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def convnext(images, num_classes, batchnorm_momentum):
    x = layers.Conv2D(64, 4, strides=4, name="stem")(images)
    for number in range(3):
        y = layers.DepthwiseConv2D(7, padding="same", name=f"depthwise{{number}}")(x)
        y = layers.LayerNormalization(name=f"norm{{number}}")(y)
        y = layers.Dense(256, activation="gelu", name=f"wide{{number}}")(y)
        y = layers.Dense(64, name=f"narrow{{number}}")(y)
        x = layers.Add(name=f"sum{{number}}")([x, y])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def vit(images, num_classes, batchnorm_momentum):
    x = layers.Conv2D(192, 8, strides=8, name="patches")(images)
    x = layers.Reshape((-1, 192), name="tokens")(x)
    for number in range(3):
        y = layers.LayerNormalization(name=f"norm{{number}}")(x)
        y = layers.MultiHeadAttention(4, 48, name=f"attention{{number}}")(y, y)
        x = layers.Add(name=f"sum{{number}}")([x, y])
        y = layers.LayerNormalization(name=f"mlp_norm{{number}}")(x)
        y = layers.Dense(768, activation="gelu", name=f"wide{{number}}")(y)
        y = layers.Dense(192, name=f"narrow{{number}}")(y)
        x = layers.Add(name=f"mlp_sum{{number}}")([x, y])
    x = layers.GlobalAveragePooling1D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


def perceptron(images, num_classes, batchnorm_momentum):
    x = layers.Flatten(name="flat")(images)
    for number in range(3):
        x = layers.Dense(1024, activation="relu", name=f"dense{{number}}")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)


CONFIG = Config(
    name="{name}", competition="plan-runs", num_classes=2, model="{model}",
    data=Data(kind="{kind}", height={side}, width={side}, channels=3, crop_padding=2, {data}),
    optimizer=Optimizer(name="adam", base_rate=1e-3, base_batch={batch}), batch={batch},
    batchnorm_batch=32, precision="{precision}", feed="{feed}", epochs={epochs},
    warmup_epochs=1.0, progress_seconds=0.2, checkpoint_seconds=32400.0,
)
'''


def write_config(folder: Path, model: str, precision: str, feed: str, epochs: int) -> Path:
    """Write the config of a case, and return its path."""
    files = feed == "host" and model != "convnext"
    text = TEXT.format(
        name=f"{model}_{precision}_{feed}", model=model, precision=precision, epochs=epochs,
        feed="files" if files else feed, kind="images" if files else "arrays",
        data='suffix=".jpg", resize="stretch"' if files else "", side=SIDE, batch=BATCH,
    )  # fmt: skip
    path = folder / f"{model}_{precision}_{feed}.py"
    path.write_text(text)
    return path


def write_data(folder: Path, seed: int, size: tuple[int, int]) -> None:
    """Write the competition's folder: images of two classes, as arrays, and as files of a size."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, IMAGES)
    pixels = draw.integers(0, 120, (IMAGES, SIDE, SIDE, 3)) + 100 * labels[:, None, None, None]
    np.save(folder / "train.npy", pixels.astype(np.uint8))
    np.save(folder / "test.npy", pixels[:2].astype(np.uint8))
    rows = [f"r{number},{label}" for number, label in enumerate(labels)]
    (folder / "train.csv").write_text("\n".join(["id,label", *rows]) + "\n")
    (folder / "sample_submission.csv").write_text("id,label\nt0,0\nt1,0\n")
    for name in ("train", "test"):
        (folder / name).mkdir()
    files = [_file(draw, folder / f"{number}.jpg", size) for number in range(DISTINCT)]
    for number in range(IMAGES):
        (folder / "train" / f"r{number}.jpg").write_bytes(files[number % DISTINCT])
    for number in range(2):
        (folder / "test" / f"t{number}.jpg").write_bytes(files[number])


def _file(draw: np.random.Generator, path: Path, size: tuple[int, int]) -> bytes:
    """Return a JPEG with as much detail as a photograph: soft noise."""
    form = (size[1] // 4, size[0] // 4, 3)
    noise = Image.fromarray(draw.integers(0, 256, form).astype(np.uint8))
    noise.resize(size, Image.Resampling.BICUBIC).save(path, quality=85)
    content = path.read_bytes()
    path.unlink()
    return content
