"""The report of a run: one HTML page that needs nothing beside itself.

In   what a training wrote to its folder (`workbench.report.run_results`), complete or not
Out  report.html; equal runs give equal bytes
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup, escape

from formats import atomic_file
from pipeline.evaluate import held_out_rows
from pipeline.figures.training_figures import phases
from pipeline.train.progress_log import INPUT_BOUND
from workbench.pages import charts
from workbench.pages.html import quoted, render
from workbench.report import plan_comparison, run_results, sections
from workbench.report.run_results import SUBMISSION, VALIDATION, Results
from workbench.report.sections import Predictions, number

FILE = "report.html"
# The metrics whose intervals `workbench.pages.statistics` estimates, by its names for them.
ESTIMATED = {"accuracy": "accuracy", "rmse": "root mean squared error"}
TOLERANCE = 1e-4  # between the manifest's accuracy and that of the same run's validation.csv


def write(output: Path, *, title: str | None = None, page: Path | None = None) -> Path:
    """Write the report of a run, complete or partial, and return its path.

    Args:
        output: the folder of a training.
        title: of the page; None takes the config's name.
        page: the file to write; None takes report.html in `output`.

    Raises:
        ConfigError: if `output` holds nothing of a training.
        ReportError: if a file is corrupt, or contradicts another.
        DiskError: if the page cannot be written; an older page stays as it is.
    """
    found = run_results.read(output)
    predictions = sections.describe(found)
    warnings = found.part("applied").get("warnings")
    name = title or str(found.config.get("name") or "A run")
    content = render(
        "report/report.html.j2",
        f"{name} · {found.manifest.get('run_id') or 'partial run'}"[:200],
        name=name,
        found=found,
        headline=_headline(found, predictions),
        baseline=_baseline(found),
        other_baseline=_other_baseline(found),
        plan=plan_comparison.of(output, found),
        tiles=_tiles(found),
        lacks=_lacks(found, predictions),
        curves=_curves(found),
        folds=_folds(found.manifest.get("folds")),
        predictions=predictions,
        throughput=_throughput(found),
        phases=_phases(found),
        origin=_origin(found),
        tables=_tables(found),
        warnings=warnings[:20] if isinstance(warnings, list) else [],
        files=_files(found),
        config=escape(json.dumps(found.config, indent=2, sort_keys=True)) if found.config else "",
    )
    return atomic_file.write(page or output / FILE, content)


def duration(seconds: float) -> str:
    """Return a time as a person writes it.

    >>> duration(33.1), duration(3600 * 3.5), duration(0.25), duration(119.7)
    ('33 s', '3 h 30 min', '0.25 s', '2 min 0 s')
    """
    if seconds < 10:
        return f"{seconds:.2g} s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    if round(seconds) < 3600:
        return f"{round(seconds) // 60} min {round(seconds) % 60} s"
    return f"{round(seconds / 60) // 60} h {round(seconds / 60) % 60} min"


def _headline(found: Results, predictions: Predictions | None) -> dict[str, str] | None:
    """Return the most important number: that of the validation rows with its interval, else the
    manifest's, else that of the last epoch; None before the first epoch has ended.
    """
    metrics = [name for name in found.part("metrics") if name.startswith("validation_")]
    metric = str(found.manifest.get("metric"))
    asked = f"validation_{metric}"
    if predictions is not None:
        best = predictions.estimate
        rows = found.validation
        folds = rows["fold"].nunique() if rows is not None and "fold" in rows else 0
        value, name, note = number(best.value), best.name, f"({best.how})"
        interval = f"{number(best.low)} to {number(best.high)}"
        if asked in metrics and ESTIMATED.get(metric) != name:  # nothing estimates its interval
            note = f"{name} {value} ({interval}, {best.how})"
            value, name, interval = number(found.part("metrics")[asked]), metric, ""
        where = f"out of fold, {folds} folds" if folds else "in validation"
        return {"value": value, "name": name, "rows": where, "interval": interval, "note": note}
    metrics.sort(key=lambda name: (name != asked, "loss" in name))
    if metrics:
        return {
            "value": number(found.part("metrics")[metrics[0]]),
            "name": metrics[0],
            "rows": "",
            "interval": "",
            "note": f"no interval: {VALIDATION} is missing, or holds no labels",
        }
    if not found.histories or found.histories[-1].empty:
        return None
    last = found.histories[-1]
    measure = _measures(last)[-1]
    return {
        "value": number(last[f"validation_{measure}"].iloc[-1]),
        "name": measure,
        "rows": f"in validation after epoch {last['epoch'].iloc[-1]:g}",
        "interval": "",
        "note": "not final, and without an interval",
    }


def _baseline(found: Results) -> tuple[Markup, list[tuple[Markup, str]], bool] | None:
    """Return the metric, the rows of the table that shows the run beside its baseline, and whether
    it is below; None where no baseline was measured.
    """
    baseline = found.part("baseline")
    if not all(name in baseline for name in (*run_results.BASELINE, "metric", "model")):
        return None
    rows = [
        (quoted(name, 60), f"{number(baseline[score])} ± {number(baseline[error], 2)}")
        for name, score, error in (
            ("this run, held-out rows", "network", "network_error"),
            (f"{baseline['model']}, out of fold", "score", "error"),
        )
    ]
    return quoted(baseline["metric"], 40), rows, baseline.get("below") is True


def _other_baseline(found: Results) -> list[Markup]:
    """Return that the baseline is in another metric than the run, in a line; none if it is not."""
    baseline, metric = found.config.get("baseline"), found.manifest.get("metric")
    given = baseline.get("metric") if isinstance(baseline, dict) else None
    if not found.complete or given is None or given == metric:
        return []
    text = (
        f"The baseline is in {given} and the run's metric is {metric}, so they are not compared."
        f" invoke inspect --input DIR --metric {metric} --write {found.config.get('name')}"
        " renews the baseline."
    )
    return [quoted(text, 400)]


def _tiles(found: Results) -> list[tuple[str, object]]:
    seconds = found.part("seconds").get("total")
    batch = found.part("applied").get("batch") or found.config.get("batch")
    tiles = (
        ("time", duration(seconds) if seconds is not None else None),
        ("devices", found.manifest.get("devices")),
        ("precision", found.manifest.get("precision")),
        ("epochs", _epochs(found)),
        ("parameters", _count(found.part("parameters").get("total"))),
        ("batch", _count(batch)),
        ("validation rows", None if found.validation is None else f"{len(found.validation):,}"),
    )
    return [(name, quoted(value)) for name, value in tiles if value is not None]


def _lacks(found: Results, predictions: Predictions | None) -> list[str]:
    """Return what the page lacks, and whether manifest and validation.csv are of two runs."""
    lacks: list[str] = [
        Markup("<code>{}</code>: {}").format(name, text)
        for name, text in found.missing.items()
        if name != held_out_rows.EXAMPLES
    ]
    accuracy = found.part("metrics").get("validation_accuracy")
    if (
        found.target == run_results.CLASSES
        and predictions is not None
        and accuracy is not None
        and abs(accuracy - predictions.estimate.value) >= TOLERANCE
    ):
        lacks.append(
            f"The manifest says accuracy {number(accuracy)}: it and {VALIDATION} are of different "
            "runs."
        )
    return lacks


def _epochs(found: Results) -> str | None:
    """Return how many epochs have ended, and how many were planned."""
    ended = [f"{history['epoch'].iloc[-1]:g}" for history in found.histories if len(history)]
    planned = found.config.get("epochs")
    if not ended:
        return None
    each = ", ".join(ended) if len(set(ended)) > 1 else ended[0]
    folds = f", {len(ended)} folds" if len(ended) > 1 else ""
    return (each if planned is None or each == str(planned) else f"{each} of {planned}") + folds


def _count(value: object) -> str | None:
    return f"{value:,}" if isinstance(value, int) else None


def _measures(history: pd.DataFrame) -> list[str]:
    """Return what was measured both in training and in validation, the loss first."""
    names = [str(name) for name in history if name != "loss" and f"validation_{name}" in history]
    return ["loss", *names]


def _curves(found: Results) -> list[tuple[str, Markup, str]]:
    """Return title, chart and caption of each measure, and of the learning rate."""
    histories = [history for history in found.histories if len(history)]
    if not histories:
        return []
    figures = []
    for name in _measures(histories[0]):
        columns = ["epoch", name, f"validation_{name}"]
        if not all(column in history for history in histories for column in columns):
            continue
        ends = [history[columns[-1]].iloc[-1] for history in histories]
        last = f", at the end {number(sum(ends) / len(ends))}"
        last += " on average" if len(ends) > 1 else ""
        chart = charts.curves([history[columns] for history in histories], name)
        figures.append((name.replace("_", " ").capitalize(), chart, last))
    caption: str = "as applied"
    for name in ("peak_rate", "warmup_steps"):
        if name in (applied := found.part("applied")):
            caption += Markup("; {} {}").format(name.replace("_", " "), quoted(applied[name], 20))
    return [*figures, ("Learning rate", charts.rate(histories), caption)]


def _folds(folds: object) -> tuple[list[str], list[list[str]]] | None:
    """Return head and rows of the table of the manifest's folds, or None where it has none."""
    if not isinstance(folds, list) or not folds or not all(isinstance(f, dict) for f in folds):
        return None
    flat = []
    for fold in folds:
        metrics = fold.pop("metrics", None)
        flat.append({**fold, **(metrics if isinstance(metrics, dict) else {})})
    keys = list(flat[0])[:10]
    rows = [
        [str(place), *(quoted(_shown(fold.get(key)), 20) for key in keys)]
        for place, fold in enumerate(flat, start=1)
    ]
    return ["fold", *(key.replace("_", " ")[:40] for key in keys)], rows


