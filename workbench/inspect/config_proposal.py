"""A config that runs as it is, made of what `workbench.inspect.inspection` found.

`workbench.inspect.recipes` says how it trains, within the budget of the machine that it is for;
`workbench.inspect.baseline_model` what it has to beat. It is a start, no optimum.
"""

import keyword
import math
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from formats import atomic_file
from pipeline import config as configs
from pipeline.config import Config, Data
from pipeline.config.config_files import CONFIGS
from pipeline.data import folds, image_files
from pipeline.data import labels as targets
from pipeline.data.dataset import Examples, read_test, read_training
from pipeline.errors import ConfigError, DataError, PipelineError
from pipeline.evaluate import metrics
from pipeline.infer import submission
from workbench.budget import shown
from workbench.inspect import baseline_model, config_writer, recipes
from workbench.inspect.inspection import Inspection
from workbench.inspect.recipes import Recipe, Task
from workbench.inspect.tables import CHOSEN, FOUND, UNKNOWN, WARNING, Finding
from workbench.inspect.training_speed import CPU, Plan, Speed

NAME = re.compile(r"[a-z][a-z0-9_]*")
COMPARED = 3_000  # rows of a table, at most, on which the network is trained for a comparison
# Names of folders that say nothing of a competition.
GENERAL = {"competition", "competitions", "data", "dataset", "download", "downloads", "files"}
GENERAL |= {"input", "kaggle", "tmp", "temp", "test", "train"}
UNNAMED = "unnamed-competition"


@dataclass(frozen=True)
class Proposal:
    """A config, with a finding for each of its choices.

    Attributes:
        config, findings: as said.
        seconds: that its training takes.
        plan: what it was made for.
    """

    config: Config
    findings: tuple[Finding, ...]
    seconds: float
    plan: Plan


def propose(found: Inspection, name: str, competition: str, plan: Plan | None = None) -> Proposal:
    """Return a config for what was found.

    For a CPU the networks to choose from are built, compiled and timed here.

    Args:
        found: the inspected folder.
        name: of the config.
        competition: its slug on Kaggle.
        plan: the machine that trains, and for how long; None: a TPU v5e-8, for two hours.

    Raises:
        ConfigError: if the name or the slug is not valid.
    """
    rows, target = len(found.ids), found.target
    data = replace(found.inputs.data, labelled=rows)
    no_classes = len(data.labels) > 1 or target.kind == "regression"
    given = {
        "name": name,
        "competition": competition,
        "num_classes": 0 if no_classes else len(target.classes),
        "target": target.kind,
        "metric": target.metric,
    }
    plan = plan or Plan()
    task = Task(given, data, rows, _rarest(found, data), found.inputs.headers)
    findings = []
    if data.group_duplicates:
        why = _ungrouped(found, task, plan)
        text = "True: the copies stay on one side of each split"
        if why:
            text = f"False, since with True {why}. So a split may divide copies, and validation "
            text += "scores may be too good: delete copies, or name a data.group_column"
            data = replace(data, group_duplicates=False)
            task = replace(task, data=data, rarest=_rarest(found, data))
        findings.append(Finding(WARNING if why else CHOSEN, "group_duplicates", text))
    made: Recipe = recipes.recipe(task, plan)
    findings += [Finding(CHOSEN, key, text) for key, text in made.reasons.items()]
    return Proposal(made.config, tuple(findings), made.seconds, plan)


def _ungrouped(found: Inspection, task: Task, plan: Plan) -> str:
    """Return why a split cannot keep the duplicates together; "" if it can."""
    # Whatever the network, its images have this size; so none is timed.
    config = recipes.recipe(task, plan, measure=lambda config: Speed(1.0, 0.0)).config
    examples = _without_pixels(config, found)
    for count in task.folds:
        tried = replace(config, folds=count if count > 1 else None)
        try:
            few = folds.few_held_out(examples, tried, folds.splits(examples, tried))
        except DataError as error:
            few = str(error)
        if few:
            return re.split(r"\. |\.?\n", few)[0]
    return ""


