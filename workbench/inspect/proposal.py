"""Turn the result of an inspection into a config that can be run without editing.

`workbench.inspect.recipes` selects hyperparameters, and `workbench.inspect.baseline` fits the
baseline to beat.
"""

import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Config, Data
from pipeline.data import folds, image_files
from pipeline.data import labels as targets
from pipeline.data.dataset import Examples, read_test, read_training
from pipeline.data.table_features import unique_ids
from pipeline.errors import DataError, PipelineError
from pipeline.evaluate import metrics
from pipeline.infer import submission
from workbench.inspect import baseline, custom_recipes, images, recipes
from workbench.inspect.folder import Findings, counted
from workbench.inspect.inspection import Inspection
from workbench.inspect.recipes import Plan, Recipe, Speed, Task

# Maximum rows, folds and seconds for training a table's network to compare it with boosting.
COMPARED, COMPARED_FOLDS, COMPARED_SECONDS = 3_000, 3, 60.0
BOOSTED = 30.0  # assumed seconds for startup and boosting; 40,000 rows took 15 s (measured)
DIFFERENCED = range(2, 17)  # numbers of numeric columns for which differences are tried
BOOSTING = 'model="columns", model_options={}, fit="boosting", keep="last", patience=None'


def propose(
    found: Inspection,
    name: str,
    competition: str,
    plan: Plan | None = None,
    findings: Findings | None = None,
    measure: Callable[[Config], Speed] = recipes.on_this_cpu,
) -> Recipe:
    """Propose a config for a competition folder.

    If the config is for a CPU, candidate networks are built, compiled and timed on this machine.

    Args:
        competition: the competition's slug on Kaggle.
        plan: the machine and the time budget; defaults to two hours on a TPU v5e-8.
        measure: see `recipes.recipe`.
    """
    findings, plan = Findings() if findings is None else findings, plan or Plan()
    target, data, headers = found.target, found.inputs.data, found.inputs.headers
    no_classes = len(data.labels) > 1 or target.kind in ("regression", "custom")
    given = {
        "name": name,
        "competition": competition,
        "num_classes": 0 if no_classes else len(target.classes),
        "target": target.kind,
        "metric": target.metric,
    }
    size = None if headers is None else images.median(headers)
    task = Task(given, data, len(found.labels), _rarest(found, data), size)
    reader = found.inputs.reader
    if reader is not None:
        made = custom_recipes.recipe(task, reader, plan, measure)
    else:
        made = recipes.recipe(task, plan, measure)
    if data.group_duplicates and (why := _ungrouped(found, made.config)):
        text = f"False, because with True {why}. As duplicates may be in both training and "
        text += "validation, scores may be too good. Delete duplicates, or set data.group_column"
        findings.warning("group_duplicates", text)
        data = replace(data, group_duplicates=False)
        made = recipes.recipe(replace(task, data=data, rarest=_rarest(found, data)), plan, measure)
    elif data.group_duplicates:
        findings.chosen(
            "group_duplicates",
            "True, so that duplicates are never split between training and validation",
        )
    for about, text in made.reasons.items():
        findings.chosen(about, text)
    return made


def _rarest(found: Inspection, data: Data) -> int:
    """Return the number of rows in the rarest class, or the number of all rows without classes.

    If `data` groups duplicates, only one row of each group is counted.
    """
    if found.target.kind != "classes":
        return len(found.labels)
    rows = np.arange(len(found.labels))
    if data.group_duplicates:
        rows = np.unique(found.groups(data), return_index=True)[1]
    counts = Counter(found.labels[row] for row in rows)
    # With soft labels, a class may never be the most probable one.
    return min(counts[name] for name, rows in found.target.classes.items() if rows)


def _ungrouped(found: Inspection, config: Config) -> str:
    """Return why duplicates cannot be kept in the same fold, or ""."""
    examples = read_examples(config, found)
    try:
        few = folds.few_held_out(examples, config, folds.splits(examples, config))
    except DataError as error:
        few = str(error)
    return re.split(r"\. |\.?\n", few)[0]


