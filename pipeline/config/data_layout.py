"""The `Data` class, which describes a competition's data and its augmentation."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated, Any

from pipeline.config import rules
from pipeline.config.rules import AUGMENTS, FREE, Checked, Need, Only, Rule, choice, number, whole

IMAGES = ("images", "pixels", "arrays", "tfrecords")  # kinds of data that contain images
# The numbers derived from a date (`pipeline.data.dates`).
DATE_PARTS = ("days", "month", "day", "weekday", "hour")
# Data types that a custom reader can return, and their sizes in bytes.
TYPES = {"uint8": 1, "int32": 4, "float32": 4}
Form = tuple[str | int, ...]
RESIZES = ("exact", "stretch", "crop", "pad")
ALPHAS = ("drop", "white", "black")
_SMALL = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff")
ENDINGS = (*_SMALL, *map(str.upper, _SMALL))  # file extensions of images
# Pixels per side. Smaller images can be decoded faster than the cache can be checked.
CACHED_ABOVE = 64
# Fields that affect the pixels of an image file (`pipeline.data.image_decoding`). Inference reads
# them from the artifact.
PIXELS = ("height", "width", "channels", "resize", "decode", "alpha", "white")
# Fields that determine which images are decoded, and how.
DECODING = (
    *(*PIXELS, "kind", "suffix"),
    *("train_csv", "train_images", "train_records", "image_feature", "id_column"),
)


def _is_form(form: Any) -> bool:
    kind, *sizes = form if isinstance(form, tuple) and form else ("",)
    return kind in tuple(TYPES) and len(sizes) > 0 and all(map(whole(1, 10**7).allows, sizes))


FORM = Rule(_is_form, "a type (uint8, int32 or float32) and a shape, e.g. ('uint8', 28, 28, 1)")
NAME = rules.identifier("a name")
FORMS = rules.mapping(_is_form, f"a Python name for each input, with {FORM.expected}", NAME)
MAYBE_FORM = FORM._replace(allows=lambda value: value == () or _is_form(value))
CHANNELS = Rule(lambda value: whole(0, 3).allows(value) and value != 2, "1 (grey) or 3 (colour)")
Flag = Annotated[bool, rules.TRUTH]
# Files can be moved before a run is resumed, because only their contents are compared.
Path = Annotated[str, rules.FILE, FREE]
Paths = Annotated[str | tuple[str, ...], rules.one_or_more(rules.FILE), FREE]
# Larger than any practical image, but small enough that we never run out of memory.
SIDE = whole(0, 10_000)
Side = Annotated[int, SIDE, Only("kind", IMAGES, needed=True)]
Share = Annotated[float, number(0, 1)]
Alpha = Annotated[float, number(0, 10)]
Column = Annotated[str, rules.TEXT]
Columns = Annotated[tuple[str, ...], rules.TEXTS, Only("kind", ("table",))]


@dataclass(frozen=True, kw_only=True)
class Data(Checked):
    """Describes a competition's inputs and labels, and how to augment them.

    Attributes:
        kind: "images" (one file per example), "pixels" (images stored as table rows with one column
            per pixel, as in Digit Recognizer), "arrays" (all images in one .npy or .npz file, in
            table order), "table" (numbers and categories), "tfrecords" (image files stored in
            TFRecord files as tf.train.Example) or "custom" (see `Config.read_training`).
        custom_inputs: for kind="custom", the type (uint8, int32 or float32) and shape of an
            example's inputs by name: {"image": ("uint8", 28, 28, 1), "ages": ("float32", 3)}.
        custom_labels: for target="custom", type and shape of an example's labels: ("uint8", 28).
        height, width: size of the model's input images in pixels (not used for tables).
        channels: 1 (grey) or 3 (colour); not used for tables.
        resize: how to resize image files. "exact" raises an error for any other size, "stretch"
            ignores the aspect ratio, "crop" keeps it and crops to the centre, and "pad" keeps it
            and pads with zeros.
        decode: size at which JPEGs are decoded. "full" does not reduce the quality of the resized
            image. "reduced" uses half, a quarter or an eighth of the size if that is at least 0.8
            times the new size. This is faster, but has a mean error of 2 levels.
        alpha: for image files with an alpha channel. "drop" ignores it; "white" and "black" put the
            image on a background of that colour (some drawings only exist in the alpha channel).
        white: for grey image files with more than 8 bits, the value that is mapped to 255. Larger
            and negative values are clipped. Use 4095 for 12-bit values in 16-bit files
            (X-rays, microscopy) and 1.0 for floats from 0 to 1. If this is None, the value is
            65535, and images of floats raise an error. `invoke inspect` measures this value.
        train_csv: table (.csv or .parquet) with `id_column`, the label columns and, for "pixels"
            and "table", the inputs of each example. For "images", None means that each subfolder of
            train_images is a label (train/cats/1.jpg), and ids are file paths.
        test_csv: table of the test set, for "pixels" and "table". Without `id_column`, its rows
            must be in sample_submission's order. If sample_submission is None, ids are read from
            this table, whatever `kind` is.
        train_images, test_images: folder with files named `<id><suffix>`, or a tuple of folders
            that are tried in order. If a folder itself contains no images, all its subfolders are
            searched.
        train_array, test_array: .npy files (or .npz files with one array) of type uint8 and shape
            (n, height, width), or with channels as a fourth axis.
        train_records, test_records: pattern of TFRecord files, such as "tfrecords/train*.tfrec",
            where * and ? are wildcards, or a tuple of patterns. The files replace train_csv:
            `id_column`, `label_column` and `group_column` are then names of features.
        image_feature: TFRecord feature that contains an encoded image file.
        sample_submission: CSV file that defines the ids, order, columns and types of a submission,
            or None if the competition does not provide one. The ids are then the values of
            `id_column` in test_csv, its row numbers if it has no "id" column, or the file names in
            test_images. Columns are named after `label_column`, or after each label if the metric
            needs probabilities of more than two labels.
        id_column: column with ids. It is optional in train_csv, except for "images", where an id
            can be a path inside the folder ("cats/1").
        label_column: label column in train_csv, or a tuple for several labels or targets. The
            submission can use different names. With target="classes", there can be several
            columns, each with the votes or probabilities for one class.
        label_separator: separator between labels in a single column, such as "|" in "cat|dog".
            Spaces around it are ignored.
        positive_label: for two labels, the label whose probability is written to a submission with
            a single column. None selects the label that the column is named after, or else the
            second label in alphabetical order.
        numeric_columns, categorical_columns: inputs for kind="table", proposed by `invoke inspect`.
        date_columns: columns with dates or times for kind="table". All dates in a column must have
            the same format, and it must be a common one. The model's inputs are days since 1970,
            month, day, weekday and hour of each date, and the days between each pair of dates.
        day_first: whether the day comes first in ambiguous dates such as 03/04/2026.
        most_categories: maximum number of categories per column, including one for all rarer
            categories.
        suffix: file extension of the images. Use "" if ids are complete file names, and "*" for any
            of .png, .jpg, .jpeg, .jfif, .webp, .bmp, .gif, .tif and .tiff in lower or upper case.
        crop_padding: pixels of zero padding before a random crop to the original size; 0 disables
            it.
        flip, flip_vertical: flip half of the images horizontally or vertically.
        rotate: rotate square images by 0, 90, 180 or 270 degrees with equal probability.
        crop_scale: minimum fraction of the image area in a random crop, which is resized to full
            size. Use 0.08 for large datasets and many epochs, 0.5 for smaller ones, and 0 to
            disable it.
        rand_augment: number of RandAugment operations per image, out of 14. A typical value is 2; 0
            disables it.
        rand_magnitude: strength of these operations, from 0 to 1.
        mixup, cutmix: alpha of the Beta distribution from which the mixing ratio is drawn.
            Typical values are 0.2 and 1; 0 disables them.
        validation_fraction: fraction of the labelled examples to hold out, stratified by label. It
            is not used with `Config.folds`. Rare labels may be missing from the held-out set.
        group_column: column of train_csv whose values identify groups, such as patients or scenes.
            Examples of a group are never split between training and validation. One of n parts of
            similar size is held out, where 1/n is close to `validation_fraction`.
        weight_column: column of train_csv with each row's weight in the loss, 0 or more. The loss
            is still divided by the number of rows.
        group_duplicates: whether to keep near-duplicate images together, in either training or
            validation. Training detects them by their pixels. A label whose images all form a
            single group is missing from the held-out set.
        labelled: number of labelled examples, counted by `invoke inspect`. It is used to plan a run
            before a push, when no data is available. None means unknown.
    """

    prefix = "data."

    kind: Annotated[str, choice(*IMAGES, "table", "custom")] = "images"
    custom_inputs: Annotated[Mapping[str, Form], FORMS, Only("kind", ("custom",), needed=True)] = (
        field(default_factory=dict, hash=False)
    )
    custom_labels: Annotated[Form, MAYBE_FORM] = ()
    height: Side = 0
    width: Side = 0
    channels: Annotated[int, CHANNELS, Only("kind", IMAGES, needed=True)] = 0
    resize: Annotated[str, choice(*RESIZES)] = "exact"
    decode: Annotated[str, choice("full", "reduced")] = "full"
    alpha: Annotated[str, choice(*ALPHAS)] = "drop"
    white: Annotated[float | None, number(0, 2**32, open_ends=True)] = None
    train_csv: Annotated[str | None, rules.FILE, FREE] = "train.csv"
    test_csv: Path = "test.csv"
    train_images: Paths = "train"
    test_images: Paths = "test"
    train_array: Path = "train.npy"
    test_array: Path = "test.npy"
    train_records: Paths = "train*.tfrec"
    test_records: Paths = "test*.tfrec"
    image_feature: Column = "image"
    sample_submission: Annotated[str | None, rules.FILE, FREE] = "sample_submission.csv"
    id_column: Column = "id"
    label_column: Annotated[str | tuple[str, ...], rules.one_or_more(rules.TEXT)] = "label"
    label_separator: Annotated[str, rules.TEXT] = " "
    positive_label: Annotated[str | None, rules.TEXT, FREE] = None
    numeric_columns: Columns = ()
    categorical_columns: Columns = ()
    date_columns: Columns = ()
    day_first: Flag = False
    most_categories: Annotated[int, whole(2, 10**5)] = 64
    suffix: Annotated[str, choice(*ENDINGS, "", "*")] = ".png"
    crop_padding: Annotated[int, SIDE, AUGMENTS] = 0
    flip: Annotated[Flag, AUGMENTS] = False
    flip_vertical: Annotated[Flag, AUGMENTS] = False
    rotate: Annotated[Flag, AUGMENTS] = False
    crop_scale: Annotated[Share, AUGMENTS] = 0.0
    rand_augment: Annotated[int, whole(0, 14), AUGMENTS] = 0
    rand_magnitude: Share = 0.3
    mixup: Annotated[Alpha, AUGMENTS] = 0.0
    cutmix: Annotated[Alpha, AUGMENTS] = 0.0
    validation_fraction: Annotated[float, number(0, 1, open_ends=True)] = 0.1
    group_column: Annotated[str | None, rules.TEXT] = None
    weight_column: Annotated[str | None, rules.TEXT] = None
    group_duplicates: Annotated[Flag, Only("kind", IMAGES)] = False
    labelled: Annotated[int | None, whole(1, 10**12), FREE] = None

    def _needs(self) -> Iterator[Need]:
        for name in AUGMENTATIONS:
            changes = not getattr(self, name) or (self.images and not self.custom_labels)
            expected = f"no value with kind={self.kind!r} or custom_labels, because it needs images"
            yield name, changes, expected
        square = not self.rotate or self.shape[0] == self.shape[1]
        yield "rotate", square, f"False, because the shape {self.shape} is not square"
        a_csv = not (self.sample_submission or "").lower().endswith(".parquet")
        yield "sample_submission", a_csv, "a CSV file, as required by Kaggle; convert it"
        foldered = len(self.labels) == 1 and not self.row_columns
        foldered &= self.kind in ("images", "custom")
        expected = "a table; None requires images in one folder per label, and no other columns"
        yield "train_csv", self.train_csv or foldered, expected
        inputs = self.kind != "table" or self.input_columns
        expected = "the model's inputs, unless there are categorical_columns or date_columns"
        yield "numeric_columns", inputs, expected
        in_parts = self.group_column is None or self.validation_fraction <= 0.5
        expected = "0.5 or less with group_column, which holds out one of at least two parts"
        yield "validation_fraction", in_parts, expected
        yield from self._different_columns()

    def _different_columns(self) -> Iterator[Need]:
        """Require that each column is used only once, so that labels do not leak."""
        names = ["label_column", "numeric_columns", "categorical_columns", "date_columns"]
        names += ["group_column", "weight_column"]
        seen = {self.id_column: "id_column"}
        for name in ["image_feature", *names] if self.kind == "tfrecords" else names:
            for column in filter(None, rules.as_tuple(getattr(self, name))):
                expected = f"a column different from {seen.get(column)}"
                if seen.get(column) == name:
                    expected = f"{column!r} only once"
                yield name, column not in seen, expected
                seen[column] = name

    def files(self, part: str) -> tuple[str, ...] | None:
        """Return the paths or patterns of the competition's files for `part` ("train" or "test").

        Return None for a custom reader, which can read any file.
        """
        if self.kind == "custom":
            return None
        kinds = {"images": "images", "arrays": "array", "tfrecords": "records"}
        fields = (f"{part}_csv", f"{part}_{kinds.get(self.kind, 'csv')}")
        return tuple(
            name for field in fields for name in rules.as_tuple(getattr(self, field) or ())
        )

    @property
    def labels(self) -> tuple[str, ...]:
        return rules.as_tuple(self.label_column)

    @property
    def input_columns(self) -> tuple[str, ...]:
        return (*self.numeric_columns, *self.categorical_columns, *self.date_columns)

    @property
    def number_names(self) -> tuple[str, ...]:
        dates = self.date_columns
        parts = [f"{name}: {part}" for name in dates for part in DATE_PARTS]
        between = [f"days from {one} to {other}" for one, other in combinations(dates, 2)]
        return (*self.numeric_columns, *parts, *between)

    @property
    def row_columns(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.group_column, self.weight_column)))

    @property
    def forms(self) -> Mapping[str, Form]:
        """Type and shape of each input of an example, keyed by name, in packing order."""
        if self.kind == "table":
            features = 2 * len(self.number_names) + len(self.categorical_columns)
            return {"features": ("float32", features)}
        custom = dict(sorted(self.custom_inputs.items()))
        return custom or {"image": ("uint8", self.height, self.width, self.channels)}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an example's input: (height, width, channels), or (features,) for a table.

        Several custom inputs are packed, so their shape is (bytes,).
        """
        forms = [*self.forms.values()]
        return sizes(forms[0]) if len(forms) == 1 else (sum(map(bytes_of, forms)),)

    @property
    def dtype(self) -> str:
        forms = [*self.forms.values()]
        return str(forms[0][0]) if len(forms) == 1 else "uint8"

    @property
    def images(self) -> bool:
        return self.dtype == "uint8" and len(self.shape) == 3 and self.shape[-1] in (1, 3)

    @property
    def numbers(self) -> bool:
        """Whether there are float32 inputs, for which bfloat16 is not precise enough."""
        return any(form[0] == "float32" for form in self.forms.values())

    @property
    def noun(self) -> str:
        return called(self.kind)

    @property
    def decoding(self) -> str:
        """Cache key of the decoded pixels, which depends on the files and decoding rules.

        It is "" if pixels are not cached because images are small or not stored in files.
        """
        kept = self.kind in ("images", "tfrecords") and max(self.height, self.width) > CACHED_ABOVE
        return json.dumps([getattr(self, name) for name in DECODING]) if kept else ""


AUGMENTATIONS = rules.marked(Data, AUGMENTS)


def called(kind: str) -> str:
    """Return the noun that messages use for examples of this kind.

    >>> called("table"), called("custom"), called("pixels")
    ('rows', 'examples', 'images')
    """
    return {"table": "rows", "custom": "examples"}.get(kind, "images")


def sizes(form: Form) -> tuple[int, ...]:
    """Return the shape from `form`, which consists of a type and a shape.

    >>> sizes(("uint8", 28, 28)), bytes_of(("float32", 3))
    ((28, 28), 12)
    """
    return tuple(int(size) for size in form[1:])


def bytes_of(form: Form) -> int:
    return TYPES[str(form[0])] * math.prod(sizes(form))