def _rarest(found: Inspection, data: Data) -> int:
    """Return the rows of the rarest label, duplicates counted once; all rows without labels."""
    if found.target.kind not in ("classes", "ordinal"):
        return len(found.ids)
    groups = found.groups(data) if data.group_duplicates else np.arange(len(found.ids))
    first = np.unique(groups, return_index=True)[1]
    counts = Counter(found.labels[row] for row in first)
    return min(counts[name] for name, _ in found.target.classes)


def check(proposal: Proposal, found: Inspection, examples: Examples | None = None) -> list[Finding]:
    """Read the folder with the proposed config as training and inference do, write a submission,
    and return the result, last, after what the split warns of.

    Args:
        examples: as `read_examples` returns them; None: they are read here.

    Raises:
        DataError: as training and inference would.
        SubmissionError: as inference would.
    """
    config, contents, inputs = proposal.config, found.contents, found.inputs
    if config.data.kind == "images":  # the inspection has decoded them already
        count, asked = len(inputs.rows), len(inputs.test_rows)
        for broken, most, of in (
            (inputs.broken, image_files.most_skipped(count), count),
            (inputs.test_broken, image_files.MOST_BROKEN * asked, asked),
        ):
            if len(broken) > most:
                raise DataError(image_files.describe_broken(broken, of, config.data))
    examples = examples or read_examples(config, found)
    lines: list[str] = []
    pairs = folds.splits(examples, config, lines.append)
    tests = read_test(contents.folder, config, examples.encoding)
    if len(tests.broken) > image_files.MOST_BROKEN * len(tests):  # of pixels in a table
        named = {tests.ids[row]: why for row, why in tests.broken.items()}
        raise DataError(image_files.describe_broken(named, len(tests), config.data))
    truth = examples.target.truth(examples.labels)
    count = len(examples.classes)
    sums = truth.sum(axis=0) if truth.ndim > 1 else np.bincount(truth, minlength=count)
    mean = np.asarray(sums / len(truth), np.float32)
    metric = metrics.of(config)
    form = submission.form_of(config, examples.target, metric, contents.folder)
    form.check_labels()
    with tempfile.TemporaryDirectory(prefix="inspect-") as scratch:
        values = np.tile(mean, (len(tests), 1))
        written = form.write(Path(scratch) / "submission.csv", tests.ids, values)
    text = (
        f"read with this config: {len(examples):,} examples, {len(pairs[0][1]):,} of them held "
        f"out, {len(tests):,} to predict; a submission of {written:,} rows would be accepted"
    )
    warned = [Finding(WARNING, "split", line.removeprefix("Warning: ")) for line in lines]
    return [*warned, Finding(FOUND, "checked", text)]


def read_examples(config: Config, found: Inspection) -> Examples:
    """Return the labelled examples. Those of images hold no pixels, which are decoded already."""
    contents, inputs, data = found.contents, found.inputs, config.data
    if data.kind != "images":
        # As small as the inspection read them: nothing here looks at TFRecords in full size.
        size = {name: getattr(inputs.data, name) for name in ("height", "width", "resize")}
        read = read_training(contents.folder, replace(config, data=replace(data, **size)))
        if data.kind != "tfrecords" or not data.group_duplicates:
            return read
        row_of = {name: row for row, name in enumerate(found.ids)}
        return replace(read, groups=found.groups(data)[[row_of[name] for name in read.ids]])
    return _without_pixels(config, found)


def _without_pixels(config: Config, found: Inspection) -> Examples:
    """Return the examples with labels and groups alone."""
    contents, inputs, data = found.contents, found.inputs, config.data
    path = contents.folder / contents.train
    target, labels = targets.read(contents.train_table, config, path)
    kept = [place for place, name in enumerate(found.ids) if name not in inputs.broken]
    groups = found.groups(data)[kept] if data.group_duplicates else None
    ids = tuple(found.ids[place] for place in kept)
    pixels = np.zeros((len(ids), 1), np.uint8)
    return Examples(ids, pixels, labels[kept], target, groups, broken=inputs.broken)


