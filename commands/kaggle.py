"""The tasks that ask Kaggle: push, follow, pull, publish, submit, and how it all stands."""

import shlex
from dataclasses import asdict
from pathlib import Path

from commands.console import TWO_WEEKS, Limit, Result, agreement, limit, number, show, task
from commands.project import (
    check_custom_code,
    checker,
    connect,
    model,
    project,
    records,
    resolved,
    show_push,
    show_result,
)
from commands.push_plan import PushPlan
from commands.telling import Telling, terminal

PLACEHOLDER = "owner"


@task(
    Limit(TWO_WEEKS, {}, help="timeout in minutes (default: two weeks); rerun to resume"),
    name="relay",
    yes="ask neither before the sessions of the training and the inference, nor before the"
    " submission; for scripts",
)
def relay_chain(
    config: str = "", for_: str = "", fresh: bool = False, now: bool = False, yes: bool = False
) -> Result:
    """Run the whole chain on kaggle.com, from session to session; spends quota and one submission.

    Example: invoke relay --config digits
    """
    from deploy import chain

    ours = records(config, runtime=for_)
    following = "this command pulls it, and goes on to the score"
    telling = Telling.spending(yes, PushPlan(config), following)
    check_custom_code(config)
    steps = chain.run(connect(telling), ours, checker(config), fresh=fresh, now=now)
    return show_result(telling.complete(steps), config)


@task(
    owner="the name before the slash in its address; default: who is logged in",
    artifact="for infer-gpu, the folder of the model; default: the last training's, pulled",
)
def build(
    kernel: str = "train-tpu", config: str = "", owner: str = "", artifact: str = ""
) -> Result:
    """Build a notebook into build/ and send nothing; needs no account.

    Example: invoke build --kernel train-tpu
    """
    from deploy import chain, gate
    from deploy.errors import CredentialError, Unreachable, UsageError
    from deploy.project import INFER

    ours, folder, telling = records(config), Path(artifact) if artifact else None, Telling()
    if folder is not None and kernel != INFER:
        raise UsageError(f"--artifact is for {INFER}, not {kernel}.\nLeave it out.")
    if folder is None and kernel == INFER:
        folder = resolved(config, telling).last_artifact()
    check_custom_code(config, folder)
    note = ""
    try:
        owner = owner or connect(telling).username
    except (CredentialError, Unreachable) as error:
        owner, note = PLACEHOLDER, str(error).splitlines()[0]
    built = chain.build(owner, ours, kernel, chain.Model(folder))
    if note:
        show(
            f"{note} The owner is the placeholder {PLACEHOLDER!r}; to give another: --owner NAME\n"
            "A push builds again with your own name, so its bundle has another sha256."
        )
    show(f"Built {built.notebook}, bundle {built.sha256}. Nothing was sent.")
    show(f"Size: {gate.share_of_limit(built.size)}")
    return {
        "handle": built.handle,
        "notebook": str(built.notebook),
        "bundle_sha256": built.sha256,
        "size": built.size,
    }


@task(
    # What a partial run saved may have to be pulled first.
    limit(120, ", with --until-done two weeks", until_done=TWO_WEEKS),
    until_done="watch, pull and push again, from session to session, until the training is complete"
    " or the quota is used up",
)
def push_train(
    config: str = "",
    for_: str = "",
    again: bool = False,
    fresh: bool = False,
    until_done: bool = False,
    yes: bool = False,
) -> Result:
    """Show what a training would cost and change, and push it; resume a partial one.

    Example: invoke push-train --config digits
    """
    from deploy import chain
    from deploy.errors import UsageError
    from deploy.project import TRAIN

    if again and until_done:
        raise UsageError(
            "--again repeats the last push, and --until-done resumes from it; expected one of them."
            "\nTo start the training over: --fresh --until-done"
        )
    ours = records(config, runtime=for_)
    following = "this command pulls it, and pushes the next session if one is needed"
    telling = Telling.spending(yes, PushPlan(config), following if until_done else "")
    check_custom_code(config)
    if until_done:
        done = telling.complete(chain.train(connect(telling), ours, fresh=fresh))
        show(f"{done.run} is complete; its output is in {done.folder}")
        show(f"Next: {chain.next_command(ours, done.run, done.folder)}")
        told = {"run": str(done.run), "status": "complete", "folder": str(done.folder)}
        return {**told, "sessions": done.sessions}
    kaggle = connect(telling)
    steps = chain.push_kernel(kaggle, ours, TRAIN, again=again, fresh=fresh)
    return show_push(telling.complete(steps), ours.project.command("watch"))


