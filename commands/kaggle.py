"""The tasks that talk to Kaggle: push, watch, pull, publish, submit and status."""

import shlex
from dataclasses import asdict
from pathlib import Path

from commands import project
from commands.console import TWO_WEEKS, Result, agreement, number, show, task
from commands.push_plan import PushPlan
from commands.telling import Telling
from deploy.errors import UsageError
from deploy.project import INFER, PREPARE, TRAIN

PLACEHOLDER = "owner"


@task(
    TWO_WEEKS,
    name="relay",
    yes="do not ask before the training, the inference and the submission; for scripts",
)
def relay_chain(
    config: str = "", for_: str = "", fresh: bool = False, now: bool = False, yes: bool = False
) -> Result:
    """Run the whole chain on kaggle.com, from session to session; spends quota and a submission.

    Example: invoke relay --config digits
    """
    from deploy import chain

    ours = project.records(config, runtime=for_)
    following = "this command pulls it, and continues to the score"
    agreed = agreement(yes)
    telling = Telling(agreed, PushPlan(config, agreed), following)
    project.check_custom_code(config)
    check = project.checker(config)
    return project.show_result(telling.run(chain.run, ours, check, fresh=fresh, now=now), config)


@task(
    owner="the user name in its address; default: the one who is logged in",
    artifact="for infer-gpu: the folder of the model; default: that of the last pulled training",
)
def build(
    kernel: str = "train-tpu", config: str = "", owner: str = "", artifact: str = ""
) -> Result:
    """Build a notebook into build/CONFIG/ without sending it; needs no account.

    Example: invoke build --kernel train-tpu
    """
    from deploy import auth, chain, gate

    ours, folder = project.records(config), Path(artifact) if artifact else None
    if folder is not None and kernel != INFER:
        raise UsageError(f"--artifact is for {INFER}, not {kernel}.\nLeave it out.")
    if folder is None and kernel == INFER:
        folder = project.resolved(config, Telling()).last_artifact()
    project.check_custom_code(config, folder)
    owner = owner or auth.look().username
    if not owner:
        owner = PLACEHOLDER
        show(
            f"The owner is the placeholder {PLACEHOLDER!r}; to set another: --owner NAME\n"
            "A push builds again with your user name, so its bundle has a different sha256."
        )
    built = chain.build(owner, ours, kernel, chain.Model(folder))
    show(f"Built {built.notebook}, bundle {built.sha256}. Nothing was sent.")
    show(f"Size: {built.size / 1000:.0f} of {gate.BYTES_AT_MOST / 1000:.0f} kB")
    made = {"handle": built.handle, "notebook": str(built.notebook), "size": built.size}
    return {**made, "bundle_sha256": built.sha256}


@task(
    TWO_WEEKS,
    until_done="watch, pull and push the next session, until the training is complete or the quota"
    " is used up",
)
def push_train(
    config: str = "",
    for_: str = "",
    again: bool = False,
    fresh: bool = False,
    until_done: bool = False,
    yes: bool = False,
) -> Result:
    """Show what a training costs and changes, and push it; resumes a partial one.

    Example: invoke push-train --config digits
    """
    from deploy import chain

    if again and until_done:
        raise UsageError(
            "--again repeats the last push, and --until-done resumes it; expected one of them.\n"
            "To start the training over: --fresh --until-done"
        )
    ours = project.records(config, runtime=for_)
    following = "this command pulls it, and pushes the next session if one is needed"
    agreed = agreement(yes)
    telling = Telling(agreed, PushPlan(config, agreed), following if until_done else "")
    project.check_custom_code(config)
    if not until_done:
        return project.push(telling, ours, TRAIN, again=again, fresh=fresh)
    done = telling.run(chain.train, ours, fresh=fresh)
    show(f"{done.run} is complete; its output is in {done.folder}")
    show(f"Next: {chain.next_command(ours, done.run, done.folder)}")
    return {"run": str(done.run), "folder": str(done.folder), "sessions": done.sessions}


@task(15)
def push_infer(
    config: str = "", ensemble: str = "", again: bool = False, yes: bool = False
) -> Result:
    """Push the inference of the model that was published last, or of an ensemble.

    Example: invoke push-infer
    """
    project.load(config)  # fails before anybody is asked
    telling = Telling(agreement(yes))
    ours = project.resolved(config, telling)
    return project.push(telling, ours, INFER, project.model(ours, ensemble), again=again)


@task(120)
def push_prepare(
    config: str = "", again: bool = False, fresh: bool = False, yes: bool = False
) -> Result:
    """Decode the training images once, on Kaggle's CPU; costs no quota, and resumes.

    Example: invoke push-prepare --config leaves
    """
    from pipeline import config as configs
    from pipeline.data import preparation

    preparation.require_images(configs.load(config))
    ours = project.records(config)
    return project.push(Telling(agreement(yes)), ours, PREPARE, again=again, fresh=fresh)


