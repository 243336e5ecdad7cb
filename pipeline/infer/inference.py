"""Inference: artifacts and a test set → submission.csv, in time. Runs on TensorFlow or JAX.

Where there is no submission yet, it first writes a valid one with the mean prediction for every id.
That one, or an older one, stays if anything fails. Then it checks each artifact
(`pipeline.infer.check`) and predicts the test set (`pipeline.infer.predict`). Members of an
ensemble are computed one after the other.

An input that cannot be read gets the mean prediction and is named: no id is ever dropped.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from formats import atomic_file
from formats.errors import writing
from pipeline.artifact import Artifact
from pipeline.config import Config, config_files, custom_code
from pipeline.config.data_layout import PIXELS
from pipeline.data import image_files
from pipeline.data.dataset import TestSet, read_test
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import competition_metric
from pipeline.infer import check, ensemble, predict, submission
from pipeline.infer.check import Checked
from pipeline.infer.predict import NOT_FINITE, Block, Deadline, Show

# For the submission's lineage: what was compared, and which members of an ensemble counted.
GOLDEN, MEMBERS = "golden.json", "members.json"
# The share of the time that predicting may take: the rest is for writing, and what follows.
SHARE = 0.9
# Of a member's config, the fields that today's file decides; and of its data, those that the
# training decided: what decides pixels, which views there may be, columns, and shapes.
OF_TODAY = (
    *("session_hours", "infer_hours", "views", "infer_precision"),
    *("read_test", "write_submission"),
)
OF_TRAINING = (
    *("kind", *PIXELS),
    *("flip", "flip_vertical", "crop_padding"),
    *("numeric_columns", "categorical_columns", "most_categories"),
    *("own_inputs", "own_labels"),
)


@dataclass(frozen=True)
class Predictions:
    """The predictions of a test set.

    Attributes:
        test: the test set, from which the inputs can be read again.
        values: float32 (n, …), as `pipeline.data.labels.Target.predictions` returns them.
        labels: a text per row.
        broken: why a row has the mean prediction, by its id.
        left_out: how many rows there was no time for.
        checked: the golden checks before them.
    """

    test: TestSet
    values: np.ndarray
    labels: tuple[str, ...]
    broken: Mapping[str, str]
    left_out: int
    checked: tuple[Checked, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, in the order of the sample."""
        return self.test.ids


