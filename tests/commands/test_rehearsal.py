"""How a rehearsal and a server host a folder: some of its labelled rows are the hidden test set.
tests/doors/test_dry_run.py runs a whole rehearsal.
"""

import itertools
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import rehearsal, rehearsed_models
from commands.project import load
from commands.rehearsal import Hosted, default, explained, hosted_folder
from deploy import init
from deploy.errors import RunFailed, SourceMissing, UsageError
from deploy.project import Project
from localkaggle.server import LocalKaggle
from localkaggle.sessions import session
from pipeline.errors import ConfigError, SubmissionError
from pipeline.models import presets
from tests.deploy.invoked import ended
from tests.doors.given import write_config
from tests.localkaggle.pushed_notebooks import SECONDS_AT_MOST
from workbench.rehearse.own_folder import IN_SIGHT

ROOT = Path(__file__).resolve().parents[2]
MODEL = "keras/tiny/Keras/small/1"


def test_a_folder_without_a_config_shows_the_default_one(capsys):
    """Errors about it would be confusing otherwise."""
    name = init.default_config(ROOT)
    assert (default(""), default("my data")) == ("digits", name)

    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"Using the default config, {name}. ")
    assert line.endswith("invoke inspect --input 'my data' --write NAME")


def hosted(folder: Path, budget: str = "") -> Hosted:
    return hosted_folder(str(folder.parent / "kinds.py"), folder, budget, internet=False)


def test_a_short_training_may_predict_a_single_label_and_does_not_see_the_folder(leaves):
    sample = leaves / "sample_submission.csv"
    short = hosted(leaves, "2m")
    assert short.check(sample, sample) == 21
    with pytest.raises(SubmissionError, match="same prediction"):
        hosted(leaves).check(sample, sample)
    assert short.options["private"] == (leaves.resolve(),)


def test_without_namespaces_it_warns_of_visible_labels_and_copies_files(
    leaves, tmp_path, monkeypatch
):
    """Otherwise a session that writes to its input would change the user's files."""
    monkeypatch.setattr(session, "namespaces", lambda: ())
    found = hosted(leaves)
    found.options["competitions"][0].write(tmp_path / "seen")
    images = list((tmp_path / "seen").rglob("*.png"))
    assert IN_SIGHT in found.lines
    assert images and all(path.stat().st_nlink == 1 for path in images)


@pytest.mark.parametrize(("error", "kept"), [(math.nan, None), (0.02, 0.02)])
def test_a_standard_error_that_is_not_a_number_is_not_recorded(error, kept, tmp_path):
    """No resample of an AUC may have both classes."""
    folder = SimpleNamespace(test=SimpleNamespace(scored=SimpleNamespace(error=error)))

    assert rehearsal._error(None, Hosted({}, lambda *_: 0, folder=folder), tmp_path) == kept


def test_a_failed_rehearsal_names_no_command_for_kaggle(tmp_path):
    said = "Fix it.\nTo pull what it wrote before it ended:\ninvoke pull --run a/b/1"
    error = explained(RunFailed(said), "", tmp_path)
    assert str(error).startswith("Fix it.\n(This was a rehearsal")
    assert "invoke pull" not in str(error)
    lacking = explained(SourceMissing("No dataset."), "", tmp_path)
    assert "--dataset OWNER/SLUG=DIR" in str(lacking)
    lacking = explained(SourceMissing("No model.", ("model_sources",)), "", tmp_path)
    assert "--model OWNER/MODEL/FRAMEWORK/VARIATION/VERSION=DIR" in str(lacking)


@pytest.mark.parametrize(
    ("pretrained", "models", "needs"),
    [
        ("", (), ()),
        ("imagenet", (), ()),
        ("hf://google/siglip", (), ()),
        (MODEL, (MODEL,), ()),
        ("/kaggle/input/datasets/ann/vit/preset", (), ()),
        ("ann/vit", (), ("ann/vit",)),
        (("ann/vit/a.weights.h5", MODEL, "ann/vit/b.weights.h5"), (MODEL,), ("ann/vit",)),
        ("none", (), ()),
        # A push refuses these: Kaggle does not have them.
        ("/home/ann/preset", (), ("/home/ann/preset",)),
        (("preset", "net.weights.h5"), (), ("preset", "net.weights.h5")),
    ],
)
def test_what_a_config_begins_with_is_mounted(tmp_path, pretrained, models, needs):
    ours = load(str(write_config(tmp_path, pretrained=pretrained)))

    assert (ours.models, ours.needs) == (models, needs)


@pytest.fixture
def gathered(tmp_path, monkeypatch):
    """Return what gathers the files of `MODEL`; kagglehub has downloaded none. The kernels that a
    competitor can do without are deleted.
    """
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path / "cache"))
    kernels = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels" / "train-tpu", kernels / "train-tpu")
    ours = Project(ROOT, "tiny", SLUG, "dataset", tmp_path, tmp_path, kernels, models=[MODEL])

    def gather(*given: str, python: str = sys.executable):
        return rehearsed_models.gather(ours, given, tmp_path / "home", python)

    return gather


