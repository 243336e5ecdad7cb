"""Train on unlabelled rows, using labels from an earlier run (`Config.pseudo_labels`).

The score on held-out rows would be too good if a model learned from a teacher that was trained on
these rows. Each fold of the teacher therefore only labels rows for the same fold of this run, and
both runs must hold out the same rows. This method is known as noisy student (Xie et al. 2020,
arXiv:1911.04252).
"""

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file, npz
from pipeline import artifact
from pipeline.artifact import Artifact
from pipeline.config import Config, Data, PseudoLabels, custom_code, rules
from pipeline.data import dataset, duplicates, folds, image_arrays, image_files
from pipeline.data.dataset import Examples, TestSet
from pipeline.data.labels import Target
from pipeline.errors import CheckpointError, ConfigError, DataError, reading
from pipeline.infer import check
from pipeline.infer.views import views
from pipeline.train import warm_start
from pipeline.train.progress_log import Show

FILE = "pseudo_labels.npz"  # deploy/output.py uses this name, too
RESTORE = "Restore it from the output of the run, or start over with --fresh."


@dataclass(frozen=True)
class Labelled:
    """Rows that the teacher labelled.

    Attributes:
        inputs: inputs of n rows, like `Examples.inputs`.
        labels: float32 (folds, n, k), labels for each fold of this run.
        used: bool (folds, n), whether a fold is trained on a row.
        origin: the teacher's run_id, weights_sha256 and pseudo-labels, the number of rows, and the
            number of rows that each fold uses.
        content: the file's content.
    """

    inputs: Any
    labels: np.ndarray
    used: np.ndarray
    origin: dict[str, Any]
    content: bytes

    @cached_property  # shared by all folds
    def digest(self) -> str:
        """SHA-256 of the inputs, labels and used rows."""
        rows = b"".join(duplicates.row_digests(self.inputs))
        return hashlib.sha256(self.content + rows).hexdigest()

    def write(self, output: Path) -> None:
        """Write the labels to `output`, from which the run can resume."""
        atomic_file.write(output / FILE, self.content)

    def with_labelled(
        self, examples: Examples, pairs: Sequence[folds.Pair], config: Config
    ) -> list[tuple[Examples, np.ndarray]]:
        """Append these rows to the examples. Return the examples and the training rows of each
        fold.
        """
        assert config.pseudo_labels is not None  # noqa: S101 - otherwise there are no such rows
        labels, weights, weight = examples.labels, examples.weights, config.pseudo_labels.weight
        if examples.target.kind == "classes" and labels.ndim == 1:
            labels = np.eye(len(examples.classes), dtype=np.float32)[labels]
        if weights is not None or weight != 1:
            known = np.ones(len(examples)) if weights is None else weights
            weights = np.append(known, np.full(len(self.inputs), weight))
        every = replace(
            examples,
            ids=(*examples.ids, *[""] * len(self.inputs)),
            inputs=image_arrays.joined(examples.inputs, self.inputs, config.data),
            groups=None,
            weights=weights,
        )
        return [
            (
                replace(every, labels=np.concatenate([labels, more])),
                np.append(rows, len(examples) + np.flatnonzero(used)),
            )
            for more, used, (rows, _) in zip(self.labels, self.used, pairs, strict=True)
        ]


def find(
    config: Config,
    folder: Path,
    output: Path,
    examples: Examples,
    held_out: Sequence[str],
    show: Show,
    *,
    resumes: bool,
) -> Labelled:
    """Label rows with the teacher. A run that resumes reads the labels from `output` instead,
    because another machine could compute slightly different labels.

    Args:
        folder: the competition folder.
        held_out: digest of each fold's held-out rows, from `pipeline.data.folds.held_out`.
        resumes: whether the run has checkpoints.

    Raises:
        ConfigError: if the teacher is missing, differs from this run in its folds, competition or
            labels, or may have been trained on held-out rows.
        ArtifactError: if the teacher's files are corrupt.
        DataError: if the rows cannot be read, or a fold would not use any of them.
        CheckpointError: if a run resumes and its labels are missing or corrupt.
    """
    given, path = config.pseudo_labels, output / FILE
    assert given is not None  # noqa: S101 - the caller checks this
    if given.rows and not any(folder.glob(given.rows)):
        raise DataError(
            f"pseudo_labels.rows={given.rows!r}: {folder / given.rows} does not exist.\n"
            "Correct the path, or omit it to use the test set."
        )
    data = without_labels(config.data, given.rows)
    test = _read(folder, replace(config, data=data), output / "decoded", examples, show)
    if not resumes:
        teacher = artifact.load(warm_start.folder(given.teacher, "pseudo_labels.teacher"))
        require(teacher, config, examples.target, held_out)
        predictions = _predicted(teacher, folder, data, test.ids, show)
        predictions[:, list(test.broken)] = np.nan
        known = _labelled(test.ids, examples, config.data, given.rows)
        predictions[:, known] = np.nan
        chosen = [choose(each, given, examples.target) for each in predictions]
        labels, used = (np.stack(part) for part in zip(*chosen, strict=True))
        pins = {name: teacher.manifest[name] for name in ("run_id", "weights_sha256")}
        earlier = teacher.manifest.get("pseudo_labels")
        counts = {
            "of": len(test) - len(known),
            "used": used.sum(axis=1).tolist(),
            "earlier": earlier,
        }
        origin = json.dumps({"teacher": given.teacher, **pins, **counts}).encode()
        arrays = {"labels": labels, "used": used, "origin": np.frombuffer(origin, np.uint8)}
        content = npz.to_bytes(arrays)
    else:
        with reading(path, CheckpointError, RESTORE):
            content = path.read_bytes()
    if test.broken:
        why = "; ".join(f"{test.ids[row]!r}: {why}" for row, why in [*test.broken.items()][:3])
        show(f"Warning: {len(test.broken):,} of these rows cannot be read and are not used: {why}")
    labelled = _opened(content, path, test)
    _show(labelled, given, show)
    return labelled


