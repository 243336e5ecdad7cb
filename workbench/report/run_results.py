"""What a run wrote to its folder, read back and checked.

In   the output of a training, as docs/dev/contracts.md names it; nothing changes it
Out  `Results`, which lists missing files; a corrupt file is refused
"""

import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from formats import checksums, npz
from pipeline.config.data_layout import called
from pipeline.data import csv_files
from pipeline.errors import ConfigError, ReportError, reading
from pipeline.evaluate.held_out_rows import EXAMPLES
from pipeline.runtime import provenance
from pipeline.train.progress_log import HISTORY, LINES

CLASSES, ORDINAL, REGRESSION, MULTILABEL = "classes", "ordinal", "regression", "multilabel"
OWN = "custom"
MANIFEST, SUBMISSION = "artifact/manifest.json", "submission.csv"
VALIDATION, PROBABILITIES = "validation.csv", "validation.npz"
FIX = "Pull the run again, or remove the file: the report then lists it as missing."
MOST = 1e30  # matplotlib squares numbers; a curve of larger ones shows nothing
# The types of the manifest's values. Its seal says that it is as it was written, not what it holds.
TYPES: dict[str, type] = {
    **dict.fromkeys(("run_id", "status", "devices", "precision"), str),
    **dict.fromkeys(("config", "versions", "metrics", "files", "seconds", "applied"), dict),
    **dict.fromkeys(("parameters", "target", "baseline"), dict),
    "classes": list,
}
BASELINE = ("score", "error", "network", "network_error")


@dataclass(frozen=True)
class WorstRows:
    """The rows that training was most wrong about.

    Attributes:
        indices: int64 (m,), rows of validation.csv, from 0; that of the largest loss first.
        pixels: uint8 (m, height, width, channels), with 1 or 3 channels; None where the inputs are
            no images.
    """

    indices: np.ndarray
    pixels: np.ndarray | None


@dataclass(frozen=True)
class Results:
    """What a run wrote.

    Attributes:
        complete: whether there is an artifact.
        manifest: the artifact's; of a partial run the same keys, as far as its newest checkpoint
            and bundle.json have them.
        missing: {name of a file: what a report lacks without it}.
        target: "classes", "regression" or "multilabel"; None without validation.csv.
        histories: a table for each fold, or one: `epoch`, `learning_rate` and pairs of `<name>` and
            `validation_<name>`, as floats.
        lines: of progress.jsonl, for each fold, or one.
        validation: validation.csv: `id`, `fold` if there is one, and for classes: `label`,
            `prediction` (places in `classes`, int64), `confidence` (float64, 0 to 1); for a
            regression: `label`, `prediction` (float64); for multilabel: `label_<name>` (0.0 or
            1.0) and `prediction_<name>` (0 to 1) for each name in `classes`.
        classes: the labels' texts.
        probabilities: float32 (n, classes), a row for each of `validation`, or None.
        examples: None where training kept none.
        submission: rows and sha256 of submission.csv, or None.
    """

    complete: bool
    manifest: Mapping[str, Any]
    missing: Mapping[str, str]
    target: str | None
    histories: Sequence[pd.DataFrame]
    lines: Sequence[Sequence[Mapping[str, float]]]
    validation: pd.DataFrame | None
    classes: tuple[str, ...]
    probabilities: np.ndarray | None
    examples: WorstRows | None
    submission: tuple[int, str] | None

    @property
    def config(self) -> Mapping[str, Any]:
        """The config of the run; {} where it is unknown."""
        return self.part("config")

    @property
    def noun(self) -> str:
        """What the run's examples are called."""
        data = self.config.get("data")
        return called(str(data.get("kind")) if isinstance(data, dict) else "")

    def part(self, key: str) -> Mapping[str, Any]:
        """Return a mapping of the manifest; {} where it has none."""
        part = self.manifest.get(key)
        return part if isinstance(part, dict) else {}


