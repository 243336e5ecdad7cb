"""The scaled learning rate holds at eight times the batch; the check notices an unscaled one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import config as configs
from proofs.shared import module_process
from proofs.shared.results_table import Row, Show, last_json

CONFIG = "digits_sgd"


def rows(root: Path, folder: Path, *, show: Show) -> Iterator[Row]:
    """Yield the rows, each as soon as it is measured; `folder` is to write in."""
    data = folder / "scaling-digits"
    module_process.output(root, "localkaggle", "export", "digits", data)
    show("      nine runs at two batches")
    words = ("--config", CONFIG, "--input", data, "--output", folder / "scaling", "--json")
    done = module_process.output(root, "pipeline", "scale-check", *words, codes=(0, 1))
    yield from judged(last_json(done))


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


def _figure(arm: Mapping[str, Any]) -> str:
    gap = "diverged" if arm["gap"] is None else f"{arm['gap']:+.1f} s.d. at epoch {arm['epoch']}"
    ratio = arm["ratio"]
    return f"{gap}, {'never at the target' if ratio is None else f'{ratio:.2f}x the epochs'}"