def without_labels(data: Data, rows: str) -> Data:
    """Return `data` with the rows to label as its test set.

    Args:
        rows: see `PseudoLabels.rows`.
    """
    if not rows:
        return data
    table = _is_table(rows)
    every = (*rules.as_tuple(data.train_images), *rules.as_tuple(data.test_images))
    images = every if table else (rows,)
    # Without a sample submission, ids are read from the table if there is one.
    return replace(
        data,
        sample_submission=None,
        test_csv=rows if table else f"{rows}/no table",
        test_images=images,
        test_array=rows,
        test_records=rows,
    )


def _read(folder: Path, config: Config, cache: Path, examples: Examples, show: Show) -> TestSet:
    """Read the rows to label in the same form as the inputs of `examples`."""
    data, test = config.data, dataset.read_test(folder, config, examples.encoding)
    if data.kind in ("images", "tfrecords"):  # decode each image once, and not once per epoch
        sources = image_files.find(folder, test.ids, data, test=True)
        inputs, broken = image_arrays.read(
            sources, data, cache, show, base=folder, in_files=config.feed == "files"
        )
        return replace(test, source=inputs, broken=broken)
    return replace(test, source=test.inputs(np.arange(len(test))))


def _labelled(ids: Sequence[str], examples: Examples, data: Data, rows: str) -> list[int]:
    """Return the rows that have a label: images in the training folder that `examples` contains."""
    folders = rules.as_tuple(data.train_images)
    if data.kind != "images" or not (_is_table(rows) or rows.rstrip("/") in folders):
        return []
    known = set(examples.ids)
    return [row for row, name in enumerate(ids) if name in known]


def _is_table(rows: str) -> bool:
    return rows.lower().endswith((".csv", ".parquet", ".csv.gz"))


def require(teacher: Artifact, config: Config, target: Target, held_out: Sequence[str]) -> None:
    """Raise `ConfigError` if a run must not learn from this teacher."""
    theirs, manifest = teacher.config, teacher.manifest
    assert config.pseudo_labels is not None  # noqa: S101 - the caller checks this
    name = f"pseudo_labels.teacher={config.pseudo_labels.teacher!r}"
    ours = config.competition, target.kind, target.names
    if (found := (theirs.competition, teacher.target.kind, teacher.target.names)) != ours:
        raise ConfigError(
            f"Invalid {name}: it predicts {_described(*found)}; expected {_described(*ours)}.\n"
            "Choose a run of this competition with the same labels."
        )
    whole, before = teacher.fitted_to_all, teacher.may_have_seen_held_out
    if theirs.folds != config.folds or manifest["held_out"] != list(held_out) or whole or before:
        why = "its held-out rows are different from this run's"
        if whole:
            why = f"with fit={theirs.fit!r}, one model is fitted to the rows of all folds"
        elif before:
            why = "its init_from may have been trained on the rows that it holds out"
        raise ConfigError(
            f"Invalid {name}: {why}, so its labels could reveal the labels of rows that this run"
            f" holds out. It has folds={theirs.folds}, seed={theirs.seed} and"
            f" validation_fraction={theirs.data.validation_fraction:g}; this run has"
            f" folds={config.folds}, seed={config.seed} and"
            f" validation_fraction={config.data.validation_fraction:g}.\n"
            "Use the same values and the same labelled rows for both, or choose another teacher."
        )
    custom_code.require(theirs, manifest["custom_code"])