def read(output: Path) -> Results:
    """Return what a run, complete or partial, wrote to `output`.

    Raises:
        ConfigError: if there is no such folder, or nothing of a training in it.
        ReportError: if a file is corrupt, or contradicts another.
    """
    folds = sorted(output.glob("fold-*/"), key=lambda path: (len(path.name), path.name))
    places = folds or [output]
    beside = [place / name for place in places for name in (HISTORY, LINES, "checkpoints")]
    if not any(path.exists() for path in (output / MANIFEST, output / VALIDATION, *beside)):
        problem = "holds nothing of a training" if output.is_dir() else "is no folder"
        raise ConfigError(
            f"{output} {problem}; expected {MANIFEST}, {HISTORY}, {LINES} or "
            "checkpoints/.\n"
            "Give the --output of `python -m pipeline train`, or a folder that `invoke pull` made."
        )
    missing = {}

    def exists(name: str, lacks: str, *, in_folds: bool = False) -> bool:
        found = any((place / name).is_file() for place in (places if in_folds else [output]))
        if not found:
            missing[name] = lacks
        return found

    complete = exists(MANIFEST, "the run is partial: it has no model yet")
    manifest = _manifest(output / MANIFEST) if complete else _partial(output, places)
    exists(HISTORY, "curves; the first row is written when an epoch has ended", in_folds=True)
    exists(LINES, "throughput over the run", in_folds=True)
    histories = [_history(place / HISTORY) for place in places if (place / HISTORY).is_file()]
    lines = [_lines(place / LINES) for place in places if (place / LINES).is_file()]
    validation = target = probabilities = examples = submission = None
    classes = tuple(map(str, manifest.get("classes") or ()))
    if exists(VALIDATION, "everything about single classes and rows; a run writes it at its end"):
        texts = csv_files.read(output / VALIDATION, ReportError, FIX)
        kind = (manifest.get("target") or {}).get("kind")
        if kind == OWN:
            missing[VALIDATION] = "predictions: no page knows what labels of this shape look like"
        elif kind == REGRESSION and "label" not in texts:
            missing[VALIDATION] = "predictions: a page does not show several numbers at once yet"
        else:
            expected = CLASSES if kind == ORDINAL else kind
            target = _target(expected, [str(name) for name in texts], output / VALIDATION)
            validation, classes = _validation(texts, target, classes, output / VALIDATION)
    if validation is not None:
        if target == CLASSES and exists(PROBABILITIES, "the exact loss of each row"):
            shape = len(validation), len(classes)
            probabilities = _probabilities(output / PROBABILITIES, shape)
        if exists(EXAMPLES, "pictures of the worst rows"):
            examples = _examples(output / EXAMPLES, len(validation))
    if (output / SUBMISSION).is_file():
        rows = csv_files.read(output / SUBMISSION, ReportError, FIX)
        submission = len(rows), checksums.sha256(output / SUBMISSION)
    return Results(
        complete=complete,
        manifest=manifest,
        missing=missing,
        target=target,
        histories=histories,
        lines=lines,
        validation=validation,
        classes=classes,
        probabilities=probabilities,
        examples=examples,
        submission=submission,
    )


def _manifest(path: Path) -> dict[str, Any]:
    with reading(path, ReportError, FIX):
        try:
            manifest = checksums.opened(path.read_bytes())
            for key, kind in TYPES.items():
                if manifest.get(key) is not None and not isinstance(manifest[key], kind):
                    raise ValueError(f"{key} is a {type(manifest[key]).__name__}")
            wrong = [
                f"{key}.{name}"
                for key in ("seconds", "metrics")
                for name, value in (manifest.get(key) or {}).items()
                if not _is_number(value)
            ]
            if wrong:
                raise ValueError(f"{', '.join(wrong[:3])[:200]} is not a finite number")
            baseline = manifest.get("baseline") or {}
            if not all(_is_number(baseline.get(name, 0)) for name in BASELINE):
                raise ValueError("baseline has a number that is not finite")
            if not all(isinstance(entry, dict) for entry in (manifest.get("files") or {}).values()):
                raise ValueError("files lacks sha256 and size of each file")
            if not all(isinstance(name, str) for name in manifest.get("classes") or ()):
                raise ValueError("classes are not texts")
        except (ValueError, RecursionError) as error:
            raise ReportError(f"{path} is not the manifest of a run: {error}.\n{FIX}") from error
    return manifest


