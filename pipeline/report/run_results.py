"""Results: what a run left in its folder, read back and checked, for who looks at it afterwards.

Reads  the files that docs/design.md names as the output of a training; changes none of them, and
starts no framework Gives  `Results`: what is not there is named in `missing`, and what is broken is
refused
"""

import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pipeline.errors import ConfigError, ReportError, reading
from pipeline.runtime import provenance
from pipeline.session.progress_log import HISTORY, LINES
from pipeline.storage import checksums, csv_text
from pipeline.training import hard_examples
from pipeline.training.hard_examples import Examples

CLASSES, ORDINAL, REGRESSION, MULTILABEL = "classes", "ordinal", "regression", "multilabel"
MANIFEST, VALIDATION, PROBABILITIES, SUBMISSION = (
    "artifact/manifest.json",
    "validation.csv",
    "validation.npz",
    "submission.csv",
)
AGAIN = "Pull the run again, or remove the file: a report goes without it."
MOST = 1e30  # a larger number in a curve is none that anybody looks at, and matplotlib computes with its square
# What a manifest may hold, and of which kind that has to be: a seal says who wrote it last, and not
# what.
KINDS: dict[str, type | tuple[type, ...]] = {
    "run_id": str,
    "status": str,
    "config": dict,
    "classes": list,
    "versions": dict,
    "metrics": dict,
    "files": dict,
    "seconds": dict,
    "applied": dict,
    "parameters": dict,
    "devices": str,
    "precision": str,
    "target": dict,
}


@dataclass(frozen=True)
class Results:
    """What a run left.

    Attributes:
        output: the folder. complete: whether there is an artifact.
        told: the manifest; of a partial run what its newest checkpoint and bundle.json tell, by the
            same keys.
        missing: {name of a file: what a report lacks without it}.
        target: "classes", "regression" or "multilabel"; None where there is no validation.csv.
        histories: a table for each fold, or one: `epoch`, `learning_rate` and pairs of `<name>` and
            `validation_<name>`, as floats.
        lines: of progress.jsonl, for each fold, or one.
        validation: validation.csv: `id`, and `fold` if there is one, and for classes: `label`,
            `prediction` (places in `classes`, int64), `confidence` (float64, 0 to 1); regression:
            `label`, `prediction` (float64); multilabel: `label_<name>` (0.0 or 1.0) and
            `prediction_<name>` (0 to 1) for each name in `classes`.
        classes: the labels' texts. probabilities: float32 (n, classes), the rows as in
            `validation`; None where there are none.
        examples: None where training kept none. submission: rows and sha256 of submission.csv; None
            where it is not there.
    """

    output: Path
    complete: bool
    told: Mapping[str, Any]
    missing: Mapping[str, str]
    target: str | None
    histories: Sequence[pd.DataFrame]
    lines: Sequence[Sequence[Mapping[str, float]]]
    validation: pd.DataFrame | None
    classes: tuple[str, ...]
    probabilities: np.ndarray | None
    examples: Examples | None
    submission: tuple[int, str] | None


def read(output: Path) -> Results:
    """Return what a run left in `output`, be it complete or not.

    Raises:
        ConfigError: if there is no such folder, or nothing of a training in it. ReportError: if a
            file is broken, or contradicts another.
    """
    places = sorted(output.glob("fold-*/"), key=lambda path: (len(path.name), path.name)) or [
        output
    ]
    known = [
        output / MANIFEST,
        output / VALIDATION,
        *(place / name for place in places for name in (HISTORY, LINES)),
    ]
    known += [place / "checkpoints" for place in places]
    if not any(path.exists() for path in known):
        raise ConfigError(
            f"{output} holds nothing that a training leaves; expected {MANIFEST}, {HISTORY}, {LINES} or checkpoints/.\n"
            "Give the folder that was the --output of `python -m pipeline train`, or one that `invoke pull` made."
        )
    missing = {}

    def there(name: str, lacks: str, *, below: bool = False) -> bool:
        found = any((place / name).is_file() for place in (places if below else [output]))
        if not found:
            missing[name] = lacks
        return found

    complete = there(MANIFEST, "the run is partial: it has made no model yet")
    told = _manifest(output / MANIFEST) if complete else _under_way(output, places)
    histories = [_history(place / HISTORY) for place in places if (place / HISTORY).is_file()]
    lines = [_lines(place / LINES) for place in places if (place / LINES).is_file()]
    there(HISTORY, "curves; the first row is written when an epoch has ended", below=True)
    there(LINES, "throughput over the run", below=True)
    validation, target, classes = None, None, tuple(str(name) for name in told.get("classes") or ())
    if there(VALIDATION, "everything about single classes and rows; a run writes it at its end"):
        texts = csv_text.read(output / VALIDATION, ReportError, AGAIN)
        kind, columns = (told.get("target") or {}).get("kind"), [str(name) for name in texts]
        if kind == REGRESSION and "label" not in columns:
            missing[VALIDATION] = "predictions: a page does not show several numbers at once yet"
        else:
            target = _target(CLASSES if kind == ORDINAL else kind, columns, output / VALIDATION)
            validation, classes = _validation(texts, target, classes, output / VALIDATION)
    probabilities = kept = submission = None
    if (
        target == CLASSES
        and validation is not None
        and there(PROBABILITIES, "the exact loss of each row")
    ):
        probabilities = _probabilities(output / PROBABILITIES, (len(validation), len(classes)))
    if validation is not None and there(hard_examples.FILE, "pictures of the worst rows"):
        kept = hard_examples.load(output / hard_examples.FILE, rows=len(validation))
    if (output / SUBMISSION).is_file():
        rows = csv_text.read(output / SUBMISSION, ReportError, AGAIN)
        submission = len(rows), checksums.sha256(output / SUBMISSION)
    return Results(
        output,
        complete,
        told,
        missing,
        target,
        histories,
        lines,
        validation,
        classes,
        probabilities,
        kept,
        submission,
    )