def with_baseline(
    proposal: Proposal, found: Inspection, examples: Examples | None = None
) -> Proposal:
    """Return the proposal with the score of a simple model, which its config keeps.

    Of a table the proposed network is trained, too, and the two are compared.
    """
    config, inputs = proposal.config, found.inputs
    examples = examples or read_examples(config, found)
    if inputs.pixels is not None:
        row_of = {name: row for row, name in enumerate(examples.ids)}
        seen = [
            (row_of[name], place)
            for place, row in enumerate(inputs.rows)
            if (name := found.ids[row]) in row_of
        ]
        rows, places = (np.array(each, int) for each in zip(*seen, strict=True))
        examples = baseline_model.part(examples, rows)
        examples = replace(examples, inputs=inputs.pixels[places])
    try:
        baseline = baseline_model.fit(config, examples)
    except DataError as error:
        text = f"none: {str(error).splitlines()[0]}"
        return replace(proposal, findings=(*proposal.findings, Finding(UNKNOWN, "baseline", text)))
    about = [Finding(FOUND, "baseline", f"{baseline}; a model has to beat it")]
    config = replace(config, baseline=baseline)
    if config.data.kind == "table":
        about.append(_beside_boosting(config, examples, found))
    return replace(proposal, config=config, findings=(*proposal.findings, *about))


def _beside_boosting(config: Config, examples: Examples, found: Inspection) -> Finding:
    """Train the network of a table, and return which of it and boosting was better."""
    from pipeline.train import training

    usually = "gradient boosting usually wins on tables (arXiv:2207.08815)"
    part, baseline = baseline_model.sampled(examples, COMPARED, config.seed), config.baseline
    try:
        if baseline is None or len(part) < len(examples):
            baseline = baseline_model.fit(config, part)
        with tempfile.TemporaryDirectory(prefix="inspect-") as scratch:
            trained = training.train(
                replace(config, folds=config.folds or 3, baseline=baseline),
                found.contents.folder,
                Path(scratch),
                examples=part,
                show=lambda line: None,
            )
    except PipelineError as error:
        text = f"{usually}; the network was not tried: {str(error).splitlines()[0]}"
        return Finding(UNKNOWN, "boosting", text)
    both = trained.manifest["baseline"] if trained.manifest else None
    if both is None:
        return Finding(UNKNOWN, "boosting", f"{usually}; the network has no score here")
    network, spread = both["network"], both["network_error"]
    taken, other = "the network", baseline.model
    if both["below"]:
        taken, other = other, taken
    sure = ""
    if abs(network - baseline.score) < 2 * math.hypot(spread, baseline.error):
        sure = f", though {other} may be as good: they differ by less than 2 standard errors"
    text = (
        f"{usually}. Out of fold on {len(part):,} rows: {baseline.model} {baseline.metric} "
        f"{baseline.score:.4g} ± {baseline.error:.2g}, this network {network:.4g} ± {spread:.2g}. "
        f"By these numbers take {taken}{sure}. This template trains networks alone; average both"
    )
    return Finding(FOUND, "boosting", text)


