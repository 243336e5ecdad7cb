"""Kaggle's tasks: those that push to Kaggle, watch, pull and submit, and what all tasks need of a
config.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke.context import Context
from invoke.tasks import task

from commands.console import ROOT, agreed, limited, number, reported, show

CONFIG = {
    "config": "a name in pipeline/configs/, or the path of a .py file like those; default: what init chose, or digits"
}
JSON = {"json": "print the result as one JSON object on the last line"}
YES = {"yes": "push without asking; for scripts"}
AGAIN = {"again": "push also if this very notebook was pushed already and has not failed"}
PLACEHOLDER = "owner"
KERNEL = {"kernel": "which of the two notebooks: train-tpu (default) or infer-gpu"}
RUN = {
    "run": "owner/slug/version, as ann/digits-train-tpu/3; default: the last one that was pushed from here"
}


def minutes(most: int) -> dict[str, str]:
    """Return the help of --minutes for a task that is given these."""
    return {
        "minutes": f"end after this many, by default {most}; the same command goes on from there"
    }


def project(
    config: str, runs: Path = ROOT / "runs", builds: Path = ROOT / "build", **more: Any
) -> Any:
    """Return what the Kaggle side needs to know of a config."""
    from deploy.relay.relay import Project
    from pipeline import config as configs

    settings = configs.load(config)
    sample = settings.data.sample_submission
    owner, slug, file = (*str(settings.model_options.get("pretrained", "")).split("/", 2), "", "")[
        :3
    ]
    needs = (
        f"{owner}/{slug}" if owner and slug and file else ""
    )  # a file of a dataset, and no path from the root
    return Project(
        ROOT,
        config,
        settings.competition,
        settings.handoff,
        runs,
        builds,
        sample=sample,
        needs=needs,
        **more,
    )


def connect() -> Any:
    """Return a connection with the user's own credentials."""
    from deploy.client.client import Kaggle

    return Kaggle.connect()


def settled(config: str, **more: Any) -> Any:
    """Return the project after what an interrupted push left open was looked up at Kaggle."""
    from deploy.relay import reconcile

    ours = project(config, **more)
    if reconcile.unclear(ours):
        reconcile.settle(connect(), ours, show=show)
    return ours


def checker(config: str, *, constant: bool = False) -> Callable[[Path, Path], int]:
    """Return how the model side judges a submission for that config before it is spent; `constant`:
    one may say the same of all rows.
    """
    from pipeline import config as configs
    from pipeline.submission import prediction_format
    from pipeline.submission import submission_csv as rules

    settings = configs.load(config)
    numbers, within = (
        prediction_format.takes_any_number(settings),
        prediction_format.bounds(settings),
    )

    def check(submission: Path, sample: Path) -> int:
        return rules.check(submission, sample, numbers=numbers, within=within, constant=constant)

    return check


def finished(result: Any, config: str) -> dict[str, Any]:
    """Print where a finished chain left its things, and return them."""
    end = {**result.values(), "config": config}
    show(
        f"score       {end['score']}, of the hidden test set  ({end['seconds']} seconds; the file below has {end['rows']} rows)"
    )
    show(f"submission  {end['submission']}")
    for picture in end["pictures"]:
        show(f"picture     {picture}")
    show(f"report      invoke report --run {result.trained}")
    return end


@task(name="relay", help={**CONFIG, **JSON, **YES})
@reported
@limited(60 * 24 * 14)
def relay_chain(
    c: Context, config: str = "", yes: bool = False, json: bool = False
) -> dict[str, Any]:
    """Run the whole chain on kaggle.com; spends quota and one submission. Example: invoke relay
    --config digits
    """
    from deploy.relay import relay

    ours = settled(config)  # a push that was killed may have reached Kaggle
    return finished(
        relay.run(connect(), ours, show=show, check=checker(config), agree=agreed(yes)), config
    )


def owner_of_a_build() -> str:
    """Return who is signed in; where nobody is, a placeholder, and say so: a build is looked at,
    and goes nowhere.
    """
    from deploy.errors import CredentialError, Unreachable

    try:
        return str(connect().username)
    except (CredentialError, Unreachable) as error:
        show(
            f"{str(error).splitlines()[0]} The owner is the placeholder {PLACEHOLDER!r}; to give another: --owner NAME"
        )
        show(
            "A push builds anew with the name that is signed in, so its bundle has another sha256."
        )
        return PLACEHOLDER


