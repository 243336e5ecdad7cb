"""What every command needs of a config: the project, its records, a connection, the check of a
submission.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.console import ROOT, show
from commands.telling import Telling

if TYPE_CHECKING:
    from deploy.chain import Model, Result
    from deploy.client import Kaggle
    from deploy.project import Project
    from deploy.records import Records
    from deploy.runs import Run


def project(
    config: str, runs: Path = ROOT / "runs", builds: Path = ROOT / "build", **more: Any
) -> "Project":
    """Return what the Kaggle side needs to know of a config."""
    from deploy import init
    from deploy.project import Project
    from pipeline import config as configs

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
        decoding=settings.data.decoding,
        infer_hours=settings.infer_hours,
        slug=init.slug(ROOT, settings.competition),
        **more,
    )


def records(config: str, **more: Any) -> "Records":
    """Return the journal of a config's project; raise before anybody is asked, if it cannot be.

    Args:
        more: of `Project`.
    """
    from deploy import auth
    from deploy.records import Records

    ours = project(config, **more)
    auth.require_client()
    return Records(ours)


def resolved(config: str, telling: Telling, **more: Any) -> "Records":
    """Return the journal of a config's project, in which no push is unclear: Kaggle is asked what
    came of one that was interrupted.
    """
    from deploy import push

    found = records(config, **more)
    if found.unclear():
        telling.complete(push.resolve(connect(telling), found))
    return found


def connect(telling: Telling) -> "Kaggle":
    """Return a connection with the user's own credentials."""
    from deploy.client import Kaggle

    return Kaggle.connect(show=telling.note)


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
        done = in_a_process("pipeline", "check", "--config", config, "--json")
        if done.returncode:
            last = (done.stdout.strip().splitlines() or ["{}"])[-1]
            raise UsageError(json.loads(last).get("error") or done.stderr.strip()[-2000:])


def in_a_process(
    module: str, *words: str, stderr: int | None = subprocess.PIPE
) -> "subprocess.CompletedProcess[str]":
    """Return what `python -m` prints in a process of its own, which chooses its own backend.

    Args:
        stderr: None: a person sees it.
    """
    return subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def model(ours: "Records", ensemble: str) -> "Model":
    """Return what an inference accepts: the artifact of the last training, or the members of an
    ensemble.json. Their functions have to be those here.
    """
    from deploy import saved
    from deploy.chain import Model

    if ensemble:
        found = Model(members=saved.ensemble(Path(ensemble), ours.project))
    else:
        found = Model(ours.last_artifact())
    for folder in [found.artifact] if found.artifact else [one.folder for one in found.members]:
        check_custom_code(ours.project.config, folder)
    return found


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


def show_push(run: "Run", following: str) -> dict[str, Any]:
    """Print where a pushed run is and what to type next, and return the run."""
    show(f"{run.url}\nNext: {following}".lstrip())
    return {"run": str(run), "url": run.url, "bundle_sha256": run.bundle_sha256}


def show_result(result: "Result", config: str, about: str = "") -> dict[str, Any]:
    """Print what a finished chain made, with what its score means, and return it."""
    import shlex

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
