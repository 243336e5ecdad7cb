"""The rehearsal: the whole chain on this machine, with an embedded competition or a folder of the
user's own, in one command, or step by step against a local Kaggle that hosts the folder.
"""

import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.console import ROOT, TWO_WEEKS, Limit, Result, number, show, task
from commands.project import check_custom_code, checker, connect, project, show_result
from commands.telling import Telling

if TYPE_CHECKING:
    from deploy import chain
    from deploy.project import Project

BUDGET = "2m"
MINUTES, TIMES = 60, 4  # a rehearsal is stopped after so many, or so many times its budget
LEAST_BYTES = 50 * 10**6  # a rehearsal of `digits` writes 22 MB
# Copies of each fold's weights that a rehearsal writes: checkpoints with Adam's state and the
# average, and the artifact in each place it comes through. Of ConvNeXt: 2.6 GB, 11.7 copies.
COPIES = 12
LARGE = 5 * 10**8  # bytes of a rehearsal's files that are worth a line
FULL = ("No space left on device", "Disk quota exceeded")  # as a notebook's log says it
SHORT = "; a short training shows that the chain works, not how good the model gets"
HIDDEN = "hidden.json"  # beside what sessions see: what the same hidden rows follow from
SEEN = "a session could read the folder, with the hidden labels; it gets copies of the files"


@dataclass(frozen=True)
class Hosted:
    """What the local Kaggle hosts for a rehearsal.

    Attributes:
        competition: an embedded one's slug, or one on a folder.
        check: as `deploy.submit.submit` takes it.
        variables: environment variables of the sessions.
        private: folders that no session sees.
        lines: what the rehearsal does, and what not.
        size: bytes that the rehearsal writes beside those of `digits`.
        about: what the score means.
    """

    competition: Any
    check: Callable[[Path, Path], int]
    variables: Mapping[str, str] = field(default_factory=dict)
    private: tuple[Path, ...] = ()
    lines: tuple[str, ...] = ()
    size: int = 0
    about: str = ""

    def serve(self, folder: Path, **more: Any) -> Any:
        """Return a `LocalKaggle` that hosts this alone; `more` is what else it takes."""
        from localkaggle.server import LocalKaggle

        return LocalKaggle(
            folder,
            competitions=[self.competition],
            variables=self.variables,
            private=self.private,
            **more,
        )


def several_budgets(budget: str) -> float:
    """Return the minutes after which a rehearsal with that --budget is stopped.

    >>> several_budgets("2m"), several_budgets("1h"), several_budgets("240h") == TWO_WEEKS
    (60, 240.0, True)
    """
    from workbench import budget as budgets

    return min(max(MINUTES, TIMES * budgets.seconds(budget) / 60), TWO_WEEKS)


