"""The tasks dry-run and serve, which rehearse the whole chain on this machine.

`invoke dry-run` runs the chain on an embedded competition or on the user's folder. `invoke serve`
hosts the folder on a local Kaggle, so that the user can run the chain step by step.
"""

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands import project, rehearsed_models
from commands.console import ROOT, TWO_WEEKS, Result, new_folder, number, show, task
from commands.telling import Telling
from deploy.errors import Detached, RelayError, UsageError
from deploy.events import Ask, Event, completed
from deploy.project import INFER, REHEARSAL, TRAIN, Project
from formats import atomic_file
from formats.errors import DiskError, writing

if TYPE_CHECKING:
    from deploy import chain
    from workbench.rehearse.own_folder import RehearsedFolder

BUDGET = "2m"
GIVE = {
    "dataset_sources": "its datasets: --dataset OWNER/SLUG=DIR",
    "model_sources": "its models: --model OWNER/MODEL/FRAMEWORK/VARIATION/VERSION=DIR",
}


@dataclass(frozen=True)
class Hosted:
    """A competition that is hosted on a local Kaggle.

    Attributes:
        lines: messages about what the rehearsal covers and omits.
        folder: the prepared folder, which also explains the score, or None if the competition is
            not made from a folder.
    """

    options: Mapping[str, Any]
    check: Callable[[Path, Path | None], int]
    lines: tuple[str, ...] = ()
    folder: "RehearsedFolder | None" = None


@task(
    24 * 60,
    advice="A rehearsal cannot be resumed because its local Kaggle has stopped. Run the same"
    " command again with more time or, if you rehearse a folder, with a smaller --budget:\n"
    "--minutes N",
    minutes="time limit in minutes (default: one day)",
    iterable=("dataset", "model"),
    config="name of a config in pipeline/configs/, or path to a .py file (default: digits, or the"
    " config chosen by init if you use --input)",
    input="path to a competition's folder, where some labelled rows are used as the hidden test set"
    " (default: the config's embedded competition)",
    budget=f"time limit for rehearsing a folder on two cores, such as 90s, {BUDGET} or 1h (default:"
    f" {BUDGET}); it trains on fewer examples to meet the limit, and prints how many",
    full="train on the whole folder; sessions end after 9 hours, as on Kaggle",
    dataset="OWNER/SLUG=DIR, the folder of a dataset from the config or kernel-metadata.json; can"
    " be repeated",
    model="NAME=DIR, the folder of a Kaggle model from the config or kernel-metadata.json; can be"
    " repeated (default for the config's models: kagglehub's cache on this machine, otherwise"
    " random weights)",
    internet="give train-tpu internet access, as on Kaggle (default: no access)",
    options={
        f"{machine}_python": f"path to the Python that runs {kernel}, such as one with constraints/"
        f"{machine}-image.txt installed (default: the Python that runs this command)"
        for machine, kernel in (("tpu", TRAIN), ("gpu", INFER))
    },
)
def dry_run(
    config: str | None = None,
    input: str = "",
    budget: str = "",
    full: bool = False,
    dataset: Sequence[str] | None = None,
    model: Sequence[str] | None = None,
    internet: bool = False,
    **pythons: str,
) -> Result:
    """Rehearse the whole chain on this machine, without an account or network access.

    Example: invoke dry-run --config leaves --input data/leaves
    """
    from localkaggle.services import protocol

    config = config or default(input)
    python = {
        option.partition("_")[0].upper(): str(Path(path).absolute())
        for option, path in pythons.items()
        if path
    }
    if (full and budget) or ((full or budget) and not input):
        raise UsageError(
            "--full and --budget cannot be combined, and both require --input.\nEmbedded"
            " competitions are always rehearsed in full."
        )
    try:
        datasets = protocol.published("dataset", dataset or ())
    except ValueError as error:
        raise UsageError(f"Invalid --dataset {error}.") from error
    budget = "" if full else budget or BUDGET
    mounts = {"datasets": datasets, "python": python}
    return rehearse(config, input, budget, internet=internet, models=model or (), **mounts)


