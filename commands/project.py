"""What the commands derive from a config: the project, its records, a push, and the check of a
submission.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.console import ROOT, show
from commands.telling import Telling
from deploy.errors import UsageError
from deploy.project import TRAIN, Project

if TYPE_CHECKING:
    from deploy.chain import Model, Result
    from deploy.records import Records
    from pipeline.config import Config


def load(
    config: str, runs: Path = ROOT / "runs", builds: Path | None = None, **more: Any
) -> Project:
    """Return what the Kaggle side needs to know about a config.

    Each config has its own folder of bundles, so that a push changes no build of another one.
    """
    from deploy import init
    from pipeline import config as configs

    settings = configs.load(config)
    return Project(
        ROOT,
        config,
        settings.competition,
        settings.handoff,
        runs,
        builds or ROOT / "build" / settings.name,
        sample=settings.data.sample_submission,
        needs=_datasets(settings),
        models=settings.kaggle_models,
        first_stage=settings.init_from,
        decoding=settings.data.decoding,
        infer_hours=settings.infer_hours,
        slug=init.slug(ROOT, settings.competition),
        **more,
    )


def _datasets(settings: "Config") -> tuple[str, ...]:
    """Return owner/slug of each dataset that `pretrained` reads; a path on this machine as it is.

    A path on Kaggle is no dataset.
    """
    from pipeline.config import rules

    paths = [
        name
        for name in rules.as_tuple(settings.pretrained)
        if name not in ("", "imagenet", "none", *settings.kaggle_models)
        and not name.startswith(("hf:", "/kaggle/"))
    ]
    local = ("/", "~", ".")
    datasets = (path if path.startswith(local) else "/".join(path.split("/")[:2]) for path in paths)
    return tuple(dict.fromkeys(datasets))


def records(config: str, **more: Any) -> "Records":
    """Return the records of a config's project.

    Args:
        config: as --config names it.
        more: other fields of `Project`.
    """
    from deploy import auth
    from deploy.records import Records

    ours = load(config, **more)
    auth.require_client()
    return Records(ours)


def resolved(config: str, telling: Telling, **more: Any) -> "Records":
    """Return the records of a config's project, after asking Kaggle about interrupted pushes."""
    from deploy.push import resolve

    found = records(config, **more)
    if found.unclear():
        telling.run(resolve, found)
    return found


def check_custom_code(config: str, artifact: Path | None = None) -> None:
    """Check the custom functions of a config before anything is spent.

    Args:
        config: as --config names it.
        artifact: folder of a trained model, whose functions have to be those of the config.

    Raises:
        UsageError: if they cannot work, or differ from those of the artifact.
    """
    from pipeline import config as configs
    from pipeline.config import custom_code

    settings = configs.load(config)
    if artifact is None:
        if custom_code.functions(settings):
            show(f"Checking the functions of {settings.name}.py with JAX and TensorFlow")
            told = in_a_process("pipeline", "check", "--config", config)
            if "error" in told:
                raise UsageError(told["error"])
        return
    manifest = artifact / "manifest.json"
    if not manifest.is_file():
        return  # what needs it reports that
    theirs = json.loads(manifest.read_text())
    trained, name = theirs.get("custom_code", ""), theirs["config"]["name"]
    if name != settings.name:  # a member of an ensemble
        if not trained:
            return
        settings = configs.load(name)
    here = custom_code.digest(settings)
    if trained != here:
        raise UsageError(
            f"The functions in {settings.name}.py differ from those that trained {manifest}: their"
            f" sha256 starts with {here[:12] or 'nothing'}; expected {trained[:12] or 'nothing'}.\n"
            "Restore the file, or train again."
        )


def in_a_process(
    module: str,
    *words: str,
    quiet: bool = True,
    python: str = sys.executable,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Run `python -m … --json` in another process, with its own backend, and return its result or
    {"error", "exit_code"}.

    Args:
        module: to run.
        words: the arguments.
        quiet: hide its messages.
        python: the interpreter.
        seconds: time limit; None: no limit.
    """
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [python, "-m", module, *words, "--json"],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it takes longer than {seconds:.0f} s", "exit_code": 5}
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, LookupError):
        said = (done.stderr or "see above").strip()[-2000:]
        return {"error": said, "exit_code": done.returncode}


def model(ours: "Records", ensemble: str) -> "Model":
    """Return the model of an inference: the last training's artifact, or the members of an
    ensemble.json. Their functions have to be those of the configs here.
    """
    from deploy import output
    from deploy.chain import Model

    members = output.ensemble(Path(ensemble), ours.project) if ensemble else []
    found = Model(None if members else ours.last_artifact(), members)
    for folder in filter(None, [found.artifact, *(one.folder for one in found.members)]):
        check_custom_code(ours.project.config, folder)
    return found


def require_embedded(slug: str, command: str) -> None:
    """Raise `UsageError` unless a competition is embedded.

    Args:
        slug: of the competition.
        command: a command that takes --input for other competitions.
    """
    from localkaggle import competitions

    if slug not in competitions.NAMES:
        raise UsageError(
            f"There is no competition {slug!r} on this machine; expected one of"
            f" {', '.join(competitions.NAMES)}, or a folder:\n{command} --input DIR"
        )


def checker(config: str, *, constant: bool = False) -> Callable[[Path, Path | None], int]:
    """Return the check of a submission against its sample.

    Args:
        config: as --config names it.
        constant: allow the same prediction in all rows.
    """
    from pipeline import config as configs
    from pipeline.infer import submission as rules

    within = rules.limits(configs.load(config))
    return partial(rules.check, within=within, constant=constant)


def push(
    telling: Telling, ours: "Records", kernel: str, accepted: "Model | None" = None, **how: bool
) -> dict[str, Any]:
    """Push a kernel, print the address of its run and the next command, and return the run.

    Args:
        telling: runs the steps.
        ours: the records of the project.
        kernel: to push.
        accepted: the model of an inference.
        how: `again` and `fresh`, as in `deploy.chain.push_kernel`.
    """
    from deploy import chain

    run = telling.run(chain.push_kernel, ours, kernel, accepted or chain.NO_MODEL, **how)
    following = "watch" if kernel == TRAIN else f"watch --kernel {kernel}"
    show(f"{run.url}\nNext: {ours.project.command(following)}".lstrip())
    return {"run": str(run), "url": run.url, "bundle_sha256": run.bundle_sha256}


def show_result(result: "Result", config: str, about: str = "") -> dict[str, Any]:
    """Print the results of a finished chain, explain its score, and return them."""
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