@task(
    help={
        **CONFIG,
        **JSON,
        **KERNEL,
        "owner": "the name before the slash in its address; default: who is signed in",
    }
)
@reported
def build(
    c: Context, kernel: str = "train-tpu", config: str = "", owner: str = "", json: bool = False
) -> dict[str, Any]:
    """Build a notebook into build/ and send nothing; needs no account. Example: invoke build
    --kernel train-tpu
    """
    from deploy.kernel import output
    from deploy.relay import relay

    ours = settled(config) if kernel == relay.INFER else project(config)
    artifact = (
        relay.last_pulled(ours, relay.TRAIN) / output.ARTIFACT if kernel == relay.INFER else None
    )
    built = relay.build(ours, kernel, owner or owner_of_a_build(), artifact=artifact)
    show(f"Built {built.notebook}: {built.size:,} bytes, bundle {built.sha256}. Nothing was sent.")
    return {
        "handle": built.handle,
        "notebook": str(built.notebook),
        "bundle_sha256": built.sha256,
        "size": built.size,
    }


@task(
    help={
        **CONFIG,
        **JSON,
        **AGAIN,
        **YES,
        "fresh": "begin again, whatever a partial run left; leave it out to go on later",
        "until-done": "watch, pull and push again, from session to session, until the training is complete or the quota is gone",
        "minutes": "end after this many, by default 120, with --until-done 14 days; the same command goes on from there",
    }
)
@reported
@limited(120, until_done=60 * 24 * 14)  # what a partial run left may have to be pulled first
def push_train(
    c: Context,
    config: str = "",
    again: bool = False,
    fresh: bool = False,
    until_done: bool = False,
    yes: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Show what a training would cost and change, and push it; of a partial one, the next session.
    Example: invoke push-train --config digits
    """
    from deploy.relay import chained_sessions, relay

    chained_sessions.refuse_both(again, until_done)
    ours = settled(config)
    if until_done:
        done = chained_sessions.train(connect(), ours, show=show, agree=agreed(yes), fresh=fresh)
        show(f"{done.run} is complete; its output is in {done.folder}")
        show(f"Next: {relay.after_pull(ours, done.run, done.folder)}")
        return {
            "run": str(done.run),
            "status": "complete",
            "folder": str(done.folder),
            "sessions": done.sessions,
        }
    run = relay.push(
        connect(), ours, relay.TRAIN, again=again, fresh=fresh, show=show, agree=agreed(yes)
    )
    show(f"{run.url}\nNext: invoke watch --config {config}".lstrip())
    return {"run": str(run), "url": run.url, "bundle_sha256": run.bundle_sha256}


@task(help={**CONFIG, **JSON, **AGAIN, **YES, **minutes(15)})
@reported
@limited(15)
def push_infer(
    c: Context,
    config: str = "",
    again: bool = False,
    yes: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Push the inference for the model that was pulled and published last. Example: invoke
    push-infer
    """
    from deploy.kernel import output
    from deploy.relay import relay

    ours = settled(config)
    artifact = relay.last_pulled(ours, relay.TRAIN) / output.ARTIFACT
    run = relay.push(
        connect(), ours, relay.INFER, artifact=artifact, again=again, show=show, agree=agreed(yes)
    )
    show(f"{run.url}\nNext: invoke watch --kernel infer-gpu --config {config}".lstrip())
    return {"run": str(run), "url": run.url, "bundle_sha256": run.bundle_sha256}


@task(
    help={
        **CONFIG,
        **JSON,
        **RUN,
        **KERNEL,
        "hours": "how long to wait for the end of the run, from its begin; default: 13",
        "queue-hours": "how long to wait until it gets a machine; default: 12",
    }
)
@reported
@limited(60 * 24 * 14)  # --hours and --queue-hours say when; this ends an answer that never does
def watch(
    c: Context,
    kernel: str = "train-tpu",
    run: str = "",
    config: str = "",
    hours: str = "13",
    queue_hours: str = "12",
    json: bool = False,
) -> dict[str, Any]:
    """Follow a run to its end; Ctrl-C leaves it running. Example: invoke watch --kernel infer-gpu"""
    from deploy.relay import continuation, relay

    ours = settled(
        config,
        deadline_seconds=number("hours", hours, 1 / 60, 24 * 14) * 3600,
        queue_seconds=number("queue-hours", queue_hours, 1 / 60, 24 * 14) * 3600,
    )
    known = relay.known_run(ours, run, kernel)
    kaggle = connect()
    status = relay.watch(kaggle, ours, known, show=show)
    left = continuation.glance(kaggle, known)
    if left.startswith("partial"):
        show(f"{known} is {left}")
    show(f"Next: invoke pull --run {known} --config {config}")
    return {"run": str(known), "status": status, "left": left}


@task(help={**CONFIG, **JSON, **RUN, **KERNEL, **minutes(120)})
@reported
@limited(120)
def pull(
    c: Context,
    kernel: str = "train-tpu",
    run: str = "",
    config: str = "",
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Download and verify what a run wrote, into runs/. Example: invoke pull --kernel infer-gpu"""
    from deploy.kernel import saved_progress
    from deploy.relay import relay

    ours = settled(config)
    known = relay.known_run(ours, run, kernel)
    folder = relay.pull(connect(), ours, known, show=show)
    show(f"The output of {known} is in {folder}")
    found = saved_progress.read(folder)
    if found is not None and not found.complete:
        show(f"{known} is {found}")
    following = relay.after_pull(ours, known, folder)
    if following:
        show(f"Next: {following}")
    return {"run": str(known), "folder": str(folder)}


@task(help={**CONFIG, **JSON, **minutes(120)})
@reported
@limited(120)
def publish(c: Context, config: str = "", minutes: str = "", json: bool = False) -> dict[str, Any]:
    """Make the model of the last training a version of a private dataset. Example: invoke publish
    --config digits
    """
    from deploy.relay import relay

    ours = settled(config)
    run = relay.last_run(ours, relay.TRAIN)
    made = relay.publish(connect(), ours, run, relay.pulled(ours, run), show=show)
    show(f"Next: invoke push-infer --config {config}")
    return {"dataset": made.handle, "dataset_version": made.version, "files": dict(made.files)}


@task(
    help={
        **CONFIG,
        **JSON,
        **RUN,
        **minutes(780),
        "constant": "submit although all rows have the same prediction",
    }
)
@reported
@limited(780)
def submit(
    c: Context,
    run: str = "",
    config: str = "",
    constant: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Check and submit the inference that was pulled last; spends one submission. Example: invoke
    submit
    """
    from deploy.relay import relay

    ours = settled(config)
    known = relay.known_run(ours, run, relay.INFER)
    folder = relay.pulled(ours, known)
    scored = relay.submit(
        connect(), ours, known, folder, check=checker(config, constant=constant), show=show
    )
    show(f"score {scored.score}, submission {scored.ref}")
    return {
        "run": str(known),
        "submission": str(folder / "submission.csv"),
        "ref": scored.ref,
        "score": scored.score,
    }


@task(
    help={
        **CONFIG,
        **JSON,
        **minutes(5),
        "of": "the path of a submission.csv: tell where it came from, back to the commit",
    }
)
@reported
@limited(5)
def status(
    c: Context, of: str = "", config: str = "", minutes: str = "", json: bool = False
) -> dict[str, Any]:
    """Show what was asked of Kaggle, how it stands, and the quota. Example: invoke status"""
    from deploy.trace import lineage
    from deploy.trace import status as standing

    ours = project(config)
    if of:
        links = lineage.trace(ours, Path(of))
        for link in links:
            show(f"{link.what:16}{link.value}")
        return {"of": of, "links": [link.to_json() for link in links]}
    for line in standing.asked(ours):
        show(line)
    found = standing.now(connect(), ours)
    for line in standing.stands(found):
        show(line)
    return {"journal": standing.journal(ours), **found}


@task(
    name="init",
    help={
        **JSON,
        "competition": "the last part of its address: leaf-diseases of kaggle.com/competitions/leaf-diseases",
        "config": "name of the new config; default: the competition's, with underscores for hyphens",
        "user": "your name on Kaggle, where there are no credentials to tell it",
    },
)
@reported
@limited(10)
def init_project(
    c: Context, competition: str = "", config: str = "", user: str = "", json: bool = False
) -> dict[str, Any]:
    """Make the template your competition's own. Example: invoke init --competition leaf-diseases"""
    from deploy.setup import init

    return dict(init.begin(ROOT, competition, config=config, user=user, show=show).values())


@task(help={**CONFIG, **JSON})
@reported
@limited(10)
def doctor(c: Context, config: str = "", json: bool = False) -> dict[str, Any]:
    """Look at all that a relay needs, and spend nothing. Example: invoke doctor"""
    from deploy.setup import doctor

    rows = doctor.examine(ROOT, lambda: project(config), show=show)
    return {"rows": [row.to_json() for row in rows], "exit_code": doctor.exit_code(rows)}
