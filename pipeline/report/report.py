"""Report: one HTML page of a run, which needs nothing beside itself and can be sent to anybody.

Reads  what a training left in its folder (`pipeline.report.run_results`), be it complete or not
Gives  report.html; equal runs give equal bytes
"""

import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.figures.training_figures import phases
from pipeline.pages import charts
from pipeline.pages.html import (
    Html,
    Section,
    bar,
    document,
    facts,
    joined,
    parted,
    quoted,
    table,
    tag,
)
from pipeline.report import run_results
from pipeline.report import sections as answers
from pipeline.report.run_results import VALIDATION, Results
from pipeline.report.sections import Answers, number
from pipeline.storage import atomic_file
from pipeline.training import hard_examples

FILE = "report.html"
KEYS = (tag("span", "training", class_="key train"), tag("span", "validation", class_="key"))
SAME = 1e-4  # the manifest's accuracy and that of validation.csv are of the same rows


def write(output: Path, *, title: str | None = None, page: Path | None = None) -> Path:
    """Write the report of the run in `output`, in one rename, and return its path.

    A partial run has a report too: what is not there yet is named on it.

    Args:
        output: the folder of a training. title: of the page; None takes the config's name.
        page: the file to write; None takes report.html in `output`.

    Raises:
        ConfigError: if there is nothing of a training in `output`. ReportError: if a file is
            broken, or contradicts another.
        DiskError: if the page cannot be written; an older one is still there.
    """
    found = run_results.read(output)
    answered = answers.of(found)
    sections = [_curves(found), *(answered.sections if answered else [_lacking(found)])]
    sections += [_time(found), _origin(found)]
    name = title or str((found.told.get("config") or {}).get("name") or "A run")
    body = parted(_head(found, answered, name), sections)
    shown = f"{name} · {found.told.get('run_id') or 'partial run'}"
    return atomic_file.write(page or output / FILE, document(shown[:200], [body]))


