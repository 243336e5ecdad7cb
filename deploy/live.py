"""The smoke test: what Kaggle does where this project can only assume, cheapest questions first.

Reads  a connection, the slug of a competition
Makes  private notebooks and a private dataset, whose names hold one random suffix
Gives  a table of facts, and one file with every answer

A test that was killed, or lost its connection, goes on where it stopped when it is given again. At
the end it deletes what it made, and names what it could not delete.
"""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deploy import seen_facts, server_address
from deploy.client import Kaggle
from deploy.errors import Ambiguous, Detached, RelayError, RunFailed
from deploy.live_runs import REFUSALS, Runs
from deploy.live_steps import LiveSteps
from deploy.made_things import MadeThings
from deploy.raw_answers import RawAnswers

Show = Callable[[str], None]

KILLED_SECONDS = 120.0
DELETES = 3  # tries
LEFT = 4  # the exit code where Kaggle refused to delete something


@dataclass(frozen=True)
class Step:
    """One step of the test.

    Attributes:
        does: in words.
        spends: in words.
        option: that asks for it; "": it costs nothing, and is always taken.
    """

    name: str
    does: str
    spends: str
    option: str = ""

    def lines(self) -> list[str]:
        """Return what is announced."""
        return [f"{self.name}: {self.does}. It spends {self.spends}."]


STEPS = (
    Step("reads", "asks for what Kaggle says of account and competition", "nothing"),
    Step("cpu", "runs a notebook on a CPU, and reads what it wrote", "no quota"),
    Step("dataset", "makes a dataset of two versions", "no quota"),
    Step(
        "sources", "mounts that dataset, and the notebook's own output, in a notebook", "no quota"
    ),
    Step("killed", "lets a notebook run until its timeout kills it", "no quota"),
    Step("tpu", "runs a notebook on a TPU, and pushes another meanwhile", "5 TPU minutes", "tpu"),
    Step("gpu", "runs a notebook on two T4, without the internet", "3 GPU minutes", "gpu"),
    Step("submit", "submits the competition's own sample", "one submission", "submit"),
)


@dataclass(frozen=True)
class Result:
    """What a test found.

    Attributes:
        file: with facts and answers.
        rows: of the table.
        notes: what else is worth knowing.
        left: addresses of what could not be deleted.
    """

    file: Path
    rows: list[seen_facts.Row]
    notes: list[str]
    left: list[str]

    def values(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes."""
        rows = [asdict(row) for row in self.rows]
        return {"file": str(self.file), "rows": rows, "notes": self.notes, "left": self.left}


def unfinished(again: str) -> str:
    """Return what to do after a test that has not ended; `again`: the command that began it."""
    return (
        "The smoke test is unfinished, and what it made is still on Kaggle. To finish it, and to"
        f" delete that:\n{again}"
    )


def smoke_test(
    kaggle: Kaggle,
    competition: str,
    folder: Path,
    *,
    wanted: Collection[str] = (),
    sample: str = "sample_submission.csv",
    agree: Callable[[Step], bool] = lambda step: True,
    show: Show = lambda line: None,
    killed_seconds: float = KILLED_SECONDS,
    again: str = "invoke doctor --live",
) -> Result:
    """Take the test, or go on with the one that was begun, and delete what it made.

    Args:
        kaggle: a connection; its pace says how long each look may take.
        competition: slug of one whose rules were accepted.
        folder: of the records and the file.
        wanted: "tpu", "gpu" and "submit", as far as they may be spent.
        sample: the competition's file that shows what a submission looks like.
        agree: is asked before a step that spends something.
        show: is given a line for each step.
        killed_seconds: timeout of the session that is killed.
        again: the command that goes on with this test.

    Raises:
        RelayError: the test is unfinished, and can be given again; as Unreachable, CredentialError,
            DeadlinePassed, DiskError, Detached.
        UsageError: if the records cannot be read, or are another account's.
    """
    where = re.sub(r"[^A-Za-z0-9.-]", "-", server_address.address())
    made = MadeThings(folder / f"unfinished-{where}.json", kaggle.username)
    file = folder / f"facts-{made.suffix}.json"
    answers = RawAnswers(file, made.began, kaggle.username, made.suffix)
    kaggle.listen(answers.hear)
    show(f"All is private, has {made.suffix} in its name, and is deleted at the end.")
    runs = Runs(kaggle, made, answers)
    steps = LiveSteps(runs, made, answers, competition, sample, killed_seconds)
    try:
        left = _Smoke(steps, runs, made, answers, competition).take(wanted, agree, show)
    except KeyboardInterrupt:
        raise Detached(f"Interrupted. {unfinished(again)}") from None
    except RelayError as error:
        raise type(error)(f"{error}\n{unfinished(again)}") from error
    if not left:
        made.forget()
    held = answers.records
    return Result(answers.path, seen_facts.table(held), seen_facts.notes(held), left)


class _Smoke:
    """The order of the steps, and the end."""

    def __init__(
        self, steps: LiveSteps, runs: Runs, made: MadeThings, answers: RawAnswers, competition: str
    ) -> None:
        self._steps, self._runs, self._made, self._answers = steps, runs, made, answers
        self._competition = competition

    def take(self, wanted: Collection[str], agree: Callable[[Step], bool], show: Show) -> list[str]:
        """Take the steps, delete what they made, and return the addresses of what is left."""
        for step in STEPS:
            if (step.option and step.option not in wanted) or self._made.has("done", step.name):
                continue
            if step.option == "submit":
                step = replace(step, spends=f"{step.spends} to {self._competition}")
            for line in step.lines():
                show(line)
            if step.option and not self._made.has("agreed", step.name):
                if not agree(step):
                    continue
                self._made.add("agreed", step.name)
            self._answers.step = step.name
            try:
                getattr(self._steps, step.name)()
            except (*REFUSALS, RunFailed) as error:
                said = str(error).partition("\n")[0]
                self._answers.note("failure", failed=said)
                show(f"{step.name}: {said}")
            self._made.add("done", step.name)
            self._save()
        self._answers.step = "end"
        left = self._delete(show)
        self._save()
        return left

    def _save(self) -> None:
        held = self._answers.records
        self._answers.save(
            facts=seen_facts.seen(held),
            assumed=seen_facts.assumed(),
            notes=seen_facts.notes(held),
        )

    def _delete(self, show: Show) -> list[str]:
        """Delete all that is there, and return the addresses of what is still there."""
        runs, left = self._runs, list[str]()
        kaggle = runs.kaggle
        kernels = [
            (handle, f"https://www.kaggle.com/code/{handle}", runs.exists, kaggle.delete_kernel)
            for handle in self._made.kernels()
        ]
        datasets = [
            (
                handle,
                f"https://www.kaggle.com/datasets/{handle}",
                lambda handle: kaggle.dataset(handle) is not None,
                kaggle.delete_dataset,
            )
            for handle in self._made.datasets()
        ]
        for handle, address, exists, delete in [*kernels, *datasets]:
            why = self._deleted(handle, exists, delete)
            if why:
                show(f"{handle} could not be deleted: {why}")
                left.append(address)
            else:
                self._made.add("deleted", handle)
        return left

    def _deleted(
        self, handle: str, exists: Callable[[str], bool], delete: Callable[[str], None]
    ) -> str:
        """Return why a thing is still there; "": it is not."""
        said = "it is still there"
        for _ in range(DELETES):
            if not exists(handle):
                return ""
            try:
                delete(handle)
            except (*REFUSALS, Ambiguous) as error:
                said = str(error).partition("\n")[0]
            time.sleep(self._runs.poll)
        return said if exists(handle) else ""
