"""Tasks that communicate with Kaggle, such as push, watch, pull, publish and submit."""

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
    yes="train, infer and submit without asking for confirmation; for scripts",
)
def relay_chain(
    config: str = "", for_: str = "", fresh: bool = False, now: bool = False, yes: bool = False
) -> Result:
    """Train, infer and submit on kaggle.com in one command, which uses quota and one submission.

    Example: invoke relay --config digits
    """
    from deploy import chain

    ours = project.records(config, runtime=for_)
    following = "this command pulls the output and continues until there is a score"
    agreed = agreement(yes)
    telling = Telling(agreed, PushPlan(config, agreed), following)
    project.check_custom_code(config)
    check = project.checker(config)
    return project.show_result(telling.run(chain.run, ours, check, fresh=fresh, now=now), config)


@task(
    owner="owner of the notebook (default: the user who is logged in)",
    artifact="path to the model's folder, for infer-gpu (default: the last training run that was"
    " pulled)",
)
def build(
    kernel: str = "train-tpu", config: str = "", owner: str = "", artifact: str = ""
) -> Result:
    """Build a notebook in build/CONFIG/ without sending it to Kaggle. No account is required.

    Example: invoke build --kernel train-tpu
    """
    from deploy import auth, chain, gate

    ours, folder = project.records(config), Path(artifact) if artifact else None
    if folder is not None and kernel != INFER:
        raise UsageError(f"--artifact can only be used with {INFER}, not {kernel}.")
    if folder is None and kernel == INFER:
        folder = project.resolved(config, Telling()).last_artifact()
    project.check_custom_code(config, folder)
    owner = owner or auth.look().username
    if not owner:
        owner = PLACEHOLDER
        show(
            f"The owner is the placeholder {PLACEHOLDER!r}. To set it, use --owner NAME.\n"
            "A push rebuilds the notebook with your user name, so its sha256 will differ."
        )
    built = chain.build(owner, ours, kernel, chain.Model(folder))
    show(f"Built {built.notebook} (bundle {built.sha256}). Nothing was sent to Kaggle.")
    show(f"Size: {built.size / 1000:.0f} of {gate.BYTES_AT_MOST / 1000:.0f} kB")
    made = {"handle": built.handle, "notebook": str(built.notebook), "size": built.size}
    return {**made, "bundle_sha256": built.sha256}


@task(
    TWO_WEEKS,
    until_done="watch and pull each session, then push the next session, until training is"
    " complete or the quota is used up",
)
def push_train(
    config: str = "",
    for_: str = "",
    again: bool = False,
    fresh: bool = False,
    until_done: bool = False,
    yes: bool = False,
) -> Result:
    """Push a training run, or resume it, after showing what it costs and what has changed.

    Example: invoke push-train --config digits
    """
    from deploy import chain

    if again and until_done:
        raise UsageError(
            "--again and --until-done cannot be used together, because one repeats the last push\n"
            "and the other resumes it. To start training over, use --fresh --until-done."
        )
    ours = project.records(config, runtime=for_)
    following = "this command pulls the output and pushes another session if necessary"
    agreed = agreement(yes)
    telling = Telling(agreed, PushPlan(config, agreed), following if until_done else "")
    project.check_custom_code(config)
    if not until_done:
        return project.push(telling, ours, TRAIN, again=again, fresh=fresh)
    done = telling.run(chain.train, ours, fresh=fresh)
    show(f"{done.run} is complete. Its output is in {done.folder}")
    show(f"Next: {chain.next_command(ours, done.run, done.folder)}")
    return {"run": str(done.run), "folder": str(done.folder), "sessions": done.sessions}


@task(15)
def push_infer(
    config: str = "", ensemble: str = "", again: bool = False, yes: bool = False
) -> Result:
    """Push an inference run for the model that was published last, or for an ensemble.

    Example: invoke push-infer
    """
    project.load(config)  # fail before asking for confirmation
    telling = Telling(agreement(yes))
    ours = project.resolved(config, telling)
    return project.push(telling, ours, INFER, project.model(ours, ensemble), again=again)


@task(120)
def push_prepare(
    config: str = "", again: bool = False, fresh: bool = False, yes: bool = False
) -> Result:
    """Decode all training images on a Kaggle CPU, which uses no quota.

    If it is interrupted, it can be resumed.

    Example: invoke push-prepare --config leaves
    """
    from pipeline import config as configs
    from pipeline.data import preparation

    preparation.require_images(configs.load(config))
    ours = project.records(config)
    return project.push(Telling(agreement(yes)), ours, PREPARE, again=again, fresh=fresh)


@task(
    TWO_WEEKS,  # stops a response that never ends; --hours and --queue-hours limit the watch itself
    minutes="",
    hours="time limit in hours, starting when the run leaves the queue (default: 13)",
    json_lines="print each change as a JSON object on its own line, followed by the result",
    queue_hours="time limit in hours for waiting in the queue (default: 12)",
)
def watch(
    kernel: str = "train-tpu",
    run: str = "",
    config: str = "",
    hours: str = "13",
    queue_hours: str = "12",
    json_lines: bool = False,
) -> Result:
    """Follow a run until it finishes; pressing Ctrl-C does not stop the run.

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
    if prepares:  # its output is not needed on this machine
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
    """Download the output of a run to runs/, and verify it.

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
    """Publish the last trained model, or an ensemble's models, as private datasets.

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
    run="the inference run, as owner/slug/version, such as ann/digits-infer-gpu/3 (default: the"
    " last one pushed from this machine)",
    yes="submit without asking for confirmation; for scripts",
    constant="submit even if the prediction is the same in all rows",
    again="submit even if an earlier submission of this run failed",
)
def submit(
    run: str = "",
    config: str = "",
    constant: bool = False,
    again: bool = False,
    now: bool = False,
    yes: bool = False,
) -> Result:
    """Check and submit the predictions of the last inference run that was pulled.

    Example: invoke submit
    """
    from deploy import competition

    # Following an earlier submission does not spend another one, so it needs no confirmation.
    follows = competition.underway(project.records(config), run)
    telling = Telling((lambda question: agreement(yes)(question)) if follows else agreement(yes))
    ours = project.resolved(config, telling)
    found = ours.find_run(run, INFER)
    folder, check = ours.pulled_folder(found), project.checker(config, constant=constant)
    scored = telling.run(competition.submit, ours, found, folder, check, now=now, again=again)
    show(f"{scored}, submission {scored.ref}")
    file = str(folder / competition.FILE)
    return {"run": str(found), "submission": file, "ref": scored.ref, "score": scored.score}


@task(5, of="path to a submission.csv that should be traced back to its commit")
def status(of: str = "", config: str = "") -> Result:
    """Show the requests that were sent to Kaggle, their current state and the remaining quota.

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
