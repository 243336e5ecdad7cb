"""Layout: where a competition keeps its images and labels, and what is done to them before a model sees them."""

from dataclasses import dataclass

from pipeline.fields import expect, file_name, text, truth, whole, within

MOST_PIXELS = (
    10_000  # far above what anyone needs, and far below what would end a run without a word for lack of memory
)


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where the images and labels of a competition are, and how they are augmented.

    Attributes:
        height, width: pixels of every image.
        channels: 1 (grey) or 3 (colour), of 8 bits, as in the files: those with other channels (alpha, colour where grey is expected) or
            16 bits are refused, since a conversion would lose something. Grey files are taken for colour, with three equal channels.
        train_csv: a table with one row an image: `id_column`, `label_column`.
        train_images, test_images: folders of `<id><suffix>`.
        sample_submission: the table whose ids, order, columns and types the submission repeats.
        crop_padding: pixels of zeros around an image before a random crop of the original size; 0: no crop.
        flip: mirror half of the images left to right.
        validation_fraction: share of the labelled images held back, stratified by label; with `Config.folds` it is not used.
        group_column: a column of train_csv; images with the same text in it (of one patient, one scene) are never on both sides of a
            split. The share held back is then the nearest 1/n, and what whole groups make of it.
    """

    height: int
    width: int
    channels: int
    train_csv: str = "train.csv"
    train_images: str = "train"
    test_images: str = "test"
    sample_submission: str = "sample_submission.csv"
    id_column: str = "id"
    label_column: str = "label"
    suffix: str = ".png"
    crop_padding: int = 0
    flip: bool = False
    validation_fraction: float = 0.1
    group_column: str | None = None

    def __post_init__(self) -> None:
        whole("data.height", self.height, 1, MOST_PIXELS)
        whole("data.width", self.width, 1, MOST_PIXELS)
        expect(
            type(self.channels) is int and self.channels in (1, 3),
            "data.channels",
            self.channels,
            "1 (grey) or 3 (colour)",
            "Set channels to 1 or 3.",
        )
        for name in ("id_column", "label_column"):
            text(f"data.{name}", getattr(self, name))
        expect(
            self.id_column != self.label_column,
            "data.label_column",
            self.label_column,
            "another column than id_column",
            "Set both to names in the first line of train_csv.",
        )
        for name in ("train_csv", "train_images", "test_images", "sample_submission"):
            file_name(f"data.{name}", getattr(self, name))
        expect(
            self.suffix in (".png", ".jpg", ".jpeg"),
            "data.suffix",
            self.suffix,
            "'.png', '.jpg' or '.jpeg'",
            "Set suffix to the ending of the image files, with its dot.",
        )
        whole("data.crop_padding", self.crop_padding, 0, MOST_PIXELS)
        truth("data.flip", self.flip)
        within("data.validation_fraction", self.validation_fraction, 0, 1, open_ends=True)
        if self.group_column is not None:
            text("data.group_column", self.group_column)
            expect(
                self.group_column not in (self.id_column, self.label_column),
                "data.group_column",
                self.group_column,
                "another column than id_column and label_column",
                "Set it to the column that names each image's group, or to None.",
            )
            expect(
                self.validation_fraction <= 0.5,
                "data.validation_fraction",
                self.validation_fraction,
                "0.5 or less with group_column, which holds back one of two or more equal parts",
                "Lower it in the config.",
            )