@task(
    Limit(
        MINUTES,
        {"full": TWO_WEEKS, "budget": several_budgets},
        "A rehearsal cannot be resumed: its Kaggle server has stopped. Run the same command again"
        " with a smaller --budget, or with more time:\n--minutes N",
        f"timeout in minutes (default {MINUTES}, or {TIMES} times a longer --budget; with --full"
        " two weeks)",
    ),
    iterable=("dataset",),
    config="name in pipeline/configs/, or path of such a .py file; default: digits, and with"
    " --input what init chose",
    input="a competition's folder; a part of its labelled rows becomes the hidden test set."
    " Default: the data of the embedded competition that the config is for",
    budget=f"how long a rehearsal of a folder may take on two cores, as 90s, {BUDGET} or 1h"
    f" (default {BUDGET}); it trains on less, and says on how much",
    full="train on all of a folder; a session ends after 9 hours, as on Kaggle",
    dataset="OWNER/SLUG=DIR: a dataset that kernel-metadata.json lists, and the folder with its"
    " files; repeat for another",
    internet="let train-tpu reach the internet, as on Kaggle; by default nothing can",
    tpu_python="Python to run train-tpu with, such as one with constraints/tpu-image.txt installed;"
    " default: this one",
    gpu_python="Python to run infer-gpu with, such as one with constraints/gpu-image.txt installed;"
    " default: this one",
)
def dry_run(
    config: str | None = None,
    input: str = "",
    budget: str = "",
    full: bool = False,
    dataset: Sequence[str] | None = None,
    internet: bool = False,
    tpu_python: str = "",
    gpu_python: str = "",
) -> Result:
    """Rehearse the whole chain on this machine: no account, no network.

    Example: invoke dry-run --config leaves --input data/leaves
    """
    from deploy.errors import Detached, UsageError
    from localkaggle.services.datasets import parse_published

    config = config or default(input)
    python = {
        machine: interpreter(machine, path)
        for machine, path in (("TPU", tpu_python), ("GPU", gpu_python))
        if path
    }
    try:
        try:
            datasets = dict(parse_published(text) for text in dataset or ())
        except ValueError as error:
            raise UsageError(f"--dataset {error}.\nCorrect it.") from error
        check_custom_code(config)
        ours = _project(config)
        if input:
            hosted = hosted_folder(config, Path(input), budget, full=full, internet=internet)
        else:
            hosted = _embedded(ours.competition, config, budget, full=full)
    except KeyboardInterrupt:  # before the server, which has a message of its own
        raise Detached(
            "Interrupted before anything ran.\nTo start over, run the same command again."
        ) from None
    result = _rehearse(ours, hosted, datasets=datasets, offline=not internet, python=python)
    end = show_result(result, config, hosted.about)
    size = sum(path.lstat().st_size for path in ours.runs.rglob("*"))
    if size > LARGE:
        removed = f"rm -r {shlex.quote(str(ours.runs))}"
        show(f"files       {size / 1e9:.1f} GB; to remove them: {removed}")
    return end


def default(folder: str) -> str:
    """Return the config of a rehearsal for which none was given; of a folder it is said."""
    if not folder:
        return "digits"
    from deploy import init

    name = init.default_config(ROOT)
    write = shlex.join(["invoke", "inspect", "--input", folder, "--write"])
    show(f"No --config was given: this takes {name}. To write one for the folder: {write} NAME")
    return name


def interpreter(machine: str, path: str) -> str:
    """Return the absolute path of a Python; raise `UsageError` unless it can run notebooks."""
    import subprocess

    from deploy.errors import UsageError

    code = (
        "from importlib.util import find_spec as find;"
        " print([n for n in ('papermill', 'ipykernel') if not find(n)])"
    )
    try:
        command = [path, "-s", "-c", code]
        done = subprocess.run(  # noqa: S603 - the user's own
            command, capture_output=True, text=True, timeout=60, check=False
        )
        lacking = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        lacking = ""
    if lacking == "[]":
        return str(Path(path).absolute())
    option = f"--{machine.lower()}-python {path}"
    if lacking.startswith("["):
        raise UsageError(
            f"{option} has no {lacking.strip('[]')}; expected an environment that can run"
            f" notebooks.\n{shlex.quote(path)} -m pip install -e ."
            f" -c constraints/{machine.lower()}-image.txt"
        )
    raise UsageError(
        f"{option}: expected the interpreter of a Python environment.\n"
        "Give the path of an environment's bin/python, or leave the option out."
    )


