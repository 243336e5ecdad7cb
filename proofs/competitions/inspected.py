"""The config that `invoke inspect` proposes for an unseen competition runs unedited, and beats a
baseline.

The baseline is the nearest mean colour: a hidden picture gets the label whose pictures have the
nearest mean of red, green and blue. A network below it has learned no shapes.
"""

import hashlib
import io
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
from proofs.shared import environment
from proofs.shared.environment import Checkout, Done
from proofs.shared.results_table import Row, Show, last_json
from tests.hostile import bench

SEED = 0
FEW = 64  # labelled rows in the short form
# Embedded competitions with a config that was written by hand.
BY_HAND = ("digits", "digits-csv", "diabetes", "breast-cancer")
FIELDS = (
    "kind", "height", "width", "channels", "train_csv", "test_csv", "sample_submission",
    "id_column", "label_column", "numeric_columns", "categorical_columns", "suffix",
    "train_images", "test_images",
)  # fmt: skip


def rows(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    """Yield the rows; `short` has fewer labelled rows, and trains nothing."""
    clone = root if short else environment.clone(root, folder / "clone")
    checkout = Checkout(clone, Path(sys.executable).parent)
    yield _by_hand(folder, BY_HAND[2:] if short else BY_HAND)
    competition = unseen(SEED)
    competition.write(folder / competition.slug)
    if short:
        _fewer(folder / competition.slug / "labels.csv")
    majority, colours = _without_training(folder / competition.slug, competition)
    said = f"nearest mean colour {colours:.3f}, always the most frequent label {majority:.3f}"
    path = (folder if short else clone / "pipeline/configs") / f"{competition.slug}.py"
    written = str(path) if short else competition.slug
    budget = "30s" if short else "5m"
    more = f"--for cpu --budget {budget} --write {written} --page {folder / 'page.html'} --json"
    if short:
        done = _here(f"inspect {folder / competition.slug} {more}", show)
    else:
        command = f"invoke inspect --input {folder / competition.slug} {more}"
        show(f"      {command}")
        done = checkout.run(command, log=folder / "inspect.log")
    yield _described(done, path)
    if done.code:
        show(done.output[-3000:])
    if done.code or short:
        return
    before = _digest(path)
    command = f"invoke dry-run --config {written} --input {folder / competition.slug}"
    show(f"      {command}")
    chain = checkout.run(command, log=folder / "run.log")
    run, score = _trained(folder, str(path), competition, show)
    ways = {"the whole chain, in a fresh clone": chain, "training and inference": run}
    for name, done in ways.items():
        same = _digest(path) == before
        claim = f"The proposed config goes through {name}, unedited"
        figure = f"exit {done.code}, {'the same' if same else 'other'} bytes"
        yield Row(claim, "exit 0, the same bytes", figure, not done.code and same)
    if run.code:
        show(run.output[-3000:])
        return
    claim = "Accuracy on the hidden pictures, of a config that nobody wrote"
    yield Row(claim, "≥ the nearest mean colour", f"{score:.3f}; {said}", score >= colours, SEED)


def _by_hand(folder: Path, slugs: tuple[str, ...]) -> Row:
    """Return the row that compares what is proposed for these competitions with their configs."""
    unlike = []
    for slug in slugs:
        name = slug.replace("-", "_")
        competitions.EMBEDDED[slug]().write(folder / slug)
        proposed = config_proposal.propose(inspection.inspect(folder / slug), name, slug).config
        unlike += [f"{slug}: {field}" for field in _differing(proposed, configs.load(name))]
    figure = f"{len(slugs)} configs, {len(unlike)} fields differ"
    figure += f": {', '.join(unlike)}" if unlike else ""
    claim = (
        "Of the embedded competitions: files, columns, sizes, target, metric and model as in the "
        "configs written by hand"
    )
    return Row(claim, "0 fields differ", figure, not unlike)


def _differing(one: Config, other: Config) -> list[str]:
    """Return which of the fields that follow from the data differ."""
    usual = {"classes": "accuracy", "regression": "rmse"}
    found = [field for field in FIELDS if getattr(one.data, field) != getattr(other.data, field)]
    ours = ("competition", "target", "num_classes", "model")
    found += [field for field in ours if getattr(one, field) != getattr(other, field)]
    metrics = {config.metric or usual[config.target] for config in (one, other)}
    return found + (["metric"] if len(metrics) > 1 else [])


def _described(done: Done, path: Path) -> Row:
    claim = (
        "`invoke inspect` finds in a folder with other names throughout: ids, labels, folders, "
        "endings, sizes"
    )
    target = (
        "file, variety, images_train, images_test, whole names, JPEGs of many sizes resized in "
        "colour"
    )
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
    reasons = len(last_json(done.output)["findings"])
    figure = f"{', '.join(map(str, found[3:7]))}, suffix {data.suffix!r}, {size}; "
    figure += f"{reasons} lines of reasons"
    return Row(claim, target, figure, found == wanted and sized)


def _here(command: str, show: Show) -> Done:
    """Run a command of `python -m pipeline` in this process, which has the backend."""
    show(f"      python -m pipeline {command}")
    said = bench.said(*command.split())
    return Done(said.code, said.text, 0.0)


def _trained(folder: Path, config: str, competition: Competition, show: Show) -> tuple[Done, float]:
    """Train on the folder, infer on the one of a scored rerun, and return the score."""
    competition.write(folder / "hidden", hidden=True)
    out = folder / "out"
    done = _here(
        f"train --config {config} --input {folder / competition.slug} --output {out}", show
    )
    if not done.code:
        words = f"--config {config} --input {folder / 'hidden'} --artifact {out / 'artifact'}"
        done = _here(f"infer {words} --output {out}", show)
    return done, 0.0 if done.code else competition.judge(out / "submission.csv")


def _fewer(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: FEW + 1]) + "\n")


def _without_training(folder: Path, competition: Competition) -> tuple[float, float]:
    """Return the accuracy of the most frequent label, and of the nearest mean colour."""
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
        away = {each: float(np.linalg.norm(asked - means[each])) for each in sorted(means)}
        right += min(away, key=away.__getitem__) == kind
    return sum(kind == most for kind in truth.values()) / len(truth), right / len(truth)


def _colour(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.array([band.mean() for band in np.moveaxis(np.asarray(image, float), 2, 0)])


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