def rehearse(
    config: str,
    folder: str = "",
    budget: str = BUDGET,
    *,
    internet: bool = False,
    models: Sequence[str] = (),
    **options: Any,
) -> Result:
    """Rehearse the whole chain and show its score.

    The rehearsed code, config and files are recorded, so that the rehearsal need not be repeated.

    Args:
        folder: the competition's folder, or "" for the config's embedded competition.
        budget: time limit such as "2m", or "" to train on the whole folder.
        models: NAME=DIR strings for Kaggle models.
        options: options of the local Kaggle: "datasets", and "python" for each machine.

    Returns:
        The result of the chain, with two additional keys: "about" explains the score of a
        rehearsed folder, and "folder" is the output folder.
    """
    runs = new_folder("dry-run")
    try:
        # Waits have no deadline of their own, because --minutes applies to the whole task.
        ours = project.load(config, runs, runs / "build", deadline_seconds=TWO_WEEKS * 60.0)
        trains = options.get("python", {}).get("TPU", sys.executable)
        found, lines = rehearsed_models.gather(ours, models, runs / "kagglehub", trains)
        project.check_custom_code(config)
        if folder:
            hosted = hosted_folder(config, folder, budget, internet)
        else:
            again = f"invoke dry-run --config {shlex.quote(config)}"
            project.require_embedded(ours.competition, again)
            hosted = Hosted({"competitions": [ours.competition]}, project.checker(config))
        hosted = replace(hosted, lines=(*hosted.lines, *lines))
        if any((path / rehearsed_models.RANDOM).is_file() for path in found.values()):
            # A model with random weights may predict the same value for all rows.
            hosted = replace(hosted, check=project.checker(config, constant=True))
        what = _what(ours, folder)
        result = _rehearse(ours, hosted, {**options, "models": found, "offline": not internet})
    # This also handles another Ctrl-C while the server is stopping.
    except (KeyboardInterrupt, Detached):
        raise Detached(
            "Interrupted. A rehearsal cannot be resumed because its local Kaggle has stopped. Its"
            f" files are in {runs}\nTo start over, run the same command again."
        ) from None
    about = hosted.folder.about if hosted.folder else ""
    end = project.show_result(result, config, about)
    end |= {"about": about, "folder": str(runs), "score_error": _error(result, hosted, runs)}
    kept = {**end, "rehearsed": what}
    atomic_file.write(runs / REHEARSAL, json.dumps(kept, indent=1).encode())
    _remove_copies(runs)
    size = sum(path.lstat().st_size for path in runs.rglob("*"))
    if size > 5 * 10**8:  # bytes; smaller folders need no cleanup
        show(f"files       {size / 1e9:.1f} GB; to remove them: rm -r {shlex.quote(str(runs))}")
    return end


def _remove_copies(runs: Path) -> None:
    """Remove the checkpoints and the server's copies of pulled files after a rehearsal.

    For an artifact of 0.7 GB, these files took up 11 GB.
    """
    checkpoints = (*runs.glob("*/checkpoints"), *runs.glob("*/fold-*/checkpoints"))
    copies = ("sessions/*/working", "datasets", "objects", "models")
    served = [path for name in copies for path in (runs / "kaggle").glob(name)]
    for path in (*checkpoints, *served, runs / "kagglehub"):
        shutil.rmtree(path, ignore_errors=True)


def _error(result: "chain.Result", hosted: Hosted, runs: Path) -> float | None:
    if hosted.folder is not None:
        error = hosted.folder.test.scored.error if hosted.folder.test.scored else None
    else:
        from localkaggle import competitions

        rerun = runs / "kaggle" / "sessions" / f"rerun-{result.submission.ref}" / "working"
        scored = result.inferred if result.submission.uploaded else rerun
        (slug,) = hosted.options["competitions"]
        error = competitions.EMBEDDED[slug]().standard_error(scored / "submission.csv")
    return error if error is not None and math.isfinite(error) else None


def recorded(config: str, folder: str = "") -> Result | None:
    what = _what(project.load(config), folder)
    for path in sorted((ROOT / "runs").glob(f"dry-run-*/{REHEARSAL}"), reverse=True):
        found: Result = json.loads(path.read_bytes())
        if found["rehearsed"] == what:
            return {**found, "folder": str(path.parent)}
    return None


def _what(ours: Project, folder: str) -> dict[str, str]:
    """Return digests of the code, the config and the folder's files, which identify a rehearsal."""
    from deploy import bundle
    from pipeline.data import image_files

    digest, root = hashlib.sha256(), Path(folder)
    for inside, names in image_files.walk(root) if folder else ():
        for path in (root / inside / name for name in names):
            about = path.stat()
            digest.update(f"{path} {about.st_size} {about.st_mtime_ns}\n".encode())
    code = bundle.read(ours, TRAIN).sha256
    return {"code": code, "input": str(root.resolve()) * bool(folder), "files": digest.hexdigest()}


def default(folder: str) -> str:
    from deploy import init

    if not folder:
        return "digits"
    name = init.default_config(ROOT)
    show(
        f"Using the default config, {name}. To write a config for this folder:"
        f" {shlex.join(['invoke', 'inspect', '--input', folder, '--write'])} NAME"
    )
    return name


@task(
    config="name of a config in pipeline/configs/, or path to a .py file (default: the config"
    " chosen by init)",
    input="path to a competition's folder, where some labelled rows are used as the hidden test"
    " set",
    folder="folder for the server's state, to resume from later (default: a temporary folder)",
    port="port of the server (default: the port last used with --folder, otherwise any free port)",
    budget="train on fewer examples, as in a rehearsal with a time limit of 90s, 2m or 1h (default:"
    " train on all of them)",
    offline="do not give sessions internet access",
)
def serve(
    config: str | None = None,
    input: str = "",
    folder: str = "",
    port: str = "",
    budget: str = "",
    offline: bool = False,
) -> Result:
    """Host your folder as a competition on a local Kaggle server; Ctrl-C stops it.

    Example: invoke serve --config leaves --input data/leaves --folder kaggle
    """
    from deploy import auth

    auth.require_client()  # the local Kaggle imports it, too
    from localkaggle import __main__ as local

    if not input:
        raise UsageError(
            "--input is missing: expected a competition's folder.\nTo host the embedded"
            " competitions instead:\npython -m localkaggle serve"
        )
    config, place = config or default(input), Path(folder) if folder else None
    hosted = hosted_folder(config, input, budget, internet=not offline, served_from=place)
    for line in hosted.lines:
        show(f"# {line}")
    again = ["invoke", "serve", "--config", config, "--input", input]
    again += [*(("--budget", budget) if budget else ()), *(("--offline",) if offline else ())]
    given = int(number("port", port, 0, 65535)) if port else None
    options = {**hosted.options, "port": given, "offline": offline}
    return {"exit_code": local.serve(place, shlex.join(again), **options)}