@task(
    TWO_WEEKS,  # --hours and --queue-hours end a watch; this ends an answer that never ends
    minutes="",
    hours="time limit in hours, once it runs (default 13)",
    json_lines="print each change as a JSON object on its own line; the last one is the result",
    queue_hours="time limit in hours until it gets a machine (default 12)",
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

    telling = Telling(as_json=json_lines)
    ours = project.resolved(
        config,
        telling,
        deadline_seconds=number("hours", hours, 1 / 60, 24 * 14) * 3600,
        queue_seconds=number("queue-hours", queue_hours, 1 / 60, 24 * 14) * 3600,
    )
    found = ours.find_run(run, kernel)
    prepares = ours.kernel_of(found) == PREPARE
    telling.following = ours.project.command(f"pull --run {found}")
    if prepares:  # nothing here needs its output
        telling.following = chain.after_preparation(ours.project, "complete")
    status = telling.run(watching.watch, ours, found)
    left = telling.run(sessions.progress_of, found, wait=True)
    if left.startswith("partial"):
        telling.note(f"{found} is {left}")
    following = chain.after_preparation(ours.project, left) if prepares else telling.following
    telling.note(f"Next: {following}")
    return {"run": str(found), "status": status, "left": left}


@task(120)
def pull(kernel: str = "train-tpu", run: str = "", config: str = "") -> Result:
    """Download the output of a run into runs/, and verify it.

    Example: invoke pull --kernel infer-gpu
    """
    from deploy import chain, output

    telling = Telling()
    ours = project.resolved(config, telling)
    found = ours.find_run(run, kernel)
    folder = telling.run(chain.pull, ours, found)
    show(f"The output of {found} is in {folder}")
    progress = output.saved_progress(folder)
    if progress is not None and not progress.complete:
        show(f"{found} is {progress}")
    if following := chain.next_command(ours, found, folder):
        show(f"Next: {following}")
    return {"run": str(found), "folder": str(folder)}


@task(120)
def publish(config: str = "", ensemble: str = "") -> Result:
    """Publish the model of the last training, or those of an ensemble, as private datasets.

    Example: invoke publish --config digits
    """
    from deploy import datasets

    telling = Telling()
    ours = project.resolved(config, telling)
    command = ours.project.command
    if ensemble:
        made_all = telling.run(datasets.members, ours, project.model(ours, ensemble).members)
        show(f"Next: {command(f'push-infer --ensemble {shlex.quote(ensemble)}')}")
        return {"datasets": {each.handle: each.version for each in made_all}}
    run = ours.last_run(TRAIN)
    made = telling.run(datasets.artifact, ours, ours.pulled_folder(run))
    show(f"Next: {command('push-infer')}")
    return {"dataset": made.handle, "dataset_version": made.version, "files": dict(made.files)}


@task(
    780,
    run="owner/slug/version, such as ann/digits-infer-gpu/3; default: the last one pushed here",
    yes="submit without asking; for scripts",
    constant="submit even if all rows have the same prediction",
    again="submit even if a submission of this run failed before",
)
def submit(
    run: str = "",
    config: str = "",
    constant: bool = False,
    again: bool = False,
    now: bool = False,
    yes: bool = False,
) -> Result:
    """Check the inference that was pulled last, show what its submission costs, and submit it.

    Example: invoke submit
    """
    from deploy import competition

    follows = competition.underway(project.records(config), run)  # which spends nothing
    telling = Telling((lambda question: agreement(yes)(question)) if follows else agreement(yes))
    ours = project.resolved(config, telling)
    found = ours.find_run(run, INFER)
    folder, check = ours.pulled_folder(found), project.checker(config, constant=constant)
    scored = telling.run(competition.submit, ours, found, folder, check, now=now, again=again)
    show(f"{scored}, submission {scored.ref}")
    file = str(folder / competition.FILE)
    return {"run": str(found), "submission": file, "ref": scored.ref, "score": scored.score}


@task(5, of="path of a submission.csv, to trace it back to the commit")
def status(of: str = "", config: str = "") -> Result:
    """Show the requests to Kaggle, their state, and the quota.

    Example: invoke status
    """
    from deploy import lineage
    from deploy import status as states

    ours = project.records(config)
    if of:
        links = lineage.trace(ours, Path(of))
        for link in links:
            show(f"{link.what:16}{link.value}")
        return {"of": of, "links": [asdict(link) for link in links]}
    for line in states.journal_lines(ours):
        show(line)
    found = states.now(Telling().kaggle, ours)
    for line in states.state_lines(found):
        show(line)
    return {"journal": states.journal(ours), **found}