def _throughput(found: Results) -> tuple[Markup, str] | None:
    """Return the chart of images per second, and its caption."""
    lines = [fold for fold in found.lines if fold]
    if not lines:
        return None
    noun = found.noun
    last = [fold[-1]["images_per_second"] for fold in lines]
    end = f"{sum(last) / len(last):,.0f} {noun} per second at the end"
    end += " on average" if len(last) > 1 else ""
    waits = [
        (line["idle"], max(line["step"] - before, 0))
        for fold in lines
        for before, line in zip([0, *(line["step"] for line in fold)], fold, strict=False)
        if "idle" in line
    ]
    idle = sum(share * steps for share, steps in waits) / max(sum(steps for _, steps in waits), 1)
    verdict = (
        f" The run was input-bound: the devices waited {idle:.0%} of the time for the host."
        ' A feed other than "files", or more CPU cores'
        " help."
    )
    return charts.throughput(lines, noun), (
        f"{end}. Each point is the mean of the training steps since the session began, without"
        " compilation."
        f"{verdict if idle >= INPUT_BOUND else ''}"
    )


def _phases(found: Results) -> tuple[list[tuple[object, ...]], str] | None:
    """Return the rows of the table of what took how long, and the total."""
    seconds = found.part("seconds")
    if not seconds:
        return None
    each = phases(seconds)
    total = sum(each.values()) or 1.0
    rows: list[tuple[object, ...]] = [
        (quoted(name, 40), value / max(each.values()), duration(value), f"{value / total:.1%}")
        for name, value in each.items()
    ]
    return rows, duration(total)


