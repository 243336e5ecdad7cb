"""Inspect command: the findings of an inspection and the proposed config, shown and written."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pipeline.config import config_files
from pipeline.errors import ConfigError, PipelineError
from pipeline.runtime import backend


def run(folder: Path, given: Mapping[str, str], show: Callable[[str], None]) -> dict[str, Any]:
    """Show what is in a competition folder and the proposed config, and return both.

    Args:
        folder: as Kaggle mounts it.
        given: a value for each of `workbench.options.INSPECT`, "" for the default.
        show: prints a line.
    """
    backend.choose("jax")  # TensorFlow, which reads TFRecords, imports Keras
    from workbench.inspect import (
        config_proposal,
        image_networks,
        inspection,
        inspection_page,
        training_speed,
    )
    from workbench.inspect.tables import Given

    plan = training_speed.plan(given["for"], given["budget"])
    path = config_proposal.place(given["write"]) if given["write"] else None
    if path is not None and given["metric"] and path.is_file():
        return _renew(folder, given, path, show)
    if path is not None:
        config_proposal.refuse_existing(path)
    page = inspection_page.place(given["page"])
    name, competition = config_proposal.names(folder, path, given["competition"])
    labels = tuple(filter(None, given["label"].split(",")))
    found = inspection.inspect(
        folder, Given(given["sample"], given["train"], given["test"], labels, given["metric"])
    )
    if plan.machine == training_speed.CPU or found.inputs.data.kind == "table":
        # Networks are timed, and that of a table is trained. Every proposed batch is a multiple.
        backend.use_every_core(image_networks.BASE)
    proposed, problem = config_proposal.propose(found, name, competition, plan), None
    try:
        examples = config_proposal.read_examples(proposed.config, found)
        checked = config_proposal.check(proposed, found, examples)
        proposed = config_proposal.with_baseline(proposed, found, examples)
    except PipelineError as error:
        checked, problem = [], error  # raised below, after the findings are shown
    text = config_proposal.text(found, proposed, given=bool(given["competition"]))
    lines = [*found.findings, *proposed.findings]
    if not given["competition"]:
        lines.append(config_proposal.assumed(folder, competition))
    lines += checked
    for line in lines:
        show(f"{line.level:9}{line.about:18}{line.text}")
    if page is not None:
        inspection_page.write(found, lines, text, page, problem=str(problem or ""))
        show(f"wrote {page}")
    if problem is not None:
        raise problem
    if path is None:
        show(f"\n{text}")
    else:
        config_proposal.write(path, text)
        words = ["--config", given["write"], "--input", str(folder)]
        command = shlex.join(["invoke", "dry-run", *words])
        if plan.machine == training_speed.CPU:
            words = ["python", "-m", "pipeline", "train", *words, "--output", f"out/{path.stem}"]
            command = shlex.join(words)
        show(f"wrote {path}\nNext:\n{command}")
    return {
        "config": name,
        "competition": competition,
        "written": None if path is None else str(path),
        "page": given["page"] or None,
        "proposed": proposed.config.to_json(),
        "findings": [asdict(line) for line in lines],
    }


def _renew(
    folder: Path, given: Mapping[str, str], path: Path, show: Callable[[str], None]
) -> dict[str, Any]:
    """Measure the baseline of a config that exists by another metric, put both into its file, and
    return what was found.
    """
    from pipeline.evaluate import metrics
    from workbench.inspect import (
        config_edits,
        config_proposal,
        image_networks,
        inspection,
        tables,
        training_speed,
    )

    idle = [name for name in ("for", "budget", "competition", "page") if given[name]]
    if idle:
        raise ConfigError(
            f"--{idle[0]} cannot work with --metric and a config that exists, {path}: its metric"
            " and baseline alone are renewed.\n"
            f"Leave it out, or give a new name: --write NAME"
        )
    before = config_files.load(given["write"])
    config = replace(before, metric=given["metric"])
    metrics.of(config)  # refuses one that cannot score this target
    if "custom" in (config.data.kind, config.target):
        raise ConfigError(
            f"{path} has its own {'reader' if config.data.kind == 'custom' else 'target'}, for"
            " which no simple model is fitted; expected image files, arrays, TFRecords or a"
            " table.\n"
            f'Set metric="{config.metric}" in it, and leave baseline out.'
        )
    labels = tuple(filter(None, given["label"].split(","))) or config.data.labels
    asked = tables.Given(given["sample"], given["train"], given["test"], labels)
    found = inspection.inspect(folder, asked)
    if config.data.kind == "table":
        backend.use_every_core(image_networks.BASE)
    proposed = config_proposal.Proposal(config, (), 0.0, training_speed.Plan())
    proposed = config_proposal.with_baseline(proposed, found)
    for line in proposed.findings:
        show(f"{line.level:9}{line.about:18}{line.text}")
    if proposed.config.baseline is None:
        raise ConfigError(
            f"{path} stays as it is: no baseline could be measured, as said above.\n"
            f'Set metric="{config.metric}" in it, and remove baseline=.'
        )
    config_edits.write(path, before, proposed.config, ("metric", "baseline"))
    show(f"wrote metric and baseline into {path}; all else is as it was")
    return {
        "config": config.name,
        "competition": config.competition,
        "written": str(path),
        "page": None,
        "proposed": proposed.config.to_json(),
        "findings": [asdict(line) for line in proposed.findings],
    }
