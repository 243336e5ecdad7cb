"""Inference: artifacts and a test set → submission.csv, in time. Runs on TensorFlow or JAX.

First it writes a valid file with the mean prediction for every id, which stays if anything fails.
Then it checks each artifact (`pipeline.infer.check`) and predicts the test set
(`pipeline.infer.predict`), by a process for each of several GPUs (`pipeline.infer.gpus`). Members
of an ensemble are computed one after the other.

An input that cannot be read gets the mean prediction and is named: no id is ever dropped.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from formats import atomic_file
from formats.errors import writing
from pipeline.artifact import Artifact
from pipeline.config import Config, config_files, custom_code
from pipeline.config.data_layout import PIXELS
from pipeline.data import image_files
from pipeline.data.test_set import TestSet, read_test
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import competition_metric
from pipeline.infer import check, ensemble, gpus, predict, submission
from pipeline.infer.check import Checked
from pipeline.infer.gpus import Job
from pipeline.infer.predict import NOT_FINITE, Block, Deadline, Show
from pipeline.infer.submission import Form
from pipeline.runtime import devices

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
        first_block: when the first block was there, by `predict.clock`.
    """

    test: TestSet
    values: np.ndarray
    labels: tuple[str, ...]
    broken: Mapping[str, str]
    left_out: int
    checked: tuple[Checked, ...] = ()
    first_block: float = math.inf

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
    processes: int | None = None,
    show: Show = print,
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions.

    Several artifacts are the members of an ensemble, and their predictions are averaged. The best
    by its validation is computed first. Where time is short, views are left out first, then whole
    members, then folds and rows of the best.

    Args:
        artifact: gives the model, what its outputs mean and the shape of the inputs.
        folder: the competition.
        output: gets golden.json, members.json of an ensemble, and submission.csv. It holds the mean
            prediction for every id first; if this fails, an older file is restored.
        weights: of several artifacts, which are divided by their sum; None: equal ones.
        config: says how long a session lasts, and for artifacts of its name where in the folder the
            test set is and how many `views` each image gets; None: the artifact's own. For a member
            of another config, that one's file says so, if it is here, else its artifact.
        precision: one of `check.PRECISIONS`; "": that of the config.
        processes: that share the rows, each with one GPU; None: one per GPU.
        show: takes each line of text.

    Raises:
        ConfigError: if the config is for another competition, or custom code is not here.
        ArtifactError: if a model gives other outputs here than in training, or members predict
            different things.
        DataError: if the test set cannot be read, or too many predictions are not finite, in
            float32 too.
        SubmissionError: if the predictions are not what the sample asks for.
    """
    started = predict.clock()
    artifacts = [artifact] if isinstance(artifact, Artifact) else artifact
    members, shares = _members(artifacts, weights, config, show)
    first, path = members[0], output / "submission.csv"
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    tests = [read_test(folder, each.config, each.encoding) for each in members]
    if any(test.ids != tests[0].ids for test in tests):
        raise DataError(
            "The sample submissions of the members' configs have different ids; expected the same."
            "\nSet data.sample_submission alike in all of them."
        )
    form = _form(first, folder)
    hours = (config or first.config).infer_hours or (config or first.config).session_hours
    end = math.inf if hours is None else started + SHARE * hours * 3600
    if processes is None:
        here = devices.found()
        processes = here.count if here.platform == "gpu" else 1
    with _kept_if_it_fails(path, show):
        means = [_mean_prediction(each, len(tests[0])) for each in members]
        form.write(path, tests[0].ids, first.target.mean(means, shares))
        jobs = [Job(each, folder.absolute(), precision, Deadline(end)) for each in members]
        for each in members:
            check.check_decoding(each, show)
        predictions, used, golden = _averaged(jobs, tests, shares, processes, show)
        _warn(predictions, show)
        _refuse_broken(predictions.broken, len(tests[0]), len(tests[0]), first.config)
        rows = form.write(path, predictions.ids, predictions.values)
        atomic_file.write(output / GOLDEN, json.dumps(golden, indent=1).encode())
        if len(members) > 1:
            lineage = ensemble.lineage(members, shares, used)
            atomic_file.write(output / MEMBERS, json.dumps(lineage, indent=1).encode())
        else:
            (output / MEMBERS).unlink(missing_ok=True)  # of an earlier run
    show(f"Wrote {rows} rows to {path}")
    return predictions


def _members(
    artifacts: Sequence[Artifact],
    weights: Sequence[float] | None,
    config: Config | None,
    show: Show,
) -> tuple[list[Artifact], list[float]]:
    """Return the members and their weights, the best first, each with the config to infer with."""
    pairs = ensemble.best_first(artifacts, weights)
    configs = [_config(each, config) for each, _ in pairs]
    if config is not None and not any(each.config.name == config.name for each, _ in pairs):
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
    members = [
        replace(each, config=config) for (each, _), config in zip(pairs, configs, strict=True)
    ]
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


def _form(artifact: Artifact, folder: Path) -> Form:
    config = artifact.config
    metric = competition_metric.of(config, str(artifact.manifest["metric"]))
    sample, writer = folder / config.data.sample_submission, submission.writer_of(config)
    return Form(artifact.target, metric, sample, config.data.positive_label, writer)


@contextmanager
def _kept_if_it_fails(path: Path, show: Show) -> Iterator[None]:
    """Restore an older submission if what follows fails."""
    with writing(path):
        before = path.read_bytes() if path.is_file() else None
    try:
        yield
    except BaseException:
        if before is not None:
            atomic_file.write(path, before)
            show(f"Warning: {path} is as it was before.")
        elif path.is_file():
            show(f"Warning: {path} holds the mean prediction for every id, and not the model's.")
        raise


def _averaged(
    jobs: Sequence[Job],
    tests: Sequence[TestSet],
    weights: Sequence[float],
    processes: int,
    show: Show,
) -> tuple[Predictions, list[float], list[dict[str, object]]]:
    """Return the mean over the members that there is time for, the weight that each of them has in
    it, and their golden checks.

    The best has to be there. Another member is computed as a whole, or left out. Each has as much
    time for its views as those after it.

    Args:
        jobs: the members, the best first, each with its test set and its weight.
    """
    used, starts = [weights[0], *[0.0] * (len(jobs) - 1)], list[float]()
    golden: list[dict[str, object]] = []

    def computed(place: int) -> Predictions:
        job, begun = jobs[place], predict.clock()
        views_end = begun + (job.deadline.end - begun) / (len(jobs) - place)
        deadline = Deadline(job.deadline.end, views_end, whole=place > 0)
        predictions = _predicted(job._replace(deadline=deadline), tests[place], processes, show)
        starts.append(predictions.first_block - begun)
        member = {"run_id": job.artifact.manifest["run_id"]} if len(jobs) > 1 else {}
        golden.extend(each._asdict() | member for each in dict.fromkeys(predictions.checked))
        return predictions

    mean = computed(0)
    for place in range(1, len(jobs)):
        # No clock interrupts the building and checking of a model, nor its first block.
        late = predict.clock() + max(starts) >= jobs[place].deadline.end
        predictions = None if late or mean.left_out else computed(place)
        target = jobs[place].artifact.target
        if predictions is None or predictions.left_out:
            run_id = jobs[place].artifact.manifest["run_id"]
            show(f"Warning: time was up; the member {run_id} is left out, the others count more")
            continue
        values = target.mean([mean.values, predictions.values], [sum(used), weights[place]])
        broken = {**predictions.broken, **mean.broken}
        mean = replace(mean, values=values, labels=tuple(target.best(values)), broken=broken)
        used[place] = weights[place]
    return mean, [each / sum(used) for each in used], golden


def _predicted(job: Job, test: TestSet, processes: int, show: Show) -> Predictions:
    """Return an artifact's predictions. What is too large for float16 is computed in float32."""
    predictions = gathered(job.artifact, test, gpus.results(job, test, processes, show))
    in_half = any(each.precision == check.HALF for each in predictions.checked)
    wanted = job.precision or job.artifact.config.infer_precision
    if wanted == "auto" and in_half and NOT_FINITE in predictions.broken.values():
        show("Some predictions are too large for float16; all rows are computed in float32")
        job = job._replace(precision=check.FULL)
        predictions = gathered(
            job.artifact, test, gpus.results(job, test, processes, show), predictions
        )
    return predictions


