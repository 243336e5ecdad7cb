"""Folders that get a config with a custom reader: masks in run lengths, texts, and pictures with
columns of a table beside them.
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

READ = (NUMBER, CATEGORY)  # uses of columns that a template reads
MOST_VALUES = 20  # of a category that are kept apart
FEW_WORDS = 2  # of a median text, where there is nothing else to read
LEAST_TERMS, MOST_TERMS = 32, 384  # of a text that a model gets
KNOWN_TERMS, KNOWN_PIECES = 30_000, 60_000  # without pieces of words, and with them
PIECES: tuple[int, ...] = (3, 4, 5)  # letters
MOST_WORDS = 128  # of a text that a model gets in their order
DRAWN = 100  # masks to compare with their pictures
CLEARER = 1.2  # by this factor, a picture's edges must be clearer under masks read along rows
LOOK = ("height", "width", "channels", "resize", "alpha", "white", "suffix")
PLACES = ("train_images", "test_images")


def _data(contents: Contents, pictures: Data | None, **forms: Any) -> Data:
    """Return the data of a custom reader.

    Args:
        pictures: that it reads, if any.
        forms: custom_inputs, and custom_labels.
    """
    places = {name: getattr(pictures, name) for name in PLACES} if pictures else {}
    return Data(kind="custom", **inputs.base(contents, tested=True), **places, **forms)


def _pictures(data: Data) -> Data:
    """Return only the fields that describe how pictures are read."""
    return Data(**{name: getattr(data, name) for name in (*PLACES, *LOOK)})


# -- masks


def of_masks(contents: Contents, findings: Findings) -> Inputs | None:
    """Return pictures with a mask each, and add findings on them; None without masks.

    Raises:
        DataError: if the ids do not name image files.
    """
    if not contents.masks:
        return None
    column, table = contents.labels[0], contents.table
    found = images.of_files(contents, findings)
    if found is None or found.headers is None:
        raise DataError(
            f"{contents.folder / contents.train} has masks as run lengths in {column!r}, and its "
            f"ids, such as {table[contents.ids].iloc[0]!r}, do not name image files.\n"
            "Complete the download. If an id names a picture and a class, split it in a copy, and "
            "keep the rows of one class (docs/segmentation.md)."
        )
    findings[:] = [line for line in findings if line.about != "size"]  # the budget decides it
    by_rows = _by_rows(table[column], found.train, found.headers, findings)
    values = {
        "column": column,
        "by_rows": by_rows,
        "order": "along the rows" if by_rows else "down the columns",
        "empty": "-1" if (table[column].str.strip() == "-1").any() else "",
    }
    pictures = replace(_pictures(found.data), resize="stretch")
    reader = Reader("masks", values, pictures)
    data = _data(contents, pictures, **mask_forms(pictures))
    return replace(found, data=data, reader=reader)


def mask_forms(pictures: Data) -> dict[str, Any]:
    """Return the fields of `Data` for masks in the size of these pictures."""
    size = pictures.height, pictures.width
    inputs_of = {"image": ("uint8", *size, pictures.channels)}
    return {"custom_inputs": inputs_of, "custom_labels": ("uint8", *size)}


def _by_rows(texts: pd.Series, seen: Seen, headers: pd.DataFrame, findings: Findings) -> bool:
    """Return whether runs go along the rows, so that edges of masks lie on edges of pictures. Add
    findings on this, and on runs that end beyond their picture.
    """
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
        assert pixels is not None  # noqa: S101 - of image files
        steep = _slopes(pixels[place].mean(axis=2))
        ways = flat.reshape(width, height).T, flat.reshape(height, width)
        for by_rows, mask in enumerate(ways):
            small = Image.fromarray(mask).resize(steep.shape[::-1])
            edges = _slopes(np.asarray(small, float)) > 0
            clear[by_rows] += steep[edges].mean() / (steep.mean() or 1) if edges.any() else 0
    if beyond:
        text = f"runs end beyond their picture in {len(beyond)} of {len(drawn[:DRAWN])} masks, for "
        findings.warning("masks", f"{text}example that of {beyond[0]}: sizes do not match")
    along = bool(clear[1] > CLEARER * clear[0])
    way = "along the rows, where pictures have edges" if along else "down the columns, as usual"
    findings.chosen("masks", f"run lengths from 1 {way}; check a few by eye")
    return along


def _slopes(picture: np.ndarray) -> np.ndarray:
    """Return the contrast of each pixel of a picture (height, width) with its neighbours."""
    down, across = np.gradient(picture)
    return np.asarray(np.abs(down) + np.abs(across))


# -- columns beside pictures or texts


def _beside(contents: Contents) -> tuple[list[Column], str]:
    """Return the columns beside ids and labels, and the test table's column with the ids of the
    sample submission, or "" if one of the tables has no ids.
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
    """Return the columns for a template: numbers, and categories with their values."""
    values = {}
    for column in every:
        if column.use == CATEGORY:
            counts = columns.known(contents.table[column.name]).value_counts()
            values[column.name] = tuple(counts.index[:MOST_VALUES])
    return {"numbers": tuple(c.name for c in every if c.use == NUMBER), "categories": values}


