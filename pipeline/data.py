"""Data: a competition folder as Kaggle mounts it → arrays, and arrays → batches.

Reads  CSVs of ids and labels, and image files, with every CPU (tf.data)
Gives  `Images` (uint8 until the device), `Batches` (training) and `padded` (evaluation and prediction)

Content and augmentation of a training batch are functions of (seed, step) and of nothing else, so a run can stop anywhere and go
on elsewhere. Every phase has one static shape.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline import table as tables
from pipeline.config import Config
from pipeline.errors import DataError, reading

# Independent streams of random numbers from one seed: what is drawn for one never moves the other.
ORDER, AUGMENTATION, SPLIT = 1, 2, 3
# How the files begin; byte 24 of a PNG is the number of bits a channel.
PNG, JPEG, SIXTEEN_BITS = b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"\x10"


@dataclass(frozen=True)
class Images:
    """Decoded images in RAM.

    Attributes:
        ids: n texts, in the order of the table they came from.
        pixels: uint8 (n, height, width, channels).
        labels: int32 (n,), indices into `classes`; empty for a test set.
        classes: the labels' texts, sorted; empty for a test set.
        groups: int32 (n,), equal for images of one group; None where the config names no group column, and for a test set.
    """

    ids: tuple[str, ...]
    pixels: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def fingerprint(self) -> str:
        """Return a sha256 over ids, pixels, labels and groups: equal data, equal text."""
        digest = hashlib.sha256("\n".join(self.ids).encode())
        digest.update(np.ascontiguousarray(self.pixels).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        if self.groups is not None:
            digest.update(np.ascontiguousarray(self.groups).data)
        return digest.hexdigest()


def read_table(path: Path, columns: Sequence[str], advice: str) -> pd.DataFrame:
    """Return a CSV as texts, exactly as written ("001" stays "001", "NA" stays "NA").

    Raises:
        DataError: if the file is missing, cannot be parsed, has no rows, lacks one of `columns`, or repeats an id (the first of them).
    """
    with reading(path, DataError, advice):
        if not path.is_file():
            siblings = sorted(p.name for p in path.parent.iterdir())[:10] if path.parent.is_dir() else []
            raise DataError(
                f"{path} is missing; its folder holds: {', '.join(siblings) or 'nothing'}.\n"
                f"Expected a table with the columns {', '.join(columns)}. {advice}"
            )
    table = tables.read(path, DataError, advice)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise DataError(
            f"{path} has the columns {', '.join(map(str, table.columns))}; expected also {', '.join(missing)}.\n"
            "Set id_column, label_column and group_column in the config to the table's own."
        )
    if not len(table):
        raise DataError(f"{path} has a header and no rows; expected one row an image.\nComplete the download. {advice}")
    repeated = table.loc[table[columns[0]].duplicated(), columns[0]]
    if len(repeated):
        raise DataError(
            f"{path} repeats {len(repeated)} ids, for example {', '.join(map(repr, repeated[:5]))}; expected each once.\nRemove the repeated rows."
        )
    return table


def read_training(folder: Path, config: Config) -> Images:
    """Return the labelled images of a competition folder, in the table's order.

    Raises:
        DataError: if a file is missing or broken, the labels are not `config.num_classes` different ones, or an image has no group.
    """
    data = config.data
    columns = [name for name in (data.id_column, data.label_column, data.group_column) if name is not None]
    table = read_table(folder / data.train_csv, columns, "Set data.train_csv in the config.")
    ids = tuple(table[data.id_column])
    classes = tuple(sorted(set(table[data.label_column])))
    if len(classes) != config.num_classes:
        raise DataError(
            f"{folder / data.train_csv} has {len(classes)} different labels ({', '.join(classes[:12])}…); "
            f"expected num_classes={config.num_classes}, as in the config.\nSet num_classes={len(classes)}, or correct label_column."
        )
    lookup = {name: index for index, name in enumerate(classes)}
    labels = np.array([lookup[name] for name in table[data.label_column]], np.int32)
    groups = None if data.group_column is None else _groups(table, data.group_column, folder / data.train_csv)
    return Images(ids, _decode(folder / data.train_images, ids, config), labels, classes, groups)


def _groups(table: pd.DataFrame, column: str, path: Path) -> np.ndarray:
    """Return the number of each row's group, int32 (n,): its place among the sorted texts of the column."""
    alone = int((table[column] == "").sum())
    if alone:
        raise DataError(
            f"{path} has {alone} rows without a text in {column!r}; expected the group of each image.\n"
            "Fill it in (an image of no group gets a text of its own), or set data.group_column=None."
        )
    return np.unique(table[column].to_numpy(str), return_inverse=True)[1].astype(np.int32)