@pytest.mark.parametrize("given", [True, False])
def test_a_rehearsal_takes_the_model_that_it_is_given_or_that_kagglehub_has(
    gathered, tmp_path, given
):
    """What starts then finds it as in kagglehub's cache."""
    files = tmp_path / ("given" if given else f"cache/models/{MODEL}")
    files.mkdir(parents=True)
    for name in ("config.json", "model.weights.h5"):
        (files / name).touch()

    folders, lines = gathered(*[f"{MODEL.lower()}={files}"] * given)

    assert folders[MODEL.lower()].samefile(files) and lines == (
        f"{MODEL} uses the files in {files}",
    )
    assert Path(os.environ["KAGGLEHUB_CACHE"], "models", MODEL).samefile(files)


def test_both_sides_use_one_mark_of_random_weights():
    """The commands import no Keras, so they have a copy of the name."""
    assert rehearsed_models.RANDOM == presets.RANDOM


@pytest.mark.parametrize("given", [True, False])
def test_a_folder_with_random_weights_is_marked(gathered, tmp_path, given):
    """Otherwise its score would look like that of the published weights."""
    files = tmp_path / ("given" if given else f"cache/models/{MODEL}")
    files.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "random_weights.json"):
        (files / name).touch()

    _, lines = gathered(*[f"{MODEL}={files}"] * given)

    assert lines == (f"{MODEL} uses the files in {files} (random)",)


@pytest.mark.parametrize("cached", ["", "config.json", "model.weights.h5"])
def test_random_weights_replace_missing_files_of_a_model(gathered, tmp_path, cached):
    """The Python that trains writes them. KerasHub may have downloaded only config.json."""
    if cached:
        (tmp_path / "cache/models" / MODEL).mkdir(parents=True)
        (tmp_path / "cache/models" / MODEL / cached).touch()
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nmkdir -p "$6" && echo {} > "$6/config.json" && echo {}\n')
    python.chmod(0o700)

    folders, (line,) = gathered(python=str(python))

    assert (folders[MODEL.lower()] / "config.json").is_file()
    assert line.startswith(f"{MODEL} has random weights, and only 2 blocks if it is a transformer")
    assert line.endswith(f"; to use the published weights: --model {MODEL}=DIR")


def test_a_model_without_files_or_random_weights_is_refused(gathered):
    with pytest.raises(UsageError, match=f"(?s)files of {MODEL} are missing.*--model {MODEL}=DIR"):
        gathered()


def test_a_model_that_no_notebook_mounts_is_refused(gathered, tmp_path):
    """Its files would not be used."""
    with pytest.raises(UsageError, match=f"a model that a notebook mounts .{MODEL}"):
        gathered(f"{MODEL.replace('/1', '/2')}={tmp_path}")


SLUG = "four-kinds"
SAMPLE = "sample_submission.csv"


def served(leaves: Path, budget: str = "") -> LocalKaggle:
    """Return a local Kaggle that hosts the folder, as `invoke serve --folder` starts it."""
    place = leaves.parent / "kaggle"
    config = str(leaves.parent / "kinds.py")
    hosted = hosted_folder(config, leaves, budget, internet=False, served_from=place)
    return LocalKaggle(place, **hosted.options)


def test_the_same_rows_are_hidden_after_a_restart(leaves):
    """An earlier submission would get the same score."""
    hidden = []
    for _ in range(2):
        with served(leaves) as kaggle:
            solution = kaggle.competitions[SLUG].solution["label"]
            asked = (kaggle.competitions.folder(SLUG, hidden=True) / SAMPLE).read_bytes()
            hidden.append((solution, asked))
    assert hidden[0] == hidden[1]


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("", r"Since .*hidden\.json was written, .* have changed"),
        ("5m", r"--budget 5m: expected the same as in .*, none"),
    ],
)
def test_changed_rows_or_a_different_budget_are_refused_after_a_restart(leaves, budget, said):
    """Earlier trainings had different rows; the budget sets the number of hidden ones."""
    with served(leaves):
        pass
    table = leaves / "train.csv"
    if not budget:
        table.write_text("\n".join(table.read_text().splitlines()[:-1]) + "\n")

    with pytest.raises(ConfigError, match=said):
        served(leaves, budget=budget)


def test_serve_hosts_a_folder_until_ctrl_c(leaves, tmp_path):
    """It prints what to paste into another shell."""
    words = ["serve", "--config", tmp_path / "kinds.py", "--input", leaves]
    with subprocess.Popen(
        [sys.executable, "-m", "invoke", *words, "--folder", tmp_path / "kag"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        lines = list(itertools.takewhile(lambda line: "Ctrl-C" not in line, process.stdout))
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=SECONDS_AT_MOST)[0].startswith("# Stopped")

    assert process.returncode == 0
    assert lines[0] == "# 19 of 96 labelled rows are the hidden test set\n"
    assert any(f"# Serving the competitions {SLUG} on" in line for line in lines)


@pytest.mark.slow
def test_a_refused_serve_shows_its_command_with_all_options(leaves, tmp_path):
    """Without them it would train on all rows, with the internet."""
    place = tmp_path / "kaggle"
    with LocalKaggle(place, competitions=["digits"]):
        pass
    given = ["serve", "--config", str(tmp_path / "kinds.py"), "--input", str(leaves)]
    given += ["--budget", "90s", "--offline"]

    ((code, _, said),) = ended([[*given, "--folder", str(place)]])

    error, command = said.splitlines()[-2:]
    assert (code, command) == (2, f"{shlex.join(['invoke', *given])} --folder {place}-2")
    assert "hosts the competition digits; use another folder, or start it with" in error
