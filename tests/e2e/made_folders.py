"""Competition folders that nothing in this project was written for: other names, other layouts."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

KINDS = ("ash", "birch", "cedar", "doum")
COLOURS = ([0, 1, 2], [0], [1], [2])  # of their squares: channels
TRAIN, TEST = 200, 40


class Layout(NamedTuple):
    """The names of a folder of images.

    Attributes:
        table: of labels; "": the images lie in a folder for each label.
        sample: the sample submission.
        columns: the id's, and the label's.
        train, test: folders of images.
        ending: of their files.
        whole: whether an id has its file's ending.
        sides: the least and the greatest side of an image, in pixels.
    """

    table: str
    sample: str
    columns: tuple[str, str]
    train: str
    test: str
    ending: str
    whole: bool
    sides: tuple[int, int]


LAYOUTS = {
    "signs": Layout("answers.csv", "sample_answers.csv", ("picture", "sign"), "seen", "unseen",
                    ".png", False, (16, 16)),
    "surfaces": Layout("", "sample_names.csv", ("photo", "surface"), "pictures", "to_name",
                       ".jpg", True, (16, 16)),
    "varieties": Layout("labels.csv", "submission_format.csv", ("file", "variety"), "images_train",
                        "images_test", ".jpg", True, (14, 20)),
}  # fmt: skip


def picture(kind: int, random: np.random.Generator, height: int, width: int) -> Image.Image:
    """Return noise with a square in its middle, whose size and colour tell the kind."""
    pixels = random.integers(0, 90, (height, width, 3), dtype=np.uint8)
    top, left = (side * (3 - kind) // 8 for side in (height, width))
    pixels[top : height - top, left : width - left, COLOURS[kind]] += 150
    return Image.fromarray(pixels)


def images(folder: Path, seed: int, layout: Layout) -> None:
    """Write a folder of images, whose names tell neither label nor order."""
    random = np.random.default_rng(seed)
    numbers = random.choice(10**7, TRAIN + TEST, replace=False)
    kinds = random.integers(0, 4, TRAIN + TEST)
    rows = []
    for place, number in enumerate(numbers):
        kind, name = KINDS[kinds[place]], f"p{number:07d}"
        train = layout.train if layout.table else f"{layout.train}/{kind}"
        path = folder / (train if place < TRAIN else layout.test) / f"{name}{layout.ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        least, most = layout.sides
        picture(kinds[place], random, *random.integers(least, most + 1, 2)).save(path, quality=92)
        rows.append((path.name if layout.whole else name, kind))
    table = pd.DataFrame(rows, columns=list(layout.columns))
    if layout.table:
        table[:TRAIN].to_csv(folder / layout.table, index=False)
    placeholders = table[TRAIN:].assign(**{layout.columns[1]: KINDS[0]})
    placeholders.to_csv(folder / layout.sample, index=False)


def pixels(folder: Path, seed: int) -> None:
    """Write known.csv (kind, x0 …), asked.csv (x0 …) and answer_submission.csv (Row, Kind)."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 4, TRAIN + TEST)
    grey = [np.asarray(picture(kind, random, 12, 12).convert("L")).ravel() for kind in kinds]
    table = pd.DataFrame(np.array(grey)).add_prefix("x")
    table.insert(0, "kind", kinds)
    folder.mkdir(parents=True)
    table[:TRAIN].to_csv(folder / "known.csv", index=False)
    table[TRAIN:].drop(columns="kind").to_csv(folder / "asked.csv", index=False)
    sample = pd.DataFrame({"Row": range(1, TEST + 1), "Kind": 0})
    sample.to_csv(folder / "answer_submission.csv", index=False)
