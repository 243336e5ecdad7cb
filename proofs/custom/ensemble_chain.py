"""An ensemble of three members through the whole chain, on a local Kaggle.

`python -m proofs.custom.ensemble_chain FOLDER SEED`, started in a clone of the project, prints one
JSON object. Two members have one network and two seeds; the third has a network and a loss of its
own, and larger images. Each is trained, pulled, published, mounted and averaged by the commands.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from localkaggle.competitions import digits
from localkaggle.server import LocalKaggle
from pipeline import config as configs
from pipeline import ensemble
from pipeline.artifact import Artifact
from pipeline.errors import ArtifactError
from pipeline.evaluation import ensemble_search, hill_climb, out_of_fold
from pipeline.inference import forward_pass, inference
from proofs.custom.broken_files import WHOLE

ROOT = Path(__file__).resolve().parents[2]
DEADLINES, FLIPS = 20, 4
CNN = """from dataclasses import replace
from pipeline.configs.digits import CONFIG as digits
CONFIG = replace(digits, name="{name}", seed={seed}, folds=3, epochs=10, warmup_epochs=1, views=2)
"""
OWN = (
    ('name="digits_own"', 'name="member_own"'),
    ('    metric="macro_recall",\n', ""),
    ("height=8, width=8, channels=1", 'height=16, width=16, channels=1, resize="stretch"'),
    ("epochs=40", "epochs=10"),
    ("warmup_epochs=4", "warmup_epochs=1,\n    folds=3,\n    views=2"),
)


def write_configs() -> list[str]:
    """Write the three configs into this checkout, and return their names."""
    texts = {f"member_{seed}": CNN.format(name=f"member_{seed}", seed=seed) for seed in (1, 2)}
    own = WHOLE.read_text(encoding="utf-8")
    for before, after in OWN:
        if own.count(before) != 1:
            raise ValueError(f"{before!r} stands {own.count(before)} times in {WHOLE}")
        own = own.replace(before, after)
    for name, text in (texts | {"member_own": own}).items():
        (ROOT / "pipeline" / "configs" / f"{name}.py").write_text(text, encoding="utf-8")
    return [*texts, "member_own"]


def command(environment: dict[str, str], *words: str) -> dict[str, Any]:
    """Run a command of this checkout, and return the JSON on its last line."""
    done = subprocess.run(
        [sys.executable, "-m", *words, "--json"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stdout[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def chain(folder: Path, seed: int) -> tuple[Path, list[Path], dict[str, Any]]:
    """Return ensemble.json, the outputs of the members, and what the chain measured."""
    names = write_configs()
    with LocalKaggle(folder / "kaggle", competitions=["digits"], offline=True) as local:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KAGGLE")}
        run = partial(command, {**kept, **local.environment})
        outputs = []
        for name in names:
            pushed = run("invoke", "push-train", "--config", name, "--yes")["run"]
            run("invoke", "watch", "--config", name, "--run", pushed)
            outputs.append(Path(run("invoke", "pull", "--config", name, "--run", pushed)["folder"]))
        written = []
        for place in ("mean", "again"):
            words = [*map(str, outputs), "--seed", str(seed), "--output", str(folder / place)]
            found = run("pipeline", "ensemble", *words)
            written.append((folder / place / ensemble.FILE).read_bytes())
        path = folder / "mean" / ensemble.FILE
        ours = ["--config", names[0], "--ensemble", str(path)]
        datasets = run("invoke", "publish", *ours)["datasets"]
        pushed = run("invoke", "push-infer", *ours, "--yes")["run"]
        run("invoke", "watch", "--config", names[0], "--run", pushed)
        run("invoke", "pull", "--config", names[0], "--run", pushed)
        scored = run("invoke", "submit", "--config", names[0], "--run", pushed, "--yes")
        words = ["--config", names[0], "--of", scored["submission"]]
        links = run("invoke", "status", *words)["links"]
    return (
        path,
        outputs,
        {
            "score": scored["score"],
            "datasets": len(datasets),
            "lineage": [link["value"] for link in links if link["what"] == "member"],
            "weights": {each["run_id"]: each["weight"] for each in found["members"]},
            "same": written[0] == written[1],
            "table": ensemble_search.table(found),
        },
    )


def halved(rows: out_of_fold.Rows, hidden: Sequence[np.ndarray], seed: int) -> dict[str, Any]:
    """Return the scores of weights that one half of the out-of-fold rows gave, and of the best
    member: on the other half, and on the hidden set.

    Args:
        hidden: predictions of each member for the hidden set.
    """
    first, second = ensemble_search.halves(len(rows.ids), seed)
    weights = ensemble_search.on_half(rows, first, seed)
    mean = rows.members[0][0].target.mean
    ids = sorted(digits().solution["label"])
    truth = np.array([int(digits().solution["label"][name]) for name in ids])

    def score(predictions: Sequence[np.ndarray], right: np.ndarray) -> tuple[float, float]:
        alone = [rows.metric(right, each) for each in predictions]
        return rows.metric(right, hill_climb.weighted(predictions, weights, mean)), max(alone)

    return {
        "weights": weights,
        "other_half": score([each[second] for each in rows.predictions], rows.truth[second]),
        "hidden": score(hidden, truth),
    }


class Clock:
    """A clock that the models move: a second for each fold of each block."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return its time, in seconds."""
        return self.now