def _manifest(path: Path) -> dict[str, Any]:
    with reading(path, ReportError, AGAIN):
        try:
            manifest = checksums.opened(path.read_bytes())
            for key, kind in KINDS.items():
                if manifest.get(key) is not None and not isinstance(manifest[key], kind):
                    raise ValueError(f"{key} is a {type(manifest[key]).__name__}")
            numbers = {name: manifest.get(name) or {} for name in ("seconds", "metrics")}
            wrong = [
                f"{key}.{name}"
                for key, part in numbers.items()
                for name in part
                if not _number(part[name])
            ]
            if wrong:
                raise ValueError(f"{', '.join(wrong[:3])[:200]} is not a finite number")
            if not all(isinstance(entry, dict) for entry in (manifest.get("files") or {}).values()):
                raise ValueError("files does not say sha256 and size of each")
            if not all(isinstance(name, str) for name in manifest.get("classes") or ()):
                raise ValueError("classes are not texts")
        except (ValueError, RecursionError) as error:
            raise ReportError(f"{path} is not the manifest of a run: {error}.\n{AGAIN}") from error
    return manifest


def _under_way(output: Path, places: Sequence[Path]) -> dict[str, Any]:
    """Return what is known of a run without a manifest, by the manifest's keys."""
    told: dict[str, Any] = {}
    if (output / "bundle.json").is_file():
        origin = provenance.from_bundle(output / "bundle.json")
        told |= {
            name: getattr(origin, name) for name in ("git_commit", "git_dirty", "bundle_sha256")
        }
    for path in [path for place in places for path in _steps(place / "checkpoints")]:
        try:
            details = checksums.opened((path / "manifest.json").read_bytes())["details"]
            origin = details["origin"]
            found = {
                "run_id": details["run_id"],
                **{name: origin[name] for name in ("config", "devices", "precision")},
            }
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            continue  # a kill may leave one that is torn; another stands beside it
        if all(isinstance(value, KINDS[name]) for name, value in found.items()):
            return told | found
    return told


