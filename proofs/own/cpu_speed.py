"""How fast `python -m pipeline train` is on a CPU, by the number of devices that are made of it.

The speed of a virtual machine varies from second to second, so the arms take turns, and the fastest
turn of each counts: the others show what else the machine did.
"""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from proofs.shared import environment
from proofs.shared.environment import Checkout
from proofs.shared.results_table import Row, Show

BEFORE = "07ff1c6"
TURNS = 3
COUNTS = (1, 2, 4, 8)
WITHIN = 0.9  # of the best of COUNTS
# A config of a workload, and steps of a turn: some seconds each.
CONFIGS = {
    "digits": ("", 200),
    "28-pixel CNN": (
        ', batch=256, data=replace(digits.data, height=28, width=28, resize="stretch")',
        25,
    ),
}
FILE = """from dataclasses import replace
from pipeline.configs.digits import CONFIG as digits
CONFIG = replace(digits, name="speed", epochs=400, progress_seconds=3600{more})
"""


def rows(root: Path, folder: Path, *, show: Show) -> Iterator[Row]:
    """Yield a row a workload: the default beside every count, and beside the commit `BEFORE`.

    Args:
        folder: for what is written; 07ff1c6 is cloned into it.
        show: takes a line of text.
    """
    now = environment.current(root)
    old = Checkout(environment.clone(root, folder / "before"), now.programs)
    subprocess.run(["git", "checkout", "--quiet", BEFORE], cwd=old.root, check=True)
    data = folder / "data"
    words = ["python", "-m", "localkaggle", "export", "digits", str(data)]
    now.run(shlex.join(words), log=folder / "export.log")
    for name, (more, steps) in CONFIGS.items():
        speeds: dict[str, float] = {}
        for turn in range(TURNS):
            arms = {"default": (now, 0), BEFORE: (old, 0), **{str(n): (now, n) for n in COUNTS}}
            for arm, (checkout, count) in arms.items():
                place = folder / f"{name.replace(' ', '-')}-{arm}-{turn}"
                speed = _images_per_second(checkout, place, data, more, steps, count)
                speeds[arm] = max(speeds.get(arm, 0.0), speed)
                show(f"      {name}, {arm}: {speed:,.0f} images/s")
        default, best = speeds["default"], max(speeds[str(count)] for count in COUNTS)
        figure = ", ".join(f"{arm} {speed:,.0f}" for arm, speed in speeds.items())
        yield Row(
            f"Training on this CPU, images/s by devices: {name}",
            f"default ≥ {WITHIN:.0%} of the best, and never slower than {BEFORE}",
            figure,
            default >= WITHIN * best and default >= speeds[BEFORE],
            seed=0,
        )


def _images_per_second(
    checkout: Checkout, folder: Path, data: Path, more: str, steps: int, count: int
) -> float:
    """Return the speed after the first step, which compiles.

    Args:
        count: of devices; 0: the default.
    """
    folder.mkdir()
    config = folder / "speed.py"
    config.write_text(FILE.format(more=more))
    flags = f"XLA_FLAGS=--xla_force_host_platform_device_count={count} " if count else ""
    words = ["python", "-m", "pipeline", "train", "--config", str(config), "--input", str(data)]
    words += ["--output", str(folder / "out"), "--max-steps", str(steps)]
    checkout.run(f"{flags}{shlex.join(words)}", log=folder / "train.log")
    last = (folder / "out" / "progress.jsonl").read_text().splitlines()[-1]
    return float(json.loads(last)["images_per_second"])