def _width(encoding: dict[str, Any]) -> int:
    return 2 * len(encoding["numbers"]) + sum(map(len, encoding["categories"].values()))


def _encoded(table: pd.DataFrame, encoding: dict[str, Any]) -> np.ndarray:
    """Return the columns for a baseline, encoded like in the template: float32 (n, k)."""
    numbers = table[list(encoding["numbers"])].apply(pd.to_numeric, errors="coerce")
    scaled = (numbers - numbers.mean()) / numbers.std().replace(0, 1)
    values = [(name, value) for name, every in encoding["categories"].items() for value in every]
    marks = [table[name].str.strip() == value for name, value in values]
    found = [scaled.fillna(0), numbers.isna(), *marks]
    return np.column_stack([np.asarray(each, np.float32) for each in found])


def of_pictures_and_columns(contents: Contents, findings: Findings) -> Inputs | None:
    """Return pictures with columns of a table beside them, and add findings on both; None without
    such columns.
    """
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
    """Return the pictures with the columns, or alone if a simple model learns as much from them.
    Add a finding on it.
    """
    reader, seen = found.reader, found.train
    if reader is None or reader.otherwise is None or seen.pixels is None:
        return found
    read = shortened([*reader.values["numbers"], *reader.values["categories"]], 8)
    labels = contents.table[list(contents.labels)].iloc[seen.rows]
    kind = "classes" if target.kind == "classes" else "numbers"
    if target.kind == "multilabel" and len(contents.labels) == 1:
        labels = labels.iloc[:, 0].str.get_dummies(target.separator)
    beside = reader.features[seen.rows]
    alone, both, error = baseline.gain(seen.pixels, beside, labels, kind)
    said = f"a simple model on thumbnails and {read} has a score of {both:.3g}, on thumbnails"
    rows = min(len(labels), baseline.MOST_TRIED)
    said += f" alone {alone:.3g} (three folds of {rows:,} rows)"
    if both - alone > error:
        text = f"{said}: the network reads both. To read the pictures alone (published weights come"
        findings.chosen("columns", f"{text} only then): --alone pictures")
        columns.describe_left_out(found.columns, findings, READ)
        return found
    findings.chosen("columns", f"{said}: the columns are not read, since pictures are")
    return reader.otherwise


# -- texts


def of_texts(contents: Contents, findings: Findings) -> Inputs | None:
    """Return texts, with the other columns of their table, and add findings on them; None where no
    column has texts.

    Raises:
        DataError: if the tables have no ids.
    """
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
            f"{contents.folder / contents.train} has texts, and it or {contents.test} has no "
            f"column {contents.sample_id!r} with the ids of the sample submission; expected one "
            f"in both tables.\nWrite the column {contents.sample_id!r} into copies of them."
        )
    named = tuple(column.name for column in texts)
    rest = [column for column in every if column.name not in named]
    encoding = _encoding(contents, rest)
    joined = table[list(named)].agg(" ".join, axis=1)
    counts = joined.map(lambda text: len(text.split()))
    few, pieces = 2 * counts.quantile(0.95), PIECES
    terms = (3 * joined.str.len() - 4 * counts).quantile(0.95)  # with about three for each letter
    if terms > MOST_TERMS:  # the words of long texts tell enough, and pieces would displace them
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
    text = f"texts: {shortened(named)}, about {counts.median():.0f} words"
    beside = [*encoding["numbers"], *encoding["categories"]]
    text += f"; and {shortened(beside, 8)} (to read columns alone: --alone columns)" * bool(beside)
    findings.chosen("inputs", text)
    columns.describe_left_out(rest, findings, READ)
    keys = joined.tolist()
    train = Seen(inputs.train_ids(contents), np.arange(len(table)), keys)
    reader = Reader("texts", values, features=features)
    data = _data(contents, None, custom_inputs=forms)
    test = _tested(contents, key, named)
    return Inputs(data, train, test, columns=tuple(rest), reader=reader)


def _tested(contents: Contents, key: str, named: Sequence[str]) -> Seen:
    """Return the texts to predict."""
    assert contents.source.tested is not None  # noqa: S101 - there is a key
    tested = contents.source.tested.drop_duplicates(key).set_index(key)
    texts = tested.loc[contents.sample_ids, list(named)].agg(" ".join, axis=1)
    return Seen(contents.sample_ids, np.arange(len(texts)), texts.tolist())
