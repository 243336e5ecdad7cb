"""Run the `inspect` command, which prints findings and proposes a config."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from formats import atomic_file
from pipeline import config as configs
from pipeline.config import Config
from pipeline.errors import ConfigError, PipelineError
from pipeline.runtime import backend

Show = Callable[[str], None]


def run(folder: Path, given: Mapping[str, str], show: Show) -> dict[str, Any]:
    """Print the findings about a competition folder and a proposed config, and return both.

    Args:
        given: the value of each option in `workbench.options.INSPECT`, or "" for its default.
    """
    backend.choose("jax")  # reading TFRecords imports TensorFlow, and that imports Keras
    from workbench.inspect import config_file, inspection, page, proposal, recipes
    from workbench.inspect.tables import Given

    plan = recipes.plan(given["for"], given["budget"])
    path = config_file.place(given["write"]) if given["write"] else None
    if path is not None and given["metric"] and path.is_file():
        return _renew(folder, given, path, show)
    if path is not None:
        config_file.refuse_existing(path)
    page_path = page.place(given["page"])
    name, competition = config_file.names(folder, path, given["competition"])
    labels = tuple(filter(None, given["label"].split(",")))
    parts = given["sample"], given["train"], given["test"]
    asked = Given(*parts, labels, given["metric"], given["alone"])
    found = inspection.inspect(folder, asked)
    if plan.machine == recipes.CPU or found.inputs.data.kind == "table":
        # Image networks are timed here, and a table's network is trained. All batch sizes that
        # can be proposed are multiples of BASE.
        backend.use_every_core(recipes.BASE)
    lines, problem = found.findings, None
    made = proposal.propose(found, name, competition, plan, lines)
    if not given["competition"]:
        text = f"assumed to be {competition!r}, based on the name of the folder or the config. "
        text += "If the competition's Kaggle URL ends differently, pass --competition SLUG"
        lines.unknown("competition", text)
    try:
        examples = proposal.read_examples(made.config, found)
        proposal.check(made.config, found, examples, lines)
        config = proposal.with_baseline(made.config, found, examples, lines)
        made = replace(made, config=config)
        made = proposal.compared(made, found.contents.folder, examples, lines)
    except PipelineError as error:
        problem = error  # raised below, once the findings have been printed
    text = config_file.text(found, made, given=bool(given["competition"]))
    _show(lines, show)
    if page_path is not None:
        page.write(found, text, page_path, problem=str(problem or ""))
        show(f"wrote {page_path}")
    if problem is not None:
        raise problem
    if path is None:
        show(f"\n{text}")
    else:
        atomic_file.write(path, text.encode())
        configs.load(str(path))
        words = ["--config", given["write"], "--input", str(folder)]
        command = ["invoke", "dry-run", *words]
        if plan.machine == recipes.CPU:
            train = ["python", "-m", "pipeline", "train"]
            command = [*train, *words, "--output", f"out/{path.stem}"]
        show(f"wrote {path}\nNext:\n{shlex.join(command)}")
    return _result(made.config, path, given["page"], lines)


def _show(lines: list[Any], show: Show) -> None:
    for line in lines:
        show(f"{line.level:9}{line.about:18}{line.text}")


def _result(config: Config, path: Path | None, page: str, lines: list[Any]) -> dict[str, Any]:
    return {
        "config": config.name,
        "competition": config.competition,
        "written": None if path is None else str(path),
        "page": page or None,
        "proposed": config.to_json(),
        "findings": [asdict(line) for line in lines],
    }


def _renew(folder: Path, given: Mapping[str, str], path: Path, show: Show) -> dict[str, Any]:
    """Update the metric of an existing config, and fit a new baseline for it."""
    from pipeline.evaluate import metrics
    from workbench.inspect import config_file, inspection, proposal, recipes
    from workbench.inspect.folder import Findings
    from workbench.inspect.tables import Given

    idle = [name for name in ("for", "budget", "competition", "page") if given[name]]
    if idle:
        raise ConfigError(
            f"--{idle[0]} cannot be used when --metric updates an existing config, {path}.\n"
            "Remove the option, or write a new config: --write NAME"
        )
    before, metric = configs.load(given["write"]), given["metric"]
    config = replace(before, metric=metric)
    metrics.of(config)  # raises if the metric cannot score this target
    if "custom" in (config.data.kind, config.target):
        raise ConfigError(
            f"{path} has a custom {'reader' if config.data.kind == 'custom' else 'target'}, so "
            "no baseline can be fitted.\n"
            f'In that file, set metric="{metric}" and remove any baseline.'
        )
    known = config.data.labels if config.data.train_csv else ()  # else the labels are folder names
    labels = tuple(filter(None, given["label"].split(","))) or known
    asked = Given(given["sample"], given["train"], given["test"], labels)
    found, lines = inspection.inspect(folder, asked), Findings()
    if config.data.kind == "table":
        backend.use_every_core(recipes.BASE)
    config = replace(config, baseline=None)
    examples = proposal.read_examples(config, found)
    config = proposal.with_baseline(config, found, examples, lines)
    _show(lines, show)
    if config.baseline is None:
        raise ConfigError(
            f"{path} was not changed because no baseline could be fitted (see above).\n"
            f'In that file, set metric="{metric}" and remove the baseline.'
        )
    config_file.edit(path, before, {"metric": metric, "baseline": config.baseline})
    show(f"updated the metric and the baseline in {path}; nothing else was changed")
    return _result(config, path, "", lines)
