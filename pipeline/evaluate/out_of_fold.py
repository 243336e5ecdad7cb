"""Out of fold: the held-out predictions of several runs, read back and brought to the same rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from formats import npz
from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import own_code
from pipeline.data import csv_files
from pipeline.errors import ConfigError, ReportError, reading
from pipeline.evaluate import competition_metric
from pipeline.evaluate.metrics import Metric
from pipeline.infer import ensemble

CSV, ARRAYS, TRUTH = "validation.csv", "validation.npz", "truth"
LEAST_ROWS = 20
FIX = "Pull the run again, or train it again."


@dataclass(frozen=True)
class Rows:
    """The rows that all members hold out.

    Attributes:
        members: the artifact of each run, and the folder it is in.
        ids: n texts.
        truth: as the metric takes it, (n, …).
        predictions: of each member, float32 (n, …).
        metric: the competition's.
    """

    members: tuple[tuple[Artifact, Path], ...]
    ids: tuple[str, ...]
    truth: np.ndarray
    predictions: tuple[np.ndarray, ...]
    metric: Metric


def read(outputs: Sequence[Path], show: Callable[[str], None]) -> Rows:
    """Return what several runs predict for the rows that all of them hold out.

    Args:
        outputs: of trainings, as `python -m pipeline train` and `invoke pull` leave them.
        show: takes a line about the rows.

    Raises:
        ConfigError: if there are too few such rows.
        ArtifactError: if a run is not complete, or two predict different things.
        ReportError: if a file is corrupt, is of another run, or has another truth.
    """
    # Or the folder of the artifact itself.
    outputs = [each.parent if (each / artifact.MANIFEST).is_file() else each for each in outputs]
    loaded = [(artifact.load(output / "artifact"), output) for output in outputs]
    loaded.sort(
        key=lambda pair: str(pair[0].manifest["run_id"])
    )  # in whatever order they are given
    members, outputs = [member for member, _ in loaded], [output for _, output in loaded]
    ensemble.best_first(members, None)  # refuses what does not belong together
    for member in members:
        if (member.manifest.get("init_from") or {}).get("may_have_seen_held_out"):
            show(
                f"Warning: run {member.manifest['run_id']} may have been trained on rows that it"
                " holds out (init_from); its score and its weight are then too good"
            )
    metric = competition_metric.of(members[0].config, str(members[0].manifest["metric"]))
    found = [_read(*each, metric, show) for each in zip(outputs, members, strict=True)]
    _refuse_other_parts(outputs, members, [ids for ids, _, _ in found])
    common = set.intersection(*(set(ids) for ids, _, _ in found))
    ids = tuple(name for name in found[0][0] if name in common)
    counts = ", ".join(str(len(ids)) for ids, _, _ in found)
    if len(ids) < LEAST_ROWS:
        raise ConfigError(
            f"The runs hold out {counts} rows, {len(ids)} of them in common; expected {LEAST_ROWS}"
            " or more, to find weights on.\n"
            "Train each with folds: then every row is held out once."
        )
    show(f"Rows: {len(ids):,} that all runs hold out (they hold out {counts})")
    truths, predictions = [], []
    for names, truth, values in found:
        places = {name: place for place, name in enumerate(names)}
        chosen = [places[name] for name in ids]
        truths.append(truth[chosen])
        predictions.append(values[chosen])
    for output, truth in zip(outputs, truths, strict=True):
        same = truth.shape == truths[0].shape
        # Numbers are standardized in training, by all rows that could be read.
        if not same or not np.allclose(truth, truths[0], rtol=1e-4, atol=1e-6, equal_nan=True):
            raise ReportError(
                f"{output / ARRAYS} has another truth than {outputs[0] / ARRAYS} for the same ids;"
                " expected runs of the same labels.\n"
                "Leave one of the two out, or train it again with the other's labels."
            )
    pairs = tuple((member, output / "artifact") for member, output in loaded)
    return Rows(pairs, ids, truths[0], tuple(predictions), metric)


def _read(
    output: Path, member: Artifact, metric: Metric, show: Callable[[str], None]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return ids, truth and predictions of a run."""
    table = csv_files.read(output / CSV, ReportError, FIX, {"id"})
    ids = [str(name) for name in table.get("id", [])]
    path = output / ARRAYS
    with reading(path, ReportError, FIX):
        try:
            arrays = npz.read(path)
        except OSError:
            raise
        except Exception as error:  # of a corrupt file numpy and zipfile raise a dozen kinds
            raise ReportError(f"{path} cannot be read: {error}.\n{FIX}") from error
    truth = arrays.pop(TRUTH, None)
    if truth is None:
        raise ReportError(
            f"{path} holds {', '.join(arrays) or 'nothing'} and no {TRUTH!r}: an older version of"
            " this project wrote it.\nTrain this run again, or leave it out."
        )
    values = next(iter(arrays.values()), np.zeros(0))
    whole = len(arrays) == 1 and len(set(ids)) == len(ids)
    if not whole or not len(ids) == len(truth) == len(values) or not np.isfinite(values).all():
        raise ReportError(
            f"{path} and {CSV} contradict each other: {len(ids)} ids (or some"
            f" twice), {len(truth)} true and {len(values)} predicted rows, all finite.\n"
            f"Expected one of each for each row. {FIX}"
        )
    told = member.manifest["metrics"].get(f"validation_{metric.name}")
    score = metric(truth, values) if told is not None else None
    if score is not None and not np.isclose(score, told, rtol=1e-4, atol=1e-6):
        if own_code.function(member.config, "metric"):  # it may have been corrected since
            show(
                f"Warning: {output.name} scores {score:.6g} by {metric.name} as it is now, and"
                f" {told:.6g} when it was trained"
            )
            return ids, truth, values
        raise ReportError(
            f"{path} scores {score:.6g} by {metric.name}, and the artifact beside it"
            f" {told:.6g}: it is of another run.\nExpected the files of one run. {FIX}"
        )
    return ids, truth, values


def _refuse_other_parts(
    outputs: Sequence[Path], members: Sequence[Artifact], ids: Sequence[list[str]]
) -> None:
    """Raise `ConfigError` if two runs without folds hold out different rows."""
    single = [
        (output, set(names))
        for output, member, names in zip(outputs, members, ids, strict=True)
        if member.config.folds is None
    ]
    for output, names in single[1:]:
        first, others = single[0]
        if names != others:
            raise ConfigError(
                f"{first} and {output} have no folds and hold out different rows:"
                f" {len(others):,} and {len(names):,}, {len(names & others):,} of them in common."
                "\nExpected the same rows, which follow from seed and data.validation_fraction."
                " Train them with folds: then seeds may differ."
            )
