"""One HTML page of a competition folder, as `workbench.inspect.inspection` found it.

It needs nothing beside itself. Texts from the folder are escaped, and equal folders give equal
bytes.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from formats import atomic_file
from pipeline.errors import ConfigError
from workbench.inspect import column_types
from workbench.inspect.inspection import Duplicate, Inspection
from workbench.inspect.tables import Finding
from workbench.pages import charts
from workbench.pages.html import picture, quoted, render

SHOWN, EACH = 24, 3  # pictures of examples, and the fewest of a class
PAIRS = 8  # pictures of duplicates
LINES = 100  # of a table
SIDE = 192  # pixels: larger pictures are reduced


def place(page: str) -> Path | None:
    """Return the path of the page; None for "".

    Raises:
        ConfigError: if no file can be written there.
    """
    path = Path(page)
    if page and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(
            f"--page {page}: expected a file, in a folder that is there.\n"
            f"Correct it, or make the folder: mkdir -p {shlex.quote(str(path.parent))}"
        )
    return path if page else None


def write(
    found: Inspection, lines: Sequence[Finding], config: str, path: Path, *, problem: str = ""
) -> Path:
    """Write the page and return its path.

    Args:
        found: the inspected folder.
        lines: all findings.
        config: the text of the proposed file.
        path: of the page.
        problem: why the config does not run; "" if it does.

    Raises:
        DiskError: if the page cannot be written; an older page stays as it is.
    """
    inputs, target = found.inputs, found.target
    name = found.contents.folder.resolve().name
    rows = len(found.ids)
    duplicates = sorted(
        found.duplicates, key=lambda pair: (not pair.test, not pair.conflicting, pair.near)
    )
    page = render(
        "inspect/inspection.html.j2",
        f"{name} · inspection"[:200],
        name=name,
        found=found,
        lines=lines,
        problem=problem,
        tiles=_tiles(found),
        labels=[
            (quoted(label), count / target.classes[0][1], f"{count:,}", f"{count / rows:.1%}")
            for label, count in target.classes[:LINES]
        ],
        histograms=[] if target.classes else _histograms(found),
        pictures=[] if inputs.pixels is None else _pictures(found, inputs.pixels),
        broken=[
            (quoted(id_), quoted(why, 200))
            for id_, why in [*inputs.broken.items(), *inputs.test_broken.items()][:LINES]
        ],
        columns=_columns(found),
        duplicate_pictures=_duplicate_pictures(found, duplicates[:PAIRS]),
        duplicate_rows=[
            [quoted(text, 40) for text in (*ids, " / ".join(labels), how)]
            for ids, labels, how in (_describe(found, pair) for pair in duplicates[:LINES])
        ],
        most=LINES,
        config=escape(config),
    )
    return atomic_file.write(path, page)


def _tiles(found: Inspection) -> list[tuple[str, str]]:
    data, target = found.inputs.data, found.target
    tiles = [("inputs", data.kind), ("target", target.kind)]
    if target.classes:
        tiles.append(("labels", f"{len(target.classes):,}"))
    if target.kind == "classes":
        tiles.append(("most frequent label", f"{target.majority:.1%}"))
    if data.kind == "table":
        columns = len(data.numeric_columns) + len(data.categorical_columns)
        tiles.append(("columns read", str(columns)))
    else:
        tiles.append(("read as", f"{data.height}x{data.width}x{data.channels}"))
    tiles.append(("duplicates", f"{len(found.duplicates):,}"))
    if data.kind == "images":
        broken = len(found.inputs.broken) + len(found.inputs.test_broken)
        tiles.append(("corrupt files", f"{broken:,}"))
    return tiles


def _histograms(found: Inspection) -> list[tuple[Markup, Markup, str]]:
    """Return name, chart and caption of each column of numbers to predict."""
    figures = []
    for name in found.contents.labels[:6]:
        values = column_types.numbers(found.contents.train_table[name])
        caption = (
            f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}, standard "
            f"deviation {values.std():.4g}"
        )
        figures.append((quoted(name), charts.histogram(values), caption))
    return figures


def _pictures(found: Inspection, pixels: np.ndarray) -> list[tuple[Markup, str, str]]:
    """Return picture, label and id of some examples: of each class, or at equal distances."""
    rows = found.inputs.rows
    labels = np.array([found.labels[row] for row in rows], dtype=object)
    if found.target.kind == "classes":
        classes = [name for name, _ in found.target.classes]
        each = max(SHOWN // len(classes), EACH)
        some = [np.flatnonzero(labels == name)[:each] for name in classes[: SHOWN // EACH * 2]]
        chosen = np.concatenate(some)[: 2 * SHOWN]
    else:
        chosen = np.unique(np.linspace(0, len(labels) - 1, min(SHOWN, len(labels))).astype(int))
    return [
        (_reduced(pixels[place], f"training row {rows[place] + 1}"), labels[place], id_)
        for place in chosen
        if (id_ := found.ids[rows[place]]) not in found.inputs.broken  # zeros, which no model gets
    ]


def _reduced(pixels: np.ndarray, alt: str) -> Markup:
    factor = SIDE / max(pixels.shape[:2])
    if factor < 1:
        height, width, channels = pixels.shape
        image = Image.fromarray(pixels.squeeze(-1) if channels == 1 else pixels)
        small = image.resize((max(round(width * factor), 1), max(round(height * factor), 1)))
        pixels = np.asarray(small).reshape(small.height, small.width, channels)
    return picture(pixels, alt)


def _columns(found: Inspection) -> list[tuple[str, ...]]:
    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.1%}" if value else ""

    return [
        (
            quoted(column.name, 40),
            column.use,
            quoted(column.shown, 60),
            f"{column.distinct:,}",
            share(column.missing),
            share(column.missing_test),
            quoted(column.why, 60),
        )
        for column in found.inputs.columns[:LINES]
    ]


def _describe(found: Inspection, pair: Duplicate) -> tuple[tuple[str, str], tuple[str, str], str]:
    """Return the ids of a pair, the labels, and how much the two are alike."""
    row = found.inputs.rows[pair.one]
    other = (found.inputs.test_rows if pair.test else found.inputs.rows)[pair.other]
    return (
        (found.ids[row], (found.test_ids if pair.test else found.ids)[other]),
        (found.labels[row], "test" if pair.test else found.labels[other]),
        "nearly" if pair.near else "the same",
    )


def _duplicate_pictures(
    found: Inspection, pairs: Sequence[Duplicate]
) -> list[tuple[Markup, str, str, str]]:
    """Return picture, label, id and likeness of both examples of each pair."""
    pixels, test_pixels = found.inputs.pixels, found.inputs.test_pixels
    if pixels is None or test_pixels is None:
        return []
    cards = []
    for pair in pairs:
        ids, labels, how = _describe(found, pair)
        images = pixels[pair.one], (test_pixels if pair.test else pixels)[pair.other]
        for image, label, id_ in zip(images, labels, ids, strict=True):
            cards.append((_reduced(image, how), label, id_, how))
    return cards
