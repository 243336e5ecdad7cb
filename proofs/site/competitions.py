"""Both kinds of competition, their limits, and what an account lacks: each met and handled."""

import dataclasses
import hashlib
import math
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from deploy.client.client import Kaggle
from deploy.client.retries import Pace
from deploy.errors import RelayError
from deploy.kernel.push_and_watch import Run
from deploy.relay import relay
from deploy.relay.last_runs import Pushes
from deploy.trace import status
from localkaggle.facts import Facts
from localkaggle.fault_kinds import edited
from proofs.shared import environment
from proofs.shared.results_table import Later, Row, Rows, Show, last_json
from tests.faults import world as worlds
from tests.faults.world import World, competition

PACE = Pace(first=0.02, most=0.06, patience=60, listed=30, hidden=0.3)
ACCURACY = 0.97
LONG = 233 * 60.0  # seconds
GATES = {
    "phone": "phone is not verified",
    "identity": "identity is not verified",
    "captcha": "CAPTCHA",
}
# Both kinds, from dry run to score: config → what it says of the score.
KINDS = {"digits_csv": "of the uploaded file", "digits": "on the hidden test set"}


def rows(root: Path, *, short: bool, show: Show) -> Rows:
    """Yield a row a point; `short` leaves out the chains that train, and all gates."""
    yield uploaded()
    yield bounded()
    yield listed_late()
    yield hidden()
    if not short:
        yield gates()
        for config, said in KINDS.items():
            yield Later(
                f"`invoke dry-run --config {config}", partial(dry_run, root, config, said, show)
            )


def uploaded() -> Row:
    """Return the row of a competition that takes files."""
    files = {"competitions": [competition(takes_files=True)]}
    with worlds.temporary("submit", **files) as world:
        run, folder = _inference(world)
        first, again = _submit(world), _submit(world)
        content = (folder / "submission.csv").read_bytes()
        *_, blob = world.local.uploads.blobs.values()  # behind those of the dataset
        row = world.project.journal().last("submissions", ref=first.ref, sent=1) or {}
        noted = row["sha256"] == hashlib.sha256(content).hexdigest()
        same = blob.path.read_bytes() == content and noted and first.uploaded
        made = _spent(world)
    with worlds.temporary("submit", **files) as world:
        world.local.faults.say("CreateSubmission", ["reset after"])
        lost = _submit(world).score == 0.5 and _spent(world) == 1
    with worlds.temporary("submit") as world:
        before = len(world.local.uploads.blobs)
        notebook = not _submit(world).uploaded and len(world.local.uploads.blobs) == before
    figure = (
        f"{'the same' if same else 'other'} bytes; {made} submission of {run} for two commands,"
        f" {'1' if lost else 'not 1'} after a lost answer;"
        f" {'a notebook' if notebook else 'a file'} for a code competition"
    )
    return Row(
        "2. A competition that takes files gets the pulled submission.csv, a code competition the"
        " notebook, by the same command",
        "the run's own bytes, their sha256 in the journal, one submission",
        figure,
        same and lost and notebook and first == again and made == 1,
    )


def bounded() -> Row:
    """Return the row of a competition that gives a GPU two hours."""
    hosting = {"competitions": [competition(gpu_seconds=7200)]}
    with worlds.temporary("push-infer", **hosting) as world:
        project = dataclasses.replace(world.project, infer_hours=2.0)
        artifact, show = Pushes(project).last_artifact(), world.shown.append
        run = relay.push(_connected(), project, relay.INFER, artifact=artifact, show=show)
        timeout = _version(world, run).request.session_timeout_seconds
    with worlds.temporary("submit", **hosting) as world:
        run, _ = _inference(world)
        version = _version(world, run)
        version.seconds = LONG
        by_kaggle = _error(partial(_submit, world))
        # The log is that of a run of 233 minutes.
        version.log._began -= LONG
        version.log.add("stdout", "done\n")
        by_us, calls = _error(partial(_submit, world, hours=2.0)), _calls(world)
        spent = _spent(world)
    words = "runtime of 233 minutes exceeds this competition's GPU max of 120 minutes"
    said = [words in error for error in (by_kaggle, by_us)]
    learned = "infer_hours=2 " in by_kaggle
    return Row(
        "3. A competition that gives a GPU 120 minutes: infer_hours=2",
        "pushed with 7,200 s; a run of 233 minutes is not sent, and where nobody wrote the limit"
        " down, Kaggle's refusal tells what to write",
        f"{timeout:,} s; {calls} call by the relay that did not know; {sum(said)} of 2 say it; the"
        f" edit is {'said' if learned else 'missing'}; {spent} submissions spent",
        timeout == 7200 and all(said) and learned and (calls, spent) == (1, 0),
    )