def duration(seconds: float) -> str:
    """Return a time as a person says it.

    >>> duration(33.1), duration(3600 * 3.5), duration(0.25), duration(119.7)
    ('33 s', '3 h 30 min', '0.25 s', '2 min 0 s')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole_seconds = round(seconds)
    if whole_seconds < 3600:
        return (
            f"{whole_seconds} s"
            if whole_seconds < 60
            else f"{whole_seconds // 60} min {whole_seconds % 60} s"
        )
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"


def _head(found: Results, answered: Answers | None, name: str) -> Html:
    told, config = found.told, found.told.get("config") or {}
    state = "complete" if found.complete else "partial"
    competition = config.get("competition")
    over = tag(
        "p",
        joined(["Competition ", quoted(competition)]) if competition else "Training run",
        class_="over",
    )
    parts = [over, tag("h1", quoted(name, 200), tag("span", state, class_=f"state {state}"))]
    parts += [_headline(found, answered)]
    seconds, rows = (told.get("seconds") or {}).get("total"), found.validation
    tiles = [
        ("time", duration(seconds) if seconds is not None else None),
        ("devices", told.get("devices")),
    ]
    tiles += [("precision", told.get("precision")), ("epochs", _epochs(found))]
    tiles += [("parameters", _count((told.get("parameters") or {}).get("total")))]
    applied = told.get("applied") or {}
    tiles += [("batch", _count(applied.get("batch") or config.get("batch")))]
    tiles += [("validation rows", None if rows is None else f"{len(rows):,}")]
    parts += [facts([(key, quoted(value)) for key, value in tiles if value is not None], "tiles")]
    notes = [
        joined([tag("code", name), f": {lacks}"])
        for name, lacks in found.missing.items()
        if name != hard_examples.FILE
    ] + _contradiction(found, answered)
    if notes:
        title = (
            "What this page lacks"
            if found.complete
            else "This run is partial. What this page lacks"
        )
        parts += [
            tag(
                "div",
                tag("strong", title),
                tag("ul", [tag("li", note) for note in notes]),
                class_="missing",
            )
        ]
    return tag("header", parts)


def _headline(found: Results, answered: Answers | None) -> Html:
    """Return the number that the run is about, with its interval; of a run without validation rows
    the last that it told.
    """
    if answered is not None:
        best = answered.estimate
        folds = (
            found.validation["fold"].nunique()
            if found.validation is not None and "fold" in found.validation
            else 0
        )
        where = f" out of fold, {folds} folds" if folds else " in validation"
        sure = joined(
            [
                "95 % interval ",
                tag("strong", f"{number(best.low)} to {number(best.high)}"),
                f" ({best.how})",
            ]
        )
        return _value(best.value, tag("strong", best.name), where, sure)
    metrics = {
        name: value
        for name, value in (found.told.get("metrics") or {}).items()
        if name.startswith("validation_")
    }
    name = next((name for name in metrics if "loss" not in name), next(iter(metrics), None))
    if name is not None:
        return _value(
            metrics[name], quoted(name), "", Html(f"without {VALIDATION} there is no interval")
        )
    last = found.histories[-1] if found.histories else None
    if last is None or last.empty:
        return tag("p", "No epoch has ended yet.", class_="note")
    measure = _measures(last)[-1]
    where = f" in validation after epoch {last['epoch'].iloc[-1]:g}"
    return _value(
        last[f"validation_{measure}"].iloc[-1],
        tag("strong", quoted(measure)),
        where,
        Html("not final, and without an interval"),
    )


def _value(value: float, name: Html, where: str, below: Html) -> Html:
    beside = tag("div", name, where, tag("br"), tag("span", below, class_="note"), class_="beside")
    return tag("div", tag("div", number(value), class_="value"), beside, class_="headline")


def _contradiction(found: Results, answered: Answers | None) -> list[Html]:
    """Return a note where the manifest and validation.csv cannot be of the same run."""
    said = (found.told.get("metrics") or {}).get("validation_accuracy")
    if (
        found.target != run_results.CLASSES
        or answered is None
        or said is None
        or abs(said - answered.estimate.value) < SAME
    ):
        return []
    return [
        Html(
            f"The manifest says accuracy {number(said)}: it and {VALIDATION} are of different runs."
        )
    ]


def _epochs(found: Results) -> str | None:
    """Return how many epochs have ended, and of how many."""
    ended = [f"{history['epoch'].iloc[-1]:g}" for history in found.histories if len(history)]
    planned = (found.told.get("config") or {}).get("epochs")
    if not ended:
        return None
    each = ", ".join(ended) if len(set(ended)) > 1 else ended[0]
    folds = f", {len(ended)} folds" if len(ended) > 1 else ""
    return (each if planned is None or each == str(planned) else f"{each} of {planned}") + folds


def _count(value: object) -> str | None:
    return f"{value:,}" if isinstance(value, int) else None


def _measures(history: pd.DataFrame) -> list[str]:
    """Return what was measured of training and validation alike, the loss first."""
    return [
        "loss",
        *(str(name) for name in history if name != "loss" and f"validation_{name}" in history),
    ]


def _curves(found: Results) -> Section:
    histories = [history for history in found.histories if len(history)]
    if not histories:
        return Section("curves", "Curves", tag("p", "No epoch has ended yet.", class_="note"))
    figures = []
    for name in _measures(histories[0]):
        if not all(f"validation_{name}" in history and name in history for history in histories):
            continue
        ends = [history[f"validation_{name}"].iloc[-1] for history in histories]
        last = f", at the end {number(sum(ends) / len(ends))}" + (
            " on average" if len(ends) > 1 else ""
        )
        drawn = charts.curves(
            [history[["epoch", name, f"validation_{name}"]] for history in histories], name
        )
        figures.append(
            tag(
                "figure",
                tag("h3", name.replace("_", " ").capitalize()),
                drawn,
                tag("figcaption", *KEYS, last),
            )
        )
    applied = found.told.get("applied") or {}
    words = "as applied" + "".join(
        f"; {name.replace('_', ' ')} {quoted(applied[name], 20)}"
        for name in ("peak_rate", "warmup_steps")
        if name in applied
    )
    figures.append(
        tag(
            "figure",
            tag("h3", "Learning rate"),
            charts.rate(histories),
            tag("figcaption", Html(words)),
        )
    )
    parts = [tag("div", figures, class_="grid")]
    if len(histories) > 1:
        parts.append(
            tag(
                "p",
                f"Thin lines: the {len(histories)} folds. Thick ones: their mean, where all have an epoch.",
                class_="note",
            )
        )
    folds = found.told.get("folds")
    if isinstance(folds, list) and folds and all(isinstance(fold, dict) for fold in folds):
        parts += [tag("h3", "Each fold"), _folds(folds)]
    return Section("curves", "Curves", joined(parts))


def _folds(folds: Sequence[Mapping[str, Any]]) -> Html:
    """Return a table of the manifest's "folds": what a fold was made from, and its measures."""
    flat = [
        {
            **{key: value for key, value in fold.items() if key != "metrics"},
            **_part(fold, "metrics"),
        }
        for fold in folds
    ]
    head = list(flat[0])[:10]
    rows = [
        [str(place), *(quoted(_plainly(fold.get(key)), 20) for key in head)]
        for place, fold in enumerate(flat, start=1)
    ]
    return table(
        ["fold", *(key.replace("_", " ")[:40] for key in head)],
        rows,
        numbers=range(1, len(head) + 1),
    )


