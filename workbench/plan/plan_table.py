"""A plan for people: a table with a line a runtime, what is known beside it, and a picture."""

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from pipeline.data.preparation import MOST_BYTES
from workbench.budget import shown
from workbench.pages.html import quoted
from workbench.plan.inference_time import STARTS
from workbench.plan.laws import Interval
from workbench.plan.outlook import COMPILED, Outlook
from workbench.plan.plan import Plan

MISSING = "—"
MANY = 10**9  # images: no competition has as many, and a guess of more says nothing
TICKS = (1, 10, 60, 600, 3600, 36_000, 360_000, 3_600_000, 36_000_000)  # seconds
HEADS = (
    "", "memory a core", "largest batch", "step", "epoch", "training", "sessions", "weeks", "price"
)  # fmt: skip
BASES = (
    "Memory: compiled by the TPU's compiler, or ~ estimated by XLA's plan for a CPU.",
    "Time: the cores' limits, and the share of them that networks reach: assumed, or as earlier"
    " runs had it. For cpu: timed.",
)


def lines(made: Plan) -> list[str]:
    """Return a plan for a terminal: the network, the table, and the advice."""
    rows = [HEADS, *(row(one, made.images) for one in made.outlooks)]
    widths = [max(len(one[place]) for one in rows) for place in range(len(HEADS))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(one, widths, strict=True)).rstrip()
        for one in rows
    ]
    return [*about(made), *table, *notes(made), *BASES, made.advice]


def about(made: Plan) -> list[str]:
    """Return what is to be trained, and what a run keeps."""
    found = [f"{made.config}: batch {made.batch}, {made.epochs} epochs, {made.images:,} {made.noun}"
             f" to train on ({made.images_basis})"]  # fmt: skip
    if made.counts is not None:
        inside = f", {_short(made.counts.in_bounds)} without the taps beyond its edge"
        found.append(
            f"{made.counts.parameters:,} parameters; {_one(made.noun)} takes"
            f" {_short(made.counts.nominal)} operations in training"
            f"{inside * (made.counts.in_bounds < made.counts.nominal)}"
        )
    if made.files is not None:
        files = made.files
        decoded = f" decoded images take {_short(files.decoded)}B;"
        limit = f", more than the {_short(MOST_BYTES)}B that Kaggle keeps"
        found.append(
            f"A checkpoint has {_short(files.checkpoint)}B, at most one in {shown(files.every)};"
            f"{decoded * (made.noun == 'images')} checkpoints on the disk"
            f" {_short(files.disk)}B{limit * (files.disk > MOST_BYTES)}"
        )
    return [*found, *_inference(made)]


def notes(made: Plan) -> list[str]:
    """Return what is known of single runtimes."""
    found = []
    for one in made.outlooks:
        seen = one.time_source and f"its time is as that of {one.time_source}"
        note = "; ".join(filter(None, (one.retired, one.why, seen)))
        found += [f"{one.title}: {note}"] if note else []
    if made.noun == "images" and any(one.input and one.input.bound for one in made.outlooks):
        found.append(f"One CPU decodes {made.decodes:,.0f} images a second: {made.decodes_basis}")
    return found + [_compiled(one.title, one.compiled) for one in made.outlooks if one.compiled]


def row(one: Outlook, images: int) -> tuple[str, ...]:
    """Return the cells of a runtime; what is not known is a dash. `images`: to train on."""
    spent, largest = one.spent, MISSING
    if one.largest is not None:
        largest = f"{'~' * (not one.compiled)}{one.largest:,}"
        largest = "all" if one.largest >= images else largest
    memory = MISSING
    if one.memory is not None and one.room is not None:
        about = "~" * (one.memory_basis != COMPILED)
        verdict = "" if one.fits else ", too much"
        taken = max(round(one.memory / 1e9, 2), 0.01)
        memory = f"{about}{taken:,g} of {one.room / 1e9:.3g} GB{verdict}"
    price = MISSING
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
    """Return a chart of how long each runtime takes, and what a run took; None: nothing is known.

    Args:
        was: seconds of a run, by runtime.
    """
    known = [one for one in made.outlooks if one.total is not None]
    if not known:
        return None
    from workbench.pages import charts  # draws with matplotlib, which a terminal needs not

    bars = []
    for one in known:
        took = (was or {}).get(one.runtime)
        bars.append((one.title, *_ends(one.total), took))
    return charts.intervals(bars, TICKS, shown, "training, from its start to its artifact")


def section(made: Plan, was: dict[str, float] | None = None) -> dict[str, Any]:
    """Return a plan for a page: head and rows of its table, lines around it, and the picture."""
    return {
        "head": HEADS,
        "rows": [[quoted(cell, 90) for cell in row(one, made.images)] for one in made.outlooks],
        "about": [quoted(line, 400) for line in about(made)],
        "notes": [quoted(line, 400) for line in (*notes(made), *BASES)],
        "advice": quoted(made.advice, 400),
        "picture": picture(made, was),
    }


def seconds(number: float) -> str:
    """Return a short time.

    >>> seconds(0.0123), seconds(2.5)
    ('12.3 ms', '2.5 s')
    """
    return f"{1e3 * number:.3g} ms" if number < 1 else f"{number:.3g} s"


def _ends(found: Interval | None) -> tuple[float, float, float]:
    return (found.least, found.usual, found.most) if found else (0.0, 0.0, 0.0)


def _inference(made: Plan) -> list[str]:
    found = made.inference
    if found is None:
        return []
    long = found.total is None or found.total.usual > 2 * STARTS
    reads = "; reading the images decides" * (found.waits and long)
    if found.images is None or found.total is None:
        if found.limit is None or found.most is None:
            return ["Inference on two T4: the config sets no limit to its time"]
        most = f"{found.most:,} {made.noun} fit" if found.most else f"no {made.noun[:-1]} fits"
        if found.most >= MANY:
            most = f"more than {MANY:,} {made.noun} fit"
        return [f"Inference on two T4: {most} into {shown(found.limit)}{reads}"]
    late = found.limit is not None and found.total.usual > found.limit
    verdict = f", more than the {shown(found.limit or 0)} there are" if late else ""
    what = f"{found.images:,} {made.noun} in {interval(found.total, shown)}"
    return [f"Inference on two T4: {what}{verdict}{reads}"]


def _one(noun: str) -> str:
    return f"a{'n' * (noun[0] in 'ei')} {noun[:-1]}"


def _compiled(title: str, found: dict[str, Any]) -> str:
    across = ", ".join(f"{count} {kind}" for kind, count in found["collectives"].items()) or "none"
    return (
        f"{title}: compiled in {found['compile_seconds']:.0f} s by libtpu {found['libtpu']}; of"
        f" each core a step has {_short(found['operations'])} operations,"
        f" {_short(found['traffic'])}B of traffic with its memory, collectives: {across}"
    )


def interval(found: Interval | None, text: Callable[[float], str]) -> str:
    """Return a figure with its range, each end as `text` says it; a dash: it is not known."""
    if found is None:
        return MISSING
    least, usual, most = (text(one) for one in _ends(found))
    return usual if least == most else f"{usual} ({least} to {most})"


def _short(number: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g} "
