"""Kaggle's tasks: those that push to Kaggle, pull, publish and submit."""

import shlex
from pathlib import Path
from typing import Any

from invoke.context import Context

from commands.console import TWO_WEEKS, confirmation, limited, reported, show, task
from commands.project import (
    AGAIN,
    CONFIG,
    JSON,
    KERNEL,
    RUN,
    TRAINING,
    YES,
    check_custom_code,
    checker,
    connect,
    minutes,
    models,
    project,
    resolved_pushes,
    screen,
    show_push,
    show_result,
)
from commands.push_plan import PushPlan

ENSEMBLE = {"ensemble": "an ensemble.json: its members, in place of the last training's model"}
PLACEHOLDER = "owner"
SUBMIT = ("Submit it?", "Nothing was submitted.")  # the question, and what a no is answered by
FRESH = "start over, whatever a partial run saved; leave it out to resume later"
NOW = {
    "now": "submit at once: do not look whether Kaggle has the file among the run's outputs, and do"
    " not wait until five minutes after the pull"
}


@task(
    name="relay",
    help={
        **TRAINING,
        **NOW,
        "yes": "ask neither before the sessions of the training and the inference, nor before the"
        " submission; for scripts",
        "fresh": FRESH,
        "minutes": "timeout in minutes (default: two weeks); rerun to resume",
    },
)
@reported
@limited(TWO_WEEKS)
def relay_chain(
    c: Context,
    config: str = "",
    for_: str = "",
    fresh: bool = False,
    now: bool = False,
    yes: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Run the whole chain on kaggle.com, from session to session; spends quota and one submission.

    Example: invoke relay --config digits
    """
    from deploy import relay

    project(config, runtime=for_)  # refuses what cannot be, before anybody is asked
    agree, to_submit = PushPlan(config, confirmation(yes)), confirmation(yes, *SUBMIT)
    ours = resolved_pushes(config, runtime=for_).project
    check_custom_code(ours.config)
    with screen("this command pulls it, and goes on to the score"):
        made = relay.run(
            connect(),
            ours,
            show=show,
            check=checker(config),
            agree=agree,
            agree_to_submit=to_submit,
            pushed=agree.keep,
            fresh=fresh,
            now=now,
        )
    return show_result(made, config)


def owner_of_a_build() -> tuple[str, str]:
    """Return who is logged in, or else a placeholder, with a word about it: a build is not sent."""
    from deploy.errors import CredentialError, Unreachable

    try:
        return str(connect().username), ""
    except (CredentialError, Unreachable) as error:
        return PLACEHOLDER, (
            f"{str(error).splitlines()[0]} The owner is the placeholder {PLACEHOLDER!r}; to give"
            " another: --owner NAME\n"
            "A push builds again with your own name, so its bundle has another sha256."
        )


@task(
    help={
        **CONFIG,
        **JSON,
        **KERNEL,
        "owner": "the name before the slash in its address; default: who is logged in",
        "artifact": "for infer-gpu, the folder of the model; default: the last training's, pulled",
    }
)
@reported
def build(
    c: Context, kernel: str = "train-tpu", config: str = "", owner: str = "", artifact: str = "",
    json: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Build a notebook into build/ and send nothing; needs no account.

    Example: invoke build --kernel train-tpu
    """
    from deploy import push_rules, relay
    from deploy.errors import UsageError

    ours, model = project(config), Path(artifact) if artifact else None
    if model is not None and kernel != relay.INFER:
        raise UsageError(f"--artifact is for {relay.INFER}, not {kernel}.\nLeave it out.")
    if model is None and kernel == relay.INFER:
        model = resolved_pushes(config).last_artifact()
    check_custom_code(ours.config, model)
    owner, note = (owner, "") if owner else owner_of_a_build()
    built = relay.build(ours, kernel, owner, artifact=model)
    if note:
        show(note)
    show(f"Built {built.notebook}, bundle {built.sha256}. Nothing was sent.")
    show(f"Size: {push_rules.share_of_limit(built.size)}")
    return {
        "handle": built.handle,
        "notebook": str(built.notebook),
        "bundle_sha256": built.sha256,
        "size": built.size,
    }


@task(
    help={
        **TRAINING,
        **AGAIN,
        **minutes(120, ", with --until-done two weeks"),
        "fresh": FRESH,
        "until-done": "watch, pull and push again, from session to session, until the training is"
        " complete or the quota is used up",
    }
)
@reported
@limited(120, until_done=TWO_WEEKS)  # what a partial run saved may have to be pulled first
def push_train(
    c: Context,
    config: str = "",
    for_: str = "",
    again: bool = False,
    fresh: bool = False,
    until_done: bool = False,
    yes: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Show what a training would cost and change, and push it; resume a partial one.

    Example: invoke push-train --config digits
    """
    from deploy import chained_sessions, relay

    chained_sessions.refuse_both(again, until_done)
    project(config, runtime=for_)  # refuses what cannot be, before anybody is asked
    agree = PushPlan(config, confirmation(yes))
    ours = resolved_pushes(config, again=again or fresh, runtime=for_).project
    check_custom_code(ours.config)
    if until_done:
        with screen("this command pulls it, and pushes the next session if one is needed"):
            done = chained_sessions.train(
                connect(), ours, show=show, agree=agree, fresh=fresh, pushed=agree.keep
            )
        show(f"{done.run} is complete; its output is in {done.folder}")
        show(f"Next: {relay.next_command(ours, done.run, done.folder)}")
        return {
            "run": str(done.run),
            "status": "complete",
            "folder": str(done.folder),
            "sessions": done.sessions,
        }
    run = relay.push(connect(), ours, relay.TRAIN, again=again, fresh=fresh, show=show, agree=agree)
    agree.keep(run)
    return show_push(run, ours.command("watch"))


@task(help={**CONFIG, **JSON, **AGAIN, **YES, **ENSEMBLE, **minutes(15)})
@reported
@limited(15)
def push_infer(
    c: Context,
    config: str = "",
    ensemble: str = "",
    again: bool = False,
    yes: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Push the inference for the model that was published last, or for an ensemble.

    Example: invoke push-infer
    """
    from deploy import relay

    project(config)  # refuses what cannot be, before anybody is asked
    agree = confirmation(yes)
    pushes = resolved_pushes(config, again=again)
    ours = pushes.project
    model = models(pushes, ensemble)
    run = relay.push(connect(), ours, relay.INFER, **model, again=again, show=show, agree=agree)
    return show_push(run, ours.command("watch --kernel infer-gpu"))


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
    """Download and verify what a run wrote, into runs/.

    Example: invoke pull --kernel infer-gpu
    """
    from deploy import relay, saved_progress

    pushes = resolved_pushes(config)
    ours, found = pushes.project, pushes.find_run(run, kernel)
    folder = relay.pull(connect(), ours, found, show=show)
    show(f"The output of {found} is in {folder}")
    progress = saved_progress.read(folder)
    if progress is not None and not progress.complete:
        show(f"{found} is {progress}")
    following = relay.next_command(ours, found, folder)
    if following:
        show(f"Next: {following}")
    return {"run": str(found), "folder": str(folder)}


@task(help={**CONFIG, **JSON, **ENSEMBLE, **minutes(120)})
@reported
@limited(120)
def publish(
    c: Context, config: str = "", ensemble: str = "", minutes: str = "", json: bool = False
) -> dict[str, Any]:
    """Publish the model of the last training in a private dataset, or each of an ensemble.

    Example: invoke publish --config digits
    """
    from deploy import published, relay

    pushes = resolved_pushes(config)
    if ensemble:
        ours, members = pushes.project, models(pushes, ensemble)["members"]
        made_all = published.members(connect(), ours, members, show=show)
        show(f"Next: {ours.command(f'push-infer --ensemble {shlex.quote(ensemble)}')}")
        return {"datasets": {each.handle: each.version for each in made_all}}
    ours, run = pushes.project, pushes.last_run(relay.TRAIN)
    made = relay.publish(connect(), ours, run, pushes.pulled_folder(run), show=show)
    show(f"Next: {ours.command('push-infer')}")
    return {"dataset": made.handle, "dataset_version": made.version, "files": dict(made.files)}


@task(
    help={
        **CONFIG,
        **JSON,
        "run": RUN["run"].replace("train-tpu", "infer-gpu"),
        **minutes(780),
        "yes": "submit without asking; for scripts",
        "constant": "submit although all rows have the same prediction",
        "again": "submit also if a submission of this run failed before",
        **NOW,
    }
)
@reported
@limited(780)
def submit(
    c: Context,
    run: str = "",
    config: str = "",
    constant: bool = False,
    again: bool = False,
    now: bool = False,
    yes: bool = False,
    minutes: str = "",
    json: bool = False,
) -> dict[str, Any]:
    """Check the inference that was pulled last, show what a submission spends, and submit it.

    Example: invoke submit
    """
    from deploy import relay
    from deploy import submit as submissions

    ours = project(config)  # refuses what cannot be, before anybody is asked
    agree = None
    if not submissions.underway(ours, run):  # to follow one spends nothing, so it asks nobody
        agree = confirmation(yes, *SUBMIT)
    pushes = resolved_pushes(config)
    found = pushes.find_run(run, relay.INFER)
    folder, check = pushes.pulled_folder(found), checker(config, constant=constant)
    ours = pushes.project
    scored = relay.submit(
        connect(),
        ours,
        found,
        folder,
        check=check,
        show=show,
        agree=agree or (lambda spending: confirmation(yes, *SUBMIT)(spending)),
        now=now,
        again=again,
    )
    show(f"{scored}, submission {scored.ref}")
    return {
        "run": str(found),
        "submission": str(folder / "submission.csv"),
        "ref": scored.ref,
        "score": scored.score,
    }
