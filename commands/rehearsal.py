"""The rehearsal: the whole chain on this machine, with an embedded competition or a user's folder,
in one command, or step by step against a local Kaggle that hosts the folder.
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
    """A competition for a local Kaggle.

    Attributes:
        options: the options of `LocalKaggle` that host it.
        check: as `deploy.competition.submit` takes it.
        lines: what its rehearsal does and leaves out.
        folder: the folder that is rehearsed, which explains the score; None: it is embedded.
    """

    options: Mapping[str, Any]
    check: Callable[[Path, Path | None], int]
    lines: tuple[str, ...] = ()
    folder: "RehearsedFolder | None" = None


@task(
    24 * 60,
    advice="A rehearsal cannot be resumed: its Kaggle server has stopped. Run the same command"
    " again, with a smaller --budget for a folder, or with more time:\n--minutes N",
    minutes="timeout in minutes (default: a day)",
    iterable=("dataset", "model"),
    config="name in pipeline/configs/, or path of a .py file; default: digits, or with --input the"
    " one that init chose",
    input="a competition's folder; some of its labelled rows become the hidden test set. Default:"
    " the embedded competition of the config",
    budget=f"how long the rehearsal of a folder may take on two cores, such as 90s, {BUDGET} or 1h"
    f" (default {BUDGET}); it trains on less, and shows how much",
    full="train on the whole folder; a session ends after 9 hours, as on Kaggle",
    dataset="OWNER/SLUG=DIR: the folder of a dataset that the config or kernel-metadata.json names;"
    " repeat for more",
    model="NAME=DIR: the folder of a Kaggle model that the config or kernel-metadata.json names;"
    " repeat for more. Default for a model of the config: the files that kagglehub downloaded here,"
    " or else random weights",
    internet="let train-tpu reach the internet, as on Kaggle; by default nothing can",
    options={
        f"{machine}_python": f"the Python that runs {kernel}, such as one with constraints/"
        f"{machine}-image.txt installed; default: this one"
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
    """Rehearse the whole chain on this machine; needs no account and no network.

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
            "--full or --budget: expected one of --full and --budget, and only with --input: an"
            " embedded competition is always rehearsed whole."
        )
    try:
        datasets = protocol.published("dataset", dataset or ())
    except ValueError as error:
        raise UsageError(f"--dataset {error}.\nCorrect it.") from error
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
    """Rehearse the chain, show its score, and record what was rehearsed.

    Args:
        config: as --config names it.
        folder: of a competition; "": the embedded one of the config.
        budget: how long it may take; "": train on the whole folder.
        internet: let train-tpu reach the internet.
        models: NAME=DIR texts of Kaggle's models.
        options: of the local Kaggle: "datasets", and "python" by machine.

    Returns:
        The values of the chain's result, "about" the score of a folder, and the "folder" of the
        output.
    """
    runs = new_folder("dry-run")
    try:
        # --minutes is the deadline of all waits.
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
            # With random weights it may learn a single prediction for all rows.
            hosted = replace(hosted, check=project.checker(config, constant=True))
        what = _what(ours, folder)
        result = _rehearse(ours, hosted, {**options, "models": found, "offline": not internet})
    # Ctrl-C may come again while the server stops.
    except (KeyboardInterrupt, Detached):
        raise Detached(
            "Interrupted. A rehearsal cannot be resumed: its Kaggle server has stopped. Its files"
            f" are in {runs}\nTo start over, run the same command again."
        ) from None
    about = hosted.folder.about if hosted.folder else ""
    end = project.show_result(result, config, about)
    end |= {"about": about, "folder": str(runs)}
    kept = {**end, "error": _error(result, hosted, runs), "rehearsed": what}
    atomic_file.write(runs / REHEARSAL, json.dumps(kept, indent=1).encode())
    _remove_copies(runs)
    size = sum(path.lstat().st_size for path in runs.rglob("*"))
    if size > 5 * 10**8:  # bytes that are worth a line
        show(f"files       {size / 1e9:.1f} GB; to remove them: rm -r {shlex.quote(str(runs))}")
    return end


def _remove_copies(runs: Path) -> None:
    """Remove what nothing reads after a complete rehearsal: checkpoints, and the server's copies of
    what was pulled. With an artifact of 0.7 GB they took 11 GB.
    """
    checkpoints = (*runs.glob("*/checkpoints"), *runs.glob("*/fold-*/checkpoints"))
    copies = ("sessions/*/working", "datasets", "objects", "models")
    served = [path for name in copies for path in (runs / "kaggle").glob(name)]
    for path in (*checkpoints, *served, runs / "kagglehub"):
        shutil.rmtree(path, ignore_errors=True)


