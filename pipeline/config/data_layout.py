"""Where a competition keeps its data, in which form, and how training augments it."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pipeline.config.rules import (
    FILE,
    FREE,
    TEXT,
    Checked,
    Conflict,
    Rule,
    choice,
    is_text,
    number,
    whole,
)

KINDS = ("images", "pixels", "arrays", "table", "tfrecords", "own")
TABLE_COLUMNS = ("numeric_columns", "categorical_columns")  # the inputs of kind="table"
# Number types of what a custom reader returns, with the bytes of a number.
TYPES = {"uint8": 1, "int32": 4, "float32": 4}
Form = tuple[str | int, ...]
RESIZES = ("exact", "stretch", "crop", "pad")
DECODES = ("full", "reduced")
ALPHAS = ("drop", "white", "black")
AUGMENTATIONS = (
    "crop_padding", "flip", "flip_vertical", "rotate", "crop_scale", "rand_augment", "mixup",
    "cutmix",
)  # fmt: skip
_SMALL = (".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff")
ENDINGS = (*_SMALL, *map(str.upper, _SMALL))  # of image files
# Pixels a side. Decoding smaller images again takes less time than checking a cache.
CACHED_ABOVE = 64
# What decides the pixels of an image file: the fields of `pipeline.data.image_decoding.Shape`.
# Inference takes them from the artifact.
PIXELS = ("height", "width", "channels", "resize", "decode", "alpha", "white")
# What says which images are decoded, and how.
DECODING = (
    *PIXELS, "kind", "suffix",
    "train_csv", "train_images", "train_records", "image_feature", "id_column",
)  # fmt: skip
MOST_PIXELS = 10_000  # far above any need, and far below what ends a run for lack of memory
FORM = ("uint8", 28, 28, 1)  # an example for messages


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_form(form: object) -> bool:
    kind, *sizes = form if isinstance(form, tuple) and form else ("",)
    return kind in tuple(TYPES) and len(sizes) > 0 and all(map(whole(1, 10**7).allows, sizes))


def _one_or_more(rule: Rule) -> Rule:
    """Return the rule for what `rule` allows, or a tuple of it that is not empty."""

    def allows(value: object) -> bool:
        return value != () and all(map(rule.allows, _each(value)))

    return replace(rule, allows=allows, expected=f"{rule.expected}, or a tuple of several")


INPUTS = Rule(
    lambda value: isinstance(value, tuple) and all(map(is_text, value)), "a tuple of names"
)


A_FORM = Rule(
    _is_form, f"a type and a shape, as {FORM}", "Types are uint8, int32, float32; sizes 1 or more."
)
FORMS = Rule(
    lambda value: isinstance(value, Mapping) and all(str(name).isidentifier() for name in value),
    f"names, types and shapes, as {{'image': {FORM}}}",
    values=A_FORM,
)
LABEL_FORM = replace(A_FORM, allows=lambda value: value == () or _is_form(value))
CHANNELS = Rule(lambda value: whole(0, 3).allows(value) and value != 2, "1 (grey) or 3 (colour)")
# Where files are may change when a run resumes: their content is compared.
Path = Annotated[str, FILE, FREE]
Paths = Annotated[str | tuple[str, ...], _one_or_more(FILE), FREE]
Side = Annotated[int, whole(0, MOST_PIXELS)]
Share = Annotated[float, number(0, 1)]
Alpha = Annotated[float, number(0, 10)]
Column = Annotated[str | None, TEXT]


@dataclass(frozen=True, kw_only=True)
class Data(Checked):
    """Where the inputs and labels of a competition are, and how they are augmented.

    Attributes:
        kind: "images" (a file each), "pixels" (images as columns of a table, one column a pixel, by
            rows, as in Digit Recognizer), "arrays" (images in one .npy or .npz file, in the order
            of the tables), "table" (numbers and categories), "tfrecords" (image files within
            TFRecord files, each a tf.train.Example) or "own" (what `Config.read_training` returns).
        own_inputs: with kind="own", the type and shape of each input of one example, by name:
            {"image": ("uint8", 28, 28, 1), "ages": ("float32", 3)}. Types: uint8, int32, float32.
        own_labels: the same of the labels of one example: ("uint8", 28, 28). With target="own".
        height, width: pixels of every image that a model gets; a table has none.
        channels: 1 (grey) or 3 (colour); a table has none.
        resize: of image files: "exact" refuses other sizes, "stretch" resizes to height and width,
            "crop" keeps the proportions and takes the middle, "pad" keeps them and fills with
            zeros.
        decode: of JPEGs that are resized to a smaller size: "full", or "reduced", which is faster
            and less exact (`pipeline.data.image_decoding.Shape`).
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
            are in the order of sample_submission.
        train_images, test_images: a folder of `<id><suffix>`, or a tuple of folders, tried in turn.
            A folder without images of its own is searched in all folders below it.
        train_array, test_array: .npy files (or .npz with one array): uint8 (n, height, width), or
            with channels as a fourth axis.
        train_records, test_records: TFRecord files, with * and ?, for example
            "tfrecords/train*.tfrec", or a tuple of patterns. There is no train_csv then:
            `id_column`, `label_column` and `group_column` are names of features.
        image_feature: of TFRecords, the feature with the bytes of an image file.
        sample_submission: the CSV whose ids, order, columns and types the submission repeats.
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

    kind: Annotated[str, choice(*KINDS)] = "images"
    own_inputs: Annotated[Mapping[str, Form], FORMS] = field(default_factory=dict, hash=False)
    own_labels: Annotated[Form, LABEL_FORM] = ()
    height: Side = 0
    width: Side = 0
    channels: Annotated[int, CHANNELS] = 0
    resize: Annotated[str, choice(*RESIZES)] = "exact"
    decode: Annotated[str, choice(*DECODES)] = "full"
    alpha: Annotated[str, choice(*ALPHAS)] = "drop"
    white: Annotated[float | None, number(0, 2**32, open_ends=True)] = None
    train_csv: Annotated[str | None, FILE, FREE] = "train.csv"
    test_csv: Path = "test.csv"
    train_images: Paths = "train"
    test_images: Paths = "test"
    train_array: Path = "train.npy"
    test_array: Path = "test.npy"
    train_records: Paths = "train*.tfrec"
    test_records: Paths = "test*.tfrec"
    image_feature: Annotated[str, TEXT] = "image"
    sample_submission: Path = "sample_submission.csv"
    id_column: Annotated[str, TEXT] = "id"
    label_column: Annotated[str | tuple[str, ...], _one_or_more(TEXT)] = "label"
    label_separator: Annotated[str, TEXT] = " "
    positive_label: Annotated[str | None, TEXT, FREE] = None
    numeric_columns: Annotated[tuple[str, ...], INPUTS] = ()
    categorical_columns: Annotated[tuple[str, ...], INPUTS] = ()
    most_categories: Annotated[int, whole(2, 10**5)] = 64
    suffix: Annotated[str, choice(*ENDINGS, "", "*")] = ".png"
    crop_padding: Side = 0
    flip: bool = False
    flip_vertical: bool = False
    rotate: bool = False
    crop_scale: Share = 0.0
    rand_augment: Annotated[int, whole(0, 14)] = 0
    rand_magnitude: Share = 0.3
    mixup: Alpha = 0.0
    cutmix: Alpha = 0.0
    validation_fraction: Annotated[float, number(0, 1, open_ends=True)] = 0.1
    group_column: Column = None
    weight_column: Column = None
    group_duplicates: bool = False
    labelled: Annotated[int | None, whole(1, 10**12), FREE] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        # Sorted, as JSON's keys are: several inputs travel as bytes in this order.
        object.__setattr__(self, "own_inputs", dict(sorted(self.own_inputs.items())))

    def _conflicts(self) -> Iterator[Conflict]:
        yield from self._input_conflicts()
        yield from self._file_conflicts()
        yield from self._column_conflicts()
        if self.group_column is not None and self.validation_fraction > 0.5:
            expected = "0.5 or less with group_column, which holds out one of two or more parts"
            yield Conflict("validation_fraction", expected, "Lower it in the config.")
        if self.group_duplicates and self.kind in ("table", "own"):
            expected = f'False with kind="{self.kind}", whose rows may be equal by chance'
            yield Conflict("group_duplicates", expected, "Leave {name} out; name a group_column.")

    def _input_conflicts(self) -> Iterator[Conflict]:
        """Yield what does not fit the kind and the shape of the inputs."""
        if bool(self.own_inputs) != (self.kind == "own"):
            expected = f'{FORMS.expected}, with kind="own", and else nothing'
            yield Conflict("own_inputs", expected, "Write {name}, or correct data.kind.")
        if not self.images or self.own_labels:
            inputs = "own_labels" if self.own_labels else "inputs that are no images"
            for name in AUGMENTATIONS:
                if getattr(self, name):
                    yield Conflict(name, f"nothing with {inputs}")
        flat = self.kind in ("table", "own")
        for name in ("height", "width", "channels"):
            if bool(getattr(self, name)) == flat:
                expected = f'{"nothing" if flat else "1 or more"} with kind="{self.kind}"'
                yield Conflict(name, expected, "Correct {name} in the config.")
        if self.rotate and self.shape[:1] != self.shape[1:2]:
            expected = f"False with the shape {self.shape}: a quarter turn swaps height and width"
            yield Conflict("rotate", expected, "Leave rotate out, or make the images square.")

    def _file_conflicts(self) -> Iterator[Conflict]:
        if self.sample_submission.lower().endswith(".parquet"):
            edit = "Write its ids and columns to a CSV."
            yield Conflict("sample_submission", "a CSV, as Kaggle takes one", edit)
        alone = len(self.labels) == 1 and not self.row_columns
        if self.train_csv is None and not (alone and self.kind in ("images", "own")):
            edit = 'Name a table, or set kind="images" and leave the other columns out.'
            expected = "a table, except for images in a folder for each label"
            yield Conflict("train_csv", expected, edit)

    def _column_conflicts(self) -> Iterator[Conflict]:
        """Yield columns that are named twice, and inputs of a table that are missing."""
        named = ["label_column", *TABLE_COLUMNS, "group_column", "weight_column"]
        seen = {self.id_column: "id_column"}
        for name in ["image_feature", *named] if self.kind == "tfrecords" else named:
            for column in filter(None, _each(getattr(self, name))):
                if column in seen:
                    expected = f"another name than that of {seen[column]}"
                    yield Conflict(name, expected, "Name each column once.")
                seen[column] = name
        if self.kind == "table" and not (self.numeric_columns or self.categorical_columns):
            edit = "Name them, or some categorical_columns."
            yield Conflict("numeric_columns", "the inputs of the model", edit)
        for name in TABLE_COLUMNS:
            if self.kind != "table" and getattr(self, name):
                yield Conflict(name, 'nothing, except with kind="table"')

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns, one or several."""
        return _each(self.label_column)

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns that say something of a row, and are neither inputs nor labels."""
        return tuple(filter(None, (self.group_column, self.weight_column)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (height, width, channels), or (features,) of a table.

        Several custom inputs travel as the bytes of all, one after the other.
        """
        if self.kind == "table":
            return (2 * len(self.numeric_columns) + len(self.categorical_columns),)
        if len(self.own_inputs) == 1:
            return sizes(*self.own_inputs.values())
        if self.own_inputs:
            return (sum(map(bytes_of, self.own_inputs.values())),)
        return self.height, self.width, self.channels

    @property
    def images(self) -> bool:
        """Whether an input is an image: uint8 (height, width, 1 or 3)."""
        if self.kind != "own":
            return self.kind != "table"
        return self.dtype == "uint8" and len(self.shape) == 3 and self.shape[-1] in (1, 3)

    @property
    def noun(self) -> str:
        """What examples are called: "images", "rows" of a table, or "examples" of a reader."""
        return called(self.kind)

    @property
    def decoding(self) -> str:
        """Equal texts where the same files are decoded alike; "" where nothing is kept decoded:
        there are no image files, or small ones.
        """
        kept = self.kind in ("images", "tfrecords") and max(self.height, self.width) > CACHED_ABOVE
        values = json.dumps([getattr(self, name) for name in DECODING])
        return hashlib.sha256(values.encode()).hexdigest()[:16] if kept else ""

    @property
    def numbers(self) -> bool:
        """Whether an input has float32 numbers, for which bfloat16 is too coarse."""
        forms = self.own_inputs.values()
        return self.kind == "table" or any(form[0] == "float32" for form in forms)

    @property
    def dtype(self) -> str:
        """The number type of an input: "uint8", "int32" or "float32"."""
        if len(self.own_inputs) == 1:
            return str(next(iter(self.own_inputs.values()))[0])
        return "float32" if self.kind == "table" else "uint8"


def called(kind: str) -> str:
    """Return what examples of a kind of data are called in messages.

    >>> called("table"), called("own"), called("pixels")
    ('rows', 'examples', 'images')
    """
    return {"table": "rows", "own": "examples"}.get(kind, "images")


def sizes(form: Form) -> tuple[int, ...]:
    """Return the shape of a form.

    >>> sizes(("uint8", 28, 28)), bytes_of(("float32", 3))
    ((28, 28), 12)
    """
    return tuple(int(size) for size in form[1:])


def bytes_of(form: Form) -> int:
    """Return the number of bytes of a form."""
    return TYPES[str(form[0])] * math.prod(sizes(form))