def deadlines(
    members: list[Artifact], weights: list[float], competition: Path, folder: Path
) -> dict[str, Any]:
    """Return what came of deadlines from none to more than enough: whether each was kept with a
    submission for every id, as many views and members as there was time for, and their weights.
    """
    clock, collect = Clock(), forward_pass.Forward.collect
    forward_pass.BLOCK = 8

    def timed(self: Any, submitted: Any) -> Any:
        clock.now += len(submitted.folds)
        return collect(self, submitted)

    forward_pass.Forward.collect = timed  # type: ignore[method-assign]

    def infer(seconds: float | None) -> tuple[float, list[dict[str, Any]], Any]:
        clock.now = 0.0
        found = inference.infer(
            members,
            competition,
            folder,
            weights=weights,
            seconds=seconds,
            clock=clock,
            processes=1,
            show=lambda line: None,
        )
        return clock.now, json.loads((folder / inference.MEMBERS).read_text()), found

    whole, _, wanted = infer(None)
    folds = len(members[0].folds)
    unknown = folds * (1 + 2)  # the golden inputs, and a first block of two views
    kept, counts = 0, []
    for number in range(DEADLINES):
        seconds = 1.25 * whole * number / (DEADLINES - 1)
        taken, told, found = infer(seconds)
        used = {each["run_id"]: each["used"] for each in told if each["used"]}
        listed = {each["run_id"]: each["weight"] for each in told}
        total = sum(listed[run] for run in used)
        right = all(abs(share - listed[run] / total) < 1e-9 for run, share in used.items())
        rows = (folder / "submission.csv").read_text().splitlines()[1:]
        there = [row.split(",")[0] for row in rows] == list(wanted.ids)
        # Views go first: a member is left out only where all of them took one view but for a block.
        views_first = len(used) == len(told) or taken <= 0.75 * whole
        enough = len(used) == len(told) or seconds < 0.9 * whole
        in_time = taken <= max(seconds, unknown)
        kept += right and there and views_first and enough and in_time and bool(used)
        counts.append(len(used) if not found.left_out else 0)
    forward_pass.Forward.collect = collect  # type: ignore[method-assign]
    return {"kept": kept, "counts": counts}


def refused(path: Path, folder: Path, seed: int) -> dict[str, int]:
    """Return how many changes of one bit were tried in the members' files, and how many refused, as
    the notebook finds them.
    """
    expect, draw = json.loads(path.read_bytes()), random.Random(seed)  # noqa: S311
    inputs = folder / "input"
    for member, place in zip(ensemble.read(path), ensemble.folders([], path), strict=True):
        shutil.copytree(place, inputs / "datasets" / "ann" / member.run_id)
    ensemble.mounted(inputs, expect)
    tried = caught = 0
    for file in sorted(inputs.rglob("*.*z")) + sorted(inputs.rglob("manifest.json")):
        whole = file.read_bytes()
        for _ in range(FLIPS):
            changed = bytearray(whole)
            changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            file.write_bytes(changed)
            tried += 1
            try:
                ensemble.mounted(inputs, expect)
            except ArtifactError:
                caught += 1
        file.write_bytes(whole)
    return {"tried": tried, "caught": caught}


def main(folder: Path, seed: int) -> dict[str, Any]:
    """Run all of it and return what was measured."""
    path, outputs, told = chain(folder, seed)
    rows = out_of_fold.read(outputs, lambda line: None)
    competition, hidden = folder / "hidden", []
    digits().write(competition, hidden=True)
    scores = {}
    for member, _ in rows.members:
        name = member.config.name
        found = inference.infer(
            member,
            competition,
            folder / name,
            config=configs.load(name),
            processes=1,
            show=lambda line: None,
        )
        order = np.argsort(found.ids)
        hidden.append(found.values[order])
        scores[member.manifest["run_id"]] = digits().judge(folder / name / "submission.csv")
    members, weights = ensemble.chosen(
        ensemble.folders([], path), path, replace(rows.members[0][0].config, name="any")
    )
    return {
        **told,
        "alone": scores,
        "halves": halved(rows, hidden, seed),
        "deadlines": deadlines(members, weights or [], competition, folder / "late"),
        "refused": refused(path, folder, seed),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))