def _steps(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the newest first."""
    named = [(re.fullmatch(r"step-(\d{8,18})", path.name), path) for path in folder.glob("step-*")]
    return [
        path
        for _, path in sorted(((int(name[1]), path) for name, path in named if name), reverse=True)
    ]


def _history(path: Path) -> pd.DataFrame:
    text = io.StringIO(_whole_lines(path))
    try:
        found = pd.read_csv(text, dtype=str, keep_default_na=False)
        lacking = [
            name
            for name in ("epoch", "loss", "validation_loss", "learning_rate")
            if name not in found
        ]
        if lacking:
            raise ValueError(f"it has no column {', '.join(lacking)}")
        numbers = {
            name: _numbers(found[name], gaps=True)
            for name in found
            if _drawn(str(name), list(found))
        }
    except (
        ValueError,
        pd.errors.ParserError,
    ) as error:  # a file with no line at all is a ValueError
        raise ReportError(f"{path} is not what a training writes: {error}.\n{AGAIN}") from error
    return pd.DataFrame(numbers)


def _drawn(name: str, columns: Sequence[object]) -> bool:
    """Return whether a column of history.csv is one that a report shows."""
    return (
        name in ("epoch", "learning_rate")
        or f"validation_{name}" in columns
        or name.removeprefix("validation_") != name
    )


def _lines(path: Path) -> list[dict[str, float]]:
    found = []
    for number, text in enumerate(_whole_lines(path).splitlines(), start=1):
        try:
            line = json.loads(text)
            if not isinstance(line, dict) or not all(
                _number(line.get(name)) and 0 <= line[name] < MOST
                for name in ("step", "images_per_second")
            ):
                raise ValueError("it lacks step or images_per_second")
        except (ValueError, RecursionError) as error:
            raise ReportError(
                f"{path}, line {number}, is no line of progress: {error}.\n{AGAIN}"
            ) from error
        found.append({name: float(line[name]) for name in ("step", "images_per_second")})
    return found


def _whole_lines(path: Path) -> str:
    """Return a file's text without the line at its end that a kill cut off."""
    with reading(path, ReportError, AGAIN):
        try:
            return "".join(re.findall(r"[^\n]*\n", path.read_text(encoding="utf-8")))
        except UnicodeDecodeError as error:
            raise ReportError(f"{path} is not a text: {error}.\n{AGAIN}") from error


def _target(told: str | None, columns: Sequence[str], path: Path) -> str:
    """Return which kind of target validation.csv is about, by its columns, and by the manifest
    where that says so.
    """
    predicted = {
        name.removeprefix("prediction_") for name in columns if name.startswith("prediction_")
    }
    seen = CLASSES if {"label", "prediction", "confidence"} <= set(columns) else None
    if {"label", "prediction"} <= set(columns) and "confidence" not in columns:
        seen = REGRESSION
    if predicted and predicted == {
        name.removeprefix("label_") for name in columns if name.startswith("label_")
    }:
        seen = MULTILABEL
    if seen is None or "id" not in columns or seen != (told or seen):
        raise ReportError(
            f"{path} has the columns {', '.join(columns)[:500]}; expected id and, of a run with the target {told or CLASSES}, "
            + {
                REGRESSION: "label and prediction",
                MULTILABEL: "label_<name> and prediction_<name> of each label",
            }.get(told or CLASSES, "label, prediction and confidence")
            + f".\n{AGAIN}"
        )
    return seen


def _validation(
    texts: pd.DataFrame, target: str, classes: tuple[str, ...], path: Path
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return validation.csv with its numbers as numbers, and the labels' texts."""
    found = {"id": texts["id"]}

    def take(name: str, good: Callable[[np.ndarray], np.ndarray], expected: str) -> None:
        try:
            found[name] = _numbers(texts[name])
            if not good(found[name].to_numpy()).all():
                raise ValueError(
                    f"{texts[name][~good(found[name].to_numpy())].iloc[0][:80]!r} is not {expected}"
                )
        except ValueError as error:
            raise ReportError(
                f"{path}, column {name[:80]}: {error}.\nExpected {expected}. {AGAIN}"
            ) from error

    def share(values: np.ndarray) -> np.ndarray:
        return (values >= 0) & (values <= 1)

    if target == CLASSES:
        names = classes or tuple(sorted({*texts["label"], *texts["prediction"]}))
        place = {name: number for number, name in enumerate(names)}
        for column in ("label", "prediction"):
            places = texts[column].map(place)
            if places.isna().any():
                raise ReportError(
                    f"{path} has the {column} {texts[column][places.isna()].iloc[0][:80]!r}; expected one of the manifest's classes.\n"
                    f"The two are of different runs. {AGAIN}"
                )
            found[column] = places.astype(np.int64)
        take("confidence", share, "a number from 0 to 1")
    elif target == REGRESSION:
        names = ()
        for column in ("label", "prediction"):
            take(column, lambda values: np.abs(values) < MOST, "a finite number")
    else:
        names = tuple(
            str(name).removeprefix("label_") for name in texts if str(name).startswith("label_")
        )
        for name in names:
            take(f"label_{name}", lambda values: (values == 0) | (values == 1), "0 or 1")
            take(f"prediction_{name}", share, "a number from 0 to 1")
    if "fold" in texts:
        take("fold", lambda values: (values >= 1) & (values % 1 == 0), "a whole number")
    if not len(texts):
        raise ReportError(f"{path} has no rows; expected those of the validation images.\n{AGAIN}")
    return pd.DataFrame(found), names


def _probabilities(path: Path, shape: tuple[int, int]) -> np.ndarray:
    with reading(path, ReportError, AGAIN):
        try:
            with np.load(path, allow_pickle=False) as archive:
                found = archive["probabilities"]
            if (
                found.shape != shape
                or found.dtype != np.float32
                or not ((found >= 0) & (found <= 1)).all()
            ):
                raise ValueError(f"probabilities are {found.dtype} {found.shape}")
        except OSError:
            raise
        except Exception as error:  # a torn file makes zipfile and numpy raise a dozen kinds
            raise ReportError(
                f"{path} is not what a training writes beside {VALIDATION}: {type(error).__name__}: {str(error)[:300]}.\n"
                f"Expected probabilities, float32 {shape}, from 0 to 1. {AGAIN}"
            ) from error
    return np.asarray(found)


def _numbers(texts: pd.Series, *, gaps: bool = False) -> pd.Series:
    """Return a column of texts as float64; with `gaps` an empty text, and what is not finite, is a
    NaN.
    """
    empty = texts.isin(["", "nan"])
    try:
        values = pd.to_numeric(texts.where(~empty)).astype(np.float64)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{str(error)[:200]}") from error
    if gaps:
        return values.where(values.abs() < MOST)
    if empty.any() or not np.isfinite(values).all():
        raise ValueError("a value is empty, or not finite")
    return values


def _number(value: object) -> bool:
    """Return whether a value from JSON is a finite number: an integer may be too large for a float."""
    try:
        return (
            isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        )
    except OverflowError:
        return False
