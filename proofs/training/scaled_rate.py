"""Scaling: the rate holds at eight times the batch, the check of it can tell, and the noise scale
is right.

`python -m proofs.training.scaled_rate DIGITS STEPS` prints one JSON object: the noise scale over
that many steps, and a reference beside it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import config as configs
from proofs.shared.results_table import Row, Show, last_json

CONFIG = "digits_sgd"
SAMPLES, WITHIN = 10, 0.3
STEPS, STEPS_SHORT = 50, 20


def rows(root: Path, folder: Path, *, short: bool, show: Show) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured.

    Args:
        root: of the repository. folder: to write in. short: the noise scale alone, over fewer
            steps. show: takes lines of progress.
    """
    data = folder / "scaling-digits"
    _python(root, "localkaggle", "export", "digits", data)
    if not short:
        show("      nine runs at two batches")
        words = (
            "scale-check",
            "--config",
            CONFIG,
            "--input",
            data,
            "--output",
            folder / "scaling",
            "--json",
        )
        yield from judged(last_json(_python(root, "pipeline", *words, ends=(0, 1))))
    show("      the gradient-noise scale")
    yield noisy(
        last_json(
            _python(root, "proofs.training.scaled_rate", data, STEPS_SHORT if short else STEPS)
        )
    )


def judged(checked: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows that the result of a check gives."""
    scaled, unscaled, limits = checked["scaled"], checked["unscaled"], checked["limits"]
    target = f"gap ≤ {limits['gap']:g} s.d., ≤ {limits['ratio']:g}x the epochs to the target, spread ≤ {limits['spread']:g}x"
    yield Row(
        "SGD at 8 times the batch with the rate scaled: loss against epochs, beside the batch that it was tuned at",
        target,
        _told(scaled),
        bool(scaled["holds"]),
        configs.load(CONFIG).seed,
    )
    yield Row(
        "The same check of the same batch with the rate unscaled",
        "does not hold",
        _told(unscaled),
        not unscaled["holds"],
        configs.load(CONFIG).seed,
    )


def noisy(found: Mapping[str, Any]) -> Row:
    """Return the row that a noise scale and its reference give; None is an infinite one."""
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
    """Return the noise over the first steps of the run, from its own batches ("ours"), and from
    others ("reference").
    """
    from pipeline.training import gradient_noise, training

    config = configs.load(CONFIG)
    images = training.read(config, folder)
    others = range(config.seed + 1, config.seed + 1 + SAMPLES)
    return {
        "ours": gradient_noise.measure(config, images, steps=steps).to_json(),
        "reference": gradient_noise.measure(config, images, steps=steps, seeds=others).to_json(),
    }


def _told(arm: Mapping[str, Any]) -> str:
    gap = "diverged" if arm["gap"] is None else f"{arm['gap']:+.1f} s.d. at epoch {arm['epoch']}"
    return f"{gap}, {'never at the target' if arm['ratio'] is None else format(arm['ratio'], '.2f') + 'x the epochs'}"


def _python(root: Path, *words: object, ends: tuple[int, ...] = (0,)) -> str:
    """Return what a module of the project prints, run in a process of its own that ends with one of
    these.
    """
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_FLAGS": "",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
    }
    run = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode not in ends:
        raise RuntimeError(
            f"{' '.join(map(str, words))} ended with {run.returncode}:\n{run.stderr[-3000:]}"
        )
    return run.stdout


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]), int(sys.argv[2]))))
