"""The worked examples of docs/: segmentation, text and several inputs, each by `invoke dry-run`."""

import sys
from functools import partial
from pathlib import Path

from pipeline.configs import orders
from proofs.shared import environment
from proofs.shared.environment import Checkout
from proofs.shared.results_table import Later, Row, Rows, Show, last_json

LEAST = {"cells": ("Segmentation", "Dice", 0.85), "reviews": ("Text", "accuracy", 0.9)}
MODEL = '    x = inputs["image"]\n'
JOINED = '    x = layers.Concatenate(name="joined")([x, inputs["numbers"]])\n'
BOTH = '{"image": np.stack(pictures)[..., None], "numbers": numbers.to_numpy(np.float32)}'
FORMS = '{"image": ("uint8", 8, 8, 1), "numbers": ("float32", len(COLUMNS))}'


def rows(root: Path, folder: Path, show: Show) -> Rows:
    """Yield a row for each kind."""
    checkout = Checkout(environment.clone(root, folder / "kinds"), Path(sys.executable).parent)
    for config, (kind, metric, least) in LEAST.items():
        yield Later(
            f"{kind} by dry-run", partial(_learned, checkout, config, kind, metric, least, show)
        )
    yield Later("Several inputs by dry-run", partial(_joined, checkout, show))


def alone(text: str, name: str) -> str:
    """Return the file of `orders` with one of its two inputs, under the name orders_<name>."""
    before, rest = text.split(MODEL)
    network, after = rest.split(JOINED)
    if name == "image":
        text = before + "    x = inputs\n" + network + after
    else:
        text = before + "    x = inputs\n" + after
    kept = {"image": "np.stack(pictures)[..., None]", "numbers": "numbers.to_numpy(np.float32)"}
    forms = {"image": '("uint8", 8, 8, 1)', "numbers": '("float32", len(COLUMNS))'}
    for old, new in (
        (BOTH, f'{{"{name}": {kept[name]}}}'),
        (FORMS, f'{{"{name}": {forms[name]}}}'),
        ('name="orders"', f'name="orders_{name}"'),
    ):
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times in orders.py")
        text = text.replace(old, new)
    return text


def _score(checkout: Checkout, config: str, show: Show) -> tuple[float, float]:
    """Return the score of a rehearsal on the hidden test set, and its seconds."""
    command = f"invoke dry-run --config {config} --json"
    show(f"      {command}")
    done = checkout.run(command, log=checkout.root.parent / f"{config}.log")
    if done.code:
        show(done.output[-2000:])
        return float("nan"), done.seconds
    return float(last_json(done.output)["score"]), done.seconds


def _learned(
    checkout: Checkout, config: str, kind: str, metric: str, least: float, show: Show
) -> Row:
    score, seconds = _score(checkout, config, show)
    return Row(
        f"{kind}: `invoke dry-run --config {config}`, {metric} on the hidden test set",
        f"≥ {least}",
        f"{score:.3f}, {seconds:.0f} s",
        score >= least,
    )


def _joined(checkout: Checkout, show: Show) -> Row:
    text = Path(orders.__file__).read_text(encoding="utf-8")
    scores = {"both": _score(checkout, "orders", show)[0]}
    for name in ("image", "numbers"):
        path = checkout.root / "pipeline" / "configs" / f"orders_{name}.py"
        path.write_text(alone(text, name), encoding="utf-8")
        scores[name] = _score(checkout, path.stem, show)[0]
    return Row(
        "Several inputs: `invoke dry-run --config orders`, accuracy on the hidden test set",
        "above the same network with the better one of its inputs",
        "; ".join(f"{name} {score:.3f}" for name, score in scores.items()),
        scores["both"] > max(scores["image"], scores["numbers"]),
    )
