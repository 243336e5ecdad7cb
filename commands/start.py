"""The task that leads from a competition to a score of the whole chain, step by step.

It skips what is done, so the same command resumes wherever it was interrupted.
"""

import itertools
import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from commands import push_plan, rehearsal
from commands.console import ROOT, Result, show, task
from commands.project import in_a_process
from commands.telling import Telling
from deploy.errors import Detached, UsageError
from formats import atomic_file
from formats.errors import KnownError, writing

if TYPE_CHECKING:
    from deploy.client import Kaggle

EMBEDDED = "digits"
STARTED = ROOT / "runs" / "started.json"  # {folder: its config}
PLAN, PLAN_SECONDS = "plan.json", 60.0  # in the rehearsal's folder; a large network takes longer
# A file on the host of all pretrained weights.
WEIGHTS = (
    "https://storage.googleapis.com/tensorflow/keras-applications/"
    "efficientnet_v2/efficientnetv2-b0_notop.h5"
)
REACHED_WITHIN = 10.0  # seconds
AGAIN = "The same command resumes from there"


@task(
    24 * 60,
    advice=f"{AGAIN}, with more time:\n--minutes N",
    minutes="timeout in minutes (default: a day)",
    competition="its address, or the last part of it; default without --input: the embedded"
    " digits, which need no account",
    input="a competition's folder on this machine; without a competition it needs no account",
    metric="the competition's metric, which also measures the baseline; replaces that of an"
    " existing config",
)
def start(competition: str = "", input: str = "", metric: str = "") -> Result:
    """Download a competition, write its config, and rehearse the chain to a score; resumes.

    Example: invoke start leaf-diseases
    """
    from deploy import init

    if not input and os.sep in competition and Path(competition).is_dir():
        raise UsageError(
            f"{competition} is a folder; expected the last part of a competition's address, or:\n"
            f"{shlex.join(['invoke', 'start', '--input', competition])}"
        )
    slug = init.require_slug(competition, "invoke start SLUG", show) if competition else ""
    words = [*([slug] if slug else []), *(["--input", input] if input else [])]
    words += ["--metric", metric] if metric else []
    again = shlex.join(["invoke", "start", *words])
    try:
        folder, config = Path(input or os.path.relpath(ROOT / "data" / slug)), EMBEDDED
        if slug and not input:
            _download(slug, folder)
        else:
            _enter(slug)
            _step(2, "download", f"not needed: {input or 'the digits are embedded'}")
        if slug or input:
            config = _describe(slug, folder, metric)
        else:
            _step(3, "config", f"pipeline/configs/{EMBEDDED}.py")
        end = _rehearse(config, str(folder.resolve()) if slug or input else "")
        made = _plan(config, Path(end["folder"]))
    except KeyboardInterrupt:
        raise Detached(f"Interrupted. {AGAIN}:\n{again}") from None
    following = "invoke relay" if slug else "invoke start SLUG"
    if slug:
        show("To train on Kaggle's TPU, infer and submit; it asks before it spends anything:")
    elif input:
        following = "invoke init --competition SLUG"
        show("To connect it to its competition on Kaggle, by the last part of the address:")
    else:
        show("To start with a competition on Kaggle, by the last part of its address:")
    show(following)
    return {**end, "competition": slug, "plan": made, "next": following}


def _step(number: int, name: str, text: str) -> None:
    show(f"{number}/5 {name:10}{text}")


def _enter(slug: str) -> None:
    """Check that the rules are accepted, if a competition was named with --input."""
    from deploy import init
    from workbench.inspect import config_file

    begun = config_file.stated().get(init.named(ROOT))
    if not slug:
        _step(1, "log in", "not needed: no competition was named")
    elif begun is not None and begun.competition == slug:
        _step(1, "log in", f"done before: relay.toml names a config of {slug}")
    else:
        _log_in(slug)


def _log_in(slug: str) -> "Kaggle":
    """Return a connection of an account that has accepted the rules of a competition."""
    from deploy import competition as competitions

    telling = Telling()
    about = telling.run(competitions.require, slug)
    who, what = telling.kaggle.username, competitions.in_words(about)
    _step(1, "log in", f"as {who}; the rules of {slug} are accepted; it {what}")
    return telling.kaggle


def _download(slug: str, folder: Path) -> None:
    """Download and unpack a competition into a folder, unless that is done."""
    from deploy import download

    if download.done(folder):
        _step(1, "log in", "not needed: the files are here")
        _step(2, "download", f"done before: {folder}")
        return
    path = download.archive(folder)
    if path is None:
        path = download.fetch(_log_in(slug), slug, folder)
    else:
        _step(1, "log in", f"not needed: {path} is here")
    size = path.stat().st_size
    download.unpack(path, folder, show)
    _step(2, "download", f"{size / 1e6:,.1f} MB, unpacked into {folder}")


