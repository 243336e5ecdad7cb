"""Own: a folder that nobody here has seen becomes a config, a rehearsal, and a score."""

import json
import math
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from localkaggle import competitions
from pipeline import config as configs
from proofs.competitions.unseen import unseen
from proofs.own import (
    cpu_speed,
    folder_frictions,
    folders,
    hidden_labels,
    rehearsed_files,
    trained,
)
from proofs.shared import environment, module_process
from proofs.shared.environment import Checkout
from proofs.shared.results_table import Later, Row, Show, last_json

SEED = 20261122
REHEARSED, CONVNEXT = 150.0, 200.0  # seconds, on two cores
BUDGET, FIVE = "8m", "5m"
SEEDS = (0, 1, 2)  # of the config
UNSEEN = (0, 1, 2, 3, 4)  # of the competition
TABLES = ("diabetes", "breast-cancer")
# Configs for a TPU, and what a rehearsal has to change in them beside `CHANGED`.
LARGE = (
    "folds=5, batch=1024, epochs=60, seed=1, optimizer=replace(given.optimizer, base_batch=128),"
    ' data=replace(given.data, height=64, width=64, resize="stretch"'
)
TPU = {
    # No array of it depends on the size of the images: the replicas add up small arrays as one.
    "in groups of 64": (
        f"{LARGE}, mixup=0.2), batchnorm_batch=64, model='strided_resnet',"
        " model_options={'width': 32}",
        "batchnorm_batch",
    ),
    "with published weights": (
        f"{LARGE}), batchnorm_batch=None, model='mobilenetv3_small',"
        " model_options={'backbone_rate': 0.1}",
        "model_options.pretrained",
    ),
}
CHANGED = {"batch", "folds", "epochs"}
TAKES = re.compile(r"By these numbers take [^.]+")
THREE_FOLDS = "folds=3, epochs=60"
FILE = """from dataclasses import replace
from {module} import CONFIG as given
CONFIG = replace(given, name="{name}", {more})
"""


def rows(
    root: Path, *, short: bool, show: Show, pictures: Path | None = None
) -> Iterator[Row | Later]:
    """Yield the rows; `short` has what takes seconds."""
    with tempfile.TemporaryDirectory(prefix="prove-own-") as scratch:
        folder = Path(scratch)
        yield Later("A step of a config for a TPU", partial(_operations, root, folder, short=short))
        yield Later("Frictions of a newcomer", partial(_frictions, root, folder, short=short))
        if short:
            return
        checkout = Checkout(environment.clone(root, folder / "clone"), Path(sys.executable).parent)
        for name in folders.FOLDERS:
            claim = f"`inspect --write`, then `dry-run --input`, unedited, on the folder {name}"
            yield Later(claim, partial(_rehearsed, claim, checkout, folder, name, show))
        claim = "The same with 224-pixel JPEGs and a config for ConvNeXt"
        yield Later(claim, partial(_convnext, claim, checkout, folder, show))
        claim = "Files that a short rehearsal and a full one write, with columns and keys"
        yield Later(claim, partial(_files, claim, checkout, folder, show))
        for name, how in (("signs", "behind links"), ("surfaces", "a folder a label")):
            claim = f"Hidden labels of {name} ({how}), in all that a rehearsal's sessions can read"
            yield Later(claim, partial(_hidden, claim, checkout, folder, name, show))
        for name in folders.FOLDERS:
            claim = f"`--for cpu --budget {BUDGET}` on {name}: hidden accuracy above the floor's"
            yield Later(claim, partial(_above, claim, checkout, folder, name, show))
        claim = f"Digits by `--for cpu --budget {FIVE}`: accuracy on 500 hidden images"
        yield Later(claim, partial(_digits, claim, checkout, folder, show))
        claim = f"proofs/competitions/unseen.py by `--for cpu --budget {FIVE}`: hidden accuracy"
        yield Later(claim, partial(_unseen, claim, checkout, folder, show))
        for slug in TABLES:
            claim = f"The report of {slug}: gradient boosting out of fold, and the network"
            yield Later(claim, partial(_table, claim, checkout, folder, slug, show))
        claim = "Training on this CPU, images/s by devices"
        yield Later(claim, partial(cpu_speed.rows, root, folder / "speed", show=show))