@task(
    config="name in pipeline/configs/, or path of such a .py file; default: what init chose",
    input="a competition's folder; a part of its labelled rows becomes the hidden test set",
    folder="where to keep everything, and what was kept there before: give it again to go on;"
    " default: a temporary folder, removed at the end",
    port="default: the last one of its folder, or a free one",
    budget="train on less there, as a rehearsal of 90s, 2m or 1h does; default: on all",
    offline="no session gets the internet, not even one that asks for it",
)
def serve(
    config: str | None = None,
    input: str = "",
    folder: str = "",
    port: str = "",
    budget: str = "",
    offline: bool = False,
) -> Result:
    """Host a folder of your own as a competition, on a Kaggle on this machine; Ctrl-C ends it.

    Example: invoke serve --config leaves --input data/leaves --folder kaggle
    """
    from deploy import auth
    from deploy.errors import UsageError

    auth.require_client()  # the local Kaggle is made of the client's parts, too
    from localkaggle import __main__ as local

    if not input:
        raise UsageError(
            "--input is missing; expected a competition's folder. The embedded competitions need"
            " none:\npython -m localkaggle serve"
        )
    config, place = config or default(input), Path(folder) if folder else None
    hosted = hosted_folder(
        config, Path(input), budget, full=not budget, internet=not offline, served_from=place
    )
    for line in hosted.lines:
        show(f"# {line}")
    again = ["invoke", "serve", "--config", config, "--input", input]
    again += [*(("--budget", budget) if budget else ()), *(("--offline",) if offline else ())]
    code = local.serve(
        place,
        shlex.join(again),
        port=int(number("port", port, 0, 65535)) if port else None,
        competitions=[hosted.competition],
        variables=hosted.variables,
        private=hosted.private,
        offline=offline,
    )
    return {"exit_code": code}


def _project(config: str) -> "Project":
    """Return the project of a rehearsal, whose records are its own."""
    runs = ROOT / "runs" / f"dry-run-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    # --minutes is the deadline of all waits together.
    return project(config, runs, runs / "build", deadline_seconds=TWO_WEEKS * 60.0)


def _rehearse(ours: "Project", hosted: Hosted, **hosting: Any) -> "chain.Result":
    """Run the chain against a Kaggle of its own, and note what was rehearsed."""
    from deploy import auth, bundle, chain
    from deploy.errors import Detached, RelayError
    from deploy.events import Ask, Event, completed
    from deploy.records import Records
    from formats.errors import writing

    auth.require_client()  # the local Kaggle is made of the client's parts, too
    from localkaggle.sessions.session import NO_NAMESPACES, namespaces

    runs, pushed, telling = ours.runs, [], Telling()
    for line in (*(() if namespaces() else (NO_NAMESPACES,)), *hosted.lines):
        show(f"rehearsal   {line}")
    require_space(runs, hosted.size)

    def tell(event: Event) -> bool | None:
        if not isinstance(event, Ask):
            return telling(event)
        pushed.append(getattr(event.costs, "code_sha256", ""))
        return True

    try:
        with writing(runs), hosted.serve(runs / "kaggle", **hosting) as local:
            for name in [name for name in os.environ if name.startswith("KAGGLE_")]:
                del os.environ[name]  # the user's own token would win over this Kaggle's
            os.environ.update(local.environment)
            show(f"Started a local Kaggle server; files in {runs / 'kaggle'}")
            try:
                steps = chain.run(connect(telling), Records(ours), hosted.check)
                result = completed(steps, tell)
            except RelayError as error:
                raise explained(error, local.disk_full, runs) from error
    # Around the server, too: a second interruption may come while it stops.
    except (KeyboardInterrupt, Detached):
        raise Detached(
            f"Interrupted. The local Kaggle server has stopped; its files are in {runs}\n"
            "A rehearsal cannot be resumed. To start over, run the same command again."
        ) from None
    how = f"{time.strftime('%Y-%m-%d %H:%M')}: {'; '.join(hosted.lines) or 'whole'}"
    for code_sha256 in filter(None, pushed):
        bundle.remember_rehearsal(ROOT / "runs", code_sha256, how)
    return result


