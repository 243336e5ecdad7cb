"""What the TPU's compiler takes and refuses, beside what the plan says.

`python -m proofs.plan.compiled_plans fits BATCH` and `… largest CASE` print one JSON object each.
Compilations take minutes: those of `fits` are kept in compiled.json, by what was compiled.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from proofs.shared import module_process
from proofs.shared.results_table import Row, Show, last_json

KEPT = Path(__file__).with_name("compiled.json")
WRN = "cifar100_wrn"
V2, V5E = "tpu-v2-8", "tpu-v5e-8"
# Of the published grid, which all ran; and one more, which nobody tried.
RAN, MORE = (64, 128, 256, 512, 1024, 2048, 4096), 8192
V2_GB = 8
NEAR, OVERHEAD, CACHED = 0.05, 1.2, 5.0
# Networks whose step compiles within a minute: name, side of the images, options.
CASES: dict[str, tuple[int, dict[str, int | float | bool | str]]] = {
    "small_cnn": (64, {"width": 32, "dropout": 0.3}),
    "strided_resnet": (96, {"width": 32, "stride": 2}),
}


def fits(root: Path, show: Show) -> Row:
    """Return the row of the published batches on a TPU v2-8."""
    told, right = [], 0
    for batch in (*RAN, MORE):
        show(f"      {WRN} at batch {batch} for {V2}")
        found = last_json(module_process.output(root, __name__, "fits", batch))
        taken = "refused" not in found
        right += taken and batch in RAN
        verdict = "refused"
        if taken:
            image = found["operations"] * 8 / batch / 1e9
            verdict = f"{found['memory'] / 1e9:.2f} GB, {image:.1f} G operations an image"
        told.append(f"{batch}: {verdict}")
    return Row(
        f"The published WideResNet in float32 on a TPU v2-8 of {V2_GB:g} GB a core, compiled at"
        f" {len(told)} batches",
        f"{', '.join(map(str, RAN))} fit, as they ran; of {MORE} the compiler's verdict",
        "; ".join(told),
        right == len(RAN),
    )


def largest(root: Path, show: Show) -> Iterator[Row]:
    """Yield the row of each network's largest batch, beside where its compiler refuses."""
    for name in CASES:
        show(f"      the largest batch of {name} for {V5E}")
        found = last_json(module_process.output(root, __name__, "largest", name))
        yield Row(
            f"The largest batch of {name} on a TPU v5e-8, beside where the compiler refuses",
            f"within {NEAR:.0%}, by 3 compilations at most; it compiles",
            f"{found['batch']:,} by {found['compilations']} compilations; {found['above']:,} is"
            f" {'refused' if found['refused'] else 'taken'}",
            found["batch"] > 0 and found["refused"] and found["compilations"] <= 3,
        )


def overhead(root: Path, show: Show) -> Row:
    """Return the row of a plan beside one bare compilation of the same step."""
    show("      one compilation, then one plan, then the plan again")
    bare = last_json(module_process.output(root, __name__, "bare", WRN))["seconds"]
    words = ("pipeline", "plan", "--config", WRN, "--for", V5E, "--json")
    seconds = []
    for _ in range(2):
        begun = time.monotonic()
        module_process.output(root, *words)
        seconds.append(time.monotonic() - begun)
    first, again = seconds
    return Row(
        f"`plan --config {WRN} --for {V5E}`, beside one bare compilation of the same step",
        f"≤ {OVERHEAD:g} times; again from what was kept ≤ {CACHED:g} s",
        f"{first / bare:.2f} times: {first:.0f} s, bare {bare:.0f} s; again {again:.1f} s",
        first <= OVERHEAD * bare and again <= CACHED,
    )


def _fits(batch: int) -> dict[str, Any]:
    from pipeline import config as configs
    from pipeline.plan import plan, tpu_compiler

    config = replace(configs.load(WRN), precision="float32", batchnorm_batch=batch // 8)
    config = plan.with_batch(replace(config, batch=batch), batch)
    try:
        return tpu_compiler.compile_step(config, V2, kept=KEPT).to_json()
    except tpu_compiler.TooLarge as error:
        return {"refused": str(error)}


def _largest(name: str) -> dict[str, Any]:
    from pipeline import config as configs
    from pipeline.plan import operation_counts, plan, tpu_compiler
    from pipeline.plan.accelerators import RUNTIMES

    side, options = CASES[name]
    digits = configs.load("digits")
    data = replace(digits.data, height=side, width=side, channels=3, crop_padding=0)
    base = replace(digits, name=name, model=name, model_options=options, data=data, batch=1024)

    def tried(batch: int) -> tpu_compiler.Tried:
        try:
            memory = tpu_compiler.compile_step(plan.with_batch(base, batch), V5E).memory
        except tpu_compiler.TooLarge as error:
            return tpu_compiler.Tried(batch, error.required or math.inf, False)
        return tpu_compiler.Tried(batch, float(memory), True)

    core, unit = RUNTIMES[V5E].core, 8 * 32
    assert core is not None  # noqa: S101 - a TPU has one
    fixed = operation_counts.of(base).state
    found = tpu_compiler.search(tried, base.batch, unit, core.memory, fixed)
    # A batch beyond the bound has to be refused: then the limit is within it.
    batch = tpu_compiler.largest(found)
    above = int(batch * (1 + NEAR)) // unit * unit
    refused = not tried(above).taken
    return {"batch": batch, "compilations": len(found), "above": above, "refused": refused}


def _bare(name: str) -> dict[str, Any]:
    begun = time.monotonic()
    from pipeline import config as configs
    from pipeline.plan import tpu_compiler

    tpu_compiler.compile_step(configs.load(name), V5E)
    return {"seconds": time.monotonic() - begun}


if __name__ == "__main__":
    command, given = sys.argv[1:]
    found = {
        "fits": lambda: _fits(int(given)),
        "largest": lambda: _largest(given),
        "bare": lambda: _bare(given),
    }[command]()
    print(json.dumps(found))