def _time(found: Results) -> Section:
    parts: list[Html] = []
    lines = [fold for fold in found.lines if fold]
    if lines:
        last = [fold[-1]["images_per_second"] for fold in lines]
        words = (
            f"{sum(last) / len(last):,.0f} images a second at the end" + (" on average" if len(last) > 1 else "")
            + ". Each point is the mean since the session began; compiling is not counted."
        )  # fmt: skip
        parts.append(
            tag(
                "figure",
                tag("h3", "Images a second"),
                charts.throughput(lines),
                tag("figcaption", words),
            )
        )
    seconds = found.told.get("seconds") or {}
    if seconds:
        each = phases(seconds)
        total = sum(each.values()) or 1.0
        rows = [
            (
                quoted(name, 40),
                bar(value / max(each.values())),
                duration(value),
                f"{value / total:.1%}",
            )
            for name, value in each.items()
        ]
        parts.append(
            tag(
                "figure",
                tag("h3", "Where the time went"),
                table(("phase", "", "time", "share"), rows, numbers=[2, 3]),
                tag(
                    "figcaption",
                    f"{duration(total)} in all, each second counted once; of a run that went on, its last session.",
                ),
            )
        )
    if not parts:
        return Section(
            "time", "Throughput and time", tag("p", "Nothing was told about it yet.", class_="note")
        )
    return Section("time", "Throughput and time", tag("div", parts, class_="pair"))


def _origin(found: Results) -> Section:
    told, unknown = found.told, "not known"
    words: dict[Any, str] = {True: ", with local changes", False: ", without local changes"}
    dirty = words.get(told.get("git_dirty"), "")
    rows = [
        ("run", tag("code", quoted(told.get("run_id") or unknown))),
        ("commit", joined([tag("code", quoted(told.get("git_commit") or unknown)), dirty])),
        (
            "bundle sha256",
            tag(
                "code",
                quoted(
                    told.get("bundle_sha256")
                    or ("none: run from a checkout" if found.complete else unknown)
                ),
            ),
        ),
        ("devices", quoted(told.get("devices") or unknown)),
        ("precision", quoted(told.get("precision") or unknown)),
    ]
    if found.submission is not None:
        rows.append(
            (
                run_results.SUBMISSION,
                joined(
                    [f"{found.submission[0]:,} rows, sha256 ", tag("code", found.submission[1])]
                ),
            )
        )
    parts = [table((), rows)]
    small = [
        tag(
            "figure",
            tag("h3", name),
            table((), [(quoted(key, 40), quoted(_plainly(value))) for key, value in part.items()]),
        )
        for name, part in (
            ("Versions", _part(told, "versions")),
            (
                "Rate and optimizer as applied",
                {k: v for k, v in _part(told, "applied").items() if k != "warnings"},
            ),
            ("Measures as in the manifest", _part(told, "metrics")),
            ("Parameters", _part(told, "parameters")),
        )
        if part
    ]
    if small:
        parts.append(tag("div", small, class_="grid"))
    warnings = _part(told, "applied").get("warnings")
    if isinstance(warnings, list) and warnings:
        parts += [
            tag("h3", "Warnings about the rate"),
            tag("ul", [tag("li", quoted(each, 400)) for each in warnings[:20]], class_="note"),
        ]
    files = _part(told, "files")
    if files:
        lines = [
            (
                quoted(name),
                _count(entry.get("size")) or "–",
                tag("code", quoted(entry.get("sha256") or "–")),
            )
            for name, entry in files.items()
        ]
        parts += [
            tag("h3", "Files of the artifact, as the manifest names them"),
            table(("file", "bytes", "sha256"), lines, numbers=[1]),
        ]
    config = told.get("config")
    if config:
        # ASCII, so that nothing in it can turn the text around; its lines stay lines.
        text = Html(html.escape(json.dumps(config, indent=2, sort_keys=True)))
        parts.append(tag("details", tag("summary", "The config"), tag("pre", text)))
    return Section("provenance", "Provenance", joined(parts))


def _lacking(found: Results) -> Section:
    words = f"Not shown: {VALIDATION} is missing. {found.missing.get(VALIDATION, '').capitalize()}."
    return Section("classes", "Predictions", tag("p", words, class_="note"))


def _part(told: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = told.get(key)
    return part if isinstance(part, dict) else {}


def _plainly(value: object) -> str:
    """Return a value of the manifest as it stands in a table."""
    if isinstance(value, float):
        return number(value) if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)
