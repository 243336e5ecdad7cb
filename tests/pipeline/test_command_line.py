"""`python -m pipeline` says what is wrong in one message, with the right exit code."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.__main__ import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command and gives (exit code, stdout, stderr)."""

    def call(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return call


def test_describe_prints_parameters_shapes_and_applied_numbers(run, monkeypatch):
    """The wide ResNet of the benchmark has as many parameters as its source says."""
    # A hundred million numbers need not be drawn to be counted.
    monkeypatch.setattr(
        "keras.initializers.VarianceScaling.__call__", lambda self, shape, dtype: np.zeros(shape)
    )

    code, out, _ = run("describe", "--config", "cifar100_wrn", "--json")

    found = json.loads(out.splitlines()[-1])
    assert code == 0
    counts = {"total": 103_465_028, "trainable": 103_452_484, "non_trainable": 12_544}
    assert found["parameters"] == counts
    assert found["input"]["shape"] == [None, 32, 32, 3]
    assert found["optimizer"]["peak_rate"] == 2.8e-3


LONG = "n" * 300
TRAIN = "train --config digits --output out --input"
INFER = "infer --config digits --output out --input . --artifact"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("describe --config digit", 2, "cifar100_wrn, d"),
        (f"{TRAIN} /nowhere", 2, "no such folder"),
        (f"{TRAIN} {__file__}", 2, "is a file. Expected a competition folder"),
        (f"{TRAIN} . --max-steps 0", 2, "--max-steps 0"),
        (f"{INFER} /nowhere", 2, "Expected one with manifest.json"),
        (f"{INFER} .", 1, "manifest.json"),
        ("describe --config digits --images 0", 2, "--images 0"),
        ("describe --config digits --images -5", 2, "--images -5"),
        (f"describe --config {LONG}.py", 2, "no such config"),
        (f"{TRAIN} {LONG}", 2, "no such folder"),
        (f"{INFER} {LONG}", 2, "no such fold"),
    ],
)
def test_a_wrong_call_gets_one_message(run, words, code, said, tmp_path, monkeypatch):
    """On stderr, and as JSON on the last line when asked; nothing is written."""
    monkeypatch.chdir(tmp_path)

    found, out, err = run(*words.split(), "--json")

    assert found == code
    assert said in err
    assert err.startswith("Error: ")
    assert json.loads(out.splitlines()[-1])["exit_code"] == code
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("images", "said"), [((), "50000 training images, an assumption"), (("--images", "9"), "")]
)
def test_describe_says_what_it_assumes(run, tiny, written_config, images, said):
    """Steps and warnings follow from it."""
    code, out, err = run("describe", "--config", written_config(tiny), "--json", *images)

    assert code == 0
    assert said in err and bool(said) == bool(err)
    assert json.loads(out.splitlines()[-1])["images_assumed"] == bool(said)


@pytest.mark.parametrize(
    ("command", "backend", "said"),
    [
        ("train", "tensorflow", "runs on jax"),
        ("train", "torch", "runs on jax"),
        ("infer", "torch", "runs on tensorflow or jax"),
        ("describe", "bogus", "runs on jax or tensorflow"),
    ],
)
def test_a_backend_that_cannot_work_is_refused_before_keras_starts(
    run, trained, tiny, written_config, tmp_path, monkeypatch, command, backend, said
):
    """Usage: the variable comes from the shell of whoever calls."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    data = ("--input", trained[0], "--output", tmp_path / "out")
    infer = (*data, "--artifact", trained[1] / "artifact")
    words = {"describe": (), "train": data, "infer": infer}

    code, _, err = run(command, "--config", written_config(tiny), *words[command])

    assert code == 2
    assert f"KERAS_BACKEND={backend}" in err and said in err


def in_the_way(path: Path) -> Path:
    """Return the path, at which there is now a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    return path


@pytest.mark.parametrize(
    "place",
    [
        lambda folder: in_the_way(folder / "out"),
        lambda folder: in_the_way(folder / "out") / "below",
        lambda folder: folder / ("n" * 300),
        lambda folder: in_the_way(folder / "out" / "checkpoints").parent,
    ],
    ids=["a file", "below a file", "too long", "checkpoints is a file"],
)
def test_an_output_that_cannot_be_written_is_named_before_training(
    run, competition, tiny, written_config, tmp_path, place
):
    """Exit code 8, in one message."""
    output = place(tmp_path)

    words = ("--config", written_config(tiny), "--input", competition, "--output", output)
    code, _, err = run("train", *words)

    assert code == 8
    assert err.startswith("Error: Could not write") and str(output) in err


