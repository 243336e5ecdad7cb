"""Inference: artifacts and a test set → one prediction an id, in time. Runs on TensorFlow or JAX.

First it writes a valid file with the mean prediction for every id, which stays if anything fails.
Before it predicts, it decodes the artifact's golden file, recomputes the golden outputs, and
compares both with those of the training run. Then it computes the test set block by block, so that
memory grows with predictions alone; meanwhile it decodes the next blocks. Each of several GPUs has
a process (`pipeline.infer.multi_gpu`). Members of an ensemble are computed one after the other.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from formats import atomic_file
from formats.errors import writing
from pipeline.artifact import Artifact
from pipeline.config import Config, config_files, own_code
from pipeline.config.data_layout import PIXELS
from pipeline.data.test_set import TestSet, read_test
from pipeline.errors import ConfigError, DataError
from pipeline.evaluate import competition_metric
from pipeline.infer import ensemble, prediction_format, restoring
from pipeline.infer.block_prediction import Show
from pipeline.infer.prediction_format import Form
from pipeline.infer.predictions import (
    SHARE,
    Clock,
    Predictions,
    Work,
    mean_of,
    of_member,
    refuse_broken,
    warn,
)
from pipeline.infer.time_budget import Limit
from pipeline.runtime import devices

# For the submission's lineage: what was compared, and which members of an ensemble counted.
GOLDEN, MEMBERS = "golden.json", "members.json"


def infer(
    artifact: Artifact | Sequence[Artifact],
    folder: Path,
    output: Path,
    *,
    weights: Sequence[float] | None = None,
    config: Config | None = None,
    precision: str = "",
    seconds: float | None = None,
    batch: int | None = None,
    processes: int | None = None,
    clock: Clock = time.monotonic,
    show: Show = print,
) -> Predictions:
    """Predict the test set in `folder`, write `output`/submission.csv, and return the predictions.

    Several artifacts are the members of an ensemble, and their predictions are averaged. The best
    by its validation is computed first. If time runs short, views are skipped first, then whole
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
        precision: one of `restoring.PRECISIONS`; "": that of the config.
        seconds: there are from now on; None: those of `infer_hours`.
        batch: as for `predict`.
        processes: that share the rows, each with one GPU; None: one a GPU. Several do not use
            `clock`.
        clock: in seconds.

    Raises:
        ConfigError: if the config is for another competition, or own code is not here.
        ArtifactError, DataError: as `restoring.restore`, `read_test` and `predict` say; if too
            many predictions are not finite, in float32 too; and if members predict different
            things.
        SubmissionError: if the predictions are not what the sample asks for.
    """
    begun = clock()
    given = [artifact] if isinstance(artifact, Artifact) else artifact
    several = len(given) > 1
    members = ensemble.best_first(given, weights)
    files = [_file(each, config) for each, _ in members]
    if config is not None and not any(each.config.name == config.name for each, _ in members):
        show(
            f"Warning: no model was trained with the config {config.name}; only its hours count."
            " The files and views of each are those of its own config."
        )
    placed = [
        replace(each, config=_placed(each.config, file))
        for (each, _), file in zip(members, files, strict=True)
    ]
    shares = [weight for _, weight in members]
    for each, weight in members:
        folds = f" of {each.config.folds} folds, averaged" if each.config.folds else ""
        counts = f", counts {weight:.2f}" if several else ""
        show(
            f"Artifact {each.manifest['run_id']}: {each.config.name},"
            f" weights {each.manifest['weights_sha256'][:12]}{folds}{counts}"
        )
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    tests = [read_test(folder, each.config, each.encoding) for each in placed]
    if any(test.ids != tests[0].ids for test in tests):
        raise DataError(
            "The sample submissions of the members' configs have different ids; expected the same."
            "\nSet data.sample_submission alike in all of them."
        )
    first, test, path = placed[0], tests[0], output / "submission.csv"
    metric = competition_metric.of(first.config, str(first.manifest["metric"]))
    data = first.config.data
    writer, sample = prediction_format.writer_of(first.config), folder / data.sample_submission
    form = Form(first.target, metric, sample, data.positive_label, writer)
    with writing(path):
        before = path.read_bytes() if path.is_file() else None
    writes = clock()
    means = [mean_of(each, len(test)) for each in placed]
    form.write(path, test.ids, first.target.mean(means, shares))
    writes = clock() - writes
    limits = config or first.config
    hours = limits.infer_hours or limits.session_hours
    if seconds is None and hours is not None:
        seconds = hours * 3600
    # Writing takes as long again, and as much is kept for a slow disk.
    until = None if seconds is None else begun + min(seconds * SHARE, seconds - 2 * writes)
    if processes is None:
        here = devices.found()
        processes = here.count if here.platform == "gpu" else 1
    work = Work(folder, precision, batch, processes, clock, show)
    try:
        for each in placed:
            restoring.check_decoding(each, show)
        predictions, had, checked = _averaged(placed, tests, shares, until, work)
        warn(predictions, show)
        refuse_broken(predictions.broken, len(test), len(test), first.config)
        written = form.write(path, predictions.ids, predictions.values)
        atomic_file.write(output / GOLDEN, json.dumps(checked, indent=1).encode())
        if several:
            told = json.dumps(ensemble.used(members, had), indent=1)
            atomic_file.write(output / MEMBERS, told.encode())
        else:
            (output / MEMBERS).unlink(missing_ok=True)  # of an earlier run
    except BaseException:
        if before is not None:
            atomic_file.write(path, before)
        mean = "holds the mean prediction for every id, and not the model's"
        show(f"Warning: {path} {mean if before is None else 'is as it was before'}.")
        raise
    values = predictions.values
    if len(values) > 1 and not np.ptp(values, axis=0).any():
        show(
            f"Warning: all {len(values):,} rows have the same prediction;"
            " look at the inputs and the training"
        )
    show(f"Wrote {written} rows to {path}")
    return predictions


def _averaged(
    members: Sequence[Artifact],
    tests: Sequence[TestSet],
    shares: Sequence[float],
    until: float | None,
    work: Work,
) -> tuple[Predictions, list[float], list[dict[str, Any]]]:
    """Return the mean over the members that there is time for, the weight that each member has in
    it, and their golden checks.

    Args:
        members: the best first, each with its test set and its weight.
        until: by the clock, when all has to be computed; None: no limit.
    """
    had = [shares[0], *[0.0] * (len(members) - 1)]
    limit = Limit(until, _share(until, len(members), work))
    mean, golden, slowest = of_member(members[0], tests[0], limit, work)
    checked = [(members[0], each) for each in golden]
    for place in range(1, len(members)):
        member, found = members[place], None
        # No clock interrupts the building and checking of a model, nor its first block.
        late = until is not None and work.clock() + slowest >= until
        if not late and not mean.left_out:
            limit = Limit(until, _share(until, len(members) - place, work), whole=True)
            found, golden, starting = of_member(member, tests[place], limit, work)
            slowest = max(slowest, starting)
            checked += [(member, each) for each in golden]
        if found is None or found.left_out:
            run = member.manifest["run_id"]
            work.show(f"Warning: time was up; the member {run} is left out, the others count more")
            continue
        values = member.target.mean([mean.values, found.values], [sum(had), shares[place]])
        mean = replace(mean, values=values, broken={**found.broken, **mean.broken})
        had[place] = shares[place]
    labels = tuple(members[0].target.best(mean.values))
    named = [
        asdict(each) | ({"run_id": member.manifest["run_id"]} if len(members) > 1 else {})
        for member, each in checked
    ]
    return replace(mean, labels=labels), [each / sum(had) for each in had], named


def _share(until: float | None, members: int, work: Work) -> float | None:
    """Return until when a member may have several views: each gets as much time as those after."""
    if until is None:
        return None
    now = work.clock()
    return now + (until - now) / members


def _file(member: Artifact, given: Config | None) -> Config | None:
    """Return what the file of a member's config says now; None if it is not here.

    Args:
        given: the config of the inference, which is that of members of its name.

    Raises:
        ConfigError: if the config is for another competition, or if the member's functions are not
            here, or others than in training.
    """
    name = member.config.name
    if given is not None and given.competition != member.config.competition:
        raise ConfigError(
            f"The config {given.name!r} is for the competition {given.competition}, and the"
            f" artifact {member.manifest['run_id']} for {member.config.competition}; expected one"
            f" competition.\nGive the config {name!r}, or another artifact."
        )
    if given is not None and given.name != name:
        given = config_files.load(name) if name in config_files.named_files() else None
    if given is None and member.config.code:
        own_code.file(member.config)  # now, and not when the mean prediction is written
    if given is not None and given.code != member.config.code:
        raise ConfigError(
            f"The functions of the config {given.name!r} are not those of the training: their"
            f" sha256 begins with {given.code[:12] or 'nothing (there are none)'}; expected"
            f" {member.config.code[:12] or 'nothing'}.\nRestore them as they were, or train"
            " again."
        )
    return given


def _placed(trained: Config, given: Config | None) -> Config:
    """Return the config of the training, with the files where the given one says that they are."""
    if given is None:
        return trained
    images = ("kind", *PIXELS)
    views = ("flip", "flip_vertical", "crop_padding")  # which views there may be
    tables = ("numeric_columns", "categorical_columns", "most_categories")
    own = ("own_inputs", "own_labels")
    kept = {name: getattr(trained.data, name) for name in (*images, *views, *tables, *own)}
    data = replace(given.data, **kept)
    own_functions = ("read_test", "write_submission")
    here = ("session_hours", "infer_hours", "views", "infer_precision", "golden_tolerance")
    return replace(
        trained, data=data, **{name: getattr(given, name) for name in (*here, *own_functions)}
    )