def _error(result: "chain.Result", hosted: Hosted, runs: Path) -> float | None:
    """Return the standard error of a rehearsal's score over its hidden rows; None: unknown."""
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
    """Return the result of an earlier `rehearse` with the same config, code and folder, or None."""
    what = _what(project.load(config), folder)
    for path in sorted((ROOT / "runs").glob(f"dry-run-*/{REHEARSAL}"), reverse=True):
        found: Result = json.loads(path.read_bytes())
        if found["rehearsed"] == what:
            return {**found, "folder": str(path.parent)}
    return None


def _what(ours: Project, folder: str) -> dict[str, str]:
    """Return what identifies a rehearsal: the code with the config, and the files of a folder."""
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
    """Return the config of a rehearsal without --config; for a folder, show which it is."""
    from deploy import init

    if not folder:
        return "digits"
    name = init.default_config(ROOT)
    show(
        f"Without --config this takes {name}. To write one for the folder:"
        f" {shlex.join(['invoke', 'inspect', '--input', folder, '--write'])} NAME"
    )
    return name


@task(
    config="name in pipeline/configs/, or path of a .py file; default: the one that init chose",
    input="a competition's folder; some of its labelled rows become the hidden test set",
    folder="keep everything there, and resume from it; default: a temporary folder",
    port="default: the last one of its folder, or a free one",
    budget="train on less, as in a rehearsal of 90s, 2m or 1h; default: on everything",
    offline="give no session the internet",
)
def serve(
    config: str | None = None,
    input: str = "",
    folder: str = "",
    port: str = "",
    budget: str = "",
    offline: bool = False,
) -> Result:
    """Host your folder as a competition of a Kaggle on this machine; Ctrl-C stops it.

    Example: invoke serve --config leaves --input data/leaves --folder kaggle
    """
    from deploy import auth

    auth.require_client()  # the local Kaggle uses its parts, too
    from localkaggle import __main__ as local

    if not input:
        raise UsageError(
            "--input is missing; expected a competition's folder. For the embedded competitions:\n"
            "python -m localkaggle serve"
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
    """Return a competition on a folder, with some of its labelled rows hidden.

    Args:
        config: as --config names it.
        folder: of the competition.
        budget: how long a rehearsal may take; "": leave nothing out.
        internet: whether sessions have the internet.
        served_from: the folder of a local Kaggle, which hides the same rows after a restart; None:
            it is served once.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its start-up chatter hides our messages
    from localkaggle.competitions import Competition, ScoringError
    from localkaggle.sessions.session import namespaces
    from pipeline import config as configs
    from pipeline.command_line import refuse_missing_input
    from pipeline.errors import PipelineError
    from workbench.rehearse import own_folder

    refuse_missing_input(Path(folder))
    settings, folder = configs.load(config), Path(folder).resolve()
    # A submission is compared with this one, even if no session sees such a file.
    sample, slug = settings.data.sample_submission or "sample_submission.csv", settings.competition
    # Outside of what sessions see: it determines the hidden rows.
    kept = served_from and served_from / "competitions" / slug / "hidden.json"
    copied = not namespaces()  # without them nothing is read-only, and the folder is visible
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
    # A short training may learn only a single prediction for all rows.
    check = project.checker(config, constant=bool(budget))
    return Hosted(options, check, made.lines, made)


def _rehearse(ours: Project, hosted: Hosted, options: Result) -> "chain.Result":
    """Run the chain against a new local Kaggle, and record what was rehearsed.

    Args:
        ours: the project.
        hosted: the competition.
        options: more options of the local Kaggle.
    """
    from deploy import auth, bundle, chain

    auth.require_client()  # the local Kaggle uses its parts, too
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
        show(f"Started a local Kaggle server; files in {runs / 'kaggle'}")
        try:
            result = completed(chain.run(telling.kaggle, Records(ours), hosted.check), tell)
        except RelayError as error:
            raise explained(error, local.state.disk_full, runs) from error
    how = f"{time.strftime('%Y-%m-%d %H:%M')}: {'; '.join(hosted.lines) or 'whole'}"
    for code_sha256 in filter(None, pushed):
        bundle.remember_rehearsal(ROOT / "runs", code_sha256, how)
    return result


def explained(error: RelayError, disk_full: str, runs: Path) -> Exception:
    """Return an error of a rehearsal with advice; `disk_full` is that of the server's state."""
    if disk_full:
        return DiskError(
            f"The disk is full: {disk_full}.\nFree some space, then run the same command again. You"
            f" can remove the files of this rehearsal:\nrm -r {shlex.quote(str(runs))}"
        )
    # The files of a session are here; `invoke pull` would ask Kaggle for them.
    kept = re.sub(r"\nTo pull what it wrote .*\ninvoke pull .*", "", str(error))
    for kind, advice in GIVE.items():
        if kind in getattr(error, "kinds", ()):
            kept += f"\nFor a rehearsal, give {advice}"
    return type(error)(
        f"{kept}\n(This was a rehearsal; its Kaggle server has stopped, and its files are in"
        f" {runs}. Once this is fixed, run the same command again.)"
    )
