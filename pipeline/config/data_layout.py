"""Where a competition keeps its data, in which form, and how training augments it."""

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
# Number types of what a custom reader returns, with the bytes of a number.
TYPES = {"uint8": 1, "int32": 4, "float32": 4}
Form = tuple[str | int, ...]
RESIZES = ("exact", "stretch", "crop", "pad")
ALPHAS = ("drop", "white", "black")
_SMALL = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff")
ENDINGS = (*_SMALL, *map(str.upper, _SMALL))  # of image files
# Pixels a side. Decoding smaller images again takes less time than checking a cache.
CACHED_ABOVE = 64
# What decides the pixels of an image file (`pipeline.data.image_decoding`). Inference takes them
# from the artifact.
PIXELS = ("height", "width", "channels", "resize", "decode", "alpha", "white")
# What says which images are decoded, and how.
DECODING = (
    *(*PIXELS, "kind", "suffix"),
    *("train_csv", "train_images", "train_records", "image_feature", "id_column"),
)


def _is_form(form: Any) -> bool:
    kind, *sizes = form if isinstance(form, tuple) and form else ("",)
    return kind in tuple(TYPES) and len(sizes) > 0 and all(map(whole(1, 10**7).allows, sizes))


FORM = Rule(_is_form, "a type (uint8, int32 or float32) and a shape, as ('uint8', 28, 28, 1)")
NAME = rules.text(r"[^\W\d]\w*", "a name")
FORMS = rules.mapping(_is_form, f"for each input's name (as a variable's) {FORM.expected}", NAME)
MAYBE_FORM = FORM._replace(allows=lambda value: value == () or _is_form(value))
CHANNELS = Rule(lambda value: whole(0, 3).allows(value) and value != 2, "1 (grey) or 3 (colour)")
Flag = Annotated[bool, rules.TRUTH]
# Where files are may change when a run resumes: their content is compared.
Path = Annotated[str, rules.FILE, FREE]
Paths = Annotated[str | tuple[str, ...], rules.one_or_more(rules.FILE), FREE]
# Far above any need, and far below what ends a run for lack of memory.
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
        kind: "images" (a file each), "pixels" (images as columns of a table, one column a pixel, by
            rows, as in Digit Recognizer), "arrays" (images in one .npy or .npz file, in the order
            of the tables), "table" (numbers and categories), "tfrecords" (image files within
            TFRecord files, each a tf.train.Example) or "custom" (what `Config.read_training`
            returns).
        custom_inputs: with kind="custom", the type and shape of each input of one example, by name:
            {"image": ("uint8", 28, 28, 1), "ages": ("float32", 3)}. Types: uint8, int32, float32.
        custom_labels: with target="custom", the same of the labels of one example: ("uint8", 28).
        height, width: pixels of every image that a model gets; a table has none.
        channels: 1 (grey) or 3 (colour); a table has none.
        resize: of image files: "exact" refuses other sizes, "stretch" resizes to height and width,
            "crop" keeps the proportions and takes the middle, "pad" keeps them and fills with
            zeros.
        decode: of JPEGs that are resized to a smaller size: "full" decodes at a size from which the
            resize is as good as from the whole; "reduced" at half, a quarter or an eighth of the
            size, if that is at least 0.8 times the new one: faster, and 2 levels off in the mean.
        alpha: of image files with transparent parts: "drop" ignores the alpha channel, "white" or
            "black" lays the image on that colour. Some pictures are drawn in alpha alone.
        white: of grey image files with more than 8 bits: the value that becomes 255. Larger ones do
            too, 0 and less become 0. 4095 for 12 bits in files of 16 bits, as of X-rays and
            microscopes; 1.0 for floats from 0 to 1. None: 65535, and floats are refused.
            `invoke inspect` measures it.
        train_csv: a table (.csv or .parquet) with one row an example: `id_column`, the label
            columns, and with "pixels" and "table" the inputs. None, with "images": there is no
            table, and each folder below train_images is a label (train/cats/1.jpg). An id is then
            the file's path.
        test_csv: the same of the test set, for "pixels" and "table"; without `id_column` its rows
            are in the order of sample_submission. With sample_submission=None its ids are read for
            any kind.
        train_images, test_images: a folder of `<id><suffix>`, or a tuple of folders, tried in turn.
            A folder without images of its own is searched in all folders below it.
        train_array, test_array: .npy files (or .npz with one array): uint8 (n, height, width), or
            with channels as a fourth axis.
        train_records, test_records: TFRecord files, with * and ?, for example
            "tfrecords/train*.tfrec", or a tuple of patterns. There is no train_csv then:
            `id_column`, `label_column` and `group_column` are names of features.
        image_feature: of TFRecords, the feature with the bytes of an image file.
        sample_submission: the CSV whose ids, order, columns and types the submission repeats. None:
            the competition has none. Ids are then those of test_csv in `id_column`, or its row
            numbers where there is no column "id", or the names of the files in test_images. Columns
            are called as `label_column`; a metric of probabilities has one for each of more than
            two labels (`pipeline.data.samples`).
        id_column: of the tables; train_csv may lack it, except with "images", where an id may be a
            path below the folder ("cats/1").
        label_column: of train_csv; a tuple of names for several labels or targets. The submission
            may name its columns otherwise.
        label_separator: what stands between several labels in one label column, as "|" in
            "cat|dog"; spaces around it do not count.
        positive_label: of two labels, the one whose probability a submission with one column holds;
            None: the one that the column is called, else the second in alphabetical order.
        numeric_columns, categorical_columns: of a "table", the inputs of the model;
            `invoke inspect` proposes them.
        date_columns: of a "table": days or moments in a usual form that is the same in the whole
            column. A model gets days since 1970, month, day, weekday and hour of each, and the
            days between each two.
        day_first: of dates whose day and month could be exchanged, as 03/04/2026, the day is first.
        most_categories: that are distinguished in one column; rarer ones count as unknown.
        suffix: of the image files: "" where ids are whole file names, "*" for any of .png, .jpg,
            .jpeg, .jfif, .webp, .bmp, .gif, .tif and .tiff, in small letters or capitals.
        crop_padding: pixels of zeros around an image before a random crop of the original size; 0:
            no crop.
        flip: mirror half of the images left to right.
        flip_vertical: turn half of the images upside down.
        rotate: turn images by 0 to 3 quarters, each as often; they must be square.
        crop_scale: the least share of an image's area that a random window of it has, which is
            enlarged to the whole size (`pipeline.augment.geometry`); 0.08 for much data
            and many epochs, 0.5 for less; 0: no window.
        rand_augment: operations of RandAugment on each image, of 14
            (pipeline.augment.rand_augment); 2 is usual; 0: none.
        rand_magnitude: strength of these operations, 0 to 1.
        mixup, cutmix: alpha of the Beta distribution of a mixture's shares
            (pipeline.augment.mixup); 0.2 and 1 are usual; 0: none.
        validation_fraction: share of the labelled examples in the held-out set, stratified by
            label as far as that goes: a label with few rows may have none in it. Not used with
            `Config.folds`.
        group_column: a column of train_csv; examples with the same text in it (of one patient, one
            scene) are never on both sides of a split. The share of the held-out set is then the
            nearest 1/n, as far as whole groups allow.
        weight_column: a column of train_csv with numbers of 0 or more: how much the loss of each
            row counts in training. A loss is still divided by the number of rows.
        group_duplicates: keep images that are the same to a person on one side of each split.
            Training finds them in the pixels (`pipeline.data.duplicates`). A label whose images
            are all one group has none in the held-out set.
        labelled: examples with a label, as `invoke inspect` counted them. The plan before a push
            reads it, which has no data to count; None: it says that it does not know.
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
            expected = f"nothing with kind={self.kind!r} or custom_labels: it is of images"
            yield name, changes, expected
        square = not self.rotate or self.shape[0] == self.shape[1]
        yield "rotate", square, f"False with the shape {self.shape}, which a quarter turn changes"
        a_csv = not (self.sample_submission or "").lower().endswith(".parquet")
        yield "sample_submission", a_csv, "a CSV, as Kaggle takes one; write the ids to one"
        foldered = len(self.labels) == 1 and not self.row_columns
        foldered &= self.kind in ("images", "custom")
        expected = "a table, but for images in a folder for each label, and no other columns"
        yield "train_csv", self.train_csv or foldered, expected
        inputs = self.kind != "table" or self.input_columns
        expected = "the inputs of the model, or some categorical_columns or date_columns"
        yield "numeric_columns", inputs, expected
        in_parts = self.group_column is None or self.validation_fraction <= 0.5
        expected = "0.5 or less with group_column, which holds out one of two or more parts"
        yield "validation_fraction", in_parts, expected
        yield from self._different_columns()

    def _different_columns(self) -> Iterator[Need]:
        """Yield that no column is named twice: a label among the inputs would be a leak."""
        names = ["label_column", "numeric_columns", "categorical_columns", "date_columns"]
        names += ["group_column", "weight_column"]
        seen = {self.id_column: "id_column"}
        for name in ["image_feature", *names] if self.kind == "tfrecords" else names:
            for column in filter(None, rules.as_tuple(getattr(self, name))):
                yield name, column not in seen, f"another column than {seen.get(column)}"
                seen[column] = name

    def files(self, part: str) -> tuple[str, ...] | None:
        """The paths of what a session reads of the competition, or patterns of them; None: any, by
        a custom reader.

        Args:
            part: "train" or "test".
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
        """The columns of a table that a model reads."""
        return (*self.numeric_columns, *self.categorical_columns, *self.date_columns)

    @property
    def number_names(self) -> tuple[str, ...]:
        """What the numbers of a table's row are called: its columns, and what dates become."""
        dates = self.date_columns
        parts = [f"{name}: {part}" for name in dates for part in DATE_PARTS]
        between = [f"days from {one} to {other}" for one, other in combinations(dates, 2)]
        return (*self.numeric_columns, *parts, *between)

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns that say something of a row, and are neither inputs nor labels."""
        return tuple(filter(None, (self.group_column, self.weight_column)))

    @property
    def forms(self) -> Mapping[str, Form]:
        """The type and shape of each input of an example, by name; several travel in this order."""
        if self.kind == "table":
            features = 2 * len(self.number_names) + len(self.categorical_columns)
            return {"features": ("float32", features)}
        custom = dict(sorted(self.custom_inputs.items()))
        return custom or {"image": ("uint8", self.height, self.width, self.channels)}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (height, width, channels), or (features,) of a table.

        Several custom inputs travel as the bytes of all, one after the other.
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
        """Whether an input is an image: uint8 (height, width, 1 or 3)."""
        return self.dtype == "uint8" and len(self.shape) == 3 and self.shape[-1] in (1, 3)

    @property
    def numbers(self) -> bool:
        """Whether an input has float32 numbers, for which bfloat16 is too coarse."""
        return any(form[0] == "float32" for form in self.forms.values())

    @property
    def noun(self) -> str:
        """What examples are called in messages, as `called` says."""
        return called(self.kind)

    @property
    def decoding(self) -> str:
        """Equal texts where the same files are decoded alike; "" where nothing is kept decoded:
        there are no image files, or small ones.
        """
        kept = self.kind in ("images", "tfrecords") and max(self.height, self.width) > CACHED_ABOVE
        return json.dumps([getattr(self, name) for name in DECODING]) if kept else ""


AUGMENTATIONS = rules.marked(Data, AUGMENTS)


def called(kind: str) -> str:
    """Return what examples of a kind of data are called in messages.

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