@task(limit(15))
def push_infer(
    config: str = "", ensemble: str = "", again: bool = False, yes: bool = False
) -> Result:
    """Push the inference for the model that was published last, or for an ensemble.

    Example: invoke push-infer
    """
    from deploy import chain
    from deploy.project import INFER

    project(config)  # refuses what cannot be, before anybody is asked
    telling = Telling.spending(yes)
    ours = resolved(config, telling)
    accepted = model(ours, ensemble)
    steps = chain.push_kernel(connect(telling), ours, INFER, accepted, again=again)
    return show_push(telling.complete(steps), ours.project.command("watch --kernel infer-gpu"))


@task(limit(120))  # what a killed session saved may have to be pulled first
def push_prepare(
    config: str = "", again: bool = False, fresh: bool = False, yes: bool = False
) -> Result:
    """Decode the training images on Kaggle's CPU, once; costs no quota, and resumes.

    Example: invoke push-prepare --config leaves
    """
    from deploy import chain
    from deploy.project import PREPARE
    from pipeline import config as configs
    from pipeline.data import preparation

    preparation.require_images(configs.load(config))
    ours = records(config)
    telling = Telling.spending(yes)
    steps = chain.push_kernel(connect(telling), ours, PREPARE, again=again, fresh=fresh)
    return show_push(telling.complete(steps), ours.project.command("watch --kernel prepare-cpu"))


@task(
    Limit(
        TWO_WEEKS, {}
    ),  # --hours and --queue-hours end a watch; this ends an answer that never does
    hours="how long to wait for the end of the run, once it runs (default 13)",
    json_lines="print each change as one JSON object a line; the result is the last one",
    queue_hours="how long to wait until it gets a machine (default 12)",
)
def watch(
    kernel: str = "train-tpu",
    run: str = "",
    config: str = "",
    hours: str = "13",
    queue_hours: str = "12",
    json_lines: bool = False,
) -> Result:
    """Follow a run to its end; Ctrl-C does not stop it.

    Example: invoke watch --kernel infer-gpu
    """
    from deploy import chain, sessions
    from deploy import watch as watching
    from deploy.project import PREPARE

    telling = Telling(as_json=json_lines)
    ours = resolved(
        config,
        telling,
        deadline_seconds=number("hours", hours, 1 / 60, 24 * 14) * 3600,
        queue_seconds=number("queue-hours", queue_hours, 1 / 60, 24 * 14) * 3600,
    )
    found = ours.find_run(run, kernel)
    kaggle = connect(telling)
    prepares = ours.kernel_of(found) == PREPARE
    following = ours.project.command(f"pull --run {found}")
    if prepares:  # nothing at home needs what it wrote
        following = chain.after_preparation(ours.project, "complete")
    telling = Telling(following=following, as_json=json_lines)
    status = telling.complete(watching.watch(kaggle, ours, found))
    left = telling.complete(sessions.progress_of(kaggle, found, wait=True))
    if left.startswith("partial"):
        telling.note(f"{found} is {left}")
    if prepares:
        following = chain.after_preparation(ours.project, left)
    telling.note(f"Next: {following}")
    return {"run": str(found), "status": status, "left": left}


