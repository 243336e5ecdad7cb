"""Write the report of a complete or partial training run as a self-contained HTML page."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from formats import atomic_file
from pipeline.errors import PipelineError, ReportError
from pipeline.evaluate import held_out_rows
from pipeline.figures.training_figures import phases
from pipeline.train.progress_log import INPUT_BOUND
from workbench.budget import shown
from workbench.pages import charts
from workbench.pages.html import quoted, render
from workbench.report import plan_comparison, run_results, sections
from workbench.report.run_results import SUBMISSION, VALIDATION, Results
from workbench.report.sections import Predictions, number

FILE = "report.html"
# Maps metrics to their names in `workbench.pages.statistics`, which estimates their intervals.
ESTIMATED = {"accuracy": "accuracy", "rmse": "root mean squared error"}
TOLERANCE = 1e-4  # maximum difference between the accuracies in the manifest and validation.csv


def write(output: Path, *, title: str | None = None, page: Path | None = None) -> Path:
    """Write the report of a complete or partial run, and return its path.

    Args:
        title: title of the page, or None to use the config's name.
        page: file to write, or None to write report.html in `output`.

    Raises:
        ConfigError: if `output` does not contain any files of a run.
        ReportError: if a file is corrupt or contradicts another file.
        DiskError: if the page cannot be written. In that case, an existing page is not changed.
    """
    try:
        content = _page(run_results.read(output), output, title)
    except (PipelineError, OSError):
        raise
    except Exception as error:  # well-formed files can contain invalid values
        raise ReportError(
            f"{output} contains invalid values: {type(error).__name__}: {error}.\n{run_results.FIX}"
        ) from error
    return atomic_file.write(page or output / FILE, content)


def _page(found: Results, output: Path, title: str | None) -> bytes:
    predictions = sections.describe(found)
    name = title or str(found.config.get("name") or "A run")
    return render(
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
        folds=_folds(found),
        predictions=predictions,
        throughput=_throughput(found),
        phases=_phases(found),
        origin=_origin(found),
        tables=_tables(found),
        warnings=found.part("applied").get("warnings", [])[:20],
        files=[
            (name, f"{entry['size']:,}", _code(entry["sha256"]))
            for name, entry in found.part("files").items()
        ],
        config=json.dumps(found.config, indent=2, sort_keys=True) if found.config else "",
    )


def _headline(found: Results, predictions: Predictions | None) -> dict[str, str] | None:
    """Return the main score with its interval, or None if no epoch has finished yet.

    If possible, the score is computed from the validation rows. Otherwise, it is read from the
    manifest or from the metrics of the last epoch.
    """
    scores, metric = found.part("metrics"), str(found.manifest.get("metric"))
    asked = f"validation_{metric}"
    head = {"rows": "", "interval": "", "note": "not final, no interval available"}
    if predictions is not None and found.validation is not None:
        best, folds = predictions.estimate, found.validation.get("fold")
        interval = f"{number(best.low)} to {number(best.high)}"
        where = "on validation rows" if folds is None else f"out of fold, {folds.nunique()} folds"
        if asked not in scores or ESTIMATED.get(metric) == best.name:
            head |= {"rows": where, "interval": interval, "note": f"({best.how})"}
            return head | {"value": number(best.value), "name": best.name}
        # There is no interval for the competition's metric.
        note = f"{best.name} {number(best.value)} ({interval}, {best.how})"
        return head | {"rows": where, "note": note, "value": number(scores[asked]), "name": metric}
    names = [name for name in scores if name.startswith("validation_")]
    if names:
        name = min(names, key=lambda name: (name != asked, "loss" in name))
        head["note"] = f"no interval, because {VALIDATION} is missing or has no labels"
        return head | {"value": number(scores[name]), "name": name}
    if not found.histories or found.histories[-1].empty:
        return None
    last = found.histories[-1].iloc[-1]
    measure = _measures(found.histories[-1])[-1]
    head["rows"] = f"on validation rows after epoch {last['epoch']:g}"
    return head | {"value": number(last[f"validation_{measure}"]), "name": measure}


def _baseline(found: Results) -> tuple[str, list[tuple[str, str]], bool] | None:
    baseline = found.part("baseline")
    if not {"metric", "model", "score", "error", "network", "network_error"} <= set(baseline):
        return None
    rows = [
        (name, f"{number(baseline[score])} ± {number(baseline[error], 2)}")
        for name, score, error in (
            ("this run, held-out rows", "network", "network_error"),
            (f"{baseline['model']}, out of fold", "score", "error"),
        )
    ]
    return baseline["metric"], rows, baseline.get("below") is True


def _other_baseline(found: Results) -> list[str]:
    metric = found.manifest.get("metric")
    given = (found.config.get("baseline") or {}).get("metric")
    if not found.complete or given in (None, metric):
        return []
    return [
        f"The baseline uses {given} and the run uses {metric}, so they cannot be compared. To"
        " update the baseline:"
        f" invoke inspect --input DIR --metric {metric} --write {found.config.get('name')}"
    ]


def _tiles(found: Results) -> list[tuple[str, object]]:
    seconds, rows = found.part("seconds").get("total"), found.validation
    batch = found.part("applied").get("batch") or found.config.get("batch")
    tiles = (
        ("time", None if seconds is None else shown(seconds)),
        ("devices", found.manifest.get("devices")),
        ("precision", found.manifest.get("precision")),
        ("epochs", _epochs(found)),
        ("parameters", found.part("parameters").get("total")),
        ("fit", found.fit) if found.fit else ("batch", batch),
        ("validation rows", None if rows is None else len(rows)),
    )
    return [(name, _text(value)) for name, value in tiles if value is not None]


def _lacks(found: Results, predictions: Predictions | None) -> list[Markup | str]:
    lacks: list[Markup | str] = [
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
            f"The manifest has accuracy {number(accuracy)}, so {VALIDATION} must be from a"
            " different run."
        )
    return lacks


def _epochs(found: Results) -> str | None:
    ended = [f"{history['epoch'].iloc[-1]:g}" for history in found.histories if len(history)]
    planned = found.config.get("epochs")
    if not ended:
        return None
    each = ", ".join(ended) if len(set(ended)) > 1 else ended[0]
    folds = f", {len(ended)} folds" if len(ended) > 1 else ""
    return (each if planned is None or each == str(planned) else f"{each} of {planned}") + folds


def _measures(history: pd.DataFrame) -> list[str]:
    names = [str(name) for name in history if name != "loss" and f"validation_{name}" in history]
    return ["loss", *names]


def _curves(found: Results) -> list[tuple[str, Markup, str]]:
    histories = [history for history in found.histories if len(history)]
    if not histories:
        return []
    figures = []
    for name in _measures(histories[0]):
        columns = ["epoch", name, f"validation_{name}"]
        if not all(column in history for history in histories for column in columns):
            continue
        ends = [history[columns[-1]].iloc[-1] for history in histories]
        last = f", final {number(sum(ends) / len(ends))}"
        last += " on average" if len(ends) > 1 else ""
        chart = charts.curves([history[columns] for history in histories], name)
        figures.append((name.replace("_", " ").capitalize(), chart, last))
    caption, applied = "as applied", found.part("applied")
    for name in ("peak_rate", "warmup_steps"):
        if name in applied:
            caption += f"; {name.replace('_', ' ')} {str(applied[name])[:20]}"
    return [*figures, ("Learning rate", charts.rate(histories), caption)]


def _folds(found: Results) -> tuple[list[str], list[list[str]]] | None:
    folds: list[dict[str, Any]] = found.manifest.get("folds") or []
    if not folds:
        return None
    flat = pd.DataFrame([{**fold, **fold.get("metrics", {})} for fold in folds])
    hidden = ["metrics", "steps"] if found.fit else ["metrics"]
    flat = flat.drop(columns=hidden, errors="ignore").iloc[:, :10]
    rows = [
        [str(place), *map(_text, row)]
        for place, row in enumerate(flat.astype(object).to_numpy().tolist(), start=1)
    ]
    return ["fold", *(str(key).replace("_", " ")[:40] for key in flat)], rows


def _throughput(found: Results) -> tuple[Markup, str] | None:
    lines = [fold for fold in found.lines if fold]
    if not lines:
        return None
    last = [fold[-1]["images_per_second"] for fold in lines]
    end = f"{sum(last) / len(last):,.0f} {found.noun} per second at the end"
    end += " on average" if len(last) > 1 else ""
    tables = [pd.DataFrame(fold).reindex(columns=["step", "idle"]) for fold in lines]
    steps = pd.concat(
        [table["step"].diff().fillna(table["step"]).clip(lower=0) for table in tables]
    )
    waits = pd.concat([table["idle"] for table in tables])
    idle = (waits * steps).sum() / max(steps[waits.notna()].sum(), 1)
    caption = f"{end}. Each point is the mean over all training steps since the session started,"
    caption += " excluding compilation."
    if idle >= INPUT_BOUND:
        caption += (
            f" The run was input-bound: the devices spent {idle:.0%} of the time waiting for the"
            ' host. To reduce this, use more CPU cores or, if the feed is "files", a different'
            " feed."
        )
    return charts.throughput(lines, found.noun), caption


def _phases(found: Results) -> tuple[list[tuple[object, ...]], str] | None:
    each = phases(found.part("seconds"))
    if not each:
        return None
    total = sum(each.values())
    rows: list[tuple[object, ...]] = [
        (name, value / max(each.values()), shown(value), f"{value / total:.1%}")
        for name, value in each.items()
    ]
    return rows, shown(total)


def _origin(found: Results) -> list[tuple[str, Markup | str]]:
    manifest = {"bundle_sha256": "none (run from a checkout)"} if found.complete else {}
    manifest |= {name: value for name, value in found.manifest.items() if value not in (None, "")}
    rows: list[tuple[str, Markup | str]] = [
        (name, _code(manifest.get(key, "unknown")))
        for name, key in (
            ("run", "run_id"),
            ("commit", "git_commit"),
            ("bundle sha256", "bundle_sha256"),
        )
    ]
    if "git_dirty" in manifest:
        how = "with" if manifest["git_dirty"] else "without"
        rows[1] = "commit", rows[1][1] + f", {how} local changes"
    rows += [(name, str(manifest.get(name, "unknown"))) for name in ("devices", "precision")]
    if found.submission is not None:
        count, sha256 = found.submission
        rows.append((SUBMISSION, Markup("{:,} rows, sha256 {}").format(count, _code(sha256))))
    return rows


def _tables(found: Results) -> dict[str, list[tuple[str, str]]]:
    applied = "Applied settings" if found.fit else "Applied learning rate and optimizer"
    parts = {
        "Versions": "versions",
        applied: "applied",
        "Metrics in the manifest": "metrics",
        "Parameters": "parameters",
        "Thresholds": "thresholds",
    }
    return {
        title: [(key, _text(value)) for key, value in part.items() if key != "warnings"]
        for title, name in parts.items()
        if (part := found.part(name))
    }


def _code(text: object) -> Markup:
    return Markup("<code>{}</code>").format(quoted(text))


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        return value if isinstance(value, str) else json.dumps(value)
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else number(value)