def text(found: Inspection, proposal: Proposal, *, given: bool) -> str:
    """Return the file of the config, as `pipeline.config.load` reads it.

    Args:
        given: somebody gave the competition's slug.
    """
    config, plan = proposal.config, proposal.plan
    what = {
        "images": "image files",
        "pixels": "images as columns",
        "arrays": "images in an array",
        "table": "a table",
        "tfrecords": "TFRecords",
    }[config.data.kind]
    target = f"{len(found.target.classes)} labels" if found.target.classes else "numbers to predict"
    command = f"invoke relay --config {config.name}"
    known = "assumed; not yet run there"
    if plan.machine == CPU:
        command = f"python -m pipeline train --config {config.name} --input DIR --output OUT"
        known = "measured on the machine that wrote this"
    doc = [
        f"{config.competition}: {what}, {target}, {len(found.ids):,} labelled rows; proposed by "
        f"`invoke inspect --for {plan.machine}`.",
        "",
        f"Command   {command}",
        f"Expect    training takes about {shown(proposal.seconds)} ({known}); write the score here",
    ]
    if config.baseline is not None:
        doc.append(config_writer.about_baseline(config.baseline))
    why = {finding.about: finding.text for finding in proposal.findings}
    comments = {
        "competition": config_writer.COMPETITION_ASSUMED.strip(" #\n") * (not given),
        "metric": config_writer.METRIC_UNKNOWN.strip(" #\n") * (not found.target.sure),
        "epochs": f"A start: {why['epochs'].partition(':')[2].strip()}.",
    }
    return config_writer.write(config, doc, comments)


def write(path: Path, content: str) -> Config:
    """Write the file of a config, and return the config that is loaded from it.

    Raises:
        ConfigError: if the file exists, or its name cannot be a config's.
        DiskError: if it cannot be written.
    """
    refuse_existing(path)
    atomic_file.write(path, content.encode())
    return configs.load(str(path))


def refuse_existing(path: Path) -> None:
    """Raise a `ConfigError` unless a new file can be made at this path."""
    if path.exists() or path.is_symlink():
        raise ConfigError(
            f"{path} exists; expected a new file, and this one stays as it is.\n"
            "Give another name, or renew its metric and baseline alone:\n"
            f"invoke inspect --input DIR --write {path.stem} --metric NAME"
        )
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {path.parent}; expected one.\n"
            "Make it, or give another name: --write NAME"
        )


def place(name: str) -> Path:
    """Return the file that --write means by a name, or by the path of a .py file.

    Raises:
        ConfigError: if it cannot name a config.
    """
    is_path = name.endswith(".py")
    path = Path(name) if is_path else CONFIGS / f"{name}.py"
    valid = NAME.fullmatch(path.stem) and not keyword.iskeyword(path.stem)
    if not valid or ("/" in name and not is_path):
        raise ConfigError(
            f"--write {name}: expected a name of lower-case letters, digits and underscores that "
            "begins with a letter, or the path of such a .py file.\nCorrect it."
        )
    return path


def assumed(folder: Path, slug: str) -> Finding:
    """Return that nobody gave the slug of the competition, and where it comes from."""
    name = folder.resolve().name
    source = f"the folder is called {name!r}, which says nothing"
    if slug == _slug(name):
        source = "as the folder is called"
    elif slug != UNNAMED:
        source = f"as the config is called; {source}"
    text = f"assumed {slug!r} ({source}). Give the last part of its address on Kaggle: "
    return Finding(UNKNOWN, "competition", f"{text}--competition SLUG")


def _slug(name: str) -> str:
    """Return a slug after a name; "" if the name says nothing."""
    slug = name  # of a folder that is called as the competition: its mount keeps the capitals
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{2,99}", name):
        slug = "-".join(re.findall(r"[a-z0-9]+", name.lower()))[:100].strip("-")
    return slug if len(slug) > 2 and slug.lower() not in GENERAL else ""


def names(folder: Path, path: Path | None, competition: str) -> tuple[str, str]:
    """Return the name of the config and the slug of the competition: as given, or after the folder
    and the file, unless they have a name that many folders have.

    >>> names(Path("data/Leaf Diseases"), None, "")
    ('leaf_diseases', 'leaf-diseases')
    >>> names(Path("competition"), None, ""), names(Path("competition"), Path("leaves.py"), "")
    (('unnamed_competition', 'unnamed-competition'), ('leaves', 'leaves'))
    """
    config = path.stem if path else ""
    slug = competition or _slug(folder.resolve().name) or _slug(config) or UNNAMED
    if path is not None:
        return path.stem, slug
    name = re.sub(r"[^a-z0-9]+", "_", slug.lower())
    name = name if name[:1].isalpha() else f"c_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name, slug
