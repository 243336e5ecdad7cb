"""Prepare a user's folder for a rehearsal, which hides some rows and may omit others."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pipeline import config as configs
from pipeline.config import rehearsal
from pipeline.errors import ConfigError
from pipeline.evaluate import held_out_rows
from workbench import budget as budgets
from workbench.rehearse import short_run
from workbench.rehearse.hidden_test import HiddenTest
from workbench.rehearse.short_run import Plan

IN_SIGHT = "sessions use copies of the files, but could read the folder with the hidden labels"
SHORT = "; this short training run shows that the chain works, not how good the model can get"


@dataclass(frozen=True)
class RehearsedFolder:
    """A user's folder that was prepared for a rehearsal.

    Attributes:
        lines: messages about what the rehearsal hides, changes, omits or creates.
        kept: file to save the state in, so that a restart hides the same rows, or None if the
            rehearsal is never restarted.
        state: content of that file.
    """

    test: HiddenTest
    plan: Plan
    lines: tuple[str, ...]
    kept: Path | None = None
    state: Mapping[str, object] = field(default_factory=dict)

    @property
    def about(self) -> str:
        """The last score with its standard error, compared with the baseline."""
        test, baseline = self.test, self.test.baseline
        better = "lower" if test.lower_is_better else "higher"
        shown, beside = test.metric.name, f"; baseline: {baseline}" if baseline else ""
        if test.scored is not None:
            shown += " {:.4g} ± {:.2g}".format(*test.scored)
            if baseline:
                beside = f"; {held_out_rows.beside(baseline, test.metric, *test.scored)}{beside}"
        return (
            f"{shown} on {len(test.hidden):,} hidden rows, {better} is better{beside}"
            f"{SHORT * (self.plan.train is not None)}"
        )

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables through which a session applies the plan."""
        return {rehearsal.VARIABLE: json.dumps(self.plan.changes)} if self.plan.changes else {}

    def write(self, folder: Path, *, hidden: bool = False) -> None:
        self.test.write(folder, hidden=hidden)
        if self.kept:
            self.kept.write_text(json.dumps(self.state))


def hidden(
    name: str, folder: Path, budget: str, *, internet: bool, copied: bool, kept: Path | None = None
) -> RehearsedFolder:
    """Hide some of a folder's labelled rows, and reduce the size of the run.

    Args:
        name: name or path of the config.
        budget: time limit for the rehearsal, such as "2m", or "" to rehearse the whole run.
        internet: whether sessions can download published weights.
        copied: see `HiddenTest`.
        kept: see `RehearsedFolder`.

    Raises:
        ConfigError: if the rows or the budget have changed since the first start, or if the config
            is invalid.
        DataError: see `HiddenTest`.
    """
    config, seconds = configs.load(name), budgets.seconds(budget) if budget else 0.0
    before = json.loads(kept.read_text()) if kept and kept.is_file() else None
    if before and budget and budget != before["budget"]:
        raise ConfigError(
            f"--budget {budget}: expected the same as in {kept}, {before['budget'] or 'none'}.\n"
            "Omit --budget, or use a new --folder."
        )
    test, plan = HiddenTest(config, folder, copied=copied), Plan()
    if before:
        plan = Plan(**before["plan"])
    elif budget:
        rows = len(test.train)
        plan = short_run.in_a_process(name, rows, test.tests, seconds, internet=internet)
    test.limit(plan.train, plan.tests)
    labels = hashlib.sha256(json.dumps(test.solution).encode()).hexdigest()
    if before and before["solution_sha256"] != labels:
        raise ConfigError(
            f"Since {kept} was written, the labelled rows in {folder} or their config fields in"
            f" {name} have changed.\nRestore the rows and fields, or use a new --folder."
        )
    other = held_out_rows.differing(config)
    lines = (
        f"{len(test.hidden):,} of {test.labelled:,} labelled rows are the hidden test set",
        *((IN_SIGHT,) if copied else ()),
        *plan.lines,
        *test.made_up,
        *((other,) if other else ()),
    )
    state = {"solution_sha256": labels, "budget": budget, "plan": asdict(plan)}
    return RehearsedFolder(test, plan, lines, kept, before or state)