def read_examples(config: Config, found: Inspection) -> Examples:
    """Read the labelled examples. Images were decoded earlier, so their pixels are zeros here."""
    contents, data, broken = found.contents, config.data, found.inputs.train.broken
    if data.kind not in ("images", "tfrecords"):
        return read_training(contents.folder, config)
    table, path = contents.table, contents.folder / contents.train
    ids = unique_ids(table[contents.ids], path)
    target, labels = targets.read(table, config, path)
    kept = [row for row, name in enumerate(ids) if name not in broken]
    groups = found.groups(data)[kept] if data.group_duplicates else None
    pixels = np.zeros((len(kept), 1), np.uint8)
    return Examples(
        tuple(ids[row] for row in kept), pixels, labels[kept], target, groups, broken=broken
    )


def check(config: Config, found: Inspection, examples: Examples, findings: Findings) -> None:
    """Check that training and inference can read the folder, and that a submission is valid.

    Raises:
        DataError, SubmissionError: if training or inference would raise this error.
    """
    contents, train, test = found.contents, found.inputs.train, found.inputs.test
    limits = (
        (train, image_files.most_skipped(len(train.rows))),
        (test, image_files.MOST_BROKEN * len(test.rows)),
    )
    for seen, most in limits:
        if len(seen.broken) > most:
            raise DataError(image_files.describe_broken(seen.broken, len(seen.rows), config.data))
    lines: list[str] = []
    pairs = folds.splits(examples, config, lines.append)
    tests = read_test(contents.folder, config, examples.encoding)
    if len(tests.broken) > image_files.MOST_BROKEN * len(tests):  # pixels in a table
        named = {tests.ids[row]: why for row, why in tests.broken.items()}
        raise DataError(image_files.describe_broken(named, len(tests), config.data))
    truth = examples.target.truth(examples.labels)
    counts = (
        truth.sum(axis=0) if truth.ndim > 1 else np.bincount(truth, minlength=len(examples.classes))
    )
    mean = (counts / len(truth)).astype(np.float32)
    form = submission.form_of(config, examples.target, metrics.of(config), contents.folder)
    form.check_labels()
    with tempfile.TemporaryDirectory(prefix="inspect-") as scratch:
        values = np.repeat(mean[None], len(tests), axis=0)
        written = form.write(Path(scratch) / "submission.csv", tests.ids, values)
    for line in lines:
        findings.warning("split", line.removeprefix("Warning: "))
    text = (
        f"with this config, {len(examples):,} examples can be read, of which "
        f"{len(pairs[0][1]):,} are held out. A submission with {counted(written, 'row')} for the "
        f"{len(tests):,} test examples is valid"
    )
    findings.found("checked", text)


def with_baseline(
    config: Config, found: Inspection, examples: Examples, findings: Findings
) -> Config:
    seen = found.inputs.train
    beside = None if found.inputs.reader is None else found.inputs.reader.features
    if beside is not None:
        places = {name: row for row, name in enumerate(seen.ids)}
        beside = beside[[places[name] for name in examples.ids]]
    if seen.pixels is not None and config.data.kind in ("images", "tfrecords", "custom"):
        place_of = {seen.id(place): place for place in range(len(seen.rows))}
        rows = [row for row, name in enumerate(examples.ids) if name in place_of]
        examples = baseline.part(examples, np.array(rows, int))
        beside = None if beside is None else beside[rows]
        pixels = seen.pixels[[place_of[name] for name in examples.ids]]
        examples = replace(examples, inputs=pixels)
    try:
        known = baseline.fit(config, examples, beside)
    except DataError as error:
        findings.unknown("baseline", f"not available. {str(error).splitlines()[0]}")
        return config
    config = replace(config, baseline=known)
    drawn = f", sampled from {len(examples):,}" if known.rows < len(examples) else ""
    findings.found("baseline", f"{known}{drawn}. A useful model must score better")
    return config