def hosted_folder(
    config: str, folder: str | Path, budget: str, internet: bool, served_from: Path | None = None
) -> Hosted:
    """Return a competition made from a folder, with some labelled rows as its hidden test set.

    Args:
        budget: time limit such as "2m", or "" to use all rows.
        served_from: the local Kaggle's folder, where the choice of hidden rows is saved for the
            next start, or None to not save it.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # hide TensorFlow's startup messages
    from localkaggle.competitions import Competition, ScoringError
    from localkaggle.sessions.session import namespaces
    from pipeline import config as configs
    from pipeline.command_line import refuse_missing_input
    from pipeline.errors import PipelineError
    from workbench.rehearse import own_folder

    refuse_missing_input(Path(folder))
    settings, folder = configs.load(config), Path(folder).resolve()
    # Submissions are compared with this file, even if sessions have no sample submission.
    sample, slug = settings.data.sample_submission or "sample_submission.csv", settings.competition
    # Sessions cannot read this file, because it determines the hidden rows.
    kept = served_from and served_from / "competitions" / slug / "hidden.json"
    copied = not namespaces()  # without namespaces, sessions could read and change the folder
    made = own_folder.hidden(config, folder, budget, internet=internet, copied=copied, kept=kept)

    def score(given: Any, _: Any) -> float:
        try:
            return float(made.test.score(given))
        except PipelineError as error:
            raise ScoringError(str(error)) from error

    competition = Competition(
        slug=slug,
        title=slug.replace("-", " ").title(),
        training={},
        visible_test={},
        hidden_test={sample: made.test.sample()},
        solution=made.test.solution,
        score=score,
        sample=sample,
        writer=made.write,
    )
    options = {"competitions": [competition], "variables": made.variables, "private": (folder,)}
    # After a short training run, a model may predict the same value for all rows.
    check = project.checker(config, constant=bool(budget))
    return Hosted(options, check, made.lines, made)


def _rehearse(ours: Project, hosted: Hosted, options: Result) -> "chain.Result":
    from deploy import auth, bundle, chain

    auth.require_client()  # the local Kaggle imports it, too
    from deploy.records import Records
    from localkaggle.server import LocalKaggle
    from localkaggle.sessions.session import NO_NAMESPACES, namespaces

    runs, pushed, telling = ours.runs, [], Telling()
    for line in (*(() if namespaces() else (NO_NAMESPACES,)), *hosted.lines):
        show(f"rehearsal   {line}")

    def tell(event: Event) -> bool | None:
        if not isinstance(event, Ask):
            return telling(event)
        pushed.append(event.preview.built.code.sha256 if event.preview is not None else "")
        return True

    with writing(runs), LocalKaggle(runs / "kaggle", **hosted.options, **options) as local:
        for name in [name for name in os.environ if name.startswith("KAGGLE_")]:
            del os.environ[name]  # the user's token would override the local one
        os.environ.update(local.environment)
        show(f"Started a local Kaggle server. Its files are in {runs / 'kaggle'}")
        try:
            result = completed(chain.run(telling.kaggle, Records(ours), hosted.check), tell)
        except RelayError as error:
            raise explained(error, local.state.disk_full, runs) from error
    how = f"{time.strftime('%Y-%m-%d %H:%M')}: {'; '.join(hosted.lines) or 'whole'}"
    for code_sha256 in filter(None, pushed):
        bundle.remember_rehearsal(ROOT / "runs", code_sha256, how)
    return result


def explained(error: RelayError, disk_full: str, runs: Path) -> Exception:
    """Return the error of a rehearsal, with advice added to its message.

    `disk_full` is the server's error message if the disk is full, otherwise "".
    """
    if disk_full:
        return DiskError(
            f"The disk is full: {disk_full}.\nFree some space, then run the same command again. To"
            f" remove this rehearsal's files:\nrm -r {shlex.quote(str(runs))}"
        )
    # The session's files are already on this machine, so `invoke pull` is not needed.
    kept = re.sub(r"\nTo pull what it wrote .*\ninvoke pull .*", "", str(error))
    for kind, advice in GIVE.items():
        if kind in getattr(error, "kinds", ()):
            kept += f"\nFor a rehearsal, pass {advice}"
    return type(error)(
        f"{kept}\n(This was a rehearsal. Its local Kaggle has stopped, and its files are in"
        f" {runs}. After fixing the problem, run the same command again.)"
    )
