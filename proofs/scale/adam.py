"""Adam's rate scaled by the square-root rule, by the check that SGD's passed.

`python -m proofs.scale.adam FOLDER OPTIMIZER TIMES SEED…` prints one JSON object: of each seed what
`pipeline.training.scale_check` found with it and the two seeds after it.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from proofs.scale import noisy_table
from proofs.shared import module_process
from proofs.shared.results_table import Row, Show, last_json

TIMES = (2, 4, 8)
CHOSEN, CONFIRMED = 0, (3, 6)  # the first of three seeds each
MOST = max(TIMES)


def rows(root: Path, folder: Path, *, show: Show) -> Iterator[Row]:
    """Yield a row for each factor, as soon as it is measured."""
    for name, times, seeds in (
        *(("adam", times, (CHOSEN, *CONFIRMED)) for times in TIMES),
        ("adamw", MOST, (CHOSEN, *CONFIRMED)),
    ):
        show(f"      {name} at {times} times the batch: {9 * len(seeds)} runs")
        words = (folder, name, times, *seeds)
        done = module_process.output(root, "proofs.scale.adam", *words)
        yield judged(name, times, last_json(done))


def judged(name: str, times: int, found: Mapping[str, Any]) -> Row:
    """Return the row of the checks of one factor, by the first of their seeds."""
    limits = next(iter(found.values()))["limits"]
    told = []
    for seed, checked in found.items():
        scaled, unscaled = checked["scaled"], checked["unscaled"]
        told.append(
            f"seeds {seed} to {int(seed) + 2}: gap {scaled['gap']:+.1f} s.d., {_times(scaled)} the"
            f" epochs, spread {scaled['spread']:.1f}x; unscaled {_times(unscaled)} the epochs"
        )
    return Row(
        f"{'Adam' if name == 'adam' else 'AdamW'} at {times} times the batch, a table half of whose"
        " labels are random: loss against epochs, beside the base batch of"
        f" {noisy_table.BASE}; chosen on seeds {CHOSEN} to {CHOSEN + 2}, the others once",
        f"each: gap ≤ {limits['gap']:g} s.d., ≤ {limits['ratio']:g}x the epochs, spread ≤"
        f" {limits['spread']:g}x; the unscaled arm does not hold",
        "; ".join(told),
        len(found) == 1 + len(CONFIRMED) and all(checked["passed"] for checked in found.values()),
        CHOSEN,
    )


def _times(arm: Mapping[str, Any]) -> str:
    return "never" if arm["ratio"] is None else f"{arm['ratio']:.2f}x"


def main(folder: Path, name: str, times: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Return what the checks find, by their first seed."""
    from pipeline.training import scale_check, training

    noisy_table.write(folder / "table")
    found = {}
    for seed in seeds:
        config = noisy_table.config(name, times, seed)
        examples = training.read(config, folder / "table")
        output = folder / f"{name}-{times}-{seed}"
        checked = scale_check.check(
            config, folder / "table", output, examples=examples, show=lambda line: None
        )
        found[str(seed)] = checked.to_json()
    return found


if __name__ == "__main__":
    place, kind, factor, *firsts = sys.argv[1:]
    print(json.dumps(main(Path(place), kind, int(factor), [int(first) for first in firsts])))
