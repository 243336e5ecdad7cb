"""Inference: artifacts and a test set → submission.csv, in time. Runs on TensorFlow or JAX.

If there is no submission yet, a valid one with the mean prediction for every id comes first. That
one, or an older one, stays if anything fails. Then each artifact is checked
(`pipeline.infer.check`), and the test set predicted in blocks: threads decode the next ones while
devices compute one, so that only predictions stay in memory. Ensemble members follow one another.

If time is short, views are dropped first, then whole members, then rows of the best one. An
unreadable input gets the mean prediction and is reported: no id is ever dropped.
"""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from formats import atomic_file
from pipeline.artifact import Artifact
from pipeline.config import Config, Data, config_files, rules
from pipeline.data import image_files
from pipeline.data.dataset import TestSet, read_test
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import metrics
from pipeline.infer import check, ensemble, forward_pass, submission
from pipeline.infer.check import Checked
from pipeline.infer.forward_pass import Forward, Show
from pipeline.infer.views import views

# The submission's lineage: golden checks, and the members with their weights.
GOLDEN, MEMBERS = "golden.json", "members.json"
SHARE = 0.9  # of the time for predictions; the rest is for writing, and later cells
clock = time.monotonic
NOT_FINITE = "its prediction is not a finite number"


class Member(NamedTuple):
    """A model of an ensemble, or the only one.

    Attributes:
        artifact: with the config for inference.
        weight: in the mean; all weights add up to 1.
        test: the test set, read by its config.
    """

    artifact: Artifact
    weight: float
    test: TestSet


@dataclass(frozen=True)
class Predictions:
    """The predictions of a test set.

    Attributes:
        test: the test set, from which inputs can be read again.
        values: float32 (n, …), see `pipeline.data.labels.Target.predictions`.
        labels: a text per row.
        broken: the reason for each id with the mean prediction.
        left_out: number of rows that there was no time for.
        checked: the golden checks.
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

    Several artifacts are the members of an ensemble, and their predictions are averaged. The member
    with the best validation score is computed first.

    Args:
        artifact: with the model, its target and the shape of its inputs.
        folder: the competition.
        output: the folder for golden.json, members.json and submission.csv. After a failure an
            older submission.csv is unchanged, or a new one has the mean prediction for every id.
        weights: of several artifacts, which are divided by their sum; None: equal.
        config: determines the length of the session, and for artifacts of its name the location of
            the test set and the number of `views`; None: the artifact's. For members of other
            configs, these come from their config's file if it exists, else from their artifact.
        precision: "auto", "float32" or "mixed_float16"; "": that of the config.
        show: receives each line of text.

    Raises:
        ConfigError: if the config is for a different competition, or custom code is missing.
        ArtifactError: if a model's outputs differ from those in training, or members predict
            different things.
        DataError: if the test set cannot be read, or too many predictions are not finite, even in
            float32.
        SubmissionError: if the predictions do not fit the sample.
    """
    started, path = clock(), output / "submission.csv"
    artifacts = [artifact] if isinstance(artifact, Artifact) else artifact
    members = _members(artifacts, weights, config, folder, show)
    first, _, test = members[0]
    metric = metrics.of(first.config, str(first.manifest["metric"]))
    form = submission.form_of(first.config, first.target, metric, folder)
    if form.sample.made:
        names = ", ".join(map(str, form.sample.table))
        show(f"Submission: {form.sample.made}; its columns are {names}")
    session = config or first.config
    end = started + SHARE * 3600 * (session.infer_hours or session.session_hours or math.inf)
    if not (older := path.is_file()):
        means = [_mean_prediction(each.artifact, len(test)) for each in members]
        form.write(path, test.ids, first.target.mean(means, [each.weight for each in members]))
    try:
        for each in members:
            check.check_decoding(each.artifact)
        predictions, used = _averaged(members, precision, end, show)
        _warn(predictions, show)
        _refuse_broken(predictions.broken, len(test), first.config)
        rows = form.write(path, predictions.ids, predictions.values)
    except BaseException:
        state = "is unchanged" if older else "has the mean prediction for every id"
        show(f"Warning: {path} {state}.")
        raise
    lineage = [
        {
            **{name: each.artifact.manifest[name] for name in ensemble.PINS},
            "config": each.artifact.config.name,
            "weight": each.weight,
            "used": share,
        }
        for each, share in zip(members, used, strict=True)
    ]
    checked = [each._asdict() for each in predictions.checked]
    for name, value in ((GOLDEN, checked), (MEMBERS, lineage)):
        atomic_file.write(output / name, json.dumps(value, indent=1).encode())
    show(f"Wrote {rows} rows to {path}")
    return predictions