def _origin(found: Results) -> list[tuple[str, str]]:
    """Return what made the run: names and values."""
    manifest = found.manifest
    code = Markup("<code>{}</code>").format
    changes = {True: ", with local changes", False: ", without local changes"}
    dirty = manifest.get("git_dirty")
    bundle = "none: run from a checkout" if found.complete else "unknown"

    def shown(key: str, otherwise: str = "unknown") -> Markup:
        return quoted(manifest.get(key) or otherwise)

    rows: list[tuple[str, str]] = [
        ("run", code(shown("run_id"))),
        ("commit", code(shown("git_commit")) + (changes[dirty] if dirty in (True, False) else "")),
        ("bundle sha256", code(shown("bundle_sha256", bundle))),
        ("devices", shown("devices")),
        ("precision", shown("precision")),
    ]
    if found.submission is not None:
        count, sha256 = found.submission
        rows.append((SUBMISSION, Markup("{:,} rows, sha256 {}").format(count, code(sha256))))
    return rows


def _tables(found: Results) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of the tables of the manifest's details, by title."""
    applied = {k: v for k, v in found.part("applied").items() if k != "warnings"}
    details: Mapping[str, Mapping[str, Any]] = {
        "Versions": found.part("versions"),
        "Learning rate and optimizer as applied": applied,
        "Measures in the manifest": found.part("metrics"),
        "Parameters": found.part("parameters"),
    }
    return {
        title: [(quoted(key, 40), quoted(_shown(value))) for key, value in part.items()]
        for title, part in details.items()
        if part
    }


def _files(found: Results) -> list[tuple[str, str, str]]:
    return [
        (
            quoted(name),
            _count(entry.get("size")) or "–",
            Markup("<code>{}</code>").format(quoted(entry.get("sha256") or "–")),
        )
        for name, entry in found.part("files").items()
    ]


def _shown(value: object) -> str:
    """Return a value of the manifest as a table shows it."""
    if isinstance(value, float):
        return number(value) if math.isfinite(value) else str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "–" if value is None else value if isinstance(value, str) else json.dumps(value)
