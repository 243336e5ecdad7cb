"""Helpers for tasks that use a config, for example to load its project or push its kernels."""

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
    """Return the project of a config.

    Each config has its own build folder, so that a push does not overwrite another config's bundle.
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
        earlier=_earlier(settings),
        decoding=settings.data.decoding,
        infer_hours=settings.infer_hours,
        slug=init.slug(ROOT, settings.competition),
        **more,
    )


def _earlier(settings: "Config") -> dict[str, str]:
    pseudo = settings.pseudo_labels
    fields = {"init_from": settings.init_from}
    fields["pseudo_labels.teacher"] = pseudo.teacher if pseudo else ""
    return {name: source for name, source in fields.items() if source}


def _datasets(settings: "Config") -> tuple[str, ...]:
    """Return owner/slug for each dataset in the config's `pretrained`.

    Local paths are returned unchanged. Paths on Kaggle are skipped, because they are not datasets.
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
    from deploy import auth
    from deploy.records import Records

    ours = load(config, **more)
    auth.require_client()
    return Records(ours)


def resolved(config: str, telling: Telling, **more: Any) -> "Records":
    """Return the project's records, after asking Kaggle whether interrupted pushes succeeded."""
    from deploy.push import resolve

    found = records(config, **more)
    if found.unclear():
        telling.run(resolve, found)
    return found


def check_custom_code(config: str, artifact: Path | None = None) -> None:
    """Check a config's custom functions before any quota is used, or raise `UsageError`.

    If `artifact` is the folder of a trained model, check instead that it was trained with these
    functions.
    """
    from pipeline import config as configs
    from pipeline.config import custom_code

    settings = configs.load(config)
    if artifact is None:
        if custom_code.functions(settings):
            show(f"Checking the functions in {settings.name}.py with JAX and TensorFlow")
            told = in_a_process("pipeline", "check", "--config", config)
            if "error" in told:
                raise UsageError(told["error"])
        return
    manifest = artifact / "manifest.json"
    if not manifest.is_file():
        return  # the code that reads the manifest reports this
    theirs = json.loads(manifest.read_text())
    trained, name = theirs.get("custom_code", ""), theirs["config"]["name"]
    if name != settings.name:  # a member of an ensemble, trained with another config
        if not trained:
            return
        settings = configs.load(name)
    here = custom_code.digest(settings)
    if trained != here:
        raise UsageError(
            f"The functions in {settings.name}.py have changed since {manifest} was written:"
            f" expected sha256 {trained[:12] or 'of nothing'}…, got {here[:12] or 'of nothing'}…\n"
            "Restore the file, or train again."
        )


def in_a_process(
    module: str,
    *words: str,
    quiet: bool = True,
    python: str = sys.executable,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Run `python -m MODULE --json` in a new process, which can use a different Keras backend.

    `quiet` hides the messages that the module prints.

    Returns:
        The module's result. If it fails, the result has the keys "error" and "exit_code".
    """
    try:
        done = subprocess.run(  # noqa: S603 - trusted arguments
            [python, "-m", module, *words, "--json"],
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "KERAS_BACKEND"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"it took longer than {seconds:.0f} s", "exit_code": 5}
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (ValueError, LookupError):
        said = (done.stderr or "see above").strip()[-2000:]
        return {"error": said, "exit_code": done.returncode}


def model(ours: "Records", ensemble: str) -> "Model":
    """Return the model for an inference run, after checking its custom functions.

    `ensemble` is the path to an ensemble.json, or "" for the artifact of the last training run.
    """
    from deploy import output
    from deploy.chain import Model

    members = output.ensemble(Path(ensemble), ours.project) if ensemble else []
    found = Model(None if members else ours.last_artifact(), members)
    for folder in filter(None, [found.artifact, *(one.folder for one in found.members)]):
        check_custom_code(ours.project.config, folder)
    return found


def require_embedded(slug: str, command: str) -> None:
    """Raise `UsageError` unless this competition is embedded in the local Kaggle.

    The message suggests running `command` with --input, which accepts other competitions.
    """
    from localkaggle import competitions

    if slug not in competitions.NAMES:
        raise UsageError(
            f"There is no embedded competition {slug!r}: expected one of"
            f" {', '.join(competitions.NAMES)}.\nFor other competitions, pass their folder:\n"
            f"{command} --input DIR"
        )


def checker(config: str, *, constant: bool = False) -> Callable[[Path, Path | None], int]:
    from pipeline import config as configs
    from pipeline.infer import submission as rules

    within = rules.limits(configs.load(config))
    return partial(rules.check, within=within, constant=constant)


def push(
    telling: Telling, ours: "Records", kernel: str, accepted: "Model | None" = None, **how: bool
) -> dict[str, Any]:
    """Push a kernel, print the run's URL and the next command, and return the run.

    Args:
        accepted: the model to use for an inference run.
        how: options of `deploy.chain.push_kernel`.
    """
    from deploy import chain

    run = telling.run(chain.push_kernel, ours, kernel, accepted or chain.NO_MODEL, **how)
    following = "watch" if kernel == TRAIN else f"watch --kernel {kernel}"
    show(f"{run.url}\nNext: {ours.project.command(following)}".lstrip())
    return {"run": str(run), "url": run.url, "bundle_sha256": run.bundle_sha256}


def show_result(result: "Result", config: str, about: str = "") -> dict[str, Any]:
    """Print and return the results of a finished chain. `about` explains the score."""
    end = {**result.values(), "config": config}
    where = "on the hidden test set", f"the {end['rows']} rows of the visible test set"
    if result.submission.uploaded:
        where = "for the uploaded file", f"{end['rows']} rows"
    score, took = "hidden" if end["score"] is None else end["score"], end["seconds"]
    show(f"score       {score} {where[0]} ({took} seconds; the file below has {where[1]})")
    if about:
        show(f"            {about}")
    show(f"submission  {end['submission']}")
    for picture in end["pictures"]:
        show(f"plot        {picture}")
    report = ["invoke", "report", "--run", str(result.trained), "--config", config]
    show(f"report      {shlex.join(report)}")
    return end