def read_test(folder: Path, config: Config) -> Images:
    """Return the test images, in the order of sample_submission.csv.

    Raises:
        DataError: if an id has no image, an image has no id, or a file is broken. No row is ever dropped.
    """
    data = config.data
    sample = folder / data.sample_submission
    ids = tuple(read_table(sample, (data.id_column,), "Set data.sample_submission in the config.")[data.id_column])
    images = folder / data.test_images
    if os.path.isdir(images):  # noqa: PTH112 - Path.is_dir raises where the folder above cannot be entered
        extra = sorted({p.stem for p in images.glob(f"*{data.suffix}")} - set(ids))
        if extra:
            raise DataError(
                f"{images} holds {len(extra) + len(ids)} images and {sample.name} asks for {len(ids)}: "
                f"{len(extra)} images have no row, for example {', '.join(extra[:5])}.\n"
                "Expected one row an image. Take test set and sample_submission.csv from the same download."
            )
    return Images(ids, _decode(images, ids, config), np.zeros(0, np.int32), ())


def _decode(folder: Path, ids: Sequence[str], config: Config) -> np.ndarray:
    """Return uint8 (n, height, width, channels), decoded by tf.data with every CPU."""
    import tensorflow as tf

    data = config.data
    for name in ids:
        # An id comes from a table that somebody else wrote; it is not trusted as a path.
        if not name or "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
            raise DataError(
                f"{name!r} cannot be the id of an image: expected a file name without a folder.\nCorrect the table."
            )
    paths = [os.fspath(folder / f"{name}{data.suffix}") for name in ids]
    missing = [path for path in paths if not os.path.isfile(path)]  # noqa: PTH113 - a hundred thousand Path objects cost seconds
    if missing:
        raise DataError(
            f"{len(missing)} of {len(paths)} images are missing, for example {', '.join(missing[:3])}.\n"
            "Expected <id><suffix> for every row. Set train_images, test_images and suffix in the config, or complete the download."
        )
    shape = (data.height, data.width, data.channels)
    try:
        out = np.empty((len(paths), *shape), np.uint8)
    except (MemoryError, ValueError) as error:
        size = len(paths) * np.prod(shape, dtype=float) / 2**30
        raise DataError(
            f"{len(paths)} images of {shape[0]}x{shape[1]}x{shape[2]} need {size:.0f} GiB of memory: {error}.\n"
            "Expected decoded images to fit. Correct height and width in the config, or make the images smaller."
        ) from error
    files = tf.data.Dataset.from_tensor_slices(paths).map(_reader(shape), num_parallel_calls=tf.data.AUTOTUNE)
    try:
        start = 0
        for batch in files.batch(256).as_numpy_iterator():
            out[start : start + len(batch)] = batch
            start += len(batch)
    except (tf.errors.OpError, ValueError) as error:
        raise DataError(_broken(paths, shape) or f"{folder} could not be read: {error}.\nTry again.") from error
    return out


def _reader(shape: tuple[int, int, int]) -> Any:
    """Return a function of TensorFlow from a path to an image of that shape; it raises where a conversion would lose something."""
    import tensorflow as tf

    def read(path: "tf.Tensor") -> "tf.Tensor":
        content = tf.io.read_file(path)
        # channels=0 leaves the file's own; asked for others TensorFlow would drop alpha and weigh colours into grey in silence.
        with tf.control_dependencies([tf.debugging.Assert(~_is_converted(content), ["16 bits a channel, or CMYK"])]):
            image = tf.io.decode_image(content, channels=0, expand_animations=False)
        if shape[2] == 3:
            image = tf.cond(tf.equal(tf.shape(image)[-1], 1), lambda: tf.repeat(image, 3, axis=-1), lambda: image)
        return tf.ensure_shape(image, shape)

    return read


def _is_converted(content: Any) -> Any:
    """Return whether TensorFlow can read the file only with a loss: 16 bits a channel (PNG), or the four inks of CMYK (JPEG)."""
    import tensorflow as tf

    head = tf.strings.substr(content, 0, 26)
    deep = tf.equal(tf.strings.substr(head, 0, 8), PNG) & tf.equal(tf.strings.substr(head, 24, 1), SIXTEEN_BITS)
    jpeg = tf.equal(tf.strings.substr(head, 0, 2), JPEG)
    inks = tf.cond(jpeg, lambda: tf.equal(tf.io.extract_jpeg_shape(content)[2], 4), lambda: tf.constant(False))
    return deep | inks


