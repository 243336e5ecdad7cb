"""The scaled learning rate holds at eight times the batch, the check of it notices an unscaled one,
and the noise scale is right.

`python -m proofs.training.scaled_rate DIGITS STEPS` prints one JSON object: the noise scale over
that many steps, and a reference.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import config as configs
from proofs.shared import module_process
from proofs.shared.results_table import Row, Show, last_json

CONFIG = "digits_sgd"
SAMPLES, WITHIN = 10, 0.3
STEPS = 50


def rows(root: Path, folder: Path, *, show: Show) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured; `folder` is to write in."""
    data = folder / "scaling-digits"
    module_process.output(root, "localkaggle", "export", "digits", data)
    show("      nine runs at two batches")
    words = ("--config", CONFIG, "--input", data, "--output", folder / "scaling", "--json")
    done = module_process.output(root, "pipeline", "scale-check", *words, codes=(0, 1))
    yield from judged(last_json(done))
    show("      the gradient-noise scale")
    done = module_process.output(root, "proofs.training.scaled_rate", data, STEPS)
    yield noisy(last_json(done))


def judged(checked: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of the result of a check."""
    scaled, unscaled, limits = checked["scaled"], checked["unscaled"], checked["limits"]
    target = f"gap ≤ {limits['gap']:g} s.d., ≤ {limits['ratio']:g}x the epochs to the target, "
    target += f"spread ≤ {limits['spread']:g}x"
    yield Row(
        "SGD at 8 times the batch with the rate scaled: loss against epochs, beside the batch that "
        "it was tuned at",
        target,
        _figure(scaled),
        bool(scaled["holds"]),
        configs.load(CONFIG).seed,
    )
    yield Row(
        "The same check of the same batch with the rate unscaled",
        "does not hold",
        _figure(unscaled),
        not unscaled["holds"],
        configs.load(CONFIG).seed,
    )


def noisy(found: Mapping[str, Any]) -> Row:
    """Return the row of a noise scale and its reference; None is an infinite one."""
    ours, reference = found["ours"]["scale"], found["reference"]["scale"]
    off = ours / reference - 1 if ours and reference else None
    more = found["reference"]["steps"] / found["ours"]["steps"]
    return Row(
        f"Gradient-noise scale over the first {found['ours']['steps']} steps, a batch each",
        f"within ±{WITHIN:.0%} of a reference from {SAMPLES} other batches at each of them",
        "none found"
        if off is None
        else f"{off:+.0%}: {ours:.0f} images, reference {reference:.0f}, {more:g}x the batches",
        off is not None and abs(off) <= WITHIN and more == SAMPLES,
        configs.load(CONFIG).seed,
    )


def measured(folder: Path, steps: int) -> dict[str, Any]:
    """Return the noise over the first steps of a run, from its own batches and from others."""
    from pipeline.training import gradient_noise, training

    config = configs.load(CONFIG)
    images = training.read(config, folder)
    others = range(config.seed + 1, config.seed + 1 + SAMPLES)
    return {
        "ours": gradient_noise.measure(config, images, steps=steps).to_json(),
        "reference": gradient_noise.measure(config, images, steps=steps, seeds=others).to_json(),
    }


def _figure(arm: Mapping[str, Any]) -> str:
    gap = "diverged" if arm["gap"] is None else f"{arm['gap']:+.1f} s.d. at epoch {arm['epoch']}"
    ratio = arm["ratio"]
    return f"{gap}, {'never at the target' if ratio is None else f'{ratio:.2f}x the epochs'}"


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]), int(sys.argv[2]))))