def _operations(root: Path, folder: Path, *, short: bool) -> Iterator[Row]:
    """Lower a step of each config for a TPU, and of its rehearsal: the same but shapes, numbers.
    The short form takes the first, whose network is small.
    """
    large = dict(islice(TPU.items(), 1 if short else None))
    files = [folder / f"tpu{number}.py" for number in range(len(large))]
    for path, (more, _) in zip(files, large.values(), strict=True):
        path.write_text(FILE.format(module="pipeline.configs.digits", name=path.stem, more=more))
    if short:  # in this process
        from proofs.own import operations  # imports Keras, which would count devices for the rest

        each = [operations.whole_and_short(str(path)) for path in files]
    else:
        flags = f"{module_process.EIGHT} {module_process.UNOPTIMIZED}"
        made = module_process.output(root, "proofs.own.operations", *files, flags=flags)
        each = [json.loads(line) for line in made.splitlines() if line.startswith("{")]
    for found, (about, (_, own)) in zip(each, large.items(), strict=True):
        whole, rehearsed, changes = found["whole"], found["short"], found["changes"]
        changed = ", ".join(f"{name} {value}" for name, value in changes.items())
        held = whole == rehearsed and whole["devices"] == 8 and whole["operations"] > 100
        yield Row(
            f"A step of a config for a TPU, {about}, and of its rehearsal",
            "the same operations, shapes and numbers masked; equal groups a replica",
            f"{whole['operations']} and {rehearsed['operations']} operations on {whole['devices']}"
            f" devices, {whole['groups']:g} and {rehearsed['groups']:g} groups,"
            f" {'the same' if held else 'others'}; changed: {changed}",
            held and {*CHANGED, own} <= set(changes),
        )


def _data(folder: Path, name: str) -> tuple[Path, folders.Truth]:
    place = folder / "data" / name
    return place, folders.FOLDERS[name](place, SEED)


def _rehearsed(claim: str, checkout: Checkout, folder: Path, name: str, show: Show) -> Row:
    data, _ = _data(folder / "rehearsed", name)
    config = folder / "rehearsed" / f"{name}.py"
    inspected = f"invoke inspect --input {data} --write {config}"
    return _dry_run(claim, checkout, data, config, inspected, REHEARSED, show)


def _dry_run(
    claim: str,
    checkout: Checkout,
    data: Path,
    config: Path,
    inspected: str,
    most: float,
    show: Show,
) -> Row:
    """Inspect if that is asked for, rehearse, and return the row."""
    target = f"a score, ≤ {most:.0f} s on 2 cores"
    if inspected:
        show(f"      {inspected}")
        first = checkout.run(inspected, log=config.with_suffix(".inspect.log"))
        if first.code:
            return Row(claim, target, f"inspect: exit {first.code}", False, SEED)
    command = f"invoke dry-run --config {config} --input {data} --json"
    show(f"      {command}")
    done = checkout.run(command, log=config.with_suffix(".log"))
    if done.code:
        show(done.output[-2000:])
        return Row(claim, target, f"dry-run: exit {done.code}", False, SEED)
    score = last_json(done.output)["score"]
    held = score is not None and done.seconds <= most
    return Row(claim, target, f"{score}, {done.seconds:.0f} s", held, SEED)