@pytest.mark.parametrize("place", ["a file", "below a file", "submission.csv is a folder"])
def test_a_submission_that_cannot_be_written_is_named(
    run, trained, tiny, written_config, tmp_path, place
):
    """Exit code 8, in one message."""
    output = tmp_path / "out"
    if place == "submission.csv is a folder":
        (output / "submission.csv").mkdir(parents=True)
    else:
        in_the_way(output)
        output = output / "below" if place == "below a file" else output
    words = ("--input", trained[0], "--artifact", trained[1] / "artifact", "--output", output)

    code, _, err = run("infer", "--config", written_config(tiny), *words)

    assert code == 8
    assert err.startswith("Error: Could not write") and str(output) in err


def test_infer_takes_the_places_of_its_config_and_the_model_of_its_artifact(
    run, trained, tiny, written_config, competition, tmp_path
):
    """The hidden test set may lie elsewhere than the one that was trained beside."""
    (competition / "test").rename(competition / "hidden")
    (competition / "sample_submission.csv").rename(competition / "sample.csv")
    places = replace(tiny.data, test_images="hidden", sample_submission="sample.csv", height=99)
    config = written_config(replace(tiny, data=places, model_options={"width": 77}))
    artifact = trained[1] / "artifact"
    words = ("--input", competition, "--artifact", artifact, "--output", tmp_path / "out")

    code, _, err = run("infer", "--config", config, *words)

    assert code == 0, err
    assert len((tmp_path / "out" / "submission.csv").read_text().splitlines()) == 22


@pytest.mark.parametrize(
    ("command", "said"),
    [("train", "resumes from what was saved"), ("describe", "begins again")],
)
def test_an_interrupted_command_says_what_the_same_command_does(run, tmp_path, command, said):
    """On the last line of stdout too, for whoever reads it there."""
    (tmp_path / "stopped.py").write_text("raise KeyboardInterrupt")
    words = ("--input", tmp_path, "--output", tmp_path / "out") if command == "train" else ()

    code, out, err = run(command, "--config", tmp_path / "stopped.py", "--json", *words)

    assert code == 130
    assert said in err
    assert json.loads(out.splitlines()[-1])["exit_code"] == 130


def test_a_finished_run_without_its_history_is_still_finished(
    run, trained, tiny, written_config, tmp_path
):
    """The picture is missing, and nothing else."""
    output = tmp_path / "out"
    shutil.copytree(trained[1], output)
    (output / "history.csv").unlink()

    words = ("--config", written_config(tiny), "--input", trained[0], "--output", output)
    code, out, err = run("train", *words, "--json")

    found = json.loads(out.splitlines()[-1])
    assert code == 0, err
    assert found["status"] == "complete"
    assert [Path(path).name for path in found["pictures"]] == ["confusion.png", "time.png"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "train.csv").unlink(), "train.csv is missing"),
        (
            lambda folder: [
                (folder / "train" / f"r00{number}.png").write_bytes(b"no image")
                for number in range(1, 9)
            ],
            "'r001': it is text, not an image: 'no image'",
        ),
    ],
)
def test_broken_data_ends_the_run_by_name(
    run, competition, tiny, written_config, tmp_path, spoil, said
):
    """Exit code 1, no artifact."""
    spoil(competition)

    words = ("--config", written_config(tiny), "--input", competition)
    code, _, err = run("train", *words, "--output", tmp_path / "out")

    assert code == 1
    assert said in err
    assert not (tmp_path / "out" / "artifact").exists()


def test_the_artifact_of_another_config_is_refused(run, trained, tmp_path):
    """Usage: the two arguments contradict each other."""
    folder, output, _ = trained

    words = ("--input", folder, "--artifact", output / "artifact", "--output", tmp_path / "out")
    code, _, err = run("infer", "--config", "digits", *words)

    assert code == 2
    assert "--config tiny" in err


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_words_on_a_terminal_and_json_in_a_pipe(
    run, trained, tiny, written_config, tmp_path, monkeypatch, terminal
):
    """A person reads the one, a program the other; what is no progress is the same in both."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)

    code, out, _ = run(
        *("train", "--config", written_config(tiny), "--input", trained[0]),
        *("--output", tmp_path / "out", "--max-steps", 1),
    )

    lines = out.splitlines()
    assert code == 0 and lines[0].startswith("Devices: 8 x cpu")
    assert any(line.startswith("step 1 of 44  epoch 0.2  loss ") for line in lines) == terminal
    assert any(line.startswith('{"step": 1, "steps": 44, ') for line in lines) != terminal
