"""Three competition folders that nothing in this project was written for: other names, other
layouts, and pictures in which colours and thumbnails tell little.

    signs     colour PNGs and tables: a letter in one of many fonts, on a piece of a photograph
    sightings pixels in columns: a handwritten digit somewhere among strokes of others
    surfaces  JPEGs in a folder for each label: pieces of photographs, in any colour and brightness

The photographs are scikit-learn's, the fonts matplotlib's, the digits UCI's, as scikit-learn ships
them. Each function writes a folder and returns the labels of its test set, which is in sight.
"""

import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from proofs.competitions.unseen import PLACES

TRAIN, TEST = 3000, 1000
LETTERS = "ABEGKMRSTX"
Truth = Mapping[str, str]
"""{id: label}"""


def signs(folder: Path, seed: int) -> Truth:
    """Write answers.csv (picture, sign), sample_answers.csv, and 40x40 PNGs: seen/, unseen/."""
    import matplotlib

    random, photographs = np.random.default_rng(seed), _photographs()
    fonts = sorted(Path(matplotlib.get_data_path()).glob("fonts/ttf/DejaVu*.ttf"))
    names = _names(random, TRAIN + TEST, "p")
    truth = {name: str(random.choice(list(LETTERS))) for name in names}
    for place in ("seen", "unseen"):
        (folder / place).mkdir(parents=True)
    for number, (name, letter) in enumerate(truth.items()):
        image = Image.fromarray(_piece(photographs, random, 40))
        font = ImageFont.truetype(
            str(fonts[random.integers(len(fonts))]), int(random.integers(16, 30))
        )
        ink = Image.new("L", (40, 40))
        corner = random.integers(2, 14, 2).tolist()
        ImageDraw.Draw(ink).text(tuple(corner), letter, fill=255, font=font)
        turned = ink.rotate(float(random.uniform(-25, 25)))
        colour = tuple(random.integers(0, 256, 3).tolist())
        image.paste(Image.new("RGB", (40, 40), colour), mask=turned)
        image.save(folder / ("seen" if number < TRAIN else "unseen") / f"{name}.png")
    _tables(folder, truth, ("picture", "sign"), "answers.csv", "sample_answers.csv")
    return dict(list(truth.items())[TRAIN:])


def sightings(folder: Path, seed: int) -> Truth:
    """Write known.csv (digit, x0 …), asked.csv (x0 …) and answer_submission.csv (Row, Digit)."""
    from sklearn.datasets import load_digits

    random, digits = np.random.default_rng(seed), load_digits()
    pixels = np.round(digits.images * (255 / 16)).astype(np.uint8)
    # No digit is in both sets.
    order = random.permutation(len(pixels))
    parts = {True: order[: len(order) * 2 // 3], False: order[len(order) * 2 // 3 :]}
    images, labels = [], []
    for number in range(TRAIN + TEST):
        one = int(random.choice(parts[number < TRAIN]))
        canvas = np.zeros((28, 28), np.uint8)
        for _ in range(6):  # strokes: rows of other digits
            row, column = random.integers(0, 26), random.integers(0, 20)
            other = pixels[random.integers(len(pixels)), random.integers(8)]
            part = canvas[row, column : column + 8]
            canvas[row, column : column + 8] = np.maximum(part, other // 2)
        size = int(random.integers(10, 17))
        drawn = np.asarray(
            Image.fromarray(pixels[one]).resize((size, size), Image.Resampling.BILINEAR)
        )
        row, column = random.integers(0, 28 - size + 1, 2)
        place = canvas[row : row + size, column : column + size]
        canvas[row : row + size, column : column + size] = np.maximum(place, drawn)
        images.append(canvas.ravel())
        labels.append(str(digits.target[one]))
    table = pd.DataFrame(np.array(images)).add_prefix("x")
    folder.mkdir(parents=True)
    known = table[:TRAIN].copy()
    known.insert(0, "digit", labels[:TRAIN])
    known.to_csv(folder / "known.csv", index=False)
    table[TRAIN:].to_csv(folder / "asked.csv", index=False)
    rows = [str(number) for number in range(1, TEST + 1)]
    pd.DataFrame({"Row": rows, "Digit": "0"}).to_csv(folder / "answer_submission.csv", index=False)
    return dict(zip(rows, labels[TRAIN:], strict=True))


def surfaces(folder: Path, seed: int, side: int = 64, count: int = TRAIN + TEST) -> Truth:
    """Write pictures/<surface>/*.jpg, to_name/*.jpg and sample_names.csv (photo, surface).

    Args:
        side: pixels of a picture; a piece of 28 to 56 pixels is scaled to it.
        count: of all pictures, of which a quarter is the test set.
    """
    from sklearn.datasets import load_sample_image

    random = np.random.default_rng(seed)
    photographs = {name: load_sample_image(name) for name in ("china.jpg", "flower.jpg")}
    truth: dict[str, str] = {}
    (folder / "to_name").mkdir(parents=True)
    for kind in PLACES:
        (folder / "pictures" / kind).mkdir(parents=True)
    for number, name in enumerate(_names(random, count, "s")):
        kind = str(random.choice(list(PLACES)))
        photograph, boxes = PLACES[kind]
        left, top, right, bottom = boxes[random.integers(len(boxes))]
        size = int(random.integers(28, 57))
        x, y = random.integers(left, right - size + 1), random.integers(top, bottom - size + 1)
        piece = photographs[photograph][y : y + size, x : x + size].astype(float)
        # Any colour and brightness: what is left is the surface.
        grey = piece.mean(axis=2, keepdims=True)
        grey = (grey - grey.mean()) * random.uniform(0.6, 1.4) + random.uniform(70, 185)
        tinted = grey * random.uniform(0.6, 1.4, 3)
        image = Image.fromarray(tinted.clip(0, 255).astype(np.uint8)).resize((side, side))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=92)
        tested = number >= count * 3 // 4
        place = folder / ("to_name" if tested else f"pictures/{kind}")
        (place / f"{name}.jpg").write_bytes(buffer.getvalue())
        if tested:
            truth[name] = kind
    table = pd.DataFrame({"photo": [f"{name}.jpg" for name in truth], "surface": "sky"})
    table.to_csv(folder / "sample_names.csv", index=False)
    return {f"{name}.jpg": kind for name, kind in truth.items()}


FOLDERS: dict[str, Callable[[Path, int], Truth]] = {
    "signs": signs,
    "sightings": sightings,
    "surfaces": surfaces,
}


def _photographs() -> list[np.ndarray]:
    from sklearn.datasets import load_sample_image

    return [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]


def _piece(photographs: list[np.ndarray], random: np.random.Generator, side: int) -> np.ndarray:
    photograph = photographs[random.integers(len(photographs))]
    y, x = (random.integers(0, length - side) for length in photograph.shape[:2])
    return np.ascontiguousarray(photograph[y : y + side, x : x + side])


def _names(random: np.random.Generator, count: int, letter: str) -> list[str]:
    """Return names that tell neither the label nor the order."""
    numbers = random.choice(10**7, count, replace=False)
    return [f"{letter}{number:07d}" for number in numbers]


def _tables(folder: Path, truth: Truth, columns: tuple[str, str], train: str, sample: str) -> None:
    rows = list(truth.items())
    pd.DataFrame(rows[:TRAIN], columns=list(columns)).to_csv(folder / train, index=False)
    asked = [(name, LETTERS[0]) for name, _ in rows[TRAIN:]]
    pd.DataFrame(asked, columns=list(columns)).to_csv(folder / sample, index=False)