def compared(made: Recipe, folder: Path, examples: Examples, findings: Findings) -> Recipe:
    """Propose boosting for a table if it scores better than the network.

    The network is trained on some of the rows. Its score is compared with the score of boosting,
    which is the baseline. It is also compared with boosting that uses the differences between
    numeric columns.
    """
    config = made.config
    if config.data.kind != "table" or config.baseline is None:
        return made
    part = baseline.sampled(examples, COMPARED, config.seed)
    usually = "gradient boosting usually wins on tables (arXiv:2207.08815)"
    numbers, differences = len(config.data.number_names), dict[str, Any]()
    try:
        known = baseline.fit(config, part)
        tried = replace(
            config, folds=min(config.folds or COMPARED_FOLDS, COMPARED_FOLDS), baseline=known
        )
        both = _out_of_fold(tried, folder, part)
        if numbers in DIFFERENCED:
            differences = _out_of_fold(_boosted(tried, differences=numbers), folder, part)
    except PipelineError as error:
        text = f"{usually}, but it could not be compared with the network: "
        text += str(error).splitlines()[0]
        findings.unknown("boosting", text)
        return made
    network, spread, better = both["network"], both["network_error"], False
    errors = abs(network - known.score) / (math.hypot(spread, known.error) or math.inf)
    text = (
        f"{usually}. Out-of-fold {known.metric} on {len(part):,} rows: {known.model} "
        f"{known.score:.4g} ± {known.error:.2g}, network {network:.4g} ± {spread:.2g} (a "
        f"difference of {errors:.1f} standard errors)"
    )
    if differences:
        text += f"; boosting with the differences between all pairs of the {numbers} numbers "
        text += f"{differences['network']:.4g} ± {differences['network_error']:.2g}"
        ahead = (differences["network"] - network) * metrics.of(config).sign
        better = ahead > 0 and not differences["below"]
    if better:
        findings.found("boosting", f"{text}. The config therefore uses boosting with differences")
        return _boosting(made, findings, differences=numbers)
    if both["below"]:
        findings.found("boosting", f"{text}. The config therefore uses boosting")
        return _boosting(made, findings)
    findings.found("boosting", f"{text}. To try boosting anyway, set {BOOSTING}")
    return made


def _out_of_fold(config: Config, folder: Path, examples: Examples) -> dict[str, Any]:
    """Train a model, and return its out-of-fold score and the baseline, as in a manifest."""
    from pipeline.train import session, training

    config = replace(config, session_hours=(session.age() + COMPARED_SECONDS) / 3600)
    with tempfile.TemporaryDirectory(prefix="inspect-") as scratch:
        done = training.train(
            config, folder, Path(scratch), examples=examples, show=lambda line: None
        )
    if done.status == "partial":
        raise DataError(f"training on {len(examples):,} rows took over {COMPARED_SECONDS:.0f} s")
    if not (both := done.manifest and done.manifest["baseline"]):
        raise DataError("the model has no score")
    return dict(both)


def _boosted(config: Config, **options: int) -> Config:
    """Replace the network with boosting, and pass these options to the model "columns"."""
    return replace(
        config,
        model="columns",
        model_options=options,
        fit="boosting",
        keep="last",
        patience=None,
        epochs=1,
        warmup_epochs=1,
    )


def _boosting(made: Recipe, findings: Findings, **options: int) -> Recipe:
    replaced = ("model", "batch", "epochs", "keep")
    findings[:] = [line for line in findings if line.about not in replaced]
    text = "columns, fit='boosting': up to 100 trees per output instead of a network; categories "
    text += "are encoded by their frequency rank"
    if options:
        text += "; differences between numbers are added, because a split only uses one column"
    findings.chosen("model", text)
    config, seconds = _boosted(made.config, **options), BOOSTED * (1 + len(options))
    reasons = made.reasons | {"epochs": "1: trees are not trained in epochs"}
    return replace(made, config=config, reasons=reasons, seconds=seconds)
