"""Plan command: what a training will take, as a table; and what went wrong on the way to it."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.config.budget import shown
from pipeline.errors import ConfigError
from pipeline.plan import accelerators, plan
from pipeline.plan.plan import OFFERED, Outlook, Plan
from pipeline.plan.step_time import Interval
from pipeline.runtime import backend
from pipeline.storage import atomic_file

FILE = "plan.json"  # in a run's output folder: the prediction that its report compares with
ASSUMED_IMAGES = 50_000
OPTIONS = {
    "for": f"runtimes, with commas between, or all; default: {', '.join(OFFERED)}. Of"
    f" {', '.join(accelerators.RUNTIMES)}, and {plan.HERE}, where some steps are timed here",
    "input": "the competition's folder, whose labelled rows are counted",
    "images": f"labelled images, in place of --input; default: {ASSUMED_IMAGES:,}, an assumption",
    "output": "the output folder of a training, which keeps the plan in plan.json for its report",
}
LARGEST = "search for the largest batch that a TPU takes: three compilations"
MISSING = "—"


def run(
    config: Config, given: dict[str, str], show: Callable[[str], None], *, largest: bool = False
) -> dict[str, Any]:
    """Show the plan of a config, and return it.

    Args:
        given: a value for each of `OPTIONS`, "" for the default.
        show: prints a line.
        largest: search for the largest batch of each TPU.

    Raises:
        ConfigError: if an option cannot work; after the plan, if the model cannot be built or the
            folder is missing.
    """
    names = _names(given["for"])
    images, basis, problem = _images(config, given)
    if plan.HERE in names:  # as `train` does
        backend.use_every_core(config.batch)
    held = 1 / config.folds if config.folds else config.data.validation_fraction
    rows = max(round(images * (1 - held)), 1)
    made = plan.make(config, names, rows, basis, show, largest=largest)
    for line in lines(made):
        show(line)
    if given["output"]:
        path = Path(given["output"]) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(path, (json.dumps(made.to_json(), indent=1) + "\n").encode())
        show(f"wrote {path}")
    problems = [*made.warnings, *filter(None, [problem])]
    if problems:
        raise ConfigError("\n".join(problems))
    return made.to_json()


def lines(made: Plan) -> list[str]:
    """Return a plan for people: the network, a table with a line a runtime, and the advice."""
    found = [f"{made.config}: batch {made.batch}, {made.epochs} epochs, {made.images:,} images to"
             f" train on ({made.images_basis})"]  # fmt: skip
    if made.counts is not None:
        found.append(
            f"{made.counts.parameters:,} parameters; an image takes {_short(made.counts.nominal)}"
            f" operations in training, {_short(made.counts.in_bounds)} without the taps beyond its"
            " edge"
        )
    heads = ("", "memory a core", "largest batch", "step", "epoch", "training", "sessions", "weeks",
             "price")  # fmt: skip
    rows = [heads, *map(_row, made.outlooks)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(heads))]
    found += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    notes = {one.title: ", ".join(filter(None, (one.retired, one.why))) for one in made.outlooks}
    found += [f"{title}: {note}" for title, note in notes.items() if note]
    found += [_compiled(one.title, one.compiled) for one in made.outlooks if one.compiled]
    return [*found, *BASES, made.advice]


def _compiled(title: str, found: dict[str, Any]) -> str:
    across = ", ".join(f"{count} {kind}" for kind, count in found["collectives"].items()) or "none"
    return (
        f"{title}: compiled in {found['compile_seconds']:.0f} s by libtpu {found['libtpu']}; of"
        f" each core a step has {_short(found['operations'])} operations,"
        f" {_short(found['traffic'])}B of traffic with its memory, collectives: {across}"
    )


BASES = (
    "Memory: compiled by the TPU's compiler, or ~ estimated by XLA's plan for a CPU.",
    "Time: the cores' limits, and the share of them that networks reach: assumed. For cpu: timed.",
)


def _row(one: Outlook) -> tuple[str, ...]:
    spent = one.spent
    memory = MISSING
    if one.memory is not None and one.room is not None:
        about = "~" * (one.memory_basis != plan.COMPILED)
        verdict = "" if one.fits else ", too much"
        taken = max(round(one.memory / 1e9, 2), 0.01)
        memory = f"{about}{taken:,g} of {one.room / 1e9:.3g} GB{verdict}"
    price = MISSING
    if spent is not None and spent.units is not None:
        price = f"{spent.units:.3g} CU, {spent.yen:,.0f} yen, {spent.usd:,.2f} USD"
    return (
        one.title,
        memory,
        MISSING if one.largest is None else f"{'~' * (not one.compiled)}{one.largest:,}",
        _interval(one.step, _seconds),
        _interval(one.epoch, shown),
        _interval(one.total, shown),
        MISSING if spent is None or spent.sessions is None else str(spent.sessions),
        MISSING if spent is None or spent.weeks is None else str(spent.weeks),
        price,
    )


def _interval(found: Interval | None, text: Callable[[float], str]) -> str:
    if found is None:
        return MISSING
    least, usual, most = (text(one) for one in (found.least, found.usual, found.most))
    return usual if least == most else f"{usual} ({least} to {most})"


def _seconds(number: float) -> str:
    return f"{1e3 * number:.3g} ms" if number < 1 else f"{number:.3g} s"


def _short(number: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g}"


def _names(asked: str) -> tuple[str, ...]:
    if asked == "all":
        return tuple(accelerators.RUNTIMES)
    names = tuple(name.strip() for name in asked.split(",") if name.strip()) or OFFERED
    for name in names:
        if name != plan.HERE:
            accelerators.found(name)
    return names


def _images(config: Config, given: dict[str, str]) -> tuple[int, str, str]:
    """Return the number of labelled images, what it rests on, and what is wrong with --input."""
    if given["images"]:
        if not given["images"].isdigit() or int(given["images"]) < 1:
            raise ConfigError(
                f"--images {given['images'][:40]}: expected a number, 1 or more.\n"
                "Give the number of labelled images, or the folder: --input DIR"
            )
        return int(given["images"]), "as --images says", ""
    if not given["input"]:
        return ASSUMED_IMAGES, "assumed; --input DIR or --images N sets it", ""
    folder, table = Path(given["input"]), config.data.train_csv
    if not folder.is_dir():
        problem = f"--input {folder}: there is no such folder.\nCorrect it, or give --images N."
        return ASSUMED_IMAGES, "assumed, since --input is missing", problem
    with suppress(OSError):
        if table is not None:
            with (folder / table).open("rb") as file:
                return max(sum(1 for _ in file) - 1, 1), f"lines of {table}", ""
    problem = f"--input {folder}: its labelled images are not counted, since"
    problem += f" {table} is no file there." if table else " no table lists them."
    return ASSUMED_IMAGES, "assumed", f"{problem}\nGive --images N."
