"""Inspected: a competition that this project has never seen: what `invoke inspect` proposes for its
folder runs unedited, and is worth something.

The baseline is the nearest mean colour: of the labelled pictures of each kind the mean of red,
green and blue, and for a hidden picture the kind whose mean lies nearest. It needs no training and
has no parameter, so a network that is not above it has learned nothing of form.
"""

import hashlib
import io
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from localkaggle import competitions
from localkaggle.competitions import Competition
from pipeline import config as configs
from pipeline.config import Config
from pipeline.inspection import config_proposal, inspection
from proofs.competitions.unseen import SAMPLE, unseen
from proofs.shared.environment import Checkout, Done
from proofs.shared.results_table import Row, Show, last_json

SEED = 0
FEW = 64  # labelled rows in the short form
# What the project's own configs say of the embedded competitions, written by hand.
BY_HAND = {
    "digits": "digits",
    "digits-csv": "digits_csv",
    "diabetes": "diabetes",
    "breast-cancer": "breast_cancer",
}


def rows(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured.

    Args:
        root: of the repository. folder: empty.
        short: fewer labelled rows, and training and inference without notebooks; else the whole
            chain in a fresh clone.
        show: takes lines of progress.
    """
    programs = Path(sys.executable).parent
    if short:
        checkout = Checkout(root, programs)
    else:
        subprocess.run(
            ["git", "clone", "--quiet", "--no-hardlinks", str(root), str(folder / "clone")],
            check=True,
        )
        checkout = Checkout(folder / "clone", programs)
    yield _by_hand(folder, ("diabetes", "breast-cancer") if short else tuple(BY_HAND))
    competition = unseen(SEED)
    competition.write(folder / competition.slug)
    if short:
        _fewer(folder / competition.slug / "labels.csv")
    majority, colours = _without_training(folder / competition.slug, competition)
    said = f"nearest mean colour {colours:.3f}, always the most frequent label {majority:.3f}"
    path = (
        folder / f"{competition.slug}.py"
        if short
        else checkout.root / "pipeline/configs" / f"{competition.slug}.py"
    )
    written = str(path) if short else competition.slug
    command = f"invoke inspect --input {folder / competition.slug} --write {written} --page {folder / 'page.html'} --json"
    show(f"      {command}")
    done = checkout.run(command, log=folder / "inspect.log")
    yield _described(done, path)
    if done.code:
        show(done.output[-3000:])
        return
    before = _digest(path)
    run, score = (_trained if short else _rehearsed)(checkout, folder, written, competition, show)
    same = _digest(path) == before
    name = "training and inference" if short else "the whole chain, in a fresh clone"
    claim = f"The proposed config goes through {name}, unedited"
    yield Row(
        claim,
        "exit 0, the same bytes",
        f"exit {run.code}, {'the same' if same else 'other'} bytes",
        not run.code and same,
    )
    if run.code:
        show(run.output[-3000:])
        return
    # A few pictures teach colours and little else: there the network has to be far above chance,
    # and is not compared with them.
    least, target = (
        (2 * majority, "≥ twice the most frequent label's share")
        if short
        else (colours, "≥ the nearest mean colour")
    )
    figure = f"{score:.3f}; {said}" + (f" ({FEW} labelled rows)" if short else "")
    yield Row(
        "Accuracy on the hidden pictures, of a config that nobody wrote",
        target,
        figure,
        score >= least,
        SEED,
    )


def _by_hand(folder: Path, slugs: tuple[str, ...]) -> Row:
    """Return the row of these embedded competitions: what is proposed for them, beside what was
    written by hand.
    """
    unlike = []
    for slug in slugs:
        name = BY_HAND[slug]
        competitions.EMBEDDED[slug]().write(folder / slug)
        proposed = config_proposal.propose(inspection.inspect(folder / slug), name, slug).config
        unlike += [f"{slug}: {field}" for field in _differing(proposed, configs.load(name))]
    figure = f"{len(slugs)} configs, {len(unlike)} fields differ" + (
        f": {', '.join(unlike)}" if unlike else ""
    )
    claim = "Of the embedded competitions: files, columns, sizes, target, metric and model as in the configs written by hand"
    return Row(claim, "0 fields differ", figure, not unlike)


def _differing(one: Config, other: Config) -> list[str]:
    """Return which of the fields that follow from the data differ."""
    fields = (
        *(
            "kind",
            "height",
            "width",
            "channels",
            "train_csv",
            "test_csv",
            "sample_submission",
            "id_column",
        ),
        *(
            "label_column",
            "numeric_columns",
            "categorical_columns",
            "suffix",
            "train_images",
            "test_images",
        ),
    )
    usual = {"classes": "accuracy", "regression": "rmse"}
    found = [field for field in fields if getattr(one.data, field) != getattr(other.data, field)]
    found += [
        field
        for field in ("competition", "target", "num_classes", "model")
        if getattr(one, field) != getattr(other, field)
    ]
    metrics = {config.metric or usual[config.target] for config in (one, other)}
    return found + (["metric"] if len(metrics) > 1 else [])


def _described(done: Done, path: Path) -> Row:
    claim = "`invoke inspect` finds in a folder with other names throughout: ids, labels, folders, endings, sizes"
    target = "file, variety, images_train, images_test, whole names, JPEGs of many sizes resized in colour"
    if done.code:
        return Row(claim, target, f"exit {done.code}", False)
    data, kind = configs.load(str(path)).data, configs.load(str(path)).target
    wanted = (
        *("images", "labels.csv", SAMPLE, "file", "variety"),
        *("images_train", "images_test", "", 3, "classes"),
    )
    found = (
        *(data.kind, data.train_csv, data.sample_submission, data.id_column, data.label_column),
        *(data.train_images, data.test_images, data.suffix, data.channels, kind),
    )
    sized = data.resize != "exact" and 28 <= data.height <= 40 and 28 <= data.width <= 40
    size = f"{data.height}x{data.width}x{data.channels} by {data.resize}"
    told = len(last_json(done.output)["findings"])
    figure = f"{', '.join(map(str, found[3:7]))}, suffix {data.suffix!r}, {size}; {told} lines of reasons"
    return Row(claim, target, figure, found == wanted and sized)


def _rehearsed(
    checkout: Checkout, folder: Path, config: str, competition: Competition, show: Show
) -> tuple[Done, float]:
    command = (
        f"invoke dry-run --config {config} --competition proofs.competitions.unseen:unseen --json"
    )
    show(f"      {command}")
    done = checkout.run(command, log=folder / "dry-run.log")
    return done, float(last_json(done.output)["score"]) if not done.code else 0.0


def _trained(
    checkout: Checkout, folder: Path, config: str, competition: Competition, show: Show
) -> tuple[Done, float]:
    """Train on the folder, infer on the one that a scored rerun sees, and judge what came out."""
    competition.write(folder / "hidden", hidden=True)
    words = {
        "train": f"--input {folder / competition.slug} --output {folder / 'out'}",
        "infer": f"--input {folder / 'hidden'} --artifact {folder / 'out/artifact'} --output {folder / 'out'}",
    }
    for name, more in words.items():
        # One backend for both, as on a machine that has it imported already: the other one is the
        # chain's to show.
        command = f"KERAS_BACKEND=jax JAX_PLATFORMS=cpu python -m pipeline {name} --config {config} {more}"
        show(f"      {command}")
        done = checkout.run(command, log=folder / f"{name}.log")
        if done.code:
            return done, 0.0
    return done, competition.judge(folder / "out" / "submission.csv")


def _fewer(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: FEW + 1]) + "\n")


def _without_training(folder: Path, competition: Competition) -> tuple[float, float]:
    """Return the accuracy on the hidden pictures of the most frequent label, and of the nearest
    mean colour.
    """
    labels = dict(line.split(",") for line in (folder / "labels.csv").read_text().splitlines()[1:])
    truth = competition.solution["variety"]
    most = Counter(labels.values()).most_common(1)[0][0]
    seen = {name: _colour((folder / "images_train" / name).read_bytes()) for name in labels}
    means = {
        kind: np.mean([seen[name] for name in labels if labels[name] == kind], 0)
        for kind in set(labels.values())
    }
    right = 0
    for name, kind in truth.items():
        asked = _colour(competition.hidden_test[f"images_test/{name}"])
        right += (
            min(sorted(means), key=lambda each: float(np.linalg.norm(asked - means[each]))) == kind
        )
    return sum(kind == most for kind in truth.values()) / len(truth), right / len(truth)


def _colour(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.array([band.mean() for band in np.moveaxis(np.asarray(image, float), 2, 0)])


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
