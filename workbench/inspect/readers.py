"""Read inputs for which the config requires a custom reader.

These are run-length encoded masks, texts, and images combined with table columns.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from pipeline.config import Data
from pipeline.errors import DataError
from workbench.inspect import baseline, columns, images, inputs, refusals
from workbench.inspect.columns import CATEGORY, NUMBER, Column
from workbench.inspect.folder import Findings, shortened
from workbench.inspect.inputs import NAMELESS, Inputs, Reader, Seen
from workbench.inspect.tables import Contents
from workbench.inspect.target import TargetGuess

READ = (NUMBER, CATEGORY)  # kinds of columns that a template reads
MOST_VALUES = 20  # maximum number of values to encode per category
FEW_WORDS = 2  # minimum median number of words if there is nothing else to read
LEAST_TERMS, MOST_TERMS = 32, 384  # minimum and maximum number of terms per text
KNOWN_TERMS, KNOWN_PIECES = 30_000, 60_000  # vocabulary size without and with pieces of words
PIECES: tuple[int, ...] = (3, 4, 5)  # lengths of pieces of words, in letters
MOST_WORDS = 128  # maximum number of first words per text
DRAWN = 100  # maximum number of masks to compare with their images
CLEARER = 1.2  # runs go along rows if edges then match better by at least this factor
LOOK = ("height", "width", "channels", "resize", "alpha", "white", "suffix")
PLACES = ("train_images", "test_images")


def _data(contents: Contents, pictures: Data | None, **forms: Any) -> Data:
    places = {name: getattr(pictures, name) for name in PLACES} if pictures else {}
    return Data(kind="custom", **inputs.base(contents, tested=True), **places, **forms)


def _pictures(data: Data) -> Data:
    return Data(**{name: getattr(data, name) for name in (*PLACES, *LOOK)})


# -- masks


def of_masks(contents: Contents, findings: Findings) -> Inputs | None:
    if not contents.masks:
        return None
    column, table = contents.labels[0], contents.table
    found = images.of_files(contents, findings)
    if found is None or found.headers is None:
        raise DataError(
            f"{contents.folder / contents.train} has run-length masks in {column!r}, but its ids, "
            f"such as {table[contents.ids].iloc[0]!r}, are not names of image files.\n"
            "Finish the download. If each id combines an image name and a class, split the ids in "
            "a copy of the table, and keep only the rows of one class (docs/segmentation.md)."
        )
    findings[:] = [line for line in findings if line.about != "size"]  # set by the budget
    by_rows = _by_rows(table[column], found.train, found.headers, findings)
    values = {
        "column": column,
        "by_rows": by_rows,
        "order": "along rows" if by_rows else "down columns",
        "empty": "-1" if (table[column].str.strip() == "-1").any() else "",
    }
    pictures = replace(_pictures(found.data), resize="stretch")
    reader = Reader("masks", values, pictures)
    data = _data(contents, pictures, **mask_forms(pictures))
    return replace(found, data=data, reader=reader)


def mask_forms(pictures: Data) -> dict[str, Any]:
    size = pictures.height, pictures.width
    inputs_of = {"image": ("uint8", *size, pictures.channels)}
    return {"custom_inputs": inputs_of, "custom_labels": ("uint8", *size)}


def _by_rows(texts: pd.Series, seen: Seen, headers: pd.DataFrame, findings: Findings) -> bool:
    """Return whether masks fit the edges in the images better if runs are read row by row."""
    sizes = dict(zip(headers.source, zip(headers.width, headers.height, strict=True), strict=True))
    clear, beyond, pixels = np.zeros(2), list[str](), seen.pixels
    drawn = [place for place in range(len(seen.rows)) if seen.sources[place] in sizes]
    drawn = [place for place in drawn if " " in texts.iloc[seen.rows[place]].strip()]
    for place in drawn[:DRAWN]:
        width, height = sizes[seen.sources[place]]
        runs = np.array(texts.iloc[seen.rows[place]].split(), int).reshape(-1, 2)
        if runs.sum(axis=1).max() > width * height + 1:
            beyond.append(seen.id(place))
            continue
        flat = np.zeros(width * height, np.uint8)
        for start, length in runs:
            flat[max(start - 1, 0) : start - 1 + length] = 255
        assert pixels is not None  # noqa: S101 - image files were read
        steep = _slopes(pixels[place].mean(axis=2))
        ways = flat.reshape(width, height).T, flat.reshape(height, width)
        for by_rows, mask in enumerate(ways):
            small = Image.fromarray(mask).resize(steep.shape[::-1])
            edges = _slopes(np.asarray(small, float)) > 0
            clear[by_rows] += steep[edges].mean() / (steep.mean() or 1) if edges.any() else 0
    if beyond:
        text = f"{len(beyond)} of {len(drawn[:DRAWN])} masks do not match the size of their image, "
        findings.warning("masks", f"{text}because runs end outside it, for example {beyond[0]}")
    along = bool(clear[1] > CLEARER * clear[0])
    way = "along rows, because edges match the images better" if along else "down columns, as usual"
    findings.chosen("masks", f"run lengths counted from 1 {way}. Please check a few masks by eye")
    return along


def _slopes(picture: np.ndarray) -> np.ndarray:
    down, across = np.gradient(picture)
    return np.asarray(np.abs(down) + np.abs(across))


# -- columns in addition to images or texts


def _beside(contents: Contents) -> tuple[list[Column], str]:
    """Return the columns that are neither ids nor labels, and the test table's id column.

    The id column is "" unless both tables have one.
    """
    tested, ids = contents.source.tested, set(contents.sample_ids)
    if tested is None or contents.source.pixels or contents.source.records:
        return [], ""
    keys = [name for name in (contents.ids, contents.sample_id) if name in tested and contents.ids]
    key = next((str(name) for name in keys if ids <= set(tested[name])), "")
    skip = {contents.ids, contents.sample_id, *contents.labels}
    others = [name for name in map(str, contents.table) if name not in skip]
    others = [name for name in others if not NAMELESS.fullmatch(name)]
    return [columns.judge(contents.table[name], tested.get(name)) for name in others], key


def _encoding(contents: Contents, every: Sequence[Column]) -> dict[str, Any]:
    values = {}
    for column in every:
        if column.use == CATEGORY:
            counts = columns.known(contents.table[column.name]).value_counts()
            values[column.name] = tuple(counts.index[:MOST_VALUES])
    return {"numbers": tuple(c.name for c in every if c.use == NUMBER), "categories": values}


def _width(encoding: dict[str, Any]) -> int:
    return 2 * len(encoding["numbers"]) + sum(map(len, encoding["categories"].values()))


def _encoded(table: pd.DataFrame, encoding: dict[str, Any]) -> np.ndarray:
    # For the baseline, encode the columns in the same way as in the template.
    numbers = table[list(encoding["numbers"])].apply(pd.to_numeric, errors="coerce")
    scaled = (numbers - numbers.mean()) / numbers.std().replace(0, 1)
    values = [(name, value) for name, every in encoding["categories"].items() for value in every]
    marks = [table[name].str.strip() == value for name, value in values]
    found = [scaled.fillna(0), numbers.isna(), *marks]
    return np.column_stack([np.asarray(each, np.float32) for each in found])


def of_pictures_and_columns(contents: Contents, findings: Findings) -> Inputs | None:
    """Read images and their columns. Return None if no columns can be combined with images."""
    if not contents.files.images or contents.source.class_folders:
        return None
    every, key = _beside(contents)
    encoding = _encoding(contents, every)
    if not key or not _width(encoding):
        return None
    found = images.of_files(contents, findings)
    if found is None:
        return None
    pictures = _pictures(found.data)
    values = {**encoding, "key": key}
    features = _encoded(contents.table, encoding)
    reader = Reader("pictures_and_columns", values, pictures, features, otherwise=found)
    findings[:] = [line for line in findings if line.about != "columns"]
    forms = {"image": ("uint8", *pictures.shape), "columns": ("float32", _width(encoding))}
    data = _data(contents, pictures, custom_inputs=forms)
    return replace(found, data=data, reader=reader, columns=tuple(every))


def worth(found: Inputs, contents: Contents, target: TargetGuess, findings: Findings) -> Inputs:
    """Drop the columns unless they improve the score of a simple model."""
    reader, seen = found.reader, found.train
    if reader is None or reader.otherwise is None or seen.pixels is None:
        return found
    read = shortened([*reader.values["numbers"], *reader.values["categories"]], 8)
    labels = contents.table[list(contents.labels)].iloc[seen.rows]
    hard = target.kind == "classes" and len(contents.labels) == 1
    kind = "classes" if hard else "numbers"
    if target.kind == "multilabel" and len(contents.labels) == 1:
        labels = labels.iloc[:, 0].str.get_dummies(target.separator)
    beside = reader.features[seen.rows]
    alone, both, error = baseline.gain(seen.pixels, beside, labels, kind)
    said = f"a simple model scores {both:.3g} on thumbnails and {read}, and {alone:.3g} on"
    rows = min(len(labels), baseline.MOST_TRIED)
    said += f" thumbnails alone (three folds of {rows:,} rows)"
    if both - alone > error:
        text = f"{said}, so the network uses both. To use only the images, which allows published"
        findings.chosen("columns", f"{text} weights, pass --alone pictures")
        columns.describe_left_out(found.columns, findings, READ)
        return found
    findings.chosen("columns", f"{said}, so only the images are used")
    return reader.otherwise


# -- texts


def of_texts(contents: Contents, findings: Findings) -> Inputs | None:
    """Read texts and the other columns of their table. Return None if no column contains texts."""
    if contents.files.images and contents.test is None:
        return None
    table, tested = contents.table, contents.source.tested
    skip = {contents.ids, contents.sample_id, *contents.labels}
    names = [name for name in map(str, table) if tested is not None and name in tested]
    spaced = {name: table[name].str.count(" ").median() for name in names if name not in skip}
    if contents.source.pixels or max(spaced.values(), default=0) < FEW_WORDS - 1:
        return None
    every, key = _beside(contents)
    texts = [column for column in every if column.about == "text"]
    readable = any(column.use != columns.OUT for column in every)
    if not texts and not readable:
        shared = [column for column in every if column.missing_test is not None]
        texts = [c for c in shared if refusals.prose(table[c.name], least=FEW_WORDS)]
    if not texts or (readable and not key):
        return None
    if not key:
        raise DataError(
            f"{contents.folder / contents.train} has texts, which require ids. This table and "
            f"{contents.test} must both have the column {contents.sample_id!r}, as in the sample "
            f"submission.\nAdd the column {contents.sample_id!r} to a copy of each table."
        )
    named = tuple(column.name for column in texts)
    rest = [column for column in every if column.name not in named]
    encoding = _encoding(contents, rest)
    joined = table[list(named)].agg(" ".join, axis=1)
    counts = joined.map(lambda text: len(text.split()))
    few, pieces = 2 * counts.quantile(0.95), PIECES
    terms = (3 * joined.str.len() - 4 * counts).quantile(0.95)  # three pieces per letter
    if terms > MOST_TERMS:  # long texts have enough words, and pieces would displace them
        terms, pieces = few, ()
    first, length = (
        int(np.clip(-(-each // 32) * 32, LEAST_TERMS, most))
        for each, most in ((few, MOST_WORDS), (terms, MOST_TERMS))
    )
    values = {**encoding, "key": key, "texts": named, "length": length, "pieces": pieces}
    values["known"] = KNOWN_PIECES if pieces else KNOWN_TERMS
    values["first"] = first
    forms: dict[str, Any] = {"terms": ("int32", length), "weights": ("float32", length)}
    forms["words"] = ("int32", first)
    if width := _width(encoding):
        forms["columns"] = ("float32", width)
    features = baseline.of_texts(joined, _encoded(table, encoding) if width else None)
    text = f"texts in {shortened(named)} of about {counts.median():.0f} words"
    beside = [*encoding["numbers"], *encoding["categories"]]
    more = f", and {shortened(beside, 8)} (to use only columns, pass --alone columns)"
    text += more * bool(beside)
    findings.chosen("inputs", text)
    columns.describe_left_out(rest, findings, READ)
    keys = joined.tolist()
    train = Seen(inputs.train_ids(contents), np.arange(len(table)), keys)
    reader = Reader("texts", values, features=features)
    data = _data(contents, None, custom_inputs=forms)
    test = _tested(contents, key, named)
    return Inputs(data, train, test, columns=tuple(rest), reader=reader)


def _tested(contents: Contents, key: str, named: Sequence[str]) -> Seen:
    assert contents.source.tested is not None  # noqa: S101 - `key` is a column of it
    tested = contents.source.tested.drop_duplicates(key).set_index(key)
    texts = tested.loc[contents.sample_ids, list(named)].agg(" ".join, axis=1)
    return Seen(contents.sample_ids, np.arange(len(texts)), texts.tolist())
