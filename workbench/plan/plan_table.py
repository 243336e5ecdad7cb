"""Show a plan as a table with notes, and as a chart."""

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from pipeline.data.preparation import MOST_BYTES
from workbench.budget import shown
from workbench.pages.html import quoted
from workbench.plan.laws import Interval
from workbench.plan.outlook import COMPILED, Outlook
from workbench.plan.plan import Plan

MISSING = "—"
CHECKPOINTS = 3  # two are kept while a third is written
TICKS = (1, 10, 60, 600, 3600, 36_000, 360_000, 3_600_000, 36_000_000)  # seconds
HEADS = (
    "", "memory/core", "largest batch", "step", "epoch", "training", "sessions", "weeks", "price"
)  # fmt: skip
BASES = (
    "Memory is reported by the TPU's compiler. For GPUs (~), it is estimated by compiling for a"
    " TPU.",
    "Time is estimated from the cores' peak speed, unless earlier runs of the network are listed."
    " For cpu, it is measured.",
)


def lines(made: Plan) -> list[str]:
    rows = [HEADS, *(row(one, made.images) for one in made.outlooks)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(map(str.ljust, one, widths)).rstrip() for one in rows]
    return [*about(made), *table, *notes(made), *BASES, made.advice]


def about(made: Plan) -> list[str]:
    noun, counts, disk = made.noun, made.counts, CHECKPOINTS * made.checkpoint
    limit = f", more than Kaggle's limit of {_short(MOST_BYTES)}B"
    each = f"{counts.parameters:,} parameters, and {_short(counts.operations)} operations per"
    each += f" {noun[:-1]}"
    if made.fit:
        return [
            f"{made.config}: fit={made.fit!r}, one pass over {made.labelled:,} {noun}"
            f" ({made.images_basis}) in batches of {made.batch}, without gradients",
            f"{each}. Fitting the linear models or trees on the CPU is not included",
            f"Inference on two T4s: {_inference(made)}",
        ]
    frozen = f" ({made.frozen_epochs} frozen, which take a third of the time)"
    frozen *= bool(made.frozen_epochs)
    return [
        f"{made.config}: batch {made.batch}, {made.epochs} epochs{frozen}, {made.images:,} training"
        f" {noun} ({made.images_basis})",
        f"{each} in training",
        f"Checkpoints: {_short(made.checkpoint)}B each, up to {_short(disk)}B in total"
        f"{limit * (disk > MOST_BYTES)}",
        f"Inference on two T4s: {_inference(made)}",
    ]


def notes(made: Plan) -> list[str]:
    found = []
    for one in made.outlooks:
        seen = one.time_source and f"time measured in {one.time_source}"
        note = "; ".join(filter(None, (one.retired, one.why, seen)))
        found += [f"{one.title}: {note}"] if note else []
    if made.noun == "images" and any(one.input and one.input.bound for one in made.outlooks):
        found.append(f"A CPU decodes {made.decodes:,.0f} images per second ({made.decodes_basis})")
    for one in made.outlooks:
        if step := one.compiled:
            across = ", ".join(f"{count} {kind}" for kind, count in step.collectives.items())
            found.append(
                f"{one.title}: compiled in {step.compile_seconds:.0f} s by libtpu {step.libtpu}."
                f" In each step, a core performs {_short(step.operations)} operations, and reads or"
                f" writes {_short(step.traffic)}B of memory. Collectives: {across or 'none'}"
            )
    return [*found, *filter(None, [made.note])]


def row(one: Outlook, images: int) -> tuple[str, ...]:
    spent, memory, largest, price = one.spent, MISSING, MISSING, MISSING
    if one.largest is not None:
        largest = f"{'~' * (not one.compiled)}{one.largest:,}"
        largest = "all" if one.largest >= images else largest
    if one.memory is not None and one.room is not None:
        taken = max(round(one.memory / 1e9, 2), 0.01)
        memory = f"{'~' * (one.memory_basis != COMPILED)}{taken:,g} of {one.room / 1e9:.3g} GB"
        memory += "" if one.fits else ", too much"
    if spent is not None and spent.units is not None:
        price = f"{spent.units:.3g} CU, {spent.yen:,.0f} yen, {spent.usd:,.2f} USD"
    return (
        one.title,
        memory,
        largest,
        interval(one.step, seconds),
        interval(one.epoch, shown),
        interval(one.total, shown),
        MISSING if spent is None or spent.sessions is None else str(spent.sessions),
        MISSING if spent is None or spent.weeks is None else str(spent.weeks),
        price,
    )


def picture(made: Plan, was: dict[str, float] | None = None) -> Markup | None:
    """Return a chart of the planned durations, or None if no durations are known.

    Args:
        was: actual duration of a run in seconds, keyed by runtime.
    """
    from workbench.pages import charts  # imports matplotlib, which is only used here

    bars = [
        (one.title, one.total.least, one.total.usual, one.total.most, (was or {}).get(one.runtime))
        for one in made.outlooks
        if one.total is not None
    ]
    below = "time from the start of training until the artifact is written"
    return charts.intervals(bars, TICKS, shown, below) if bars else None


def section(made: Plan, was: dict[str, float] | None = None) -> dict[str, Any]:
    return {
        "head": HEADS,
        "rows": [[quoted(cell, 90) for cell in row(one, made.images)] for one in made.outlooks],
        "about": [quoted(line, 400) for line in about(made)],
        "notes": [quoted(line, 400) for line in (*notes(made), *BASES)],
        "advice": quoted(made.advice, 400),
        "picture": picture(made, was),
    }


def seconds(number: float) -> str:
    """Format a short duration.

    >>> seconds(0.0123), seconds(2.5)
    ('12.3 ms', '2.5 s')
    """
    return f"{1e3 * number:.3g} ms" if number < 1 else f"{number:.3g} s"


def interval(found: Interval | None, text: Callable[[float], str]) -> str:
    if found is None:
        return MISSING
    least, usual, most = (text(one) for one in (found.least, found.usual, found.most))
    return usual if least == most else f"{usual} ({least} to {most})"


def _inference(made: Plan) -> str:
    found, noun = made.inference, made.noun
    if found.images is not None and found.total is not None:
        late = found.limit is not None and found.total.usual > found.limit
        verdict = f", over the limit of {shown(found.limit or 0)}" * late
        return f"{found.images:,} {noun} in {interval(found.total, shown)}{verdict}"
    if found.limit is None or found.most is None:
        return "no time limit in the config"
    most = f"{found.most:,}" if found.most < 1e9 else "over a billion"
    return f"{most} {noun} within the limit of {shown(found.limit)}"


def _short(number: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g} "