@task(limit(120))
def pull(kernel: str = "train-tpu", run: str = "", config: str = "") -> Result:
    """Download and verify what a run wrote, into runs/.

    Example: invoke pull --kernel infer-gpu
    """
    from deploy import chain, saved

    telling = Telling()
    ours = resolved(config, telling)
    found = ours.find_run(run, kernel)
    folder = telling.complete(chain.pull(connect(telling), ours, found))
    show(f"The output of {found} is in {folder}")
    progress = saved.read(folder)
    if progress is not None and not progress.complete:
        show(f"{found} is {progress}")
    following = chain.next_command(ours, found, folder)
    if following:
        show(f"Next: {following}")
    return {"run": str(found), "folder": str(folder)}


@task(limit(120))
def publish(config: str = "", ensemble: str = "") -> Result:
    """Publish the model of the last training in a private dataset, or each of an ensemble.

    Example: invoke publish --config digits
    """
    from deploy import datasets
    from deploy.project import TRAIN

    telling = Telling()
    ours = resolved(config, telling)
    command = ours.project.command
    if ensemble:
        members = model(ours, ensemble).members
        made_all = telling.complete(datasets.members(connect(telling), ours, members))
        show(f"Next: {command(f'push-infer --ensemble {shlex.quote(ensemble)}')}")
        return {"datasets": {each.handle: each.version for each in made_all}}
    run = ours.last_run(TRAIN)
    folder = ours.pulled_folder(run)
    made = telling.complete(datasets.artifact(connect(telling), ours, run, folder))
    show(f"Next: {command('push-infer')}")
    return {"dataset": made.handle, "dataset_version": made.version, "files": dict(made.files)}


@task(
    limit(780),
    run="owner/slug/version, as ann/digits-infer-gpu/3; default: the last run pushed from here",
    yes="submit without asking; for scripts",
    constant="submit although all rows have the same prediction",
    again="submit also if a submission of this run failed before",
)
def submit(
    run: str = "",
    config: str = "",
    constant: bool = False,
    again: bool = False,
    now: bool = False,
    yes: bool = False,
) -> Result:
    """Check the inference that was pulled last, show what a submission spends, and submit it.

    Example: invoke submit
    """
    from deploy import competition
    from deploy.project import INFER

    if competition.underway(records(config), run):  # to follow one spends nothing
        telling = Telling(lambda question: agreement(yes)(question))
    else:
        telling = Telling.spending(yes)
    ours = resolved(config, telling)
    found = ours.find_run(run, INFER)
    folder, check = ours.pulled_folder(found), checker(config, constant=constant)
    kaggle = connect(telling)
    steps = competition.submit(kaggle, ours, found, folder, check, now=now, again=again)
    scored = telling.complete(steps)
    show(f"{scored}, submission {scored.ref}")
    return {
        "run": str(found),
        "submission": str(folder / competition.FILE),
        "ref": scored.ref,
        "score": scored.score,
    }


@task(limit(5), of="path of a submission.csv: show where it came from, back to the commit")
def status(of: str = "", config: str = "") -> Result:
    """Show what was asked of Kaggle, how it stands, and the quota.

    Example: invoke status
    """
    from deploy import lineage
    from deploy import status as states

    ours = records(config)
    if of:
        links = lineage.trace(ours, Path(of))
        for link in links:
            show(f"{link.what:16}{link.value}")
        return {"of": of, "links": [asdict(link) for link in links]}
    title, rows, notes = states.journal_table(ours)
    if terminal():
        from commands import screen

        screen.show_journal(title, rows, notes)
        found = states.now(connect(Telling()), ours)
        screen.show_states(found)
    else:
        header = [states.JOURNAL_COLUMNS, *rows] if rows else []
        for line in (title, *(states.aligned(header) if rows else ()), *notes):
            show(line)
        found = states.now(connect(Telling()), ours)
        for line in states.state_lines(found):
            show(line)
    return {"journal": states.journal(ours), **found}