def _describe(slug: str, folder: Path, metric: str) -> str:
    """Return the config of a competition or folder, after writing it if there is none, and make it
    the default.
    """
    from deploy import init
    from pipeline import config as configs
    from pipeline.command_line import refuse_missing_input
    from pipeline.config import config_files
    from workbench.inspect import config_file

    refuse_missing_input(folder)
    usual, assumed = config_file.names(folder, None, slug)
    default, files = init.named(ROOT), config_files.named_files()
    place, started = str(folder.resolve()), _started()
    # A folder's name is not a slug: the config of another folder may have the same one.
    others = {name for path, name in started.items() if path != place} | {config_file.UNNAMED}
    own = {
        name: init.Stated(*said)
        for name, said in config_file.stated().items()
        if said.competition == assumed
        and (slug or (name not in others and (said.assumed or name == default)))
    }
    name = started.get(place, "") if not slug else ""
    name = name if name in files else init.chosen(own, assumed, default=default)
    described = name and metric in ("", configs.load(name).metric)
    if not described:
        free = itertools.chain([usual], (f"{usual}_{place}" for place in itertools.count(2)))
        name = name or next(each for each in free if each not in files)
        words = ["--write", name, *(["--metric", metric] if metric else [])]
        words += ["--competition", slug] if slug and name not in files else []
        show(f"Inspecting {folder}, to write the config {name}")
        made = in_a_process("workbench", "inspect", place, *words)
        if "error" in made:
            command = shlex.join(["invoke", "inspect", "--input", place, *words])
            advice = "Run it with the option that helps, then start again"
            error = KnownError(f"{made['error']}\n{advice}:\n{command}")
            error.exit_code = made["exit_code"]
            raise error
        for line in made["findings"]:
            if line["level"] in ("unknown", "warning"):
                show(f"{line['level']:9}{line['about']:18}{line['text']}")
    if started.get(place) != name:
        with writing(STARTED):
            STARTED.parent.mkdir(exist_ok=True)
            atomic_file.write(STARTED, json.dumps({**started, place: name}, indent=1).encode())
    before = "done before: " if not init.remember(ROOT, name) and described else ""
    path = os.path.relpath(config_files.named_files()[name])
    _step(3, "config", f"{before}{path}, the default of all tasks by relay.toml")
    return name


def _started() -> dict[str, str]:
    """Return {absolute path of a folder: the config that was written for it}."""
    if not STARTED.is_file():
        return {}
    kept: dict[str, str] = json.loads(STARTED.read_bytes())
    return kept


def _rehearse(config: str, folder: str) -> Result:
    """Rehearse a folder or the embedded competition, unless that is done, and show the score."""
    from pipeline import config as configs
    from pipeline.config import rules

    found, before = rehearsal.recorded(config, folder), "done before: "
    if found is None:
        before = ""
        published = "imagenet" in rules.as_tuple(configs.load(config).pretrained)
        internet = published and can_fetch_weights()
        found = rehearsal.rehearse(config, folder, internet=internet)
    about = found["about"] or f"score {found['score']} on the hidden test set"
    _step(4, "rehearse", f"{before}{about}")
    return found


def can_fetch_weights(address: str = WEIGHTS) -> bool:
    """Return whether this machine can download weights of Keras' applications; show why not."""
    import requests

    try:
        answer = requests.head(address, timeout=REACHED_WITHIN)
        why = "" if answer.ok else f"{answer.status_code} {answer.reason}"
    except requests.RequestException as error:
        why = type(error).__name__
    if why:
        show(f"{address} cannot be fetched here: {why}")
    return not why


def _plan(config: str, runs: Path) -> Result | None:
    """Show what the training takes on a TPU, and keep the plan with the rehearsal."""
    kept = runs / PLAN
    if kept.is_file():
        made: Result | None = json.loads(kept.read_bytes())
    else:
        made = push_plan.planned(config, push_plan.TPU, seconds=PLAN_SECONDS)
        if made is not None:
            atomic_file.write(kept, json.dumps(made).encode())
    late = f"not ready within {PLAN_SECONDS:.0f} s; to make it: invoke plan --config {config}"
    _step(5, "plan", late if made is None else "of the training on Kaggle's TPU v5e-8")
    if made is not None:
        push_plan.judge(made, None)
    return made