def _described(competition: str, kind: str, names: Sequence[str]) -> str:
    return f"{kind} of {competition} ({', '.join(names[:12])}{' …' * (len(names) > 12)})"


def _predicted(
    teacher: Artifact, folder: Path, data: Data, ids: Sequence[str], show: Show
) -> np.ndarray:
    """Return the predictions of the teacher's folds, float32 (folds, n, k). They are NaN for rows
    that cannot be read.

    Args:
        data: this run's data, which contains the paths of the files.
        ids: expected ids.
    """
    show(f"Labelling {len(ids):,} {data.noun} with run {teacher.manifest['run_id']}")
    paths = {name: getattr(data, name) for name in rules.marked(Data, rules.FREE)}
    config = replace(teacher.config, data=replace(teacher.config.data, **paths))
    test = dataset.read_test(folder, config, teacher.encoding)
    if test.ids != tuple(ids):
        raise DataError(
            "The teacher's config and this config read different rows. The ids must be the same.\n"
            "Use the same id_column and kind of data in both configs."
        )
    check.check_decoding(teacher)
    forward, _ = check.restore(teacher, rows=len(test), show=show)
    seen, target = views(config.data, config.views), teacher.target
    values = np.full((len(teacher.folds), len(test), len(target.names)), np.nan, np.float32)
    for start, inputs, unread in test.blocks(forward.batch * len(forward.devices)):
        outputs = [forward.outputs(view.apply(inputs)) for view in seen]
        for fold, each in enumerate(zip(*outputs, strict=True)):
            mean = target.mean([target.predictions(one) for one in each])
            values[fold, start : start + len(mean)] = mean
        values[:, list(unread)] = np.nan
    return values


def choose(
    predictions: np.ndarray, given: PseudoLabels, target: Target
) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels of all rows, float32 (n, k), and whether to use each row, bool (n,).

    Args:
        predictions: float32 (n, k), see `Target.predictions`. Rows with NaN are not used.

    >>> likely = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [np.nan, 0]], np.float32)
    >>> two = Target("classes", ("a", "b"))
    >>> labels, used = choose(likely, PseudoLabels(teacher="a/b", confidence=0.7, power=2), two)
    >>> labels[2].round(3).astype(str).tolist(), used.tolist()
    (['0.059', '0.941'], [True, False, True, False])
    >>> choose(likely, PseudoLabels(teacher="a/b", share=0.5), two)[1].tolist()
    [True, False, True, False]
    """
    used = np.isfinite(predictions).all(axis=1)
    predictions = np.where(used[:, None], predictions, 0)
    if target.kind == "regression":
        return target.learned(predictions).astype(np.float32), used
    confidence, best = predictions.max(axis=1), predictions.argmax(axis=1)
    surest_first = np.lexsort((np.arange(len(best)), -confidence))
    for name in np.unique(best[used]):
        rows = surest_first[used[surest_first] & (best[surest_first] == name)]
        used[rows[int(np.ceil(given.share * len(rows))) :]] = False
    used &= confidence >= given.confidence
    labels = predictions.astype(np.float64) ** given.power
    if target.kind == "classes":
        labels /= labels.sum(axis=1, keepdims=True).clip(np.finfo(np.float64).tiny)
    return labels.astype(np.float32), used


def _opened(content: bytes, path: Path, test: TestSet) -> Labelled:
    try:
        arrays = npz.read(io.BytesIO(content))
        labels, used, origin = (
            arrays["labels"],
            arrays["used"],
            json.loads(arrays["origin"].tobytes()),
        )
        if used.shape != labels.shape[:2] or used.shape[1] != len(test):
            raise ValueError(f"labels of {used.shape[1]} rows, but there are {len(test)}")
    except Exception as error:  # numpy and zipfile raise many types for corrupt files
        raise CheckpointError(
            f"{path} does not contain the pseudo-labels of this run: {type(error).__name__}:"
            f" {str(error)[:300]}.\n{RESTORE}"
        ) from error
    return Labelled(test.source, labels, used, origin, content)


def _show(labelled: Labelled, given: PseudoLabels, show: Show) -> None:
    """Show how many rows each fold uses. Raise `DataError` if a fold does not use any rows."""
    origin, counts = labelled.origin, labelled.used.sum(axis=1).tolist()
    if not min(counts):
        raise DataError(
            f"Fold {counts.index(0) + 1} cannot use any row that run {origin['run_id']} labelled:"
            f" either the probability of every row is below confidence={given.confidence:g}, or no"
            " row can be read.\nLower pseudo_labels.confidence in the config."
        )
    shown = ", ".join(f"{count:,}" for count in counts)
    each = " in each fold" if len(counts) > 1 else ""
    show(f"Pseudo-labels from run {origin['run_id']}: {shown} of {origin['of']:,} rows{each}")
