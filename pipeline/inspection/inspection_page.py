"""Overview: one HTML page of a competition folder, as `pipeline.inspection.inspection` found it:
what is there, in words, numbers and pictures.

It needs nothing beside itself; texts from the folder are escaped, and equal folders give equal
bytes.
"""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pipeline.inspection import column_types
from pipeline.inspection.inspection import Inspection, Twin
from pipeline.inspection.tables import UNKNOWN, WARNING, Finding
from pipeline.pages import charts
from pipeline.pages.html import (
    Html,
    Section,
    bar,
    document,
    facts,
    joined,
    parted,
    picture,
    quoted,
    table,
    tag,
)
from pipeline.storage import atomic_file

SHOWN, EACH, PAIRS = (
    24,
    3,
    8,
)  # pictures of examples, at least so many of a class where there is room, and pairs of those that are alike
LINES = 100  # of a table
SIDE = 192  # pixels: larger pictures are made smaller


def write(
    found: Inspection, lines: Sequence[Finding], config: str, path: Path, *, problem: str = ""
) -> Path:
    """Write the page, in one rename, and return its path.

    Args:
        lines: all that is said. config: the text of the proposed file. problem: why it does not
            run; "" if it does.

    Raises:
        DiskError: if it cannot be written; an older page is still there.
    """
    sections = [_findings(lines), _labels(found)]
    if found.inputs.pixels is not None:
        sections.append(_pictures(found, found.inputs.pixels))
    if found.inputs.columns:
        sections.append(_columns(found))
    if found.twins:
        sections.append(_alike(found))
    text = Html(html.escape(config))
    sections.append(
        Section("config", "The proposed config", tag("div", tag("pre", text), class_="wide"))
    )
    body = parted(_head(found, lines, problem), sections)
    return atomic_file.write(
        path, document(f"{found.contents.folder.resolve().name} · inspection"[:200], [body])
    )


def _head(found: Inspection, lines: Sequence[Finding], problem: str) -> Html:
    held, data, goal = found.contents, found.inputs.data, found.goal
    state = tag(
        "span",
        "does not run" if problem else "runs",
        class_=f"state {'partial' if problem else 'complete'}",
    )
    tiles: list[tuple[str, str]] = [("inputs", data.kind), ("target", goal.target)]
    if goal.classes:
        tiles += [("labels", f"{len(goal.classes):,}")]
    if goal.target == "classes":
        tiles += [("most frequent label", f"{goal.majority:.1%}")]
    if data.kind == "table":
        tiles.append(
            ("columns read", f"{len(data.numeric_columns) + len(data.categorical_columns)}")
        )
    else:
        tiles.append(("read as", f"{data.height}x{data.width}x{data.channels}"))
    tiles.append(("alike", f"{len(found.twins):,}"))
    if data.kind == "images":
        tiles.append(
            ("broken files", f"{len(found.inputs.broken) + len(found.inputs.test_broken):,}")
        )
    parts = [
        tag("p", "Competition folder", class_="over"),
        tag("h1", quoted(held.folder.resolve().name, 200), state),
        tag(
            "div",
            tag("div", f"{len(found.ids):,}", class_="value"),
            tag(
                "div",
                tag("strong", "labelled rows"),
                tag("br"),
                tag("span", f"{len(found.test_ids):,} to predict", class_="note"),
                class_="beside",
            ),
            class_="headline",
        ),
        facts(tiles, "tiles"),
    ]
    if problem:
        parts.append(
            tag(
                "div",
                tag("strong", "The proposed config does not run"),
                tag("ul", tag("li", quoted(problem, 1000))),
                class_="missing",
            )
        )
    for level, title in (
        (WARNING, "To look at"),
        (UNKNOWN, "What no folder tells, and you have to say"),
    ):
        some = [
            joined([tag("strong", line.about), ": ", quoted(line.text, 400)])
            for line in lines
            if line.level == level
        ]
        if some:
            parts.append(
                tag(
                    "div",
                    tag("strong", title),
                    tag("ul", [tag("li", each) for each in some]),
                    class_="missing",
                )
            )
    return tag("header", parts)


def _findings(lines: Sequence[Finding]) -> Section:
    rows = [(line.about, line.level, quoted(line.text, 600)) for line in lines]
    words = tag(
        "p", "Chosen: what the config says, and why. Found: what was counted.", class_="note"
    )
    return Section("found", "What was found", joined([words, table((), rows)]))


def _labels(found: Inspection) -> Section:
    goal = found.goal
    if not goal.classes:
        figures = []
        for name in found.contents.labels[:6]:
            values = column_types.numbers(found.contents.labelled[name])
            words = f"{values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}, standard deviation {values.std():.4g}"
            figures.append(
                tag(
                    "figure",
                    tag("h3", quoted(name)),
                    charts.histogram(values),
                    tag("figcaption", words),
                )
            )
        return Section("labels", "What is predicted", tag("div", figures, class_="pair"))
    most = goal.classes[0][1]
    rows = [
        (quoted(name), bar(count / most), f"{count:,}", f"{count / len(found.ids):.1%}")
        for name, count in goal.classes
    ]
    cut = (
        f"The {LINES} most frequent of {len(rows):,} labels."
        if len(rows) > LINES
        else "Rows of each label, the most frequent first."
    )
    body = [
        tag("p", cut, class_="note"),
        table(("label", "", "rows", "share"), rows[:LINES], numbers=[2, 3]),
    ]
    return Section("labels", "Labels", joined(body))