def explained(error: Any, disk_full: str, runs: Path) -> Exception:
    """Return a `RelayError` of a rehearsal with what helps; `disk_full` is the server's."""
    from formats.errors import DiskError

    said = disk_full or next((words for words in FULL if words in str(error)), "")
    if said:
        return DiskError(
            f"The disk is full: {said}.\nExpected room for a rehearsal. Free some space,"
            " then run the same command again. The files of this one can go:\n"
            f"rm -r {shlex.quote(str(runs))}"
        )
    mounts = ""
    if "dataset_sources" in getattr(error, "kinds", ()):
        mounts = "Give the rehearsal its datasets: --dataset OWNER/SLUG=DIR\n"
    # What a session wrote lies here; `invoke pull` would ask Kaggle for it.
    kept = re.sub(r"\nTo pull what it wrote .*\ninvoke pull .*", "", str(error))
    made: Exception = type(error)(
        f"{kept}\n{mounts}(This was a rehearsal: its Kaggle server has stopped, and its"
        f" files are in {runs}. Once this is fixed, run the same command again.)"
    )
    return made


def require_space(folder: Path, size: int = 0) -> None:
    """Raise `DiskError` unless there is room for a rehearsal in a folder that need not exist.

    Args:
        size: bytes that it writes beside those of `digits`.
    """
    import shutil

    from formats.errors import DiskError

    there = next(path for path in (folder, *folder.parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    least = LEAST_BYTES + size
    if free < least:
        raise DiskError(
            f"The disk is full: {free / 1e6:,.0f} MB are free for {folder}; expected"
            f" {least / 1e6:,.0f} MB at least.\n"
            "Free some space, then run the same command again. To see what is large:\n"
            f"du -sh {shlex.quote(str(there))}/*"
        )


def _embedded(slug: str, config: str, budget: str, *, full: bool) -> Hosted:
    """Return an embedded competition, which is rehearsed as it is."""
    from deploy.errors import UsageError
    from localkaggle import competitions

    if slug not in competitions.NAMES:
        raise UsageError(
            f"The local Kaggle has no competition {slug!r}; it has:"
            f" {', '.join(competitions.NAMES)}; or it takes a competition's folder.\n"
            f"invoke dry-run --config {shlex.quote(config)} --input DIR"
        )
    if budget or full:
        raise UsageError(
            f"--{'full' if full else 'budget'} is for a rehearsal of a folder; {slug} is rehearsed"
            " as it is.\nLeave it out, or name a folder with --input."
        )
    return Hosted(slug, checker(config))


def hosted_folder(
    config: str,
    folder: Path,
    budget: str,
    *,
    full: bool,
    internet: bool,
    served_from: Path | None = None,
) -> Hosted:
    """Return a competition on a folder, with a part of its labelled rows hidden.

    Args:
        served_from: the folder of a local Kaggle, which hides the same rows when it starts again;
            None: it is served once.
    """
    import hashlib
    import json
    import secrets
    from dataclasses import asdict

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up chatter hides our messages
    from deploy.errors import UsageError
    from localkaggle.sessions.session import namespaces
    from pipeline import config as configs
    from pipeline.command_line import refuse_missing_input
    from pipeline.config import rehearsal
    from pipeline.evaluate import held_out_rows
    from workbench import budget as budgets
    from workbench.rehearse import short_run
    from workbench.rehearse.hidden_test import HiddenTest

    if full and budget:
        raise UsageError("--full and --budget: expected one of them.\nLeave one out.")
    refuse_missing_input(folder)
    settings, folder = configs.load(config), folder.resolve()
    copied = not namespaces()  # nothing is read-only there, and the folder is in sight
    kept = served_from and served_from / "competitions" / settings.competition / HIDDEN
    held = json.loads(kept.read_text()) if kept and kept.is_file() else None
    if held and budget and budget != held["budget"]:
        raise UsageError(
            f"--budget {budget}: {served_from} was started with {held['budget'] or 'none'};"
            " expected the same.\nLeave it out, or give a new --folder."
        )
    secret = held["secret"] if held else secrets.token_hex(16) if kept else ""
    made, plan = HiddenTest(settings, folder, copied=copied, secret=secret), short_run.Plan()
    if held:
        plan = short_run.Plan(**held["plan"])
    elif not full:
        most = budgets.seconds(budget or BUDGET)
        rows, tests = len(made.train), made.tests
        plan = short_run.in_a_process(config, rows, tests, most, internet=internet)
    made.limit(plan.train, plan.tests)
    labels = hashlib.sha256(json.dumps(made.solution).encode()).hexdigest()
    if held and held["solution_sha256"] != labels:
        raise UsageError(
            f"The labelled rows of {folder}, or what the config {config} says of them, are not"
            f" those that {served_from} was started with; expected the same.\n"
            "Restore them, or give a new --folder."
        )
    tests = max(len(made.hidden), len(made.visible), len(made.test_ids))
    share = min((len(made.train) + tests) / made.labelled, 1.0)
    # A baseline in another metric would be a number that says nothing beside this one's score.
    other = held_out_rows.differing(settings)
    lines = (
        f"{len(made.hidden):,} of {made.labelled:,} labelled rows are the hidden test set",
        *((SEEN,) if copied else ()),
        *plan.lines,
        *made.made_up,
        *(f"left out: {line}" for line in made.left_out),
        *((other,) if other else ()),
    )

    def write(out: Path, *, hidden: bool = False) -> None:
        made.write(out, hidden=hidden)
        if kept:
            told = {"secret": secret, "solution_sha256": labels, "budget": budget}
            kept.write_text(json.dumps({**told, "plan": asdict(plan)}))

    variables = {rehearsal.VARIABLE: json.dumps(plan.changes)} if plan.changes else {}
    baseline = f"; baseline: {settings.baseline}" if settings.baseline and not other else ""
    about = (
        f"{made.metric.name} of {len(made.hidden):,} hidden rows,"
        f" {'lower' if made.lower_is_better else 'higher'} is better"
        f"{baseline}"
        f"{SHORT * (plan.train is not None)}"
    )
    size = written_bytes(settings.data, folder, copied=copied)
    return Hosted(
        _as_competition(settings, made, write),
        checker(config, constant=not full),  # a short training may learn no more than that
        variables,
        (folder, *made.sources),
        lines,
        round(2 * share * size) + COPIES * plan.weights,
        about,
    )


def _as_competition(settings: Any, made: Any, write: Callable[..., None]) -> Any:
    """Return a folder with hidden labels as the local Kaggle hosts it.

    Args:
        made: `workbench.rehearse.hidden_test.HiddenTest`.
        write: writes what sessions see into a folder.
    """
    from localkaggle.competitions import OwnFolder, ScoringError
    from pipeline.errors import PipelineError

    def score(given: Any, _: Any) -> float:
        try:
            return float(made.score(given))
        except PipelineError as error:
            raise ScoringError(str(error)) from error

    return OwnFolder(
        slug=settings.competition,
        title=settings.competition.replace("-", " ").title(),
        training={},
        visible_test={},
        hidden_test={settings.data.sample_submission: made.sample()},
        solution=made.solution,
        score=score,
        lower_is_better=made.lower_is_better,
        sample=settings.data.sample_submission,
        writer=write,
    )


def written_bytes(data: Any, folder: Path, *, copied: bool) -> int:
    """Return the bytes of a competition folder of which a session gets no link.

    Args:
        data: the layout, as the config says.
        copied: whether images are copied too.
    """
    from pipeline.config.rules import as_tuple
    from workbench.rehearse import served_folder

    if copied:
        return sum((folder / name).stat().st_size for name in served_folder.files(folder))
    names = [data.train_csv or "", data.test_csv]
    if data.kind == "arrays":
        names += [data.train_array, data.test_array]
    if data.kind == "tfrecords":
        patterns = (data.train_records, data.test_records)
        names = [name for pattern in patterns for name in as_tuple(pattern)]
    found = {path for name in names if name for path in folder.glob(name)}
    return sum(path.stat().st_size for path in found)