def _convnext(claim: str, checkout: Checkout, folder: Path, show: Show) -> Row:
    data = folder / "large" / "data"
    folders.surfaces(data, SEED, side=224, count=800)
    proposed = folder / "large" / "proposed.py"
    inspected = f"invoke inspect --input {data} --write {proposed}"
    checkout.run(inspected, log=folder / "large" / "inspect.log")
    given = configs.load(str(proposed))
    config = folder / "large" / "convnext.py"
    values = {
        **given.to_json(),
        "name": "convnext",
        "model": "convnext_tiny",
        "model_options": {"pretrained": "imagenet", "backbone_rate": 0.1},
    }
    config.write_text(f"from pipeline.config import from_json\nCONFIG = from_json({values!r})\n")
    return _dry_run(claim, checkout, data, config, "", CONVNEXT, show)


def _hidden(claim: str, checkout: Checkout, folder: Path, name: str, show: Show) -> Row:
    data, _ = _data(folder / "hidden", name)
    config = folder / "hidden" / f"{name}.py"
    inspected = f"invoke inspect --input {data} --write {config}"
    for command in (inspected, hidden_labels.opened(config, data)):
        show(f"      {command}")
        done = checkout.run(command, log=config.with_suffix(".log"))
        if done.code:
            show(done.output[-2000:])
            return Row(claim, "none", f"exit {done.code}", False, SEED)
    found = last_json(done.output)
    return Row(claim, "none, and all of the others", found["figure"], found["held"], SEED)


def _files(claim: str, checkout: Checkout, folder: Path, show: Show) -> Row:
    """Rehearse a folder short and whole, and compare what the sessions wrote."""
    place = folder / "files"
    data, config = place / "data", place / "files.py"
    competitions.EMBEDDED["digits"]().write(data)
    shutil.copyfile(data / "train.csv", data / "notes.csv")  # names every row
    config.write_text(FILE.format(module="pipeline.configs.digits", name="files", more=THREE_FOLDS))
    written, said = [], []
    for amount in ("--budget 1m", "--full"):
        command = f"invoke dry-run --config {config} --input {data} {amount} --json"
        show(f"      {command}")
        done = checkout.run(command, log=place / "dry-run.log")
        if done.code:
            show(done.output[-2000:])
            return Row(claim, "the same", f"{amount}: exit {done.code}", False, SEED)
        runs = Path(last_json(done.output)["submission"]).parents[1]
        written.append(rehearsed_files.contents(runs / "digits-train-tpu-v1"))
        written.append(rehearsed_files.contents(runs / "digits-infer-gpu-v1"))
        lines = re.findall(r"^rehearsal +(.+)$", done.output, re.MULTILINE)
        said.append([line for line in lines if line.startswith(("does ", "left out: "))])
    pairs = ((written[0], written[2]), (written[1], written[3]))
    other = [each for pair in pairs for each in rehearsed_files.differences(*pair)]
    count = sum(len(fields) for part in written[2:] for fields in part.values())
    figure = (
        f"{len(written[2])} and {len(written[3])} names with {count:,} columns, keys and arrays;"
        f" other: {', '.join(other) or 'none'}; the short one {'; '.join(said[0])}"
    )
    listed = len(said[0]) == 2 and [line[:4] for line in said[1]] == ["left"]
    return Row(claim, "the same; what was left out is listed", figure, not other and listed)


def _above(claim: str, checkout: Checkout, folder: Path, name: str, show: Show) -> Row:
    place = folder / "above"
    data, truth = _data(place, name)
    config = place / f"{name}.py"
    trained.proposed(checkout, data, config, BUDGET, show)
    found = trained.scored(checkout, data, config, truth, place / f"{name}-out", show)
    floor = found.config.floor
    assert floor is not None  # noqa: S101 - inspect fits one for every folder of images
    errors = (found.accuracy - floor.score) / math.hypot(found.error, floor.error)
    figure = (
        f"{found.accuracy:.3f} ± {found.error:.3f} by {found.config.model} in"
        f" {found.seconds:.0f} s; {floor}: {errors:.1f} standard errors"
    )
    return Row(claim, "≥ 2 standard errors", figure, errors >= 2, SEED)