def _members(
    artifacts: Sequence[Artifact],
    weights: Sequence[float] | None,
    config: Config | None,
    folder: Path,
    show: Show,
) -> list[Member]:
    """Return the members, the best first."""
    members = []
    for trained, weight in ensemble.best_first(artifacts, weights):
        each = replace(trained, config=_config(trained, config))
        members.append(Member(each, weight, read_test(folder, each.config, each.encoding)))
        number = len(each.folds)  # 1 for a linear model with any folds
        folds = f" of {number} folds, averaged" if number > 1 else ""
        counts = f", weight {weight:.2f}" if len(artifacts) > 1 else ""
        show(
            f"Artifact {each.manifest['run_id']}: {each.config.name},"
            f" weights {each.manifest['weights_sha256'][:12]}{folds}{counts}"
        )
    if config is not None and all(each.artifact.config.name != config.name for each in members):
        show(
            f"Warning: no model was trained with the config {config.name}; only its hours are used"
        )
    if any(each.test.ids != members[0].test.ids for each in members):
        raise DataError(
            "The sample submissions of the members' configs have different ids; expected the same."
            "\nSet the same data.sample_submission in all of them."
        )
    return members


def _config(member: Artifact, config: Config | None) -> Config:
    """Return the config of a member's training, updated from today's file by the fields that
    training does not read: paths, views and hours.

    Args:
        config: of the inference; it is today's config of members with its name.

    Raises:
        ConfigError: if the config is for a different competition.
    """
    trained = member.config
    if config is not None and config.competition != trained.competition:
        raise ConfigError(
            f"The config {config.name!r} is for the competition {config.competition}, and the"
            f" artifact {member.manifest['run_id']} for {trained.competition}; expected the same."
            f"\nPass the config {trained.name!r}, or a different artifact."
        )
    if config is not None and config.name != trained.name:
        here = trained.name in config_files.named_files()
        config = config_files.load(trained.name) if here else None
    if config is None:
        return trained
    data = replace(trained.data, **_free(config.data))
    return replace(trained, **_free(config) | {"data": data, "metric": trained.metric})


def _free(part: Config | Data) -> dict[str, Any]:
    """Return the fields of a config, or of its data, that no weight depends on."""
    return {name: getattr(part, name) for name in rules.marked(type(part), rules.FREE)}


def _averaged(
    members: Sequence[Member], precision: str, end: float, show: Show
) -> tuple[Predictions, list[float]]:
    """Return the mean over the members that there is time for, and the weight of each in it.

    The best always counts; any other is computed completely, or left out. Each member gets an equal
    share of the remaining time for its views.

    Args:
        members: the best first.
        end: deadline, by `clock`.
    """
    mean, used = _predicted(members[0], precision, end, len(members), show), [members[0].weight]
    for place, member in enumerate(members[1:], start=1):
        found = None
        if not mean.left_out and clock() < end:
            found = _predicted(member, precision, end, len(members) - place, show)
        if found is None or found.left_out:
            run_id = member.artifact.manifest["run_id"]
            show(f"Warning: time was up; without the member {run_id}, the others count more")
            used.append(0.0)
            continue
        target = member.artifact.target
        values = target.mean([mean.values, found.values], [sum(used), member.weight])
        broken, labels = {**found.broken, **mean.broken}, tuple(target.best(values))
        checked = mean.checked + found.checked
        mean = replace(mean, values=values, labels=labels, broken=broken, checked=checked)
        used.append(member.weight)
    return mean, [each / sum(used) for each in used]


def _predicted(member: Member, precision: str, end: float, sharing: int, show: Show) -> Predictions:
    """Return a member's predictions, in float32 if some overflow in float16.

    Args:
        end, sharing: see `Pace`.
    """
    artifact, test = member.artifact, member.test

    def computed(precision: str) -> Predictions:
        forward, checked = check.restore(artifact, precision, rows=len(test), show=show)
        return predict(artifact, test, forward, checked, end=end, sharing=sharing, show=show)

    found = computed(precision)
    if found.checked[0].precision == check.HALF and NOT_FINITE in found.broken.values():
        show("Some predictions are too large for float16; all rows are computed in float32")
        again = computed(check.FULL)
        if not again.left_out:
            return replace(again, checked=found.checked + again.checked)
    return found