def infer(
    artifact: Artifact | Sequence[Artifact],
    folder: Path,
    output: Path,
    *,
    weights: Sequence[float] | None = None,
    config: Config | None = None,
    precision: str = "",
    show: Show = print,
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions.

    Several artifacts are the members of an ensemble, and their predictions are averaged. The best
    by its validation is computed first. Where time is short, views are left out first, then whole
    members, then rows of the best.

    Args:
        artifact: gives the model, what its outputs mean and the shape of the inputs.
        folder: the competition.
        output: gets golden.json, members.json of an ensemble, and submission.csv. If this fails, an
            older submission.csv is as it was; where there was none, one holds the mean prediction
            for every id.
        weights: of several artifacts, which are divided by their sum; None: equal ones.
        config: says how long a session lasts, and for artifacts of its name where in the folder the
            test set is and how many `views` each image gets; None: the artifact's own. For a member
            of another config, that one's file says so, if it is here, else its artifact.
        precision: "auto", "float32" or "mixed_float16"; "": that of the config.
        show: takes each line of text.

    Raises:
        ConfigError: if the config is for another competition, or custom code is not here.
        ArtifactError: if a model gives other outputs here than in training, or members predict
            different things.
        DataError: if the test set cannot be read, or too many predictions are not finite, in
            float32 too.
        SubmissionError: if the predictions are not what the sample asks for.
    """
    started, path = predict.clock(), output / "submission.csv"
    artifacts = [artifact] if isinstance(artifact, Artifact) else artifact
    members, shares = _members(artifacts, weights, config, show)
    first = members[0]
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    tests = [read_test(folder, each.config, each.encoding) for each in members]
    if any(test.ids != tests[0].ids for test in tests):
        raise DataError(
            "The sample submissions of the members' configs have different ids; expected the same."
            "\nSet data.sample_submission alike in all of them."
        )
    metric = competition_metric.of(first.config, str(first.manifest["metric"]))
    form = submission.form_of(first.config, first.target, metric, folder)
    hours = (config or first.config).infer_hours or (config or first.config).session_hours
    end = math.inf if hours is None else started + SHARE * hours * 3600
    if not (older := path.is_file()):
        means = [_mean_prediction(each, len(tests[0])) for each in members]
        form.write(path, tests[0].ids, first.target.mean(means, shares))
    try:
        for each in members:
            check.check_decoding(each, show)
        predictions, used, golden = _averaged(members, tests, shares, precision, end, show)
        _warn(predictions, show)
        _refuse_broken(predictions.broken, len(tests[0]), len(tests[0]), first.config)
        rows = form.write(path, predictions.ids, predictions.values)
    except BaseException:
        held = "is as it was before" if older else "holds the mean prediction for every id"
        show(f"Warning: {path} {held}.")
        raise
    _write_json(output / GOLDEN, golden)
    (output / MEMBERS).unlink(missing_ok=True)  # of an earlier run
    if len(members) > 1:
        told = [
            {
                **{name: member.manifest[name] for name in ensemble.PINS},
                "config": member.config.name,
                "weight": weight,
                "used": share,
            }
            for member, weight, share in zip(members, shares, used, strict=True)
        ]
        _write_json(output / MEMBERS, told)
    show(f"Wrote {rows} rows to {path}")
    return predictions


def _write_json(path: Path, value: object) -> None:
    atomic_file.write(path, json.dumps(value, indent=1).encode())


def _members(
    artifacts: Sequence[Artifact],
    weights: Sequence[float] | None,
    config: Config | None,
    show: Show,
) -> tuple[list[Artifact], list[float]]:
    """Return the members and their weights, the best first, each with the config to infer with."""
    pairs = ensemble.best_first(artifacts, weights)
    members = [replace(each, config=_config(each, config)) for each, _ in pairs]
    if config is not None and all(each.config.name != config.name for each in members):
        show(
            f"Warning: no model was trained with the config {config.name}; only its hours count."
            " The files and views of each are those of its own config."
        )
    for each, weight in pairs:
        folds = f" of {each.config.folds} folds, averaged" if each.config.folds else ""
        counts = f", counts {weight:.2f}" if len(artifacts) > 1 else ""
        show(
            f"Artifact {each.manifest['run_id']}: {each.config.name},"
            f" weights {each.manifest['weights_sha256'][:12]}{folds}{counts}"
        )
    return members, [weight for _, weight in pairs]


def _config(member: Artifact, config: Config | None) -> Config:
    """Return the config of a member's training, with the files where its config's file says today.

    Args:
        config: of the inference, which is that of members of its name.

    Raises:
        ConfigError: if the config is for another competition, or if the member's functions are not
            here, or others than in training.
    """
    trained = member.config
    if config is not None and config.competition != trained.competition:
        raise ConfigError(
            f"The config {config.name!r} is for the competition {config.competition}, and the"
            f" artifact {member.manifest['run_id']} for {trained.competition}; expected one"
            f" competition.\nGive the config {trained.name!r}, or another artifact."
        )
    if config is not None and config.name != trained.name:
        here = trained.name in config_files.named_files()
        config = config_files.load(trained.name) if here else None
    # Now, and not when the mean prediction is written.
    custom_code.require(trained, member.manifest["custom_code"])
    if config is None:
        return trained
    data = replace(config.data, **{name: getattr(trained.data, name) for name in OF_TRAINING})
    return replace(trained, data=data, **{name: getattr(config, name) for name in OF_TODAY})


def _averaged(
    members: Sequence[Artifact],
    tests: Sequence[TestSet],
    weights: Sequence[float],
    precision: str,
    end: float,
    show: Show,
) -> tuple[Predictions, list[float], list[dict[str, object]]]:
    """Return the mean over the members that there is time for, the weight that each of them has in
    it, and their golden checks.

    The best has to be there. Another member is computed as a whole, or left out. Each has as much
    time for its views as those after it.

    Args:
        members: the best first, each with its test set and its weight.
        end: of the time, by `predict.clock`.
    """
    golden, run_ids = list[dict[str, object]](), [each.manifest["run_id"] for each in members]

    def computed(place: int) -> Predictions:
        now = predict.clock()
        deadline = Deadline(end, now + (end - now) / (len(members) - place), whole=place > 0)
        found = _predicted(members[place], tests[place], precision, deadline, show)
        run = {"run_id": run_ids[place]} if len(members) > 1 else {}
        golden.extend(each._asdict() | run for each in found.checked)
        return found

    mean, used = computed(0), [weights[0]]
    for place in range(1, len(members)):
        found = None if mean.left_out or predict.clock() >= end else computed(place)
        if found is None or found.left_out:
            show(
                f"Warning: time was up; the member {run_ids[place]} is left out, the others count"
                " more"
            )
            used.append(0.0)
            continue
        target = members[place].target
        values = target.mean([mean.values, found.values], [sum(used), weights[place]])
        broken = {**found.broken, **mean.broken}
        mean = replace(mean, values=values, labels=tuple(target.best(values)), broken=broken)
        used.append(weights[place])
    return mean, [each / sum(used) for each in used], golden


def _predicted(
    artifact: Artifact, test: TestSet, precision: str, deadline: Deadline, show: Show
) -> Predictions:
    """Return an artifact's predictions. What is too large for float16 is computed in float32."""

    def computed(precision: str) -> Predictions:
        forward, checked = check.restore(artifact, precision, rows=len(test), show=show)
        blocks = predict.predicted_blocks(artifact, test, forward, deadline, show)
        return gathered(artifact, test, blocks, checked)

    found = computed(precision)
    chosen_here = (precision or artifact.config.infer_precision) == "auto"
    in_half = found.checked[0].precision == check.HALF
    if chosen_here and in_half and NOT_FINITE in found.broken.values():
        show("Some predictions are too large for float16; all rows are computed in float32")
        again = computed(check.FULL)
        if not again.left_out:
            return replace(again, checked=found.checked + again.checked)
    return found


def gathered(
    artifact: Artifact, test: TestSet, blocks: Iterable[Block], *checked: Checked
) -> Predictions:
    """Return all predictions; the rows of no block keep the mean prediction.

    Args:
        blocks: as `predict.predicted_blocks` yields them.

    Raises:
        DataError: as soon as too many inputs cannot be read. What is not finite counts later: a
            higher precision may compute it.
    """
    values, broken, done = _mean_prediction(artifact, len(test)), dict[str, str](), 0
    for block in blocks:
        values[block.start : block.start + len(block.values)] = block.values
        done += len(block.values)
        broken |= {test.ids[row]: why for row, why in block.broken.items()}
        unread = {name: why for name, why in broken.items() if why != NOT_FINITE}
        _refuse_broken(unread, done, len(test), artifact.config)
    labels = tuple(artifact.target.best(values))
    return Predictions(test, values, labels, broken, len(test) - done, checked)


def _mean_prediction(artifact: Artifact, rows: int) -> np.ndarray:
    return np.repeat(artifact.prior[None], rows, axis=0)


def _refuse_broken(broken: Mapping[str, str], done: int, total: int, config: Config) -> None:
    """Raise `DataError` if that is too much: one in ten, or in the scored rerun, where nobody could
    fix it, all.
    """
    most = total - 1 if os.environ.get(image_files.RERUN) else total * image_files.MOST_BROKEN
    if len(broken) > most:
        raise DataError(image_files.describe_broken(broken, done, config.data))


def _warn(predictions: Predictions, show: Show) -> None:
    """Report which rows have the mean prediction, and whether all predictions are the same."""
    rows, broken = len(predictions.test), predictions.broken
    if broken:
        listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
        show(
            f"Warning: {len(broken)} of {rows} inputs cannot be read"
            f" and get the mean prediction: {listed}"
        )
    if predictions.left_out:
        left_out = f"{predictions.left_out:,} of {rows:,} rows"
        show(f"Warning: time was up; {left_out} have the mean prediction")
    if rows > 1 and not np.ptp(predictions.values, axis=0).any():
        show(
            f"Warning: all {rows:,} rows have the same prediction;"
            " look at the inputs and the training"
        )