def listed_late() -> Row:
    """Return the row of an output that is listed some time after the run's end."""
    with worlds.temporary("submit") as world:
        run, _ = _inference(world)
        _version(world, run).listed_at = time.time() + 1
        scored = _submit(world, dataclasses.replace(PACE, most=30)).score
        waited = any("lists no submission.csv" in line for line in world.shown)
        spent = _spent(world)
    with worlds.temporary("submit") as world:
        run, _ = _inference(world)
        _version(world, run).listed_at = math.inf
        never = _error(partial(_submit, world))
        kept = not _spent(world) and "invoke submit" in never
    with worlds.temporary("push-train", facts=Facts(listing_seconds=1)) as world:
        kaggle, show = _connected(), world.shown.append
        run = relay.push(kaggle, world.project, relay.TRAIN, show=show)
        relay.watch(kaggle, world.project, run, show=show)
        pulled = (relay.pull(kaggle, world.project, run, show=show) / "artifact").is_dir()
    return Row(
        "9. An output that is listed a second after COMPLETE, and one that never is",
        "pulled and submitted once it is listed; never listed, never sent",
        f"pulled: {pulled}; score {scored}, {spent} spent, after a wait: {waited}; never listed:"
        f" {'nothing sent' if kept else 'sent'}",
        pulled and waited and kept and (scored, spent) == (0.5, 1),
    )


def hidden() -> Row:
    """Return the row of a competition that shows no score."""
    with worlds.temporary("submit", facts=Facts(scores=False)) as world:
        began = time.monotonic()
        scored, seconds = _submit(world), time.monotonic() - began
        lines = status.journal_lines(world.project)
    told = any("score hidden" in line for line in lines)
    return Row(
        "13. A submission that is complete and shows no score",
        "complete, score hidden, after half an hour (here 0.3 s) and not after a day",
        f"{scored} after {seconds:.1f} s; {'the same' if told else 'nothing'} in the journal",
        scored.score is None and told and seconds < 60,
    )


def gates() -> Row:
    """Return the row of what an account has not done."""
    right = []
    for fault in (None, edited(userHasEntered=False)):
        facts = Facts(gate="" if fault else "rules")
        with worlds.temporary(facts=facts) as world:
            world.local.faults.say("GetCompetition", [fault])
            push = partial(relay.push, _connected(), world.project, relay.TRAIN)
            said = _error(partial(push, show=world.shown.append))
            right.append("competitions/digits/rules" in said and world.counts() == (0, 0, 0))
    for gate, words in GATES.items():
        for takes_files in (False, True):
            hosted = [competition(takes_files=takes_files)]
            with worlds.temporary("submit", competitions=hosted, facts=Facts(gate=gate)) as world:
                said = _error(partial(_submit, world))
                right.append(words in said and "kaggle.com" in said and not _spent(world))
    return Row(
        "21. Rules that are not accepted; a phone, an identity or a captcha that Kaggle asks for",
        "rules: their address before anything is pushed; the others: what to do and where, and"
        " nothing spent",
        f"{sum(right)} of {len(right)}",
        all(right),
    )


def dry_run(root: Path, config: str, said: str, show: Show) -> Row:
    """Return the row of a whole chain in which the notebooks really run."""
    command = f"invoke dry-run --config {config} --json"
    show(f"      {command}")
    with tempfile.TemporaryDirectory(prefix="prove-site-") as folder:
        done = environment.current(root).run(command, log=Path(folder) / "dry-run.log")
    score = last_json(done.output)["score"] if not done.code else 0.0
    if done.code:
        show(done.output[-3000:])
    return Row(
        f"`{command}`: from training to score",
        f"accuracy ≥ {ACCURACY:g}, {said}",
        f"{score:.4g}, {said if said in done.output else 'elsewhere'}; {done.seconds:.0f} s",
        score >= ACCURACY and said in done.output,
        seed=0,
    )


def _connected(pace: Pace = PACE) -> Kaggle:
    return Kaggle.connect(pace=pace)


def _inference(world: World) -> tuple[Run, Path]:
    """Return the last inference and its pulled folder."""
    pushes = Pushes(world.project)
    run = pushes.last_run(relay.INFER)
    return run, pushes.pulled_folder(run)


def _submit(world: World, pace: Pace = PACE, hours: float | None = None) -> Any:
    """Submit it, as `invoke submit` does."""
    run, folder = _inference(world)
    project = dataclasses.replace(world.project, infer_hours=hours)
    kaggle, show = _connected(pace), world.shown.append
    return relay.submit(kaggle, project, run, folder, check=lambda *_: None, show=show)


def _error(act: Callable[[], object]) -> str:
    """Return what an error says; "" without one."""
    try:
        act()
    except RelayError as error:
        return str(error)
    return ""


def _version(world: World, run: Run) -> Any:
    return world.local.kernels.version(run.handle, run.version)


def _spent(world: World) -> int:
    return len(world.local.submissions.submissions)


def _calls(world: World) -> int:
    """Return how many notebooks were sent, whatever came of it."""
    return sum(1 for name, *_ in world.local.journal if name.endswith("CreateCodeSubmission"))
