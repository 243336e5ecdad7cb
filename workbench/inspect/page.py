"""Write a self-contained HTML page about a competition folder."""

import shlex
from itertools import islice
from pathlib import Path

import numpy as np
from markupsafe import Markup
from PIL import Image

from formats import atomic_file
from pipeline.errors import ConfigError
from workbench.inspect import columns, images
from workbench.inspect.columns import Column
from workbench.inspect.inputs import Seen
from workbench.inspect.inspection import Inspection
from workbench.pages import charts
from workbench.pages.html import picture, quoted, render

SHOWN, EACH = 24, 3  # example images in total, and the minimum per class
PAIRS = 8  # pairs of duplicates that are shown as images
LINES = 100  # maximum rows per table
SIDE = 192  # pixels; larger images are scaled down


def place(page: str) -> Path | None:
    path = Path(page)
    if page and (path.is_dir() or not path.parent.is_dir()):
        raise ConfigError(
            f"Invalid --page {page}: expected a file in an existing folder.\n"
            f"Correct the path, or create the folder: mkdir -p {shlex.quote(str(path.parent))}"
        )
    return path if page else None


def write(found: Inspection, config: str, path: Path, *, problem: str = "") -> Path:
    """Write the page with the source code of the proposed config.

    `problem` is the reason why the config cannot run, or "".

    Raises:
        DiskError: if the page cannot be written. In that case, an existing page is kept.
    """
    inputs, classes, rows = found.inputs, found.target.classes, len(found.labels)
    data, headers = inputs.data, inputs.headers
    broken = [*inputs.train.broken.items(), *inputs.test.broken.items()]
    read, masks = len(data.input_columns), found.contents.masks
    numbers = () if classes or masks else found.contents.labels
    tiles = {
        "inputs": data.kind,
        "target": found.target.kind,
        "labels": f"{len(classes):,}" if classes else "masks" if masks else "numbers",
        "columns read" if read else "read as": read or "x".join(map(str, data.shape)),
        "duplicates": f"{len(found.duplicates):,}",
        "corrupt files": f"{len(broken):,}",
    }
    name = found.contents.folder.resolve().name
    content = render(
        "inspect/page.html.j2",
        f"{name} · inspection"[:200],
        name=name,
        found=found,
        problem=problem,
        tiles=tiles.items(),
        labels=[
            (quoted(label), count / max(*classes.values(), 1), f"{count:,}", f"{count / rows:.1%}")
            for label, count in islice(classes.items(), LINES)
        ],
        histograms=[_histogram(found, each) for each in numbers],
        files=None if headers is None else images.describe(headers),
        pictures=_examples(found),
        broken=[(quoted(each), quoted(why, 200)) for each, why in broken[:LINES]],
        columns=[_column(each) for each in inputs.columns[:LINES]],
        pairs=_pairs(found),
        most=LINES,
        config=config,
    )
    return atomic_file.write(path, content)


def _histogram(found: Inspection, name: str) -> tuple[Markup, Markup, str]:
    values = columns.numbers(found.contents.table[name])
    caption = f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}, standard "
    return quoted(name), charts.histogram(values), f"{caption}deviation {values.std():.4g}"


def _examples(found: Inspection) -> list[tuple[Markup, str, str]]:
    seen, classes = found.inputs.train, list(found.target.classes)
    labels = np.array([found.labels[row] for row in seen.rows], dtype=object)
    chosen = np.unique(np.linspace(0, len(labels) - 1, min(SHOWN, len(labels))).astype(int))
    if found.target.kind == "classes":
        each = max(SHOWN // len(classes), EACH)
        some = (np.flatnonzero(labels == name)[:each] for name in classes[: 2 * SHOWN // EACH])
        chosen = np.concatenate(list(some))
    return [
        (_picture(seen, place, f"training row {seen.rows[place] + 1}"), labels[place], id_)
        for place in chosen[: 2 * SHOWN]
        # Images that cannot be decoded are zeros here, and are not used in training.
        if seen.pixels is not None and (id_ := seen.id(place)) not in seen.broken
    ]


def _picture(seen: Seen, place: int, alt: str) -> Markup:
    if seen.pixels is None:
        return Markup()
    channels = seen.pixels.shape[3]
    small = Image.fromarray(seen.pixels[place].squeeze(-1) if channels == 1 else seen.pixels[place])
    small.thumbnail((SIDE, SIDE))
    return picture(np.asarray(small).reshape(small.height, small.width, channels), alt)


def _column(column: Column) -> tuple[str, ...]:
    tested = column.missing_test
    return (
        quoted(column.name, 40),
        column.use,
        quoted(column.shown, 60),
        f"{column.distinct:,}",
        f"{column.missing:.1%}",
        "–" if tested is None else f"{tested:.1%}",
        quoted(column.why, 60),
    )


def _pairs(found: Inspection) -> list[tuple[tuple[Markup, str, str], tuple[Markup, str, str], str]]:
    train, made = found.inputs.train, []
    pairs = sorted(found.duplicates, key=lambda p: (not p.test, not p.conflicting, p.near))
    for number, pair in enumerate(pairs[:LINES]):
        other, how = found.inputs.test if pair.test else train, "identical"
        how = "almost identical" if pair.near else how
        label = "test" if pair.test else found.labels[train.rows[pair.other]]
        both = (train, pair.one, found.labels[train.rows[pair.one]]), (other, pair.other, label)
        one, two = (
            (_picture(seen, place, how) if number < PAIRS else Markup(), name, seen.id(place))
            for seen, place, name in both
        )
        made.append((one, two, how))
    return made
