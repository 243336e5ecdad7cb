"""Predict a test set and write submission.csv before time runs out, using TensorFlow or JAX.

If no submission exists, one with the mean prediction for every id is written first. If anything
fails later, this submission or the existing one remains. The test set is predicted in blocks:
threads decode the next blocks while devices compute, and only predictions stay in memory. The
members of an ensemble run one after the other.

When time runs short, views are dropped first, then entire members, and finally rows of the best
member. An unreadable input gets the mean prediction and is reported, so every id has a prediction.
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
from pipeline.evaluate import metrics, postprocess
from pipeline.evaluate import thresholds as thresholds_module
from pipeline.evaluate.thresholds import Found
from pipeline.infer import check, ensemble, forward_pass, submission
from pipeline.infer.check import Checked
from pipeline.infer.csv_members import CsvMember
from pipeline.infer.forward_pass import Forward, Show
from pipeline.infer.views import views

# Files that describe the golden checks, and the members with their weights.
GOLDEN, MEMBERS = "golden.json", "members.json"
SHARE = 0.9  # fraction of time for predictions; the rest is for writing and later cells
clock = time.monotonic
NOT_FINITE = "its prediction is not a finite number"


class Member(NamedTuple):
    """A member of an ensemble, or a single model.

    Attributes:
        artifact: artifact with the config for inference.
        weight: weight in the mean. All weights sum to 1.
        test: test set, read with this member's config.
    """

    artifact: Artifact
    weight: float
    test: TestSet


@dataclass(frozen=True)
class Predictions:
    """Predictions for a test set.

    Attributes:
        values: float32 (n, …), see `pipeline.data.labels.Target.predictions`.
        broken: the reason for each id that got the mean prediction.
        left_out: number of rows that were skipped because time ran out.
    """

    test: TestSet
    values: np.ndarray
    labels: tuple[str, ...]
    broken: Mapping[str, str]
    left_out: int
    checked: tuple[Checked, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return self.test.ids


def infer(
    artifact: Artifact | Sequence[Artifact],
    folder: Path,
    output: Path,
    *,
    weights: Sequence[float] | None = None,
    thresholds: Found | None = None,
    config: Config | None = None,
    precision: str = "",
    show: Show = print,
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions.

    Args:
        artifact: artifact of a model, or the artifacts of an ensemble.
        folder: competition folder.
        output: folder for golden.json, members.json and submission.csv. After a failure,
            submission.csv is unchanged, or has the mean prediction for every id if it is new.
        weights: weights of several artifacts, which are divided by their sum; None for equal
            weights.
        thresholds: thresholds of an ensemble.json. A single artifact contains its own.
        config: sets the length of the session and, for artifacts with the same config name, the
            location of the test set and the number of `views`. For other members, these come from
            their config file if it exists, and otherwise from the artifact. If None, the artifact's
            config is used.
        precision: "auto", "float32" or "mixed_float16"; "" uses the config's precision.

    Raises:
        ConfigError: if the config is for another competition, or custom code is missing.
        ArtifactError: if a model's outputs differ from those in training, or two members have
            different competitions, metrics, targets or labels.
        DataError: if the test set cannot be read, or too many predictions are not finite, even with
            float32.
        SubmissionError: if the predictions do not match the sample.
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
    configs = [each.artifact.config for each in members]
    changed, chosen = postprocess.of(configs, folder), _thresholds(members, thresholds, show)
    session = config or first.config
    end = started + SHARE * 3600 * (session.infer_hours or session.session_hours or math.inf)
    if not (older := path.is_file()):
        means = [_mean_prediction(each.artifact, len(test)) for each in members]
        mean = first.target.mean(means, [each.weight for each in members])
        form.write(path, test.ids, thresholds_module.apply(chosen, mean))
    try:
        for each in members:
            check.check_decoding(each.artifact)
        predictions, used = _averaged(members, precision, end, show)
        values = changed(predictions.ids, predictions.values)
        decisions = thresholds_module.apply(chosen, values)
        labels = tuple(first.target.best(decisions))
        predictions = replace(predictions, values=values, labels=labels)
        _warn(predictions, show)
        _refuse_broken(predictions.broken, len(test), first.config)
        rows = form.write(path, predictions.ids, decisions)
    except BaseException:
        state = "is unchanged" if older else "has the mean prediction for every id"
        show(f"Warning: {path} {state}.")
        raise
    by = {"postprocess": first.config.postprocess, "thresholds": chosen}
    lineage = [
        {
            **{name: each.artifact.manifest[name] for name in ensemble.PINS},
            "config": each.artifact.config.name,
            "weight": each.weight,
            "used": share,
            **{name: value for name, value in by.items() if value},
        }
        for each, share in zip(members, used, strict=True)
    ]
    checked = [each._asdict() for each in predictions.checked]
    for name, value in ((GOLDEN, checked), (MEMBERS, lineage)):
        atomic_file.write(output / name, json.dumps(value, indent=1).encode())
    show(f"Wrote {rows} rows to {path}")
    return predictions


def _thresholds(members: Sequence[Member], found: Found | None, show: Show) -> Found | None:
    first = members[0].artifact
    if found is None and len(members) == 1:
        found = first.manifest.get("thresholds")
    if not any(each.artifact.config.thresholds for each in members):
        if found:
            show("The config has thresholds=False, so the model's thresholds are not applied")
        return None
    warning = "Warning: there are no thresholds. Train again, which only updates a complete run, or"
    warning += " pass an ensemble.json"
    show(thresholds_module.line(found, first.manifest["metric"]) if found else warning)
    return found


def _members(
    artifacts: Sequence[Artifact],
    weights: Sequence[float] | None,
    config: Config | None,
    folder: Path,
    show: Show,
) -> list[Member]:
    members = []
    for trained, weight in ensemble.best_first(artifacts, weights):
        each = replace(trained, config=_config(trained, config))
        test = read_test(folder, each.config, each.encoding)
        if isinstance(each, CsvMember):
            each.of(test.ids)  # raises an error if an id is missing
        members.append(Member(each, weight, test))
        number = len(each.folds)  # always 1 for a linear model
        folds = f" of {number} folds, averaged" if number > 1 else ""
        counts = f", weight {weight:.2f}" if len(artifacts) > 1 else ""
        show(
            f"Artifact {each.manifest['run_id']}: {each.config.name},"
            f" weights {each.manifest['weights_sha256'][:12]}{folds}{counts}"
        )
    if config is not None and all(each.artifact.config.name != config.name for each in members):
        show(f"Warning: no model was trained with the config {config.name}; using only its hours")
    if any(each.test.ids != members[0].test.ids for each in members):
        raise DataError(
            "The sample submissions of the members' configs have different ids. The ids must be the"
            " same.\nSet the same data.sample_submission in all configs."
        )
    return members


def _config(member: Artifact, config: Config | None) -> Config:
    """Return the config that a member was trained with. Fields that do not affect training (paths,
    views and hours) come from the current config.

    `config` is the config for inference, which is used for members with the same config name.
    """
    trained = member.config
    if config is not None and config.competition != trained.competition:
        raise ConfigError(
            f"The config {config.name!r} is for the competition {config.competition}, but the"
            f" artifact {member.manifest['run_id']} is for {trained.competition}. Both must"
            " be for the same competition.\n"
            f"Pass the config {trained.name!r}, or a different artifact."
        )
    if config is not None and config.name != trained.name:
        here = trained.name in config_files.named_files()
        config = config_files.load(trained.name) if here else None
    if config is None:
        return trained
    data = replace(trained.data, **_free(config.data))
    return replace(trained, **_free(config) | {"data": data, "metric": trained.metric})


def _free(part: Config | Data) -> dict[str, Any]:
    return {name: getattr(part, name) for name in rules.marked(type(part), rules.FREE)}


def _averaged(
    members: Sequence[Member], precision: str, end: float, show: Show
) -> tuple[Predictions, list[float]]:
    """Average as many members as time allows. Return the mean prediction and each member's weight.

    The best member comes first and is always used. Other members are either computed completely
    or skipped. When choosing the number of views, the members share the remaining time equally.
    """
    mean, used = _predicted(members[0], precision, end, len(members), show), [members[0].weight]
    for place, member in enumerate(members[1:], start=1):
        found = None
        if not mean.left_out and clock() < end:
            found = _predicted(member, precision, end, len(members) - place, show)
        if found is None or found.left_out:
            run_id = member.artifact.manifest["run_id"]
            show(f"Warning: out of time; skipping the member {run_id} and increasing other weights")
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
    artifact, test = member.artifact, member.test
    if isinstance(artifact, CsvMember):
        values = artifact.of(test.ids)
        return Predictions(test, values, tuple(artifact.target.best(values)), {}, 0, ())

    def computed(precision: str) -> Predictions:
        forward, checked = check.restore(artifact, precision, rows=len(test), show=show)
        return predict(artifact, test, forward, checked, end=end, sharing=sharing, show=show)

    found = computed(precision)
    if found.checked[0].precision == check.HALF and NOT_FINITE in found.broken.values():
        show("Some predictions are too large for float16; computing all rows in float32")
        again = computed(check.FULL)
        if not again.left_out:
            return replace(again, checked=found.checked + again.checked)
    return found


class Pace:
    """Adjusts the number of views for each block, so that all rows are computed in time.

    Args:
        end: deadline on `clock`.
        sharing: number of models that share the remaining time. This model can use its share of the
            time for several views, or all of the time for a single view.

    Attributes:
        views: number of views for the next block.
    """

    def __init__(self, views: int, rows: int, end: float, sharing: int = 1) -> None:
        self.views, self._rows_left, self._end = views, rows, end
        self._last, self._block_seconds = clock(), 0.0
        self._views_end = self._last + (end - self._last) / sharing

    def over(self) -> bool:
        # Assume that the next block takes as long as the last one.
        return clock() + self._block_seconds >= self._end

    def block_ended(self, rows: int) -> None:
        """Drop views if the remaining blocks would otherwise take too long.

        The estimate assumes that time is proportional to the number of views. Decoding time does
        not change, so dropping views can save less than expected. The estimate is corrected after
        the next block.
        """
        now = clock()
        self._block_seconds, self._last = now - self._last, now
        self._rows_left -= rows
        blocks = math.ceil(self._rows_left / rows) + 1  # one extra as a reserve
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
    """Predict all rows of a test set.

    A row gets the artifact's prior as its prediction if it is unreadable, if its prediction is not
    finite, or if time runs out. For `end` and `sharing`, see `Pace`.
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
            show(f"Using {pace.views} of {len(seen)} views from row {done:,} on to save time")
    labels = tuple(artifact.target.best(values))
    return Predictions(test, values, labels, broken, len(test) - done, checked)


def _mean_prediction(artifact: Artifact, rows: int) -> np.ndarray:
    return np.repeat(artifact.prior[None], rows, axis=0)


def _refuse_broken(broken: Mapping[str, str], total: int, config: Config) -> None:
    # Nobody can correct rows in the scored rerun, so it only fails if all of them are broken.
    most = total - 1 if os.environ.get(image_files.RERUN) else total * image_files.MOST_BROKEN
    if len(broken) > most:
        raise DataError(image_files.describe_broken(broken, total, config.data))


def _warn(predictions: Predictions, show: Show) -> None:
    rows, broken, left_out = len(predictions.test), predictions.broken, predictions.left_out
    if broken:
        listed = "; ".join(f"{name[:80]!r}: {reason}" for name, reason in list(broken.items())[:5])
        show(
            f"Warning: {len(broken)} of {rows} inputs cannot be read"
            f" and get the mean prediction: {listed}"
        )
    if left_out:
        show(f"Warning: out of time; {left_out:,} of {rows:,} rows have the mean prediction")
    if rows > 1 and not np.ptp(predictions.values, axis=0).any():
        show(f"Warning: all {rows:,} rows have the same prediction; check inputs and training")
