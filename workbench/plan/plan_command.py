"""Run the `plan` command, which estimates the memory, time and cost of a training run."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from formats import atomic_file
from formats.errors import writing
from pipeline.command_line import refuse_missing_input
from pipeline.config import Config
from pipeline.data import csv_files, dataset, samples
from pipeline.errors import ConfigError
from pipeline.runtime import backend
from workbench.pages.html import render
from workbench.plan import plan, plan_table, probe
from workbench.plan.accelerators import CPU, RUNTIMES
from workbench.plan.outlook import Given
from workbench.plan.plan import OFFERED
from workbench.plan.probe import Run

FILE = "plan.json"  # in a run's output folder, for its report
ASSUMED_IMAGES, MOST_IMAGES = 50_000, 10**12


def run(
    config: Config,
    given: Mapping[str, str],
    show: Callable[[str], None],
    *,
    largest: bool = False,
    runs: list[Run] | None = None,
) -> dict[str, Any]:
    """Print the plan for a config, and return it.

    Args:
        given: the value of each option in `workbench.options.PLAN`, or "" for its default.
        largest: whether to search for the largest batch on each TPU.
        runs: earlier runs, which are used if --probe is not set.

    Raises:
        ConfigError: if an option is invalid, or if the model cannot be built.
    """
    names, probed = _listed(given["for"]) or OFFERED, _listed(given["probe"])
    names = tuple(RUNTIMES) if names == ("all",) else names
    for name in names:
        if name not in (CPU, *RUNTIMES):
            raise ConfigError(
                f"Invalid --for {name[:40]}: it must be one of {', '.join(RUNTIMES)}, {CPU}.\n"
                "Correct it, for example: --for tpu-v5e-8"
            )
    known = [probe.read(Path(name)) for name in probed] or runs or []
    asked = replace(_counted(config, given), runs=known, largest=largest)
    if CPU in names:  # like the `train` command
        os.environ["JAX_PLATFORMS"] = "cpu"
        backend.use_every_core(config.batch)
    made = plan.make(config, names, asked, show)
    for line in plan_table.lines(made):
        show(line)
    if given["output"]:
        text = json.dumps(made.to_json(), indent=1) + "\n"
        _write(Path(given["output"]) / FILE, text.encode(), show)
    if given["page"]:
        title, found = f"{made.config} · plan", plan_table.section(made)
        _write(Path(given["page"]), render("plan/plan.html.j2", title, plan=found, made=made), show)
    return made.to_json()


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def kept(folder: Path) -> Path | None:
    """Return the path of the plan in a run's folder or next to it, or None if there is no plan."""
    return next((place for place in (folder / FILE, beside(folder)) if place.is_file()), None)


def beside(folder: Path) -> Path:
    """Return the path of a pulled run's plan. It is beside the folder, which must not change."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}-{FILE}")


def _write(path: Path, content: bytes, show: Callable[[str], None]) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(path, content)
    show(f"wrote {path}")


def _counted(config: Config, given: Mapping[str, str]) -> Given:
    """Count the labelled images, and measure how fast one CPU decodes the images in --input."""
    said, data = given["images"], config.data
    known = Given(ASSUMED_IMAGES, "assumed; to change it, pass --input DIR or --images N")
    if data.labelled is not None:
        known = Given(data.labelled, f"data.labelled={data.labelled}")
    if given["input"]:
        folder = Path(given["input"])
        refuse_missing_input(folder)
        test = None
        if samples.is_there(folder, data):
            test = max(len(samples.ids(folder, data).table), 1)
        if data.kind in ("images", "tfrecords"):
            paths = dataset.training_images(folder, config)
            files, decodes = probe.sample(paths, data)
            basis = f"measured here with {len(files)} images"
            more: Any = {"files": files, "decodes": decodes, "decodes_basis": basis}
            known = Given(len(paths), "counted in the folder", **more)
        elif rows := _lines(folder / (data.train_csv or "")):
            known = Given(rows, f"counted in {data.train_csv}")
        elif not said:
            raise ConfigError(
                f"--input {folder}: {data.train_csv or 'a table'} with labelled rows was not found."
                "\nComplete the folder, or set the number of rows: --images N"
            )
        known = replace(known, test_images=test)
    if said and not (re.fullmatch("[0-9]{1,13}", said) and 1 <= int(said) <= MOST_IMAGES):
        raise ConfigError(
            f"Invalid --images {said[:40]}: expected an integer from 1 to {MOST_IMAGES:,}.\n"
            f"Set it to the number of labelled {data.noun}, or set the folder: --input DIR"
        )
    return replace(known, images=int(said), images_basis="set by --images") if said else known


def _lines(path: Path) -> int | None:
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises if a name is too long
        return None
    edit = "Finish the download, or set --images N."
    return max(sum(1 for _ in csv_files.rows(path, ConfigError, edit)) - 1, 1)
