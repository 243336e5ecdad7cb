"""Read the output folder of a training run (docs/dev/contracts.md).

Missing files are listed in the `Results`. A corrupt file raises an error.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from formats import checksums, npz
from formats.checkpoint_folder import newest_first
from pipeline.config.data_layout import called
from pipeline.data import csv_files
from pipeline.errors import ConfigError, PipelineError, ReportError, reading
from pipeline.evaluate.held_out_rows import EXAMPLES
from pipeline.runtime import provenance
from pipeline.train.progress_log import HISTORY, LINES

CLASSES, ORDINAL, REGRESSION, MULTILABEL = "classes", "ordinal", "regression", "multilabel"
MANIFEST, SUBMISSION = "artifact/manifest.json", "submission.csv"
VALIDATION, PROBABILITIES = "validation.csv", "validation.npz"
FIX = "Pull the run again, or remove the file, so that the report lists it as missing."
MOST = 1e30  # matplotlib squares values, so it cannot plot larger ones


@dataclass(frozen=True)
class WorstRows:
    """The validation rows with the largest losses, sorted from largest to smallest.

    Attributes:
        indices: row indices in validation.csv, starting from 0, int64 (m,).
        pixels: uint8 (m, height, width, 1 or 3), or None if the inputs are not images.
    """

    indices: np.ndarray
    pixels: np.ndarray | None


@dataclass
class Results:
    """The output of a run.

    Attributes:
        complete: whether there is an artifact.
        manifest: the artifact's manifest. For a partial run, it contains only the keys that the
            newest checkpoint and bundle.json provide.
        missing: maps the name of each missing file to what the report lacks without it.
        histories: a table for each fold, with the columns `epoch` and `learning_rate`, and with
            pairs of `<name>` and `validation_<name>`. All values are floats.
        lines: the lines of progress.jsonl for each fold.
        target: "classes", "regression" or "multilabel", or None if validation.csv is missing.
        validation: table from validation.csv. It has the columns `id` and, if there are folds,
            `fold`. For classes, it also has `label` and `prediction` (indices in `classes`, int64)
            and `confidence` (float64, 0 to 1). For regression, it also has `label` and `prediction`
            (float64). For multilabel, it also has `label_<name>` (0.0 or 1.0) and
            `prediction_<name>` (0 to 1) for each name in `classes`.
        probabilities: float32 (n, classes) with a row for each row of `validation`, or None.
        shares: soft labels of these rows, float (n, classes), or None.
        submission: number of rows and SHA-256 of submission.csv, or None.
    """

    complete: bool
    manifest: Mapping[str, Any]
    missing: dict[str, str] = field(default_factory=dict)
    histories: Sequence[pd.DataFrame] = ()
    lines: Sequence[Sequence[Mapping[str, float]]] = ()
    target: str | None = None
    validation: pd.DataFrame | None = None
    classes: tuple[str, ...] = ()
    probabilities: np.ndarray | None = None
    shares: np.ndarray | None = None
    examples: WorstRows | None = None
    submission: tuple[int, str] | None = None

    @property
    def config(self) -> Mapping[str, Any]:
        return self.part("config")

    @property
    def fit(self) -> str:
        """`Config.fit`. Unless it is "", there are no gradient steps or epochs."""
        return str(self.config.get("fit") or "")

    @property
    def noun(self) -> str:
        return called(str(self.config.get("data", {}).get("kind")))

    def part(self, key: str) -> Mapping[str, Any]:
        part: Mapping[str, Any] = self.manifest.get(key) or {}
        return part


def read(output: Path) -> Results:
    """Read the output folder of a complete or partial run.

    Raises:
        ConfigError: if the folder does not exist or does not contain any files of a run.
        ReportError: if a file is corrupt or contradicts another file.
    """
    folds = sorted(output.glob("fold-*/"), key=lambda path: (len(path.name), path.name))
    places = folds or [output]
    beside = [place / name for place in places for name in (HISTORY, LINES, "checkpoints")]
    if not any(path.exists() for path in (output / MANIFEST, output / VALIDATION, *beside)):
        problem = "has no files of a training run" if output.is_dir() else "is not a folder"
        raise ConfigError(
            f"{output} {problem}. It must contain {MANIFEST}, {HISTORY}, {LINES} or checkpoints/.\n"
            "Use the --output of `python -m pipeline train`, or a folder created by `invoke pull`."
        )
    complete = (output / MANIFEST).is_file()
    found = Results(complete, _manifest(output) if complete else _partial(output, places))
    if not complete:
        found.missing[MANIFEST] = "the run is partial and has no model yet"
    histories, lines = (
        [path for place in places if (path := place / name).is_file()] for name in (HISTORY, LINES)
    )
    found.histories, found.lines = [*map(_history, histories)], [*map(_lines, lines)]
    if not histories and not found.fit:
        found.missing[HISTORY] = "curves; the first row is written after the first epoch"
    if not lines and not found.fit:
        found.missing[LINES] = "throughput over the run"
    _read_validation(output, found)
    if (path := output / SUBMISSION).is_file():
        found.submission = len(csv_files.read(path, ReportError, FIX)), checksums.sha256(path)
    return found


@contextmanager
def whole(path: Path, what: str = "a valid file of a training run") -> Iterator[None]:
    """Raise `ReportError` if the `with` block cannot read a file or raises an unexpected error."""
    with reading(path, ReportError, FIX):
        try:
            yield
        except (PipelineError, FileNotFoundError, PermissionError):
            raise
        except Exception as error:  # pandas, zipfile and numpy raise various exceptions
            why = f"{type(error).__name__}: {str(error)[:300]}"
            raise ReportError(f"{path} is not {what}: {why}.\n{FIX}") from error


def _manifest(output: Path) -> dict[str, Any]:
    with whole(output / MANIFEST, "a valid manifest"):
        return dict(checksums.opened((output / MANIFEST).read_bytes()))


def _partial(output: Path, places: Sequence[Path]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    if (output / "bundle.json").is_file():
        origin = provenance.from_bundle(output / "bundle.json")
        names = ("git_commit", "git_dirty", "bundle_sha256")
        known |= {name: getattr(origin, name) for name in names}
    for path in [path for place in places for path in newest_first(place / "checkpoints")]:
        try:
            details = checksums.opened((path / "manifest.json").read_bytes())["details"]
            parts = {name: details["origin"][name] for name in ("config", "devices", "precision")}
            return known | parts | {"run_id": details["run_id"]}
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            continue  # if a killed run left a corrupt checkpoint, the previous one is intact
    return known


def _history(path: Path) -> pd.DataFrame:
    with whole(path):
        found = pd.read_csv(io.StringIO(_whole_lines(path)))
        names = ["epoch", "learning_rate", "loss", "validation_loss"]
        more = [name for name in map(str, found) if name.startswith("validation_")]
        more += [name for name in map(str, found) if f"validation_{name}" in found]
        numbers = found[[*dict.fromkeys(names + more)]].astype(np.float64)
        return numbers.where(numbers.abs() < MOST)  # NaN for missing values


def _lines(path: Path) -> list[dict[str, float]]:
    with whole(path):
        table = pd.DataFrame([json.loads(line) for line in _whole_lines(path).splitlines()])
        known = table.reindex(columns=["step", "images_per_second", "idle"]).astype(np.float64)
        if not known[["step", "images_per_second"]].abs().lt(MOST).all(axis=None):
            raise ValueError("step or images_per_second is missing from a line")
        rows = (row.dropna().to_dict() for _, row in known.iterrows())
        return [{str(name): value for name, value in row.items()} for row in rows]


def _whole_lines(path: Path) -> str:
    # A killed run can leave an incomplete last line.
    return "".join(re.findall(r"[^\n]*\n", path.read_text(encoding="utf-8")))


def _read_validation(output: Path, found: Results) -> None:
    path, kind, lacks = output / VALIDATION, found.part("target").get("kind"), ""
    texts = csv_files.read(path, ReportError, FIX) if path.is_file() else None
    if texts is None:
        lacks = "all details about classes and rows; the file is written at the end of a run"
    elif kind == "custom":
        lacks = "predictions, because the page does not support custom labels"
    elif kind == REGRESSION and "label" not in texts:
        lacks = "predictions, because the page does not support several numbers per row"
    if texts is None or lacks:
        found.missing[VALIDATION] = lacks
        return
    with whole(path):
        found.target = _target(CLASSES if kind == ORDINAL else kind, [*map(str, texts)])
        classes = tuple(map(str, found.manifest.get("classes") or ()))
        found.validation, found.classes = _validation(texts, found.target, classes)
    if found.target == CLASSES:
        _read_probabilities(output / PROBABILITIES, found)
    if (path := output / EXAMPLES).is_file():
        with whole(path, f"a valid file for {VALIDATION}"):
            arrays, rows = npz.read(path), len(found.validation)
            kept = found.examples = WorstRows(arrays["indices"], arrays.get("pixels"))
            if not set(kept.indices.tolist()) <= set(range(rows)):
                raise ValueError(f"it has rows beyond the {rows} in {VALIDATION}")
            if kept.pixels is not None and kept.pixels.shape[0] != len(kept.indices):
                raise ValueError(f"{len(kept.pixels)} images for {len(kept.indices)} rows")
    else:
        found.missing[EXAMPLES] = "images of the worst rows"


def _read_probabilities(path: Path, found: Results) -> None:
    assert found.validation is not None  # noqa: S101 - set for targets with classes
    if not path.is_file():
        found.missing[PROBABILITIES] = "the exact loss of each row"
        return
    with whole(path, f"a valid file for {VALIDATION}"):
        arrays = npz.read(path)
        found.probabilities, truth = arrays["probabilities"], arrays.get("truth")
        shape = len(found.validation), len(found.classes)
        if truth is not None and truth.shape == shape:
            found.shares = truth
        if found.probabilities.shape != shape or not np.isfinite(found.probabilities).all():
            raise ValueError(f"expected shape {shape}, got {found.probabilities.shape}")


def _target(expected: str | None, columns: Sequence[str]) -> str:
    """Return the kind of target, on which validation.csv and the manifest must agree."""
    several = {name.removeprefix("label_") for name in columns if name.startswith("label_")}
    found = MULTILABEL if several else REGRESSION
    if "confidence" in columns:
        found = CLASSES
    if found != (expected or found):
        shown = ", ".join(columns)[:500]
        raise ValueError(f"expected the columns for target {expected}, got {shown}")
    return found


def _validation(
    texts: pd.DataFrame, target: str, classes: tuple[str, ...]
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    if not len(texts):
        raise ValueError("it has no rows")
    names = classes
    found = texts.copy()
    if target == CLASSES:
        names = classes or tuple(sorted({*texts["label"], *texts["prediction"]}))
        codes = {name: number for number, name in enumerate(names)}
        for column in ("label", "prediction"):
            places = texts[column].map(codes)
            if places.isna().any():
                label = texts[column][places.isna()].iloc[0][:80]
                raise ValueError(
                    f"it has the {column} {label!r}; expected one of the manifest's classes, so the"
                    " files are from different runs"
                )
            found[column] = places.astype(np.int64)
    elif target == MULTILABEL:
        columns = [str(name) for name in texts if str(name).startswith("label_")]
        names = tuple(name.removeprefix("label_") for name in columns)
    for column in map(str, texts):
        if column in ("confidence", "fold") or column.startswith(("label", "prediction")):
            if found[column].dtype != object:  # already converted to indices
                continue
            found[column] = numbers = pd.to_numeric(texts[column]).astype(np.float64)
            if not (good := numbers.abs() < MOST).all():
                wrong = texts[column][~good].iloc[0][:80]
                raise ValueError(f"column {column[:80]}: {wrong!r} is not a number")
    return found, names