def _partial(output: Path, places: Sequence[Path]) -> dict[str, Any]:
    """Return what is known of a run without a manifest, by the manifest's keys."""
    known: dict[str, Any] = {}
    if (output / "bundle.json").is_file():
        origin = provenance.from_bundle(output / "bundle.json")
        names = ("git_commit", "git_dirty", "bundle_sha256")
        known |= {name: getattr(origin, name) for name in names}
    for path in [path for place in places for path in _checkpoints(place / "checkpoints")]:
        try:
            details = checksums.opened((path / "manifest.json").read_bytes())["details"]
            origin = details["origin"]
            found = {name: origin[name] for name in ("config", "devices", "precision")}
            found["run_id"] = details["run_id"]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            continue  # a kill may leave a corrupt checkpoint; the one before it is whole
        if all(isinstance(value, TYPES[name]) for name, value in found.items()):
            return known | found
    return known


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, the newest first."""
    paths = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8,18}", path.name)]
    return sorted(paths, key=lambda path: int(path.name.removeprefix("step-")), reverse=True)


def _history(path: Path) -> pd.DataFrame:
    text = io.StringIO(_whole_lines(path))
    try:
        found = pd.read_csv(text, dtype=str, keep_default_na=False)
        expected = ("epoch", "loss", "validation_loss", "learning_rate")
        lacking = [name for name in expected if name not in found]
        if lacking:
            raise ValueError(f"it has no column {', '.join(lacking)}")
        shown = [
            name
            for name in map(str, found)
            if name in ("epoch", "learning_rate")
            or name.startswith("validation_")
            or f"validation_{name}" in found
        ]
        return pd.DataFrame({name: _numbers(found[name], gaps=True) for name in shown})
    except (ValueError, pd.errors.ParserError) as error:  # an empty file is a ValueError
        raise ReportError(f"{path} is not what a training writes: {error}.\n{FIX}") from error


def _lines(path: Path) -> list[dict[str, float]]:
    found = []
    for number, text in enumerate(_whole_lines(path).splitlines(), start=1):
        try:
            line = json.loads(text)
            if not isinstance(line, dict) or not all(
                _is_number(line.get(name)) and 0 <= line[name] < MOST
                for name in ("step", "images_per_second")
            ):
                raise ValueError("it lacks step or images_per_second")
        except (ValueError, RecursionError) as error:
            message = f"{path}, line {number}, is no line of progress: {error}.\n{FIX}"
            raise ReportError(message) from error
        kept = {name: float(line[name]) for name in ("step", "images_per_second")}
        if _is_number(line.get("idle")) and 0 <= line["idle"] <= 1:  # an older run has none
            kept["idle"] = float(line["idle"])
        found.append(kept)
    return found


def _whole_lines(path: Path) -> str:
    """Return a file's text without the incomplete line that a kill may leave at its end."""
    with reading(path, ReportError, FIX):
        try:
            return "".join(re.findall(r"[^\n]*\n", path.read_text(encoding="utf-8")))
        except UnicodeDecodeError as error:
            raise ReportError(f"{path} is not a text: {error}.\n{FIX}") from error


def _target(expected: str | None, columns: Sequence[str], path: Path) -> str:
    """Return the kind of target that validation.csv is about, by its columns; where the manifest
    names one, it has to be the `expected` one.
    """

    def named(prefix: str) -> set[str]:
        return {name.removeprefix(prefix) for name in columns if name.startswith(prefix)}

    found = None
    if {"label", "prediction"} <= set(columns):
        found = CLASSES if "confidence" in columns else REGRESSION
    if named("prediction_") and named("prediction_") == named("label_"):
        found = MULTILABEL
    if found is None or "id" not in columns or found != (expected or found):
        wanted = {
            REGRESSION: "label and prediction",
            MULTILABEL: "label_<name> and prediction_<name> of each label",
        }.get(expected or CLASSES, "label, prediction and confidence")
        raise ReportError(
            f"{path} has the columns {', '.join(columns)[:500]}; expected id and, of a run with "
            f"the target {expected or CLASSES}, {wanted}.\n{FIX}"
        )
    return found


