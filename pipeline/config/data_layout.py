"""Where a competition keeps its data, in which form, and how training augments it."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.config.field_checks import expect, file_name, one_of, text, truth, whole, within

KINDS = ("images", "pixels", "arrays", "table", "tfrecords", "own")
# Number types of what an own reader returns, with the bytes of a number.
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
SUFFIXES = (*ENDINGS, "", "*")
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


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the inputs and labels of a competition are, and how they are augmented.

    Attributes:
        kind: "images" (a file each), "pixels" (images as columns of a table, one column a pixel, by
            rows, as in Digit Recognizer), "arrays" (images in one .npy or .npz file, in the order
            of the tables), "table" (numbers and categories), "tfrecords" (image files within
            TFRecord files, each a tf.train.Example) or "own" (what `Config.read_training` returns).
        own_inputs: of "own", the type and shape of each input of one example, by name:
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
            enlarged to the whole size (`pipeline.augment.resized_crop`); 0.08 for much data
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

    kind: str = "images"
    own_inputs: Mapping[str, Form] = field(default_factory=dict, hash=False)
    own_labels: Form = ()
    height: int = 0
    width: int = 0
    channels: int = 0
    resize: str = "exact"
    decode: str = "full"
    alpha: str = "drop"
    white: float | None = None
    train_csv: str | None = "train.csv"
    test_csv: str = "test.csv"
    train_images: str | tuple[str, ...] = "train"
    test_images: str | tuple[str, ...] = "test"
    train_array: str = "train.npy"
    test_array: str = "test.npy"
    train_records: str | tuple[str, ...] = "train*.tfrec"
    test_records: str | tuple[str, ...] = "test*.tfrec"
    image_feature: str = "image"
    sample_submission: str = "sample_submission.csv"
    id_column: str = "id"
    label_column: str | tuple[str, ...] = "label"
    label_separator: str = " "
    positive_label: str | None = None
    numeric_columns: tuple[str, ...] = ()
    categorical_columns: tuple[str, ...] = ()
    most_categories: int = 64
    suffix: str = ".png"
    crop_padding: int = 0
    flip: bool = False
    flip_vertical: bool = False
    rotate: bool = False
    crop_scale: float = 0.0
    rand_augment: int = 0
    rand_magnitude: float = 0.3
    mixup: float = 0.0
    cutmix: float = 0.0
    validation_fraction: float = 0.1
    group_column: str | None = None
    weight_column: str | None = None
    group_duplicates: bool = False
    labelled: int | None = None

    def __post_init__(self) -> None:
        places = ("train_images", "test_images", "train_records", "test_records")
        for name in (*places, "label_column", "numeric_columns", "categorical_columns"):
            if isinstance(getattr(self, name), list):  # what JSON makes of a tuple
                object.__setattr__(self, name, tuple(getattr(self, name)))
        one_of("data.kind", self.kind, KINDS)
        self._check_own()
        one_of("data.resize", self.resize, RESIZES)
        one_of("data.decode", self.decode, DECODES)
        one_of("data.alpha", self.alpha, ALPHAS)
        if self.white is not None:
            within("data.white", self.white, 0, 2**32, open_ends=True)
        one_of("data.suffix", self.suffix, SUFFIXES)
        self._check_shape()
        self._check_columns()
        for name in ("train_csv", "test_csv", "train_array", "test_array", "sample_submission"):
            if name != "train_csv" or self.train_csv is not None:
                file_name(f"data.{name}", getattr(self, name))
        expect(
            not self.sample_submission.lower().endswith(".parquet"),
            "data.sample_submission",
            self.sample_submission,
            "a CSV, as Kaggle takes one",
            "Write its ids and columns to a CSV.",
        )
        for name in places:
            value = getattr(self, name)
            expected = (
                f"the name of {'a folder' if name.endswith('images') else 'files'}, or several"
            )
            expect(value != (), f"data.{name}", value, expected, "Name at least one.")
            for place in value if isinstance(value, tuple) else (value,):
                file_name(f"data.{name}", place)
        text("data.image_feature", self.image_feature)
        text("data.label_separator", self.label_separator)
        if self.positive_label is not None:
            text("data.positive_label", self.positive_label)
        whole("data.most_categories", self.most_categories, 2, 10**5)
        whole("data.crop_padding", self.crop_padding, 0, MOST_PIXELS)
        for name in ("flip", "flip_vertical", "rotate"):
            truth(f"data.{name}", getattr(self, name))
        expect(
            not self.rotate or self.shape[:1] == self.shape[1:2],
            "data.rotate",
            self.rotate,
            f"False with images of the shape {self.shape}: a quarter turn swaps height and width",
            "Leave rotate out, or make the images square.",
        )
        within("data.crop_scale", self.crop_scale, 0, 1)
        whole("data.rand_augment", self.rand_augment, 0, 14)
        within("data.rand_magnitude", self.rand_magnitude, 0, 1)
        within("data.mixup", self.mixup, 0, 10)
        within("data.cutmix", self.cutmix, 0, 10)
        within("data.validation_fraction", self.validation_fraction, 0, 1, open_ends=True)
        expect(
            self.group_column is None or self.validation_fraction <= 0.5,
            "data.validation_fraction",
            self.validation_fraction,
            "0.5 or less with group_column, which makes one of two or more equal parts the "
            "held-out set",
            "Lower it in the config.",
        )
        truth("data.group_duplicates", self.group_duplicates)
        if self.labelled is not None:
            whole("data.labelled", self.labelled, 1, 10**12)
        expect(
            not self.group_duplicates or self.kind not in ("table", "own"),
            "data.group_duplicates",
            self.group_duplicates,
            f'False with kind="{self.kind}", whose rows may be equal by chance',
            "Leave group_duplicates out, or name a group_column.",
        )

    def _check_own(self) -> None:
        own = self.kind == "own"
        given = isinstance(self.own_inputs, Mapping) and bool(self.own_inputs) == own
        example = 'own_inputs={"image": ("uint8", 28, 28, 1)}'
        expected = (
            f"names, types and shapes, as {example}" if own else 'nothing but with kind="own"'
        )
        expect(given, "data.own_inputs", self.own_inputs, expected, f"Write {example}.")
        for name, form in self.own_inputs.items():
            good = isinstance(name, str) and name.isidentifier() and _is_form(form)
            expect(
                good,
                f"data.own_inputs[{name!r}]",
                form,
                f"a name and a form, as {example}",
                "Types are uint8, int32 and float32; each size is 1 or more.",
            )
        # Sorted, as JSON's keys are: several inputs travel as bytes in this order.
        forms = {name: tuple(self.own_inputs[name]) for name in sorted(self.own_inputs)}
        object.__setattr__(self, "own_inputs", forms)
        labels = self.own_labels
        expect(
            labels in ((), []) or _is_form(labels),
            "data.own_labels",
            labels,
            'a type and a shape, as ("uint8", 28, 28)',
            "Correct it, or leave own_labels out.",
        )
        object.__setattr__(self, "own_labels", tuple(labels))

    def _check_shape(self) -> None:
        if not self.images or self.own_labels:
            what = "own_labels" if self.own_labels else "inputs that are no images"
            for name in AUGMENTATIONS:
                value, edit = getattr(self, name), f"Leave {name} out."
                expect(not value, f"data.{name}", value, f"nothing with {what}", edit)
        if self.kind in ("table", "own"):
            for name in ("height", "width", "channels"):
                value, edit = getattr(self, name), f"Leave {name} out."
                expect(not value, f"data.{name}", value, f'nothing with kind="{self.kind}"', edit)
            return
        whole("data.height", self.height, 1, MOST_PIXELS)
        whole("data.width", self.width, 1, MOST_PIXELS)
        good = type(self.channels) is int and self.channels in (1, 3)
        edit = "Set channels to 1 or 3."
        expect(good, "data.channels", self.channels, "1 (grey) or 3 (colour)", edit)

    def _check_columns(self) -> None:
        text("data.id_column", self.id_column)
        several = "a column's name, or several"
        expect(self.labels != (), "data.label_column", self.label_column, several, "Name one.")
        if self.train_csv is None:
            edit = 'Name a table, or set kind="images" and leave the other columns out.'
            alone = self.group_column is None and self.weight_column is None
            one = self.kind in ("images", "own") and len(self.labels) == 1 and alone
            expected = "a table, except for images in a folder for each label"
            expect(one, "data.train_csv", None, expected, edit)
        seen = {self.id_column: "id_column"}
        named = [("image_feature", self.image_feature)] if self.kind == "tfrecords" else []
        named += [("label_column", name) for name in self.labels]
        for kind in ("numeric_columns", "categorical_columns"):
            columns, edit = getattr(self, kind), f"Write {kind}=('…', '…')."
            expect(isinstance(columns, tuple), f"data.{kind}", columns, "a tuple of names", edit)
            named += [(kind, name) for name in columns]
        for kind in ("group_column", "weight_column"):
            if getattr(self, kind) is not None:
                named.append((kind, getattr(self, kind)))
        for kind, name in named:
            text(f"data.{kind}", name)
            expect(
                name not in seen,
                f"data.{kind}",
                getattr(self, kind),
                f"another name than that of {seen.get(name)}",
                "Name each column once.",
            )
            seen[name] = kind
        inputs = self.numeric_columns + self.categorical_columns
        if self.kind == "table":
            edit = "Name them, or some categorical_columns."
            expect(inputs != (), "data.numeric_columns", (), "the inputs of the model", edit)
        else:
            expected = 'nothing, except with kind="table"'
            expect(inputs == (), "data.numeric_columns", inputs, expected, "Leave them out.")

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns, one or several."""
        return self.label_column if isinstance(self.label_column, tuple) else (self.label_column,)

    @property
    def row_columns(self) -> tuple[str, ...]:
        """The columns that say something of a row, and are neither inputs nor labels."""
        return tuple(filter(None, (self.group_column, self.weight_column)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input: (height, width, channels), or (features,) of a table.

        Several own inputs travel as the bytes of all, one after the other.
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


def _is_form(form: object) -> bool:
    if not isinstance(form, tuple | list) or len(form) < 2 or not isinstance(form[0], str):
        return False
    return form[0] in TYPES and all(type(n) is int and 0 < n <= 10**7 for n in form[1:])
