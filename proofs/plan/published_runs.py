"""What others measured and paid, retold by the laws of the plan.

The benchmark of a WideResNet on CIFAR-100 is koshian2/TPU-Benchmark (2018): seconds an epoch from
the second one on. The prices are of two articles on Colab, which name compute units and yen.
"""

from pipeline.plan import cost, input_rate
from pipeline.plan.step_time import TRUNCATED, WHOLE, AffineLaw
from proofs.shared.results_table import Row

IMAGES = 50_000
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
    return [law.epoch(IMAGES, batch, steps=steps) / measured[batch] - 1 for batch in ASKED]


def _steps(batch: int, steps: str) -> int:
    return IMAGES // batch if steps == TRUNCATED else -(-IMAGES // batch)


def prices() -> Row:
    """Return the row of what articles paid."""
    slow, fast = 14 * 60 + 41, 6 * 60 + 42
    share = input_rate.loader_share(slow / fast, 4)
    found = {
        "YOLOv8 on T4, CU": (cost.compute_units(1.96, slow / 3600), 0.48),
        "with 8 CPUs, CU": (cost.compute_units(2.05, fast / 3600), 0.23),
        "times as fast": (slow / input_rate.with_more_cpus(slow, share, 4), 2.19),
        "hours of an A100 for 500 CU": (cost.hours_of(500, 13.06), 38),
    }
    bert = [cost.compute_units(rate, hours) for rate, hours in ((1.96, 12), (2.05, 8))]
    yen = cost.price_an_hour(5767, 500, 13.06)
    told = [f"{name} {ours:.4g} ({theirs:g})" for name, (ours, theirs) in found.items()]
    close = all(round(ours, _digits(theirs)) == theirs for ours, theirs in found.values())
    return Row(
        "Published prices, by the plan's arithmetic (theirs in brackets)",
        "each to the printed digit; yen an hour to two significant digits",
        f"{'; '.join(told)}; yen an hour of an A100 {float(f'{yen:.2g}'):g} (150); BERT's"
        f" 12 hours on T4 {bert[0]:.3g} CU, and its 8 with more CPUs {bert[1]:.3g}",
        close and float(f"{yen:.2g}") == 150,
    )


def _digits(number: float) -> int:
    _, _, after = f"{number:g}".partition(".")
    return len(after)