def _validation(
    texts: pd.DataFrame, target: str, classes: tuple[str, ...], path: Path
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return validation.csv with numbers in place of texts, and the texts of the labels."""
    found = {"id": texts["id"]}

    def convert(name: str, good: Callable[[pd.Series], pd.Series], expected: str) -> None:
        try:
            found[name] = _numbers(texts[name])
            if not good(found[name]).all():
                wrong = texts[name][~good(found[name])].iloc[0][:80]
                raise ValueError(f"{wrong!r} is not {expected}")
        except ValueError as error:
            raise ReportError(
                f"{path}, column {name[:80]}: {error}.\nExpected {expected}. {FIX}"
            ) from error

    def share(name: str) -> None:
        convert(name, lambda values: values.between(0, 1), "a number from 0 to 1")

    names: tuple[str, ...] = ()
    if target == CLASSES:
        names = classes or tuple(sorted({*texts["label"], *texts["prediction"]}))
        place = {name: number for number, name in enumerate(names)}
        for column in ("label", "prediction"):
            places = texts[column].map(place)
            if places.isna().any():
                raise ReportError(
                    f"{path} has the {column} {texts[column][places.isna()].iloc[0][:80]!r}; "
                    "expected one of the manifest's classes.\n"
                    f"The two files are of different runs. {FIX}"
                )
            found[column] = places.astype(np.int64)
        share("confidence")
    elif target == REGRESSION:
        for column in ("label", "prediction"):
            convert(column, lambda values: values.abs() < MOST, "a finite number")
    else:
        columns = [str(name) for name in texts if str(name).startswith("label_")]
        names = tuple(name.removeprefix("label_") for name in columns)
        for name in names:
            convert(f"label_{name}", lambda values: values.isin((0, 1)), "0 or 1")
            share(f"prediction_{name}")
    if "fold" in texts:
        convert("fold", lambda values: (values >= 1) & (values % 1 == 0), "a whole number")
    if not len(texts):
        raise ReportError(f"{path} has no rows; expected the validation rows.\n{FIX}")
    return pd.DataFrame(found), names


def _probabilities(path: Path, shape: tuple[int, int]) -> np.ndarray:
    expected = f"probabilities, float32 {shape}, from 0 to 1"
    with _arrays(path, expected) as arrays:
        found = arrays["probabilities"]
        right = found.shape == shape and found.dtype == np.float32
        if not right or not ((found >= 0) & (found <= 1)).all():
            raise ValueError(f"probabilities are {found.dtype} {found.shape}")
    return found


def _examples(path: Path, rows: int) -> WorstRows:
    with _arrays(path, f"indices from 0 to {rows - 1}, and a picture of each or none") as arrays:
        indices, pixels = arrays["indices"], arrays.get("pixels")
        good = indices.dtype == np.int64 and set(indices) <= set(range(rows))
        if pixels is not None:
            count, height, width, channels = pixels.shape
            good = good and pixels.dtype == np.uint8 and count == len(indices)
            good = good and min(height, width) > 0 and channels in (1, 3)
        if not good:
            shown = [f"{name} {each.dtype} {each.shape}" for name, each in arrays.items()]
            raise ValueError(f"they are {', '.join(shown)}")
    return WorstRows(indices, pixels)


@contextmanager
def _arrays(path: Path, expected: str) -> Iterator[dict[str, np.ndarray]]:
    """Give the arrays of a file that training writes beside validation.csv, and refuse it where the
    block finds that they are not what is expected.
    """
    with reading(path, ReportError, FIX):
        try:
            yield npz.read(path)
        except OSError:
            raise
        except Exception as error:  # for corrupt files zipfile and numpy raise a dozen kinds
            raise ReportError(
                f"{path} is not what a training writes beside {VALIDATION}: "
                f"{type(error).__name__}: {str(error)[:300]}.\nExpected {expected}. {FIX}"
            ) from error


def _numbers(texts: pd.Series, *, gaps: bool = False) -> pd.Series:
    """Return a column of texts as float64; with `gaps` an empty text, or one that is not a finite
    number, becomes NaN.
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


def _is_number(value: object) -> bool:
    """Return whether a value from JSON is a finite number; an integer may be too large for one."""
    try:
        return (
            isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        )
    except OverflowError:
        return False
