"""Competition folders with unusual names and layouts."""

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
        table: of labels; "": each label has a folder of images.
        sample: the sample submission.
        columns: of ids and labels.
        train, test: folders of images.
        ending: of image files.
        whole: whether ids include the ending.
        sides: minimum and maximum side of an image, in pixels.
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
    """Return noise with a central square, whose size and colour show the kind."""
    pixels = random.integers(0, 90, (height, width, 3), dtype=np.uint8)
    top, left = (side * (3 - kind) // 8 for side in (height, width))
    pixels[top : height - top, left : width - left, COLOURS[kind]] += 150
    return Image.fromarray(pixels)


def images(folder: Path, seed: int, layout: Layout) -> None:
    """Write a folder of images, whose names reveal neither label nor order."""
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


def tables(
    folder: Path, train: pd.DataFrame, test: pd.DataFrame, label: str, shown: object
) -> Path:
    """Write the three tables of a competition with ids in "id"."""
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    sample = test[["id"]].assign(**{label: shown})
    sample.to_csv(folder / "sample_submission.csv", index=False)
    return folder


def runs(mask: np.ndarray) -> str:
    """Return the run-length encoding of a mask, (height, width), down its columns."""
    places = np.flatnonzero(mask.T)
    return " ".join(f"{place + 1} 1" for place in places)


def masks(
    folder: Path, seed: int = 5, *, by_rows: bool = False, train: int = 40
) -> dict[str, np.ndarray]:
    """Write pictures of several sizes with up to two bright boxes, one row per box, and return
    {id: mask}.
    """
    random, rows, every = np.random.default_rng(seed), [], {}
    for number in range(train + 6):
        height, width = 40 + number % 5, 60 + number % 7
        picture = random.integers(0, 60, (height, width))
        boxes = []
        for box in range(number % 3):
            mask = np.zeros((height, width), np.uint8)
            mask[4 + number % 9 : 20, 10 + 20 * box : 24 + 20 * box] = 1
            boxes.append(mask)
        every[f"p{number}"] = union = np.clip(sum(boxes, np.zeros((height, width))), 0, 1)
        place = folder / ("train" if number < train else "test")
        place.mkdir(parents=True, exist_ok=True)
        pixels = (picture + 180 * union).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"p{number}.png")
        texts = [runs(box.T if by_rows else box) for box in boxes] or [""]
        rows += [(f"p{number}", text) for text in texts if number < train]
    test = pd.DataFrame({"id": [f"p{number}" for number in range(train, train + 6)]})
    tables(folder, pd.DataFrame(rows, columns=["id", "rle"]), test, "rle", "1 1")
    (folder / "test.csv").unlink()
    return every


GOOD, BAD = ["fine", "lovely", "great"], ["awful", "broken", "sad"]
PLAIN = ["a", "the", "room", "was", "very", "and", "with", "bed"]


def sentences(labels: list[int], seed: int) -> list[str]:
    """Return texts in which one word shows the label."""
    random = np.random.default_rng(seed)
    words = [
        [*random.choice(PLAIN, 7), *random.choice(GOOD if label else BAD, 1)] for label in labels
    ]
    return [" ".join(random.permutation(each)) for each in words]


def reviews(folder: Path, seed: int = 5, *, rows: int = 120, **columns: object) -> Path:
    """Write a competition of texts, a quarter of them as the test set."""
    folder.mkdir()
    labels, first = [number * 7 % 2 for number in range(rows)], 3 * rows // 4
    ids = [f"r{number}" for number in range(rows)]
    table = pd.DataFrame({"id": ids, "text": sentences(labels, seed), **columns})
    train, test = table[:first].assign(good=labels[:first]), table[first:]
    return tables(folder, train, test, "good", 0)


def goods(folder: Path, seed: int = 5, *, matters: bool = True, rows: int = 120) -> Path:
    """Write dark and bright pictures with a price and a shop. The label depends on both, or only on
    the picture.
    """
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True)
    random, every, first = np.random.default_rng(seed), [], rows - 20
    for number in range(rows):
        bright, dear = random.integers(0, 2, 2)
        pixels = random.integers(0, 90, (12, 12, 3)) + 120 * bright
        part = "train" if number < first else "test"
        Image.fromarray(pixels.astype(np.uint8)).save(folder / part / f"g{number}.png")
        price = "" if number % 11 == 5 else round(5 + 20 * dear + random.random(), 2)
        label = ["low", "middle", "high"][bright + dear if matters else 2 * bright]
        every.append((f"g{number}", price, "north" if dear else "south", label))
    table = pd.DataFrame(every, columns=["id", "price", "shop", "sale"])
    return tables(folder, table[:first], table[first:].drop(columns="sale"), "sale", "low")
