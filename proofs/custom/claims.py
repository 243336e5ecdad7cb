"""Code of one's own: a file of functions through the whole chain, kills and devices; what cannot
work is refused before it costs anything. Then options of recipes and second stages.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from proofs.custom import broken_files
from proofs.shared import environment, module_process
from proofs.shared.environment import Checkout
from proofs.shared.own_functions import WORD
from proofs.shared.results_table import Later, Row, Rows, Show, last_json
from proofs.training import killed_runs
from proofs.training.claims import EPS, NEAR, ULPS, moved

SEED, KILLS, LEAST_SCORE = 20261123, 6, 0.95
SEEDS = (1, 2, 3)
TWO, EIGHT = (f"--xla_force_host_platform_device_count={count}" for count in (2, 8))
WHAT = "Own file with a squeeze-and-excite model, focal loss, macro recall and random erasing"


def rows(root: Path, *, short: bool, show: Show, pictures: Path | None = None) -> Rows:
    """Yield the rows; `short` has the broken files."""
    with tempfile.TemporaryDirectory(prefix="prove-custom-") as scratch:
        folder = Path(scratch)
        yield Later("Own files in each of which", partial(_broken, root, folder, short=short))
        if short:
            return
        yield Later(f"{WHAT}: dry-run", partial(_rehearsed, root, folder, show))
        yield Later(f"{WHAT}: kills", partial(_killed, root, folder))
        yield Later(f"{WHAT}: moved", partial(_moved, root, folder))
        yield Later("Each recipe option", partial(_recipes, root, folder))
        yield Later("Warm start", partial(_warm, root, folder))


def _broken(root: Path, folder: Path, *, short: bool) -> Row:
    if short:  # in this process
        return judged(broken_files.refusals(folder))
    return judged(last_json(module_process.output(root, "proofs.custom.broken_files", folder)))


def judged(said: dict[str, str]) -> Row:
    """Return the row of what was said of the broken files, "" of one that was taken."""
    missed = [
        kind
        for kind, case in broken_files.CASES.items()
        if not re.search(case.says, said[kind])
        or (case.reads or broken_files.WHOLE).name not in said[kind]
        or "\n" not in said[kind]
    ]
    return Row(
        "Own files in each of which one thing cannot work: refused before training",
        f"{len(broken_files.CASES)} of {len(broken_files.CASES)}, each with file, line and edit",
        f"{len(said) - len(missed)} of {len(said)}" + "".join(f"; not: {one}" for one in missed),
        not missed and len(said) == len(broken_files.CASES),
    )


def _rehearsed(root: Path, folder: Path, show: Show) -> Row:
    checkout = Checkout(environment.clone(root, folder / "clone"), Path(sys.executable).parent)
    name = broken_files.WHOLE.stem
    shutil.copy(broken_files.WHOLE, checkout.root / "pipeline" / "configs")
    command = f"invoke dry-run --config {name} --json"
    show(f"      {command}")
    done = checkout.run(command, log=folder / "dry-run.log")
    if done.code:
        show(done.output[-2000:])
    changed = checkout.run("git status --porcelain -- pipeline", log=folder / "status.log").output
    score = last_json(done.output)["score"] if done.code == 0 else None
    alone = changed.split() == ["??", f"pipeline/configs/{name}.py"]
    return Row(
        f"{WHAT}: `dry-run`, with no edit in the package",
        f"a score of {LEAST_SCORE} or more; the file itself is all that is new",
        f"{score}, {done.seconds:.0f} s; git status of the package: {changed.strip()}",
        score is not None and score >= LEAST_SCORE and alone,
    )


def _killed(root: Path, folder: Path) -> Row:
    own = f"{WORD}{broken_files.WHOLE}"
    words = ("proofs.training.killed_runs", folder / "killed", 1, KILLS, SEED, killed_runs.EPOCHS)
    done = module_process.output(root, *words, own, flags=TWO, compiled=folder / "compiled")
    whole, broken = (killed_runs.Run(**json.loads(line)) for line in done.splitlines())
    same = whole.weights == broken.weights and whole.batches == broken.batches
    return Row(
        f"{WHAT}: {KILLS} times kill -9, beside an unbroken run",
        "every step's images, labels and keys, and the weights, bit-equal",
        f"{len(broken.kills)} kills, {len(whole.batches)} batches,"
        f" {'equal' if same else 'not equal'}" + "".join(broken.unrecoverable)[:200],
        same and len(broken.kills) == KILLS and len(whole.batches) > 100,
        SEED,
    )


def _moved(root: Path, folder: Path) -> Iterator[Row]:
    own = f"{WORD}{broken_files.WHOLE}"
    words = ("proofs.training.replicas", folder / "elastic", "sgd", own)
    done = module_process.output(root, *words, flags=EIGHT, compiled=folder / "compiled-8")
    claim = f"{WHAT}: moved from 8 devices to 1 within an epoch; weights 50 steps later"
    yield moved(claim, last_json(done)["sgd"], "weights")


def _recipes(root: Path, folder: Path) -> Row:
    compiled = folder / "compiled-recipes"
    done = module_process.output(root, "proofs.custom.recipes", flags=EIGHT, compiled=compiled)
    return judged_options(last_json(done))


def judged_options(found: dict[str, dict[str, float]]) -> Row:
    """Return the row of what `proofs.custom.recipes` found of each option."""
    bounds = {option: ULPS * max(each["ulp"], EPS) for option, each in found.items()}
    most = max(each["apart"] / bounds[option] for option, each in found.items())
    least = min(each["without"] / bounds[option] for option, each in found.items())
    missed = [
        option
        for option, each in found.items()
        if not each["apart"] <= bounds[option] or not each["ulp"] < NEAR
        or not each["without"] > ULPS * bounds[option]
    ]  # fmt: skip
    return Row(
        f"Each recipe option ({', '.join(found)}) on 1, 2, 4 and 8 devices, and in micro-batches:"
        " weights after three steps",
        f"at most {ULPS} times what one unit in the last place of the weights makes instead, or an"
        f" eps of float32 if that is more; that is below {NEAR:g}; without the option"
        f" {ULPS} times as far or more",
        f"{len(found) - len(missed)} of {len(found)}; at most {most:.2g} of the bound, and without"
        f" the option at least {least:.0f} times it"
        + "".join(f"; not: {option}" for option in missed),
        not missed and bool(found),
        SEED,
    )


def _warm(root: Path, folder: Path) -> Iterator[Row]:
    words = ("proofs.custom.warm_starts", folder / "warm", *SEEDS)
    yield from warmed(last_json(module_process.output(root, *words, flags=TWO)))


def warmed(told: dict[str, Any]) -> Iterator[Row]:
    """Yield the rows of what `warm_starts` measured."""
    stages = told["stages"]
    equal = [f"{each['same']} of {each['arrays']}" for each in stages]
    yield Row(
        "Warm start: what the first step of a second stage is given, BatchNorm's statistics too",
        "the weights of the first stage, every array bit-equal",
        "; ".join(equal),
        all(each["same"] == each["arrays"] > 0 for each in stages),
        SEEDS[0],
    )
    yield Row(
        f"Warm start, 8 x 8 to 12 x 12 pixels: steps to a validation loss of {told['loss']},"
        f" {len(stages)} seeds",
        "fewer than from scratch, with each seed",
        "; ".join(
            f"{each['warm']} in place of {each['scratch']} (at the end {each['ends'][0]:.3f} and"
            f" {each['ends'][1]:.3f})"
            for each in stages
        ),
        all(
            each["warm"] is not None and each["scratch"] and each["warm"] < each["scratch"]
            for each in stages
        ),
        SEEDS[0],
    )
    found = {
        name: re.search(r"arrays have other shapes: (\S+) has", said)
        for name, said in told["refused"].items()
    }
    yield Row(
        "Warm start: a backbone of other shapes",
        "refused, with a layer's name",
        "; ".join(f"{name}: {one[1] if one else 'taken'}" for name, one in found.items()),
        all(found.values()),
    )