def _pictures(found: Inspection, pixels: np.ndarray) -> Section:
    labels = np.array([found.labels[row] for row in found.inputs.rows], dtype=object)
    chosen = _chosen(
        labels, [name for name, _ in found.goal.classes] if found.goal.target == "classes" else []
    )
    # What cannot be decoded is zeros here, and no model gets it.
    chosen = [
        place for place in chosen if found.ids[found.inputs.rows[place]] not in found.inputs.broken
    ]
    cards = []
    for place in chosen:
        words = tag(
            "figcaption",
            tag("strong", quoted(labels[place], 30)),
            quoted(found.ids[found.inputs.rows[place]], 30),
        )
        cards.append(
            tag(
                "figure",
                _drawn(pixels[place], f"training row {found.inputs.rows[place] + 1}"),
                words,
            )
        )
    told = found.inputs.headers
    note = "Examples of the training set as a model gets them, before augmentation." + (
        f" The files: {told.told()}." if told else ""
    )
    parts = [tag("p", note, class_="note"), tag("div", cards, class_="pictures")]
    broken = [*found.inputs.broken.items(), *found.inputs.test_broken.items()]
    if broken:
        rows = [(quoted(name), quoted(why, 200)) for name, why in broken[:LINES]]
        parts += [tag("h3", "Files that cannot be decoded"), table(("id", "why"), rows)]
    return Section("pictures", "Pictures", joined(parts))


def _chosen(labels: np.ndarray, classes: Sequence[str]) -> list[int]:
    """Return which rows are shown: some of each class, the classes in order, or rows from all over."""
    if not classes:
        return sorted(
            {int(place) for place in np.linspace(0, len(labels) - 1, min(SHOWN, len(labels)))}
        )
    each = max(SHOWN // len(classes), EACH)
    return [
        int(place)
        for name in classes[: SHOWN // EACH * 2]
        for place in np.flatnonzero(labels == name)[:each]
    ][: 2 * SHOWN]


def _drawn(pixels: np.ndarray, words: str) -> Html:
    share = SIDE / max(pixels.shape[:2])
    if share < 1:
        height, width, channels = pixels.shape
        image = Image.fromarray(pixels.squeeze(-1) if channels == 1 else pixels)
        small = image.resize((max(round(width * share), 1), max(round(height * share), 1)))
        pixels = np.asarray(small).reshape(small.height, small.width, channels)
    return picture(pixels, words)


def _columns(found: Inspection) -> Section:
    def share(value: float | None) -> str:
        return "–" if value is None else "" if not value else f"{value:.1%}"

    rows = [
        (
            quoted(column.name, 40), column.use, quoted(column.shown, 60), f"{column.distinct:,}", share(column.missing),
            share(column.missing_test), quoted(column.why, 60),
        )
        for column in found.inputs.columns[:LINES]
    ]  # fmt: skip
    head = ("column", "read as", "values", "different", "missing", "in the test", "why")
    cut = (
        f"The first {LINES} of {len(found.inputs.columns):,} columns. "
        if len(found.inputs.columns) > LINES
        else ""
    )
    note = f"{cut}Values: least, middle and largest number, or the most frequent texts."
    return Section(
        "columns",
        "Columns",
        joined([tag("p", note, class_="note"), table(head, rows, numbers=[3, 4, 5])]),
    )


def _alike(found: Inspection) -> Section:
    given = found.inputs

    def told(twin: Twin) -> tuple[str, str, str, str]:
        row = given.rows[twin.one]
        other = given.test_rows[twin.other] if twin.test else given.rows[twin.other]
        names = f"{found.labels[row]} / {'test' if twin.test else found.labels[other]}"
        return (
            found.ids[row],
            (found.test_ids if twin.test else found.ids)[other],
            names,
            "nearly" if twin.near else "the same",
        )

    order = sorted(found.twins, key=lambda twin: (not twin.test, not twin.unlike, twin.near))
    parts = [
        tag("p", "Training and test set first, then those whose labels differ.", class_="note")
    ]
    if given.pixels is not None and given.test_pixels is not None:
        cards: list[Html] = []
        for twin in order[:PAIRS]:
            first, second, names, how = told(twin)
            pixels = (given.test_pixels if twin.test else given.pixels)[twin.other]
            left, right = names.split(" / ", 1)
            for image, name, label in (
                (given.pixels[twin.one], first, left),
                (pixels, second, right),
            ):
                words = tag(
                    "figcaption", tag("strong", quoted(label, 30)), quoted(name, 30), tag("br"), how
                )
                cards.append(tag("figure", _drawn(image, how), words))
        parts.append(tag("div", cards, class_="pictures"))
    rows = [tuple(_quoted(told(twin))) for twin in order[:LINES]]
    cut = f", the first {LINES} of {len(order):,}" if len(order) > LINES else ""
    parts += [
        tag("h3", f"Pairs{cut}"),
        table(("training id", "other id", "labels", "content"), rows),
    ]
    return Section("alike", "Examples that are alike", joined(parts))


def _quoted(texts: Iterable[str]) -> list[Html]:
    return [quoted(text, 40) for text in texts]
