"""What others measured and paid, retold by the laws of the plan.

The benchmark of a WideResNet on CIFAR-100 is koshian2/TPU-Benchmark (2018): seconds an epoch from
the second one on. The prices are of two articles on Colab, which name compute units and yen.
"""

from pipeline.plan import cost, input_rate
from pipeline.plan.accelerators import RUNTIMES
from pipeline.plan.laws import AffineLaw
from proofs.shared.results_table import Row

IMAGES = 50_000
WHOLE, TRUNCATED = "whole", "truncated"  # steps: the last is smaller, or is left out
BATCHES = (256, 512, 1024, 2048, 4096)
PROBED, ASKED = (256, 1024), (2048, 4096)
# Seconds an epoch at `BATCHES`, and whether the last steps of it are whole.
EPOCHS = {
    "truncated fit": ((221.0, 131.6, 81.6, 60.1, 48.7), TRUNCATED),
    "generator": ((219.8, 128.3, 79.7, 58.2, 46.0), TRUNCATED),
    "fit": ((219.9, 131.3, 80.1, 61.2, 50.9), WHOLE),
    "pattern 3": ((234.6, 136.9, 80.3, 58.1, 45.6), TRUNCATED),
}
JUDGED = ("truncated fit", "generator")
NEAR = 0.03
HOUR, YEN = 3600, 150


def law_row() -> Row:
    """Return the row of epochs at two batches, predicted from two others."""
    found = {name: errors(name) for name in EPOCHS}
    told = [
        f"{name} {', '.join(f'{error:+.1%}' for error in each)}"
        + ("" if name in JUDGED else " (printed only)")
        for name, each in found.items()
    ]
    return Row(
        f"Published epochs of a TPU v2-8 at batch {ASKED[0]} and {ASKED[1]}, predicted from"
        f" {PROBED[0]} and {PROBED[1]} by step = a + b x batch",
        f"within {NEAR:.0%} for {' and '.join(JUDGED)}",
        "; ".join(told),
        all(abs(error) <= NEAR for name in JUDGED for error in found[name]),
    )


def errors(name: str) -> list[float]:
    """Return by how much the law misses each epoch of `ASKED`, as a share of it."""
    seconds, steps = EPOCHS[name]
    measured = dict(zip(BATCHES, seconds, strict=True))
    probes = []
    for batch in PROBED:  # a step of what is not truncated has a little less than the batch
        count = _steps(batch, steps)
        images = batch * count if steps == TRUNCATED else IMAGES
        probes.append((images / count, measured[batch] / count))
    law = AffineLaw.through(probes[0], probes[1])
    return [_epoch(law, batch, steps) / measured[batch] - 1 for batch in ASKED]


def _epoch(law: AffineLaw, batch: int, steps: str) -> float:
    if steps == TRUNCATED:
        return _steps(batch, steps) * law.of(batch)
    return _steps(batch, steps) * law.fixed + law.image * IMAGES


def _steps(batch: int, steps: str) -> int:
    return IMAGES // batch if steps == TRUNCATED else -(-IMAGES // batch)


def prices() -> Row:
    """Return the row of what articles paid."""
    slow, fast = 14 * 60 + 41, 6 * 60 + 42  # seconds of YOLOv8 with 2 and with 8 CPUs
    runs = [("colab-t4", slow), ("colab-t4-high", fast), ("colab-t4", 12 * HOUR)]
    runs += [("colab-t4-high", 8 * HOUR), ("colab-a100", HOUR)]
    spent = [cost.of(RUNTIMES[name], seconds) for name, seconds in runs]
    units = [one.units or 0.0 for one in spent]
    # With 2 CPUs the loader decides, so they give what the run took; with 8 it does not.
    few, many = (input_rate.verdict(1 / fast, cpus / slow / 2) for cpus in (2, 8))
    found = {
        "YOLOv8 on T4, CU": (units[0], 0.48),
        "with 8 CPUs, CU": (units[1], 0.23),
        "times as long with 2 CPUs as with 8": ((1 - many.waits) / (1 - few.waits), 2.19),
        "hours of an A100 for 500 CU": (500 / units[4], 38),
    }
    yen = float(f"{spent[4].yen or 0:.2g}")
    told = [f"{name} {ours:.4g} ({theirs:g})" for name, (ours, theirs) in found.items()]
    close = all(round(ours, _digits(theirs)) == theirs for ours, theirs in found.values())
    return Row(
        "Published prices, by the plan's arithmetic (theirs in brackets)",
        "each to the printed digit; yen an hour to two significant digits",
        f"{'; '.join(told)}; yen an hour of an A100 {yen:g} ({YEN}); BERT's 12 hours on T4"
        f" {units[2]:.3g} CU, and its 8 with more CPUs {units[3]:.3g}",
        close and few.bound and not many.bound and yen == YEN,
    )


def _digits(number: float) -> int:
    _, _, after = f"{number:g}".partition(".")
    return len(after)
