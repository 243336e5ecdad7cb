"""Runs steps in tests: shows what they report as lines, and agrees to each question."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from commands.telling import in_a_line
from deploy import chain, competition, datasets, preview, push, status, watch
from deploy.bundle import Bundle
from deploy.chain import Model
from deploy.client import Kaggle
from deploy.competition import Submission
from deploy.datasets import DatasetVersion
from deploy.events import Ask, Event, Note, Status, Steps, completed
from deploy.output import Member
from deploy.preview import Preview
from deploy.project import TRAIN, Project
from deploy.records import Records
from deploy.runs import Run

T = TypeVar("T")
Show = Callable[[str], object]
Agree = Callable[[Any], object]


def silent(line: str) -> None:
    """Show nothing."""


def done(steps: Steps[T], show: Show = silent, agree: Agree | None = None) -> T:
    """Run steps, and return what they return.

    Args:
        show: is given each line.
        agree: is given what would be spent, and returns False or raises to stop.
    """

    def tell(event: Event) -> bool | None:
        match event:
            case Note(text):
                show(text)
            case Status():
                show(in_a_line(event))
            case Ask(lines, _, preview):
                return agree is None or agree(preview or lines) is not False
        return None

    return completed(steps, tell)


def pushed(
    kaggle: Kaggle,
    ours: Project,
    kernel: str = TRAIN,
    *,
    artifact: Path | None = None,
    members: Sequence[Member] = (),
    show: Show = silent,
    agree: Agree | None = None,
    **more: Any,
) -> Run:
    """Push a kernel of the project."""
    model = Model(artifact, members)
    return done(chain.push_kernel(kaggle, Records(ours), kernel, model, **more), show, agree)


def built(ours: Project, kernel: str, owner: str, artifact: Path | None = None) -> Bundle:
    """Build a kernel of the project."""
    return chain.build(owner, Records(ours), kernel, Model(artifact))


def looked(kaggle: Kaggle, ours: Project, kernel: str = TRAIN) -> Preview:
    """Return what a push would do."""
    made = built(ours, kernel, kaggle.username)
    current = kaggle.get_kernel(made.handle)
    return preview.look(kaggle, Records(ours), made, current, current.version if current else 0)


def watched(kaggle: Kaggle, ours: Project, run: Run, show: Show = silent) -> str:
    """Watch a run to its end."""
    return done(watch.watch(kaggle, Records(ours), run), show)


def pulled(kaggle: Kaggle, ours: Project, run: Run, show: Show = silent) -> Path:
    """Pull a run."""
    return done(chain.pull(kaggle, Records(ours), run), show)


def published(kaggle: Kaggle, ours: Project, folder: Path, show: Show = silent) -> DatasetVersion:
    """Publish the artifact of a training."""
    return done(datasets.artifact(kaggle, Records(ours), folder), show)


def submitted(
    kaggle: Kaggle,
    ours: Project,
    run: Run,
    folder: Path,
    *,
    check: Callable[[Path, Path], object] = lambda *_: None,
    show: Show = silent,
    agree: Agree | None = None,
    **more: Any,
) -> Submission:
    """Submit an inference."""
    steps = competition.submit(kaggle, Records(ours), run, folder, check, **more)
    return done(steps, show, agree)


def trained(
    kaggle: Kaggle, ours: Project, show: Show = silent, agree: Agree | None = None, **more: Any
) -> chain.CompleteTraining:
    """Train until it is done."""
    return done(chain.train(kaggle, Records(ours), **more), show, agree)


def relayed(
    kaggle: Kaggle,
    ours: Project,
    show: Show = silent,
    agree: Agree | None = None,
    check: Callable[[Path, Path], object] = lambda *_: None,
    **more: Any,
) -> chain.Result:
    """Run the whole chain."""
    return done(chain.run(kaggle, Records(ours), check, **more), show, agree)


def resolved(kaggle: Kaggle, ours: Project, show: Show = silent) -> Records:
    """Find out what came of pushes without an answer, and return the records."""
    records = Records(ours)
    done(push.resolve(kaggle, records), show)
    return records


def following(ours: Project, run: Run, folder: Path) -> str:
    """Return the command that follows a pull."""
    return chain.next_command(Records(ours), run, folder)


def journal_lines(ours: Project) -> list[str]:
    """Return what was asked of Kaggle, as lines for a person."""
    return status.journal_lines(Records(ours))