def _digits(claim: str, checkout: Checkout, folder: Path, show: Show) -> Row:
    place = folder / "digits"
    digits = competitions.EMBEDDED["digits"]()
    digits.write(place / "data", hidden=True)
    config = place / "ours.py"
    trained.proposed(checkout, place / "data", config, FIVE, show)
    scores = []
    for seed in SEEDS:
        again = place / f"seed{seed}.py"
        values = {**configs.load(str(config)).to_json(), "name": again.stem, "seed": seed}
        text = f"from pipeline.config import from_json\nCONFIG = from_json({values!r})\n"
        again.write_text(text)
        truth = digits.solution["label"]
        out = place / f"out-{seed}"
        scores.append(trained.scored(checkout, place / "data", again, truth, out, show))
    middle = statistics.median(each.accuracy for each in scores)
    figure = f"{middle:.4f}; " + ", ".join(
        f"{each.accuracy:.4f} in {each.seconds:.0f} s" for each in scores
    )
    return Row(claim, f"≥ 0.99, median of {len(SEEDS)} seeds", figure, middle >= 0.99, SEEDS[0])


def _unseen(claim: str, checkout: Checkout, folder: Path, show: Show) -> Row:
    right = asked = 0
    each = []
    for seed in UNSEEN:
        place = folder / "unseen" / str(seed)
        competition = unseen(seed)
        competition.write(place / "data", hidden=True)
        config = place / "ours.py"
        trained.proposed(checkout, place / "data", config, FIVE, show)
        truth = competition.solution["variety"]
        found = trained.scored(checkout, place / "data", config, truth, place / "out", show)
        right, asked = right + found.right, asked + found.asked
        each.append(f"{found.accuracy:.3f} in {found.seconds:.0f} s")
    figure = f"{right / asked:.4f} of {asked}; {', '.join(each)}"
    target = f"≥ 0.97, pooled over seeds {UNSEEN[0]} to {UNSEEN[-1]}"
    return Row(claim, target, figure, right >= 0.97 * asked, UNSEEN[0])


def _table(claim: str, checkout: Checkout, folder: Path, slug: str, show: Show) -> Row:
    place, name = folder / "tables" / slug, slug.replace("-", "_")
    place.parent.mkdir(exist_ok=True)
    data, out = place / "data", place / "out"
    competitions.EMBEDDED[slug]().write(data)
    said = checkout.run(
        f"invoke inspect --input {data} --competition {slug} --for cpu", log=place / "inspect.log"
    ).output
    takes = TAKES.search(said)
    given = f"--config {name} --input {data} --output {out}"
    checkout.run(f"python -m pipeline train {given}", log=place / "train.log")
    checkout.run(f"invoke report --run {out}", log=place / "report.log")
    page = (out / "report.html").read_text()
    floor = configs.load(name).floor
    shown = floor is not None and f"{floor.score:.4g}" in page
    network = json.loads((out / "artifact" / "manifest.json").read_text())["floor"]
    figure = (
        f"{floor}; the network {network['network']:.4g} ± {network['network_error']:.2g};"
        f" {takes[0] if takes else 'inspect does not say'}"
    )
    return Row(claim, "both, and inspect says which to take", figure, shown and bool(takes))


def _frictions(root: Path, folder: Path, *, short: bool) -> Iterator[Row]:
    checkout = environment.current(root)
    if not short:  # whose runs/ they fill
        checkout = Checkout(environment.clone(root, folder / "frictions"), checkout.programs)
    for found in folder_frictions.met(checkout, folder / "met", short=short):
        after = found.after  # results name no path of a machine
        for path in (checkout.programs, checkout.root, folder):
            after = after.replace(f"{path}", "…")
        figure = f"before: {found.before}; now: {after}"
        yield Row(f"Friction: {found.name}", "mended", figure, found.held)
