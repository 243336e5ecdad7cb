"""The `start` task, which sets up a competition and rehearses the chain until it has a score.

Complete steps are skipped, so running the same command again resumes an interrupted task.
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
STARTED = ROOT / "runs" / "started.json"  # {folder: name of its config}
PLAN, PLAN_SECONDS = "plan.json", 60.0  # file in the rehearsal's folder, and time limit in seconds
# A file on the server that hosts all pretrained weights.
WEIGHTS = (
    "https://storage.googleapis.com/tensorflow/keras-applications/"
    "efficientnet_v2/efficientnetv2-b0_notop.h5"
)
REACHED_WITHIN = 10.0  # seconds
LONGER = "10m"
AGAIN = "To resume, run the same command again"


@task(
    24 * 60,
    advice=f"{AGAIN}, with more time:\n--minutes N",
    minutes="time limit in minutes (default: one day)",
    competition="the competition's URL or the last part of it (default without --input: the"
    " embedded digits, which require no account)",
    input="path to a competition's folder on this machine; no account is required unless you also"
    " pass a competition",
    metric="the competition's metric, which is also used to score the baseline; replaces the metric"
    " in an existing config",
)
def start(competition: str = "", input: str = "", metric: str = "") -> Result:
    """Download a competition, write a config for it and rehearse the whole chain.

    If it is interrupted, run the same command again to resume it.

    Example: invoke start leaf-diseases
    """
    from deploy import init

    if not input and os.sep in competition and Path(competition).is_dir():
        raise UsageError(
            f"{competition} is a folder: expected a competition's URL or the last part of it.\nTo"
            " use the folder:\n"
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
        show("To train, infer and submit on Kaggle (you will be asked before any quota is used):")
    elif input:
        following = "invoke init --competition SLUG"
        show("To link it to a competition on Kaggle, where SLUG is the last part of the URL:")
    else:
        show("To start a competition on Kaggle, where SLUG is the last part of the URL:")
    show(following)
    return {**end, "competition": slug, "plan": made, "next": following}


def _step(number: int, name: str, text: str) -> None:
    show(f"{number}/5 {name:10}{text}")


def _enter(slug: str) -> None:
    from deploy import init
    from workbench.inspect import config_file

    begun = config_file.stated().get(init.named(ROOT))
    if not slug:
        _step(1, "log in", "not needed: no competition was specified")
    elif begun is not None and begun.competition == slug:
        _step(1, "log in", f"already done: the config in relay.toml is for {slug}")
    else:
        _log_in(slug)


def _log_in(slug: str) -> "Kaggle":
    from deploy import competition as competitions

    telling = Telling()
    about = telling.run(competitions.require, slug)
    who, what = telling.kaggle.username, competitions.in_words(about)
    _step(1, "log in", f"as {who}, who has accepted the rules of {slug}; it {what}")
    return telling.kaggle


def _download(slug: str, folder: Path) -> None:
    from deploy import download

    if download.done(folder):
        _step(1, "log in", "not needed: the files are already downloaded")
        _step(2, "download", f"already done: {folder}")
        return
    path = download.archive(folder)
    if path is None:
        path = download.fetch(_log_in(slug), slug, folder)
    else:
        _step(1, "log in", f"not needed: {path} is already downloaded")
    size = path.stat().st_size
    download.unpack(path, folder, show)
    _step(2, "download", f"{size / 1e6:,.1f} MB, unpacked into {folder}")


def _describe(slug: str, folder: Path, metric: str) -> str:
    """Return the config for a competition or folder, and make it the default.

    The config is written if it does not exist yet, or if `metric` is not "" and differs from its
    metric.
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
    # Without a slug, compare paths, because configs of other folders can have the same name.
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
        show(f"Inspecting {folder} to write the config {name}")
        made = in_a_process("workbench", "inspect", place, *words)
        if "error" in made:
            command = shlex.join(["invoke", "inspect", "--input", place, *words])
            advice = "Run the following with the missing option, then start again"
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
    before = "already done: " if not init.remember(ROOT, name) and described else ""
    path = os.path.relpath(config_files.named_files()[name])
    _step(3, "config", f"{before}{path}, now the default config in relay.toml")
    return name


def _started() -> dict[str, str]:
    """Return {absolute path of a folder: name of the config that was written for it}."""
    if not STARTED.is_file():
        return {}
    kept: dict[str, str] = json.loads(STARTED.read_bytes())
    return kept


def _rehearse(config: str, folder: str) -> Result:
    from pipeline import config as configs
    from pipeline.config import rules

    found, before = rehearsal.recorded(config, folder), "already done: "
    if found is None:
        before = ""
        published = "imagenet" in rules.as_tuple(configs.load(config).pretrained)
        internet = published and can_fetch_weights()
        found = rehearsal.rehearse(config, folder, internet=internet)
    about = found["about"] or f"score {found['score']} on the hidden test set"
    _step(4, "rehearse", f"{before}{about}")
    if folder:
        words = ["--config", config, "--input", os.path.relpath(folder), "--budget", LONGER]
        show(f"To rehearse for longer: {shlex.join(['invoke', 'dry-run', *words])}")
    return found


def can_fetch_weights(address: str = WEIGHTS) -> bool:
    import requests

    try:
        answer = requests.head(address, timeout=REACHED_WITHIN)
        why = "" if answer.ok else f"{answer.status_code} {answer.reason}"
    except requests.RequestException as error:
        why = type(error).__name__
    if why:
        show(f"Cannot download {address}: {why}")
    return not why


def _plan(config: str, runs: Path) -> Result | None:
    kept = runs / PLAN
    if kept.is_file():
        made: Result | None = json.loads(kept.read_bytes())
    else:
        made = push_plan.planned(config, push_plan.TPU, seconds=PLAN_SECONDS)
        if made is not None:
            atomic_file.write(kept, json.dumps(made).encode())
    late = f"not ready after {PLAN_SECONDS:.0f} s. To make it, run: invoke plan --config {config}"
    _step(5, "plan", late if made is None else "for training on Kaggle's TPU v5e-8")
    if made is not None:
        push_plan.judge(made, None)
    return made