def gathered(
    artifact: Artifact,
    test: TestSet,
    results: Iterable[Checked | Block],
    before: Predictions | None = None,
) -> Predictions:
    """Return all predictions.

    Args:
        results: as `gpus.results` yields them.
        before: predictions that the rows of no block keep; None: the mean prediction.

    Raises:
        DataError: as soon as too many inputs cannot be read. What is not finite counts later: a
            higher precision may compute it.
    """
    if before is None:
        before = Predictions(test, _mean_prediction(artifact, len(test)), (), {}, len(test))
    values, broken, checked = before.values.copy(), dict(before.broken), list(before.checked)
    done, first_block = 0, before.first_block
    for each in results:
        if isinstance(each, Checked):
            checked.append(each)
            continue
        first_block = min(first_block, predict.clock())
        rows = range(each.start, each.start + len(each.values))
        values[rows.start : rows.stop] = each.values
        done += len(rows)
        for row in rows:
            broken.pop(test.ids[row], None)
        broken |= {test.ids[row]: why for row, why in each.broken.items()}
        unread = {name: why for name, why in broken.items() if why != NOT_FINITE}
        _refuse_broken(unread, done, len(test), artifact.config)
    labels, left_out = tuple(artifact.target.best(values)), min(len(test) - done, before.left_out)
    return Predictions(test, values, labels, broken, left_out, tuple(checked), first_block)


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
    """Say which rows have the mean prediction, and if all predictions are the same."""
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
