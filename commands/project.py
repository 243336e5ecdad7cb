"""What every command needs of a config: the project, a connection, the check of a submission."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from commands.console import ROOT, show, terminal

CONFIG = {
    "config": "name in pipeline/configs/, or path of such a .py file; default: what init chose, or"
    " digits"
}
JSON = {"json": "print the result as one JSON object on the last line"}
RUN = {
    "run": "owner/slug/version, as ann/digits-train-tpu/3; default: the last run pushed from here"
}
KERNEL = {"kernel": "train-tpu (default), infer-gpu, prepare-cpu or bench"}


YES = {"yes": "push without asking; for scripts"}
TRAINING = {
    **CONFIG,
    **JSON,
    **YES,
    "for_": "what trains: tpu-v5e-8 or gpu-t4x2, the pair of T4; default: what kernels/train-tpu/"
    "kernel-metadata.json asks for",
}
AGAIN = {
    "again": "push even if this very notebook was pushed already and has not failed, or if Kaggle"
    " calls as many runs active as it allows"
}


def minutes(default: int, more: str = "") -> dict[str, str]:
    """Return the help of --minutes."""
    return {"minutes": f"timeout in minutes (default {default}{more}); rerun to resume"}


def project(
    config: str, runs: Path = ROOT / "runs", builds: Path = ROOT / "build", **more: Any
) -> Any:
    """Return what the Kaggle side needs to know of a config."""
    from deploy import init
    from deploy.project import Project
    from pipeline import config as configs
    from pipeline.train import progress_log

    settings = configs.load(config)
    owner, _, path = str(settings.model_options.get("pretrained", "")).partition("/")
    slug, _, file = path.partition("/")
    return Project(
        ROOT,
        config,
        settings.competition,
        settings.handoff,
        runs,
        builds,
        sample=settings.data.sample_submission,
        needs=f"{owner}/{slug}" if owner and slug and file else "",  # no path from the root
        first_stage=settings.init_from,
        in_words=progress_log.in_words,
        decoding=settings.data.decoding,
        infer_hours=settings.infer_hours,
        slug=init.slug(ROOT, settings.competition),
        **more,
    )


def check_custom_code(config: str, artifact: Path | None = None) -> None:
    """Refuse functions of the config's own file that cannot work, before anything is spent.

    Args:
        artifact: folder of a trained model; its functions have to be those of the file.
    """
    from deploy.errors import UsageError
    from pipeline import config as configs
    from pipeline.config import custom_code

    settings = configs.load(config)
    if artifact is not None:
        manifest = artifact / "manifest.json"
        if not manifest.is_file():
            return  # what needs it says so
        theirs = json.loads(manifest.read_text())
        trained, name = theirs.get("custom_code", ""), theirs["config"]["name"]
        if name != settings.name:  # a member of an ensemble
            if not trained:
                return
            settings = configs.load(name)
        here = custom_code.digest(settings)
        if trained != here:
            raise UsageError(
                f"The functions in {settings.name}.py are not those that {manifest} was trained"
                f" with: their sha256 begins with {here[:12] or 'nothing'}; expected"
                f" {trained[:12] or 'nothing'}.\nRestore the file as it was, or train again."
            )
    elif custom_code.functions(settings):
        show(f"Checking the functions of {settings.name}.py with JAX and TensorFlow")
        done = subprocess.run(  # noqa: S603 - our own words
            [sys.executable, "-m", "pipeline", "check", "--config", config, "--json"],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            last = (done.stdout.strip().splitlines() or ["{}"])[-1]
            raise UsageError(json.loads(last).get("error") or done.stderr.strip()[-2000:])


def models(pushes: Any, ensemble: str) -> dict[str, Any]:
    """Return what an inference accepts, as `deploy.relay.push` takes it: the artifact of the
    last training, or the members of an ensemble.json. Their functions have to be those here.
    """
    from deploy import ensemble_file

    members = ensemble_file.read(Path(ensemble), pushes.project) if ensemble else []
    folders = [one.folder for one in members] if ensemble else [pushes.last_artifact()]
    for folder in folders:
        check_custom_code(pushes.project.config, folder)
    return {"artifact": None if ensemble else folders[0], "members": members}


def embedded(slug: str, folder: Path, command: str) -> Path:
    """Write the embedded competition of that slug into a folder, unless it is there; return it.

    Args:
        command: that takes another folder by --input.
    """
    from deploy.errors import UsageError
    from formats.errors import writing
    from localkaggle import competitions

    if slug not in competitions.NAMES:
        raise UsageError(
            f"There are no data of the competition {slug!r} here; expected one of"
            f" {', '.join(competitions.NAMES)}, or a folder.\nGive its folder:\n"
            f"{command} --input DIR"
        )
    with writing(folder):
        if not folder.exists():
            begun = folder.with_name(f"{folder.name}.{os.getpid()}")
            competitions.EMBEDDED[slug]().write(begun)
            begun.rename(folder)  # complete, or not there
    return folder


def connect() -> Any:
    """Return a connection with the user's own credentials."""
    from deploy.client import Kaggle

    return Kaggle.connect(show=show)


def resolved_pushes(config: str, *, again: bool = False, **more: Any) -> Any:
    """Return the journal's pushes of the config's project, none of them unclear.

    Kaggle is asked what came of a push that was interrupted.

    Args:
        again: leave one unclear of which Kaggle does not tell: a push follows all the same.
        more: of `project`.
    """
    from deploy import credentials, reconcile
    from deploy.last_runs import Pushes

    credentials.require_client()
    pushes = Pushes(project(config, **more))
    if pushes.unclear():
        reconcile.resolve(connect(), pushes, show=show, again=again)
    return pushes


def checker(config: str, *, constant: bool = False) -> Callable[[Path, Path], int]:
    """Return how the model side checks a submission for that config before it is spent.

    Args:
        constant: allow one and the same prediction in all rows.
    """
    from pipeline import config as configs
    from pipeline.infer import submission as rules

    within = rules.limits(configs.load(config))

    def check(submission: Path, sample: Path) -> int:
        return rules.check(submission, sample, within=within, constant=constant)

    return check


def screen(following: str) -> AbstractContextManager[object]:
    """Return the context in which waits for runs are drawn, where a terminal shows.

    Args:
        following: what comes after a wait: a command, or what this one does.
    """
    if not terminal():
        return nullcontext()
    from commands.dashboard import Dashboard

    return Dashboard(following)


def show_push(run: Any, following: str) -> dict[str, Any]:
    """Print where a pushed run is and what to type next, and return the run."""
    show(f"{run.url}\nNext: {following}".lstrip())
    return {"run": str(run), "url": run.url, "bundle_sha256": run.bundle_sha256}


def show_result(result: Any, config: str, about: str = "") -> dict[str, Any]:
    """Print what a finished chain made, with what its score means, and return it."""
    end = {**result.values(), "config": config}
    where = "on the hidden test set", f"the {end['rows']} rows of the visible one"
    if result.submission.uploaded:
        where = "of the uploaded file", f"{end['rows']} rows"
    score, took = "hidden" if end["score"] is None else end["score"], end["seconds"]
    show(f"score       {score}, {where[0]} ({took} seconds; the file below has {where[1]})")
    if about:
        show(f"            {about}")
    show(f"submission  {end['submission']}")
    for picture in end["pictures"]:
        show(f"picture     {picture}")
    report = ["invoke", "report", "--run", str(result.trained), "--config", config]
    show(f"report      {shlex.join(report)}")
    return end
