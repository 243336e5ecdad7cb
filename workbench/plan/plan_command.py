"""Plan command: what a training will take, as a table; and what went wrong on the way to it."""

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from formats import atomic_file
from formats.errors import writing
from pipeline.config import Config
from pipeline.data import dataset
from pipeline.data.image_arrays import Paths
from pipeline.errors import ConfigError, PipelineError
from pipeline.runtime import backend
from workbench.pages.html import render
from workbench.plan import accelerators, plan, plan_table, speed_records
from workbench.plan.outlook import HERE
from workbench.plan.plan import OFFERED, Given
from workbench.plan.speed_records import Seen

FILE = "plan.json"  # in a run's output folder: the prediction that its report compares with
ASSUMED_IMAGES = 50_000


def run(
    config: Config,
    given: Mapping[str, str],
    show: Callable[[str], None],
    *,
    largest: bool = False,
    seen: list[Seen] | None = None,
) -> dict[str, Any]:
    """Show the plan of a config, and return it.

    Args:
        given: a value for each of `workbench.options.PLAN`, "" for the default.
        show: prints a line.
        largest: search for the largest batch of each TPU.
        seen: earlier runs, where --probe names none.

    Raises:
        ConfigError: if an option cannot work; after the plan, if the model cannot be built or the
            folder is missing.
    """
    names = _names(given["for"])
    probed = [Path(name.strip()) for name in given["probe"].split(",") if name.strip()]
    runs = list(map(speed_records.read, probed)) or seen or []
    asked, problem = _given(config, given, largest, runs)
    if HERE in names:  # as `train` does
        os.environ["JAX_PLATFORMS"] = "cpu"
        backend.use_every_core(config.batch)
    made = plan.make(config, names, asked, show)
    for line in plan_table.lines(made):
        show(line)
    if given["output"]:
        text = json.dumps(made.to_json(), indent=1) + "\n"
        _write(Path(given["output"]) / FILE, text.encode(), show)
    if given["page"]:
        title = f"{made.config} · plan"
        found = plan_table.section(made)
        _write(Path(given["page"]), render("plan/plan.html.j2", title, plan=found, made=made), show)
    problems = [*made.warnings, *filter(None, [problem])]
    if problems:
        raise ConfigError("\n".join(problems))
    return made.to_json()


def kept(folder: Path) -> Path | None:
    """Return the plan in a run's folder, or beside that of a pulled one; None: there is none."""
    return next((place for place in (folder / FILE, beside(folder)) if place.is_file()), None)


def beside(folder: Path) -> Path:
    """Return where the plan of a pulled run lies, whose folder itself stays as it is."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}-{FILE}")


def _write(path: Path, content: bytes, show: Callable[[str], None]) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(path, content)
    show(f"wrote {path}")


def _names(asked: str) -> tuple[str, ...]:
    if asked == "all":
        return tuple(accelerators.RUNTIMES)
    names = tuple(name.strip() for name in asked.split(",") if name.strip()) or OFFERED
    for name in names:
        if name != HERE:
            accelerators.found(name)
    return names


def _given(
    config: Config, given: Mapping[str, str], largest: bool, seen: list[Seen]
) -> tuple[Given, str]:
    """Return what is known beside the config, and what is wrong with --input."""

    def known(images: int, basis: str, **more: Any) -> Given:
        return Given(images, basis, seen=seen, largest=largest, **more)

    said, most = given["images"], 10**12
    if said and not (re.fullmatch("[0-9]{1,13}", said) and 1 <= int(said) <= most):
        raise ConfigError(
            f"--images {said[:40]}: expected a number from 1 to {most:,}.\n"
            f"Give the number of labelled {config.data.noun}, or the folder: --input DIR"
        )
    images, basis = ASSUMED_IMAGES, "assumed; --input DIR or --images N sets it"
    if config.data.labelled is not None:
        images, basis = config.data.labelled, f"of the config's {config.data.labelled:,}"
    if said:
        images, basis = int(said), "as --images says"
    if not given["input"]:
        return known(images, basis), ""
    folder, data = Path(given["input"]), config.data
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a long name
        problem = f"--input {str(folder)[:200]}: there is no such folder.\nCorrect it"
        problem += "." if said else ", or give --images N."
        return known(images, basis if said else "assumed, since --input is missing"), problem
    test = _lines(folder / data.sample_submission)
    paths: Paths = ()
    try:
        if data.kind in ("images", "tfrecords"):
            paths, what = dataset.training_images(folder, config), "counted in the folder"
            rows: int | None = len(paths)
        else:
            rows = None if data.train_csv is None else _lines(folder / data.train_csv)
            missing = f"{data.train_csv or 'a table'} is no file there."
            what = missing if rows is None else f"lines of {data.train_csv}"
    except PipelineError as error:
        rows, what = None, str(error)
    if said:
        return known(images, basis, test_images=test, paths=paths), ""
    if rows is None:
        problem = f"--input {folder}: its labelled rows are not counted: {what}\nGive --images N."
        return known(images, "assumed, since --input cannot be read"), problem
    return known(rows, what, test_images=test, paths=paths), ""


def _lines(path: Path) -> int | None:
    with suppress(OSError), path.open("rb") as file:
        return max(sum(1 for _ in file) - 1, 1)
    return None