def _broken(paths: Sequence[str], shape: tuple[int, int, int]) -> str | None:
    """Return what is wrong with which files; the parallel reader above says only that something is."""
    import tensorflow as tf

    wrong = []
    for path in paths:
        try:
            content = tf.io.read_file(path)
            converted = bool(_is_converted(content))
            seen = tuple(tf.io.decode_image(content, channels=0, expand_animations=False).shape)
        except tf.errors.InvalidArgumentError:
            wrong.append(f"{path} cannot be decoded")
        except tf.errors.OpError as error:
            wrong.append(f"{path} cannot be read ({error.message})")
        else:
            if converted:
                wrong.append(f"{path} has 16 bits a channel, or is CMYK")
            elif seen != shape and (*seen[:2], 3 if seen[2] == 1 else seen[2]) != shape:
                wrong.append(f"{path} is {'x'.join(map(str, seen))}")
    if not wrong:
        return None
    return (
        f"{len(wrong)} of {len(paths)} images cannot be used: {'; '.join(wrong[:5])}.\n"
        f"Expected decodable images of height x width x channels = {shape[0]}x{shape[1]}x{shape[2]}, 8 bits a channel (grey is taken for "
        "colour, nothing else is converted). Replace the broken files, convert them, or correct height, width and channels in the config."
    )


def split(images: Images, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the training and of the validation images, both sorted; stratified by label, fixed by `config.seed`.

    Each class gives `validation_fraction` of its images, rounded, at least one, and keeps at least one.

    Raises:
        DataError: if a class has only one image.
    """
    random = np.random.default_rng((config.seed, SPLIT))
    held: list[np.ndarray] = []
    for label, name in enumerate(images.classes):
        members = np.flatnonzero(images.labels == label)
        if len(members) < 2:
            raise DataError(
                f"The label {name!r} has {len(members)} image; expected at least 2, one to train and one to validate on.\nAdd one, or drop the label."
            )
        number = min(max(round(len(members) * config.data.validation_fraction), 1), len(members) - 1)
        held.append(random.permutation(members)[:number])
    validation = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(images)), validation), validation


class Batches:
    """Training batches, addressed by step.

    Step s takes the positions s x batch … (s + 1) x batch of an endless row of permutations of all images, one permutation an
    epoch. So every image is seen exactly once in each epoch, whatever the batch, and no shape ever differs.

    Args:
        pixels: uint8 (m, height, width, channels), of which batches copy what they take, and nothing else is copied.
        labels: int32 (m,).
        rows: int64 (n,), which of them are the images of these batches; None: all.
        batch: images a step.
        seed: of order and augmentation.
        crop_padding: zeros around an image, in pixels, before a random crop of its own size.
        flip: mirror each image left to right with probability 1/2.
    """

    def __init__(
        self,
        pixels: np.ndarray,
        labels: np.ndarray,
        *,
        rows: np.ndarray | None = None,
        batch: int,
        seed: int,
        crop_padding: int = 0,
        flip: bool = False,
    ) -> None:
        self._pixels, self._labels = pixels, labels
        self._rows = np.arange(len(labels)) if rows is None else rows
        self.batch, self.seed, self.crop_padding, self.flip = batch, seed, crop_padding, flip
        self._order: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        """Return how many images an epoch has."""
        return len(self._rows)

    def order(self, epoch: int) -> np.ndarray:
        """Return the permutation of all images that is that epoch: int64 (n,)."""
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, np.random.default_rng((self.seed, ORDER, epoch)).permutation(len(self)))
        return self._order[1]

    def indices(self, step: int) -> np.ndarray:
        """Return which of the n images the step takes: int64 (batch,)."""
        epoch, place = divmod(step * self.batch, len(self))
        parts, needed = [], self.batch
        while needed > 0:
            part = self.order(epoch)[place : place + needed]
            parts.append(part)
            needed -= len(part)
            epoch, place = epoch + 1, 0
        return np.concatenate(parts)

    def at(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the step's images, uint8 (batch, height, width, channels), augmented, and labels, int32 (batch,)."""
        rows = self._rows[self.indices(step)]
        random = np.random.default_rng((self.seed, AUGMENTATION, step))
        down, right = random.integers(0, 2 * self.crop_padding + 1, (2, self.batch))
        mirrored = random.random(self.batch) < 0.5
        images = self._pixels[rows]
        if self.crop_padding:
            count, height, width, channels = images.shape
            side = self.crop_padding
            around = np.zeros(
                (count, height + 2 * side, width + 2 * side, channels), images.dtype
            )  # np.pad takes three times as long
            around[:, side : side + height, side : side + width] = images
            # A view of every possible crop, of which one is copied for each image: (batch, down, right, channels, height, width).
            crops = np.lib.stride_tricks.sliding_window_view(around, (height, width), axis=(1, 2))
            images = np.moveaxis(crops[np.arange(self.batch), down, right], 1, -1)
        if self.flip:
            images[mirrored] = images[mirrored, :, ::-1]
        return np.ascontiguousarray(images), self._labels[rows]


def padded(pixels: np.ndarray, batch: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield (uint8 (batch, height, width, channels), how many of them are real); zeros fill the last one. Drops nothing."""
    for start in range(0, len(pixels), batch):
        part = pixels[start : start + batch]
        if len(part) < batch:
            filled = np.zeros((batch, *pixels.shape[1:]), pixels.dtype)
            filled[: len(part)] = part
            yield filled, len(part)
        else:
            yield part, batch