class Pace:
    """Chooses the number of views for each block, so that all rows are done in time.

    Args:
        views: the most views.
        rows: of all blocks.
        end: deadline, by `clock`.
        sharing: number of models that share the remaining time. With several views this one may use
            its part, and with a single view all of it.

    Attributes:
        views: of the next block.
    """

    def __init__(self, views: int, rows: int, end: float, sharing: int = 1) -> None:
        self.views, self._rows_left, self._end = views, rows, end
        self._last, self._block_seconds = clock(), 0.0
        self._views_end = self._last + (end - self._last) / sharing

    def over(self) -> bool:
        """Return whether the next block would end too late."""
        return clock() + self._block_seconds >= self._end

    def block_ended(self, rows: int) -> None:
        """Drop views if the next blocks would take too long with them.

        The estimate is proportional to the views, although decoding is not. So dropping some may
        save less than expected, which the next block shows.

        Args:
            rows: of the block.
        """
        now = clock()
        self._block_seconds, self._last = now - self._last, now
        self._rows_left -= rows
        blocks = math.ceil(self._rows_left / rows) + 1  # one in reserve
        seconds = self._block_seconds / self.views * blocks
        while self.views > 1 and now + seconds * self.views > self._views_end:
            self.views -= 1


def predict(
    artifact: Artifact,
    test: TestSet,
    forward: Forward,
    *checked: Checked,
    end: float = math.inf,
    sharing: int = 1,
    show: Show = print,
) -> Predictions:
    """Return the predictions of all rows.

    A row that is unreadable, whose prediction is not finite, or for which there is no time gets the
    artifact's prior.

    Args:
        end, sharing: see `Pace`.
    """
    values, broken, done = _mean_prediction(artifact, len(test)), dict[str, str](), 0
    seen = views(artifact.config.data, artifact.config.views)
    pace = Pace(len(seen), len(test), end, sharing)
    began = told = clock()
    for start, inputs, unread in test.blocks(forward.batch * len(forward.devices)):
        if pace.over():
            break
        number = pace.views
        outputs = (forward.outputs(view.apply(inputs)) for view in seen[:number])
        folds = [forward_pass.mean_of_folds(artifact, each) for each in outputs]
        block = artifact.target.mean(folds)
        finite, done = np.isfinite(block).all(axis=tuple(range(1, block.ndim))), start + len(block)
        strange = (np.flatnonzero(~finite) + start).tolist()
        reasons = dict.fromkeys(strange, NOT_FINITE) | dict(unread)
        values[start:done] = block
        values[list(reasons)] = artifact.prior
        broken |= {test.ids[row]: why for row, why in reasons.items()}
        pace.block_ended(len(block))
        now, config = clock(), artifact.config
        if done < len(test) and now - told >= config.progress_seconds:
            told, left = now, min((now - began) * (len(test) / done - 1), max(end - now, 0.0))
            rows = f"{done:,} of {len(test):,} {config.data.noun}"
            show(f"Predicted {rows}, {timedelta(seconds=int(left))} to go")
        if pace.views != number:
            show(f"Time allows {pace.views} of {len(seen)} views from row {done:,} on")
    labels = tuple(artifact.target.best(values))
    return Predictions(test, values, labels, broken, len(test) - done, checked)


def _mean_prediction(artifact: Artifact, rows: int) -> np.ndarray:
    return np.repeat(artifact.prior[None], rows, axis=0)


def _refuse_broken(broken: Mapping[str, str], total: int, config: Config) -> None:
    """Raise `DataError` for more than one in ten, or in the scored rerun, where nobody can fix
    them, for all.
    """
    most = total - 1 if os.environ.get(image_files.RERUN) else total * image_files.MOST_BROKEN
    if len(broken) > most:
        raise DataError(image_files.describe_broken(broken, total, config.data))


def _warn(predictions: Predictions, show: Show) -> None:
    """Report which rows have the mean prediction, and whether all predictions are the same."""
    rows, broken, left_out = len(predictions.test), predictions.broken, predictions.left_out
    if broken:
        listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
        show(
            f"Warning: {len(broken)} of {rows} inputs cannot be read"
            f" and get the mean prediction: {listed}"
        )
    if left_out:
        show(f"Warning: time was up; {left_out:,} of {rows:,} rows have the mean prediction")
    if rows > 1 and not np.ptp(predictions.values, axis=0).any():
        show(f"Warning: all {rows:,} rows have the same prediction; check inputs and training")
