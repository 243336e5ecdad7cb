"""Where a competition keeps its data, in which format, and how training augments it."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Annotated, Any

from pipeline.config import rules
from pipeline.config.rules import AUGMENTS, FREE, Checked, Need, Only, Rule, choice, number, whole

IMAGES = ("images", "pixels", "arrays", "tfrecords")  # kinds of data whose examples are images
# The numbers that a date becomes (`pipeline.data.dates`).
DATE_PARTS = ("days", "month", "day", "weekday", "hour")
# Number types that a custom reader may return, with their sizes in bytes.
TYPES = {"uint8": 1, "int32": 4, "float32": 4}
Form = tuple[str | int, ...]
RESIZES = ("exact", "stretch", "crop", "pad")
ALPHAS = ("drop", "white", "black")
_SMALL = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff")
ENDINGS = (*_SMALL, *map(str.upper, _SMALL))  # of image files
# Pixels per side. Decoding smaller images again is faster than checking a cache.
CACHED_ABOVE = 64
# The fields that the pixels of an image file depend on (`pipeline.data.image_decoding`). Inference
# takes them from the artifact.
PIXELS = ("height", "width", "channels", "resize", "decode", "alpha", "white")
# The fields that determine which images are decoded, and how.
DECODING = (
    *(*PIXELS, "kind", "suffix"),
    *("train_csv", "train_images", "train_records", "image_feature", "id_column"),
)


def _is_form(form: Any) -> bool:
    kind, *sizes = form if isinstance(form, tuple) and form else ("",)
    return kind in tuple(TYPES) and len(sizes) > 0 and all(map(whole(1, 10**7).allows, sizes))


FORM = Rule(_is_form, "a type (uint8, int32 or float32) and a shape, as ('uint8', 28, 28, 1)")
NAME = rules.identifier("a name")
FORMS = rules.mapping(_is_form, f"for each input, a name as in Python and {FORM.expected}", NAME)
MAYBE_FORM = FORM._replace(allows=lambda value: value == () or _is_form(value))
CHANNELS = Rule(lambda value: whole(0, 3).allows(value) and value != 2, "1 (grey) or 3 (colour)")
Flag = Annotated[bool, rules.TRUTH]
# Files may move before a run resumes: their contents are compared.
Path = Annotated[str, rules.FILE, FREE]
Paths = Annotated[str | tuple[str, ...], rules.one_or_more(rules.FILE), FREE]
# More than anybody needs, and too few to run out of memory.
SIDE = whole(0, 10_000)
Side = Annotated[int, SIDE, Only("kind", IMAGES, needed=True)]
Share = Annotated[float, number(0, 1)]
Alpha = Annotated[float, number(0, 10)]
Column = Annotated[str, rules.TEXT]
Columns = Annotated[tuple[str, ...], rules.TEXTS, Only("kind", ("table",))]


@dataclass(frozen=True, kw_only=True)
class Data(Checked):
    """Where the inputs and labels of a competition are, and how they are augmented.

    Attributes:
        kind: "images" (one file per example), "pixels" (images as rows of a table, one column per
            pixel, as in Digit Recognizer), "arrays" (images in one .npy or .npz file, in the order
            of the tables), "table" (numbers and categories), "tfrecords" (image files within
            TFRecord files, each a tf.train.Example) or "custom" (see `Config.read_training`).
        custom_inputs: for kind="custom", the type (uint8, int32 or float32) and shape of each input
            of one example, by name: {"image": ("uint8", 28, 28, 1), "ages": ("float32", 3)}.
        custom_labels: for target="custom", type and shape of one example's labels: ("uint8", 28).
        height, width: size in pixels of every image as the model sees it; not for tables.
        channels: 1 (grey) or 3 (colour); not for tables.
        resize: how image files are resized: "exact" refuses other sizes, "stretch" ignores the
            proportions, "crop" keeps them and takes the middle, "pad" keeps them and fills with
            zeros.
        decode: how large JPEGs are decoded: "full" at a size that loses no quality in the resize;
            "reduced" at half, a quarter or an eighth of the size, if that is at least 0.8 times the
            new size: faster, with a mean error of 2 levels.
        alpha: for image files with an alpha channel: "drop" ignores it, "white" or "black" puts the
            image on that background. Some pictures are drawn in the alpha channel alone.
        white: for grey image files with more than 8 bits: the value that becomes 255; larger ones
            become 255 too, and negative ones 0. 4095 for 12 bits in 16-bit files (X-rays,
            microscopes); 1.0 for floats from 0 to 1. None: 65535, and floats are refused. `invoke
            inspect` measures it.
        train_csv: a table (.csv or .parquet) with one row per example: `id_column`, the label
            columns, and for "pixels" and "table" the inputs. None, for "images": there is no table,
            each folder below train_images is a label (train/cats/1.jpg), and ids are file paths.
        test_csv: the table of the test set, for "pixels" and "table"; without `id_column` its rows
            are in the order of sample_submission. With sample_submission=None, its ids are read for
            any kind.
        train_images, test_images: a folder of `<id><suffix>`, or a tuple of folders, tried in turn.
            A folder that directly contains no images is searched with all its subfolders.
        train_array, test_array: .npy files (or .npz with one array): uint8 (n, height, width), or
            with channels as a fourth axis.
        train_records, test_records: TFRecord files, with * and ?, such as
            "tfrecords/train*.tfrec", or a tuple of patterns. They replace train_csv: `id_column`,
            `label_column` and `group_column` name features.
        image_feature: in TFRecords, the feature with the bytes of an image file.
        sample_submission: the CSV with the ids, order, columns and types of a submission. None: the
            competition has none. Ids are then those of test_csv in `id_column`, its row numbers
            if there is no column "id", or the file names in test_images. Columns are named
            after `label_column`, or, if a metric takes probabilities of more than two labels, after
            each label (`pipeline.data.samples`).
        id_column: in the tables; optional in train_csv, except for "images", where an id may be a
            path below the folder ("cats/1").
        label_column: in train_csv; a tuple of names for several labels or targets. The submission
            may use different names.
        label_separator: between several labels in one column, as "|" in "cat|dog"; spaces around it
            are ignored.
        positive_label: of two labels, the one whose probability a submission with one column
            holds; None: the label that the column is named after, else the second one in
            alphabetical order.
        numeric_columns, categorical_columns: the inputs for kind="table"; `invoke inspect` proposes
            them.
        date_columns: for kind="table": dates or times in a usual format, the same in the whole
            column. The model gets days since 1970, month, day, weekday and hour of each, and the
            days between each pair.
        day_first: where day and month are ambiguous, as in 03/04/2026, the day comes first.
        most_categories: number of categories per column; rarer ones count as unknown.
        suffix: of the image files: "" if ids are whole file names, "*" for any of .png, .jpg,
            .jpeg, .jfif, .webp, .bmp, .gif, .tif and .tiff, in lower or upper case.
        crop_padding: pixels of zeros around an image before a random crop to the original size; 0:
            no crop.
        flip: mirror half of the images left to right.
        flip_vertical: turn half of the images upside down.
        rotate: rotate square images by 0, 90, 180 or 270 degrees, equally often.
        crop_scale: least share of an image's area in a random crop that is resized to the whole
            size (`pipeline.augment.geometry`); 0.08 for much data and many epochs, 0.5 for less; 0:
            no crop.
        rand_augment: number of RandAugment operations per image, out of 14
            (pipeline.augment.rand_augment); 2 is usual; 0: none.
        rand_magnitude: strength of these operations, 0 to 1.
        mixup, cutmix: alpha of the Beta distribution of the mixing shares
            (pipeline.augment.mixup); 0.2 and 1 are usual; 0: none.
        validation_fraction: share of the labelled examples in the held-out set, stratified by
            label; a label with few rows may have none in it. Not used with `Config.folds`.
        group_column: a column of train_csv; examples with the same value (one patient, one scene)
            stay on one side of each split. The held-out share is then the nearest 1/n, as far as
            whole groups allow.
        weight_column: a column of train_csv with the weight of each row in the loss, 0 or more. The
            loss is still divided by the number of rows.
        group_duplicates: keep near-duplicate images on one side of each split. Training finds them
            in the pixels (`pipeline.data.duplicates`). A label whose images are all one group has
            none in the held-out set.
        labelled: number of labelled examples, as `invoke inspect` counted them, for the plan before
            a push, which has no data; None: unknown.
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
            expected = f"no value with kind={self.kind!r} or custom_labels: it changes images"
            yield name, changes, expected
        square = not self.rotate or self.shape[0] == self.shape[1]
        yield "rotate", square, f"False with the shape {self.shape}, which is not square"
        a_csv = not (self.sample_submission or "").lower().endswith(".parquet")
        yield "sample_submission", a_csv, "a CSV, which Kaggle wants; write the ids to one"
        foldered = len(self.labels) == 1 and not self.row_columns
        foldered &= self.kind in ("images", "custom")
        expected = "a table; None is for images in a folder per label, without other columns"
        yield "train_csv", self.train_csv or foldered, expected
        inputs = self.kind != "table" or self.input_columns
        expected = "the inputs of the model, or some categorical_columns or date_columns"
        yield "numeric_columns", inputs, expected
        in_parts = self.group_column is None or self.validation_fraction <= 0.5
        expected = "0.5 or less with group_column, which holds out one of two or more parts"
        yield "validation_fraction", in_parts, expected
        yield from self._different_columns()

    def _different_columns(self) -> Iterator[Need]:
        """Yield whether each column has one use: a label among the inputs would be a leak."""
        names = ["label_column", "numeric_columns", "categorical_columns", "date_columns"]
        names += ["group_column", "weight_column"]
        seen = {self.id_column: "id_column"}
        for name in ["image_feature", *names] if self.kind == "tfrecords" else names:
            for column in filter(None, rules.as_tuple(getattr(self, name))):
                yield name, column not in seen, f"a column different from {seen.get(column)}"
                seen[column] = name

    def files(self, part: str) -> tuple[str, ...] | None:
        """The paths or patterns of the competition's files for `part`, "train" or "test"; None: a
        custom reader may read any.
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
        """The label columns, one or several."""
        return rules.as_tuple(self.label_column)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns of a table that the model reads."""
        return (*self.numeric_columns, *self.categorical_columns, *self.date_columns)

    @property
    def number_names(self) -> tuple[str, ...]:
        """The names of the numbers in a row: its numeric columns, and those made of dates."""
        dates = self.date_columns
        parts = [f"{name}: {part}" for name in dates for part in DATE_PARTS]
        between = [f"days from {one} to {other}" for one, other in combinations(dates, 2)]
        return (*self.numeric_columns, *parts, *between)

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns of groups and weights."""
        return tuple(filter(None, (self.group_column, self.weight_column)))

    @property
    def forms(self) -> Mapping[str, Form]:
        """The type and shape of each input of an example, by name, in the order of packing."""
        if self.kind == "table":
            features = 2 * len(self.number_names) + len(self.categorical_columns)
            return {"features": ("float32", features)}
        custom = dict(sorted(self.custom_inputs.items()))
        return custom or {"image": ("uint8", self.height, self.width, self.channels)}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an example's input: (height, width, channels), or (features,) for a table;
        several custom inputs are packed as bytes.
        """
        forms = [*self.forms.values()]
        return sizes(forms[0]) if len(forms) == 1 else (sum(map(bytes_of, forms)),)

    @property
    def dtype(self) -> str:
        """The number type of an input: "uint8", "int32" or "float32"."""
        forms = [*self.forms.values()]
        return str(forms[0][0]) if len(forms) == 1 else "uint8"

    @property
    def images(self) -> bool:
        """Whether the input is an image: uint8 (height, width, 1 or 3)."""
        return self.dtype == "uint8" and len(self.shape) == 3 and self.shape[-1] in (1, 3)

    @property
    def numbers(self) -> bool:
        """Whether there are float32 inputs, for which bfloat16 is too coarse."""
        return any(form[0] == "float32" for form in self.forms.values())

    @property
    def noun(self) -> str:
        """The word for examples in messages, see `called`."""
        return called(self.kind)

    @property
    def decoding(self) -> str:
        """A key of the decoded pixels: the same files and rules give the same text; "" if no pixels
        are cached: there are no image files, or only small ones.
        """
        kept = self.kind in ("images", "tfrecords") and max(self.height, self.width) > CACHED_ABOVE
        return json.dumps([getattr(self, name) for name in DECODING]) if kept else ""


AUGMENTATIONS = rules.marked(Data, AUGMENTS)


def called(kind: str) -> str:
    """Return the word for examples of a kind of data in messages.

    >>> called("table"), called("custom"), called("pixels")
    ('rows', 'examples', 'images')
    """
    return {"table": "rows", "custom": "examples"}.get(kind, "images")


def sizes(form: Form) -> tuple[int, ...]:
    """Return the shape of a form.

    >>> sizes(("uint8", 28, 28)), bytes_of(("float32", 3))
    ((28, 28), 12)
    """
    return tuple(int(size) for size in form[1:])


def bytes_of(form: Form) -> int:
    """Return the number of bytes of a form."""
    return TYPES[str(form[0])] * math.prod(sizes(form))
