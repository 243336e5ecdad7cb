"""`python -m pipeline`: its output, how it resumes and predicts, and what it refuses."""

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.deploy.invoked import ROOT
from tests.doors.given import CUSTOM, pipeline, write_config
from tests.shipped import DIGITS, there
from tests.small_competition import CLASSES, write_competition

STEPS = 44  # 8 epochs of 88 rows, 16 per step
ARRAYS = {
    "0.0 layer1_dense/kernel": (64, 16),
    "1.0 layer1_norm/gamma": (16,),
    "1.1 layer1_norm/beta": (16,),
    "1.2 layer1_norm/moving_mean": (16,),
    "1.3 layer1_norm/moving_variance": (16,),
    "2.0 logits/kernel": (16, 4),
    "2.1 logits/bias": (4,),
}
# An audit hook sees each rename before it happens.
KILLED = """
import os
import signal
import sys

saves = []


def kill(event, arguments):
    if event == "os.rename" and "checkpoints/step-" in str(arguments[1]):
        saves.append(arguments)
        if len(saves) == int(os.environ.get("TESTS_KILL_AT", "0")):
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(kill)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[str]]:
    """Return (folder with competition/ and tiny.py, output, printed lines); not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    done = train(write_config(folder), write_competition(folder / "competition"), folder / "out")
    assert done.returncode == 0, done.stderr
    return folder, folder / "out", done.stdout.splitlines()


@pytest.fixture
def competition(tmp_path: Path) -> Path:
    """Return a competition that the test may change."""
    return write_competition(tmp_path / "competition")


def train(
    config: Path, folder: Path, output: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Train in another process."""
    words = ["train", "--config", config, "--input", folder, "--output", output, "--json"]
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *map(str, words)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def run_words(
    command: str, config: object, folder: Path, output: Path, artifact: Path | None = None
) -> list[object]:
    """Return the words of a command with an output."""
    words: list[object] = [command, "--config", config, "--input", folder, "--output", output]
    return words if artifact is None else [*words, "--artifact", artifact]


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as file:
        return dict(file)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def seals(manifest: Mapping[str, Any]) -> set[str]:
    """Return the sha256 that a manifest states, and its true one."""
    rest = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    text = json.dumps(rest, indent=2, sort_keys=True) + "\n"
    return {manifest["manifest_sha256"], hashlib.sha256(text.encode()).hexdigest()}


def test_check_refuses_a_misspelled_model_and_names_the_one_that_was_meant(tmp_path):
    function = "\n\ndef siamese(inputs, outputs, momentum):\n    return inputs\n"
    config = write_config(tmp_path, function, model="siamse", model_options={})

    code, _, said = pipeline("check", "--config", config)

    assert code == 2 and "Did you mean 'siamese'?" in said


# Output


def test_an_artifact_is_a_sealed_manifest_with_the_files_that_it_lists(trained):
    artifact = trained[1] / "artifact"
    manifest = json.loads((artifact / "manifest.json").read_bytes())
    weights = arrays(artifact / "weights.npz")

    assert len(seals(manifest)) == 1
    assert {path.name for path in artifact.iterdir()} == {*manifest["files"], "manifest.json"}
    for name, about in manifest["files"].items():
        data = (artifact / name).read_bytes()
        assert about == {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    assert {name: array.shape for name, array in weights.items()} == ARRAYS
    assert {array.dtype for array in weights.values()} == {np.dtype("float32")}
    assert manifest["weights_sha256"] == manifest["files"]["weights.npz"]["sha256"]
    assert manifest["parameters"]["total"] == sum(array.size for array in weights.values())
    assert manifest["status"] == "complete" and manifest["run_id"].startswith("tiny-20")
    assert manifest["classes"] == list(CLASSES) and manifest["config"]["name"] == "tiny"
    assert manifest["applied"]["total_steps"] == STEPS
    assert {"jax", "keras", "numpy", "python"} <= set(manifest["versions"])
    assert {"bundle_sha256", "devices", "git_commit", "golden", "held_out"} <= set(manifest)


def test_a_checkpoint_is_a_sealed_manifest_and_its_arrays(trained):
    (folder,) = (trained[1] / "checkpoints").iterdir()
    manifest = json.loads((folder / "manifest.json").read_bytes())

    assert folder.name == f"step-{STEPS:08d}" and manifest["step"] == STEPS
    state = arrays(folder / "state.npz")
    assert len(seals(manifest)) == 1
    assert manifest["sha256"] == hashlib.sha256((folder / "state.npz").read_bytes()).hexdigest()
    assert {path.name for path in folder.iterdir()} == {"state.npz", "manifest.json"}
    assert sorted(state) == [f"{number:05d}" for number in range(len(manifest["names"]))]
    assert manifest["details"]["run_id"] == json.loads(trained[2][-1])["run_id"]
    held = dict(zip(manifest["names"], state.values(), strict=True))
    weights = arrays(trained[1] / "artifact" / "weights.npz")
    for name in ARRAYS.keys() & {name.removeprefix("params/") for name in held}:
        np.testing.assert_array_equal(held[f"params/{name}"], weights[name])


def test_progress_is_a_json_line_per_report_and_a_table_row_per_epoch(trained):
    output, printed = trained[1], trained[2]
    lines = [json.loads(line) for line in (output / "progress.jsonl").read_text().splitlines()]
    epochs = rows(output / "history.csv")

    assert [json.loads(line) for line in printed if line.startswith('{"step"')] == lines
    assert [lines[0]["step"], lines[-1]["step"]] == [1, STEPS]
    usual = {"step", "steps", "epoch", "loss", "accuracy", "images_per_second", "eta_seconds"}
    assert all(usual <= set(line) for line in lines)
    assert [row["epoch"] for row in epochs] == [str(number) for number in range(1, 9)]
    assert [row["step"] for row in epochs] == ["6", "11", "17", "22", "28", "33", "39", "44"]
    assert {"validation_loss", "validation_accuracy", "learning_rate"} <= set(epochs[0])


def test_the_held_out_rows_are_written_with_their_predictions(trained):
    labels = {row["id"]: row["label"] for row in rows(trained[0] / "competition" / "train.csv")}
    held_out = rows(trained[1] / "validation.csv")
    found = arrays(trained[1] / "validation.npz")["probabilities"]
    result = json.loads(trained[2][-1])

    assert len(held_out) == len(found) == 8
    assert all(labels[row["id"]] == row["label"] for row in held_out)
    right = [
        CLASSES[column] == row["label"]
        for column, row in zip(found.argmax(1), held_out, strict=True)
    ]
    assert np.mean(right) == result["metrics"]["validation_accuracy"] >= 0.75
    assert result["status"] == "complete" and Path(result["artifact"]).is_dir()
    assert {Path(path).name for path in result["pictures"]} == {
        *("curves.png", "confusion.png", "time.png")
    }


def test_a_killed_training_resumes_to_the_same_weights(trained, tmp_path, seed):
    """Bit by bit: the step counter is the only clock."""
    config = write_config(tmp_path, KILLED, checkpoint_seconds=0)
    competition, output = trained[0] / "competition", tmp_path / "out"

    killed = train(config, competition, output, TESTS_KILL_AT=str(2 + seed % 3))
    assert killed.returncode == -9 and not (output / "artifact").exists()
    (newest, *_) = sorted((output / "checkpoints").glob("step-*"), reverse=True)
    code, shown, said = pipeline(*run_words("train", config, competition, output))

    assert code == 0, said
    assert f"step {int(newest.name[5:])} " in shown and int(newest.name[5:]) < STEPS
    resumed, whole = (arrays(each / "artifact/weights.npz") for each in (output, trained[1]))
    assert set(resumed) == set(whole)
    for name, array in whole.items():
        np.testing.assert_array_equal(resumed[name], array, strict=True)


def test_an_inference_writes_a_label_for_each_id_of_the_sample(trained, tmp_path):
    """In its order. The bright quarter of an image shows its label."""
    folder = trained[0] / "competition"
    words = run_words("infer", trained[0] / "tiny.py", folder, tmp_path, trained[1] / "artifact")

    code, shown, said = pipeline(*words, "--json")

    asked = [row["id"] for row in rows(folder / "sample_submission.csv")]
    predicted = rows(tmp_path / "submission.csv")
    assert (code, json.loads(shown.splitlines()[-1])["rows"]) == (0, 21), said
    assert [row["id"] for row in predicted] == asked
    assert [row["label"] for row in predicted] == [CLASSES[int(name[1:]) % 4] for name in asked]


def test_infer_takes_paths_from_its_config_and_the_model_from_its_artifact(
    trained, competition, tmp_path
):
    """The hidden test set may have different paths from the visible one."""
    (competition / "test").rename(competition / "hidden")
    (competition / "sample_submission.csv").rename(competition / "sample.csv")
    places = {"test_images": "hidden", "sample_submission": "sample.csv", "height": 99}
    config = write_config(tmp_path, data=places, model_options={"width": 77})
    words = run_words("infer", config, competition, tmp_path / "out", trained[1] / "artifact")

    code, _, said = pipeline(*words)

    assert code == 0, said
    assert len(rows(tmp_path / "out" / "submission.csv")) == 21


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_words_on_a_terminal_and_json_in_a_pipe(trained, tmp_path, terminal):
    """Other lines are the same in both."""
    words = run_words("train", trained[0] / "tiny.py", trained[0] / "competition", tmp_path)

    code, shown, _ = pipeline(*words, "--max-steps", 1, terminal=terminal)

    lines = shown.splitlines()
    assert code == 0 and lines[0].startswith("Devices: 8 x cpu")
    assert any(line.startswith("step 1 of 44  epoch 0.2  loss ") for line in lines) == terminal
    assert any(line.startswith('{"step": 1, "steps": 44, ') for line in lines) != terminal


def test_describe_prints_parameters_shapes_and_applied_numbers(monkeypatch):
    """The wide ResNet of the benchmark has the number of parameters of its source."""
    # Drawing a hundred million numbers takes time.
    monkeypatch.setattr(
        "keras.initializers.VarianceScaling.__call__", lambda self, shape, dtype: np.zeros(shape)
    )

    there("pipeline/configs/cifar100_wrn.py")

    code, shown, _ = pipeline("describe", "--config", "cifar100_wrn", "--json")

    found = json.loads(shown.splitlines()[-1])
    assert code == 0
    counts = {"total": 103_465_028, "trainable": 103_452_484, "non_trainable": 12_544}
    assert found["parameters"] == counts
    assert found["input"]["shape"] == [None, 32, 32, 3]
    assert found["optimizer"]["peak_rate"] == 2.8e-3


def test_describe_says_which_number_of_images_it_assumes(trained):
    """Steps and warnings depend on it."""
    code, shown, said = pipeline("describe", "--config", trained[0] / "tiny.py", "--json")

    assert code == 0 and "50000 training images (the default" in said
    assert json.loads(shown.splitlines()[-1])["images_assumed"]


@pytest.mark.parametrize(("folds", "images"), [(None, 110), (5, 96)])
def test_describe_counts_steps_by_the_labelled_rows_of_the_config(tmp_path, folds, images):
    """Without the held-out rows."""
    config = write_config(tmp_path, data={"labelled": 120}, folds=folds)

    code, shown, said = pipeline("describe", "--config", config, "--json")

    found = json.loads(shown.splitlines()[-1])
    assert (code, found["images"], found["images_assumed"]) == (0, images, False)
    assert found["optimizer"]["total_steps"] == 8 * images // 16
    assert f"{images} training images (from data.labelled=120; pass --images N" in said


# Errors

LONG = "n" * 300
TRAIN = f"train --config {DIGITS} --output out --input"
INFER = f"infer --config {DIGITS} --output out --input . --artifact"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("describe --config digit", 2, "config not found"),
        (f"{TRAIN} /nowhere", 2, "no such folder"),
        (f"{TRAIN} {__file__}", 2, "is a file. Expected a competition folder"),
        (f"{TRAIN} . --max-steps 0", 2, "--max-steps 0"),
        (f"{INFER} /nowhere", 2, "Expected a folder with manifest.json"),
        (f"{INFER} .", 1, "manifest.json"),
        (f"describe --config {DIGITS} --images 0", 2, "--images 0"),
        (f"{TRAIN} {LONG}", 2, "no such folder"),
    ],
)
def test_a_wrong_call_gets_one_message(words, code, said, tmp_path, monkeypatch):
    """On stderr, and with --json on the last line; nothing is written."""
    monkeypatch.chdir(tmp_path)

    found, shown, error = pipeline(*words.split(), "--json")

    assert found == code
    assert said in error and error.startswith("Error: ")
    assert json.loads(shown.splitlines()[-1])["exit_code"] == code
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("before", "after", "exit_code", "said"),
    [
        ("batch", "bach", 2, "bach"),
        ("CONFIG = Config(", "CONFIG = Config(((", 2, "line 3"),
        ("\nCONFIG", "\n1 / 0\nCONFIG", 2, "division by zero"),
        ("'model': 'mlp'", "'metric': 'f1_macroo', 'model': 'mlp'", 2, "metric='f1_macroo'"),
        ("'num_classes': 4", "'num_classes': 5", 1, "num_classes"),
        ("'height': 8", "'height': 9", 1, "8x8"),
    ],
)
def test_a_config_that_cannot_work_trains_nothing(
    competition, tmp_path, before, after, exit_code, said
):
    config = write_config(tmp_path)
    text = config.read_text()
    config.write_text(text.replace(before, after, 1))

    code, _, error = pipeline(*run_words("train", config, competition, tmp_path / "out"))

    assert before in text and said in error and error.startswith("Error: ")
    assert code == exit_code
    assert not list(tmp_path.glob("out/artifact"))


@pytest.mark.parametrize("command", ["check", "train"])
def test_a_custom_function_that_cannot_work_is_refused_before_training(
    command, competition, tmp_path
):
    config = write_config(tmp_path, CUSTOM, loss="mine")
    words = ["check", "--config", config]
    if command == "train":
        words = run_words("train", config, competition, tmp_path / "out")

    code, shown, error = pipeline(*words)

    assert code == 2 and "does not depend on the labels" in error
    assert '{"step"' not in shown and not list(tmp_path.glob("out/artifact"))


def in_the_way(path: Path) -> Path:
    """Create a file at a path, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    return path


def folder_in_the_way(path: Path) -> Path:
    """Create a folder at a path, and return the path."""
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("train", lambda folder: in_the_way(folder / "out")),
        ("train", lambda folder: in_the_way(folder / "out") / "below"),
        ("train", lambda folder: folder / ("n" * 300)),
        ("train", lambda folder: in_the_way(folder / "out" / "checkpoints").parent),
        ("infer", lambda folder: in_the_way(folder / "out")),
        ("infer", lambda folder: in_the_way(folder / "out") / "below"),
        ("infer", lambda folder: folder_in_the_way(folder / "out" / "submission.csv").parent),
    ],
)
def test_an_output_that_cannot_be_written_is_named(trained, tmp_path, command, place):
    """With exit code 8, before the first step."""
    output, artifact = place(tmp_path), trained[1] / "artifact" if command == "infer" else None
    words = run_words(command, trained[0] / "tiny.py", trained[0] / "competition", output, artifact)

    code, shown, said = pipeline(*words)

    assert code == 8 and '{"step"' not in shown
    assert said.startswith("Error: Could not write") and str(output) in said


def no_images(folder: Path) -> None:
    """Break more images than the limit."""
    for number in range(1, 9):
        (folder / "train" / f"r00{number}.png").write_bytes(b"no image")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "train.csv").unlink(), "train.csv is missing"),
        (no_images, "'r001': it is text, not an image: 'no image'"),
    ],
)
def test_broken_data_is_named(competition, tmp_path, spoil, said):
    """With exit code 1 and no artifact."""
    spoil(competition)
    words = run_words("train", write_config(tmp_path), competition, tmp_path / "out")

    code, _, error = pipeline(*words)

    assert code == 1 and said in error
    assert not (tmp_path / "out" / "artifact").exists()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def relabel(artifact: Path) -> None:
    """Swap two labels in the manifest."""
    path = artifact / "manifest.json"
    path.write_text(path.read_text().replace('"10",\n    "9"', '"9",\n    "10"', 1))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda artifact: flip(artifact / "weights.npz"), "weights.npz"),
        (lambda artifact: flip(artifact / "golden.npz"), "golden.npz"),
        (lambda artifact: (artifact / "weights.npz").unlink(), "weights.npz"),
        (lambda artifact: (artifact / "manifest.json").unlink(), "manifest.json"),
        (relabel, "manifest.json"),
    ],
)
def test_a_corrupt_artifact_predicts_nothing(trained, tmp_path, spoil, said):
    artifact = shutil.copytree(trained[1] / "artifact", tmp_path / "artifact")
    spoil(artifact)
    folder, output = trained[0] / "competition", tmp_path / "out"
    words = run_words("infer", trained[0] / "tiny.py", folder, output, artifact)

    code, _, error = pipeline(*words)

    assert code == 1 and said in error and error.startswith("Error: ")
    assert not list(tmp_path.glob("out/submission.csv"))


def test_an_artifact_of_a_different_config_is_refused(trained, tmp_path):
    """As wrong usage: the two arguments contradict each other."""
    folder, artifact = trained[0] / "competition", trained[1] / "artifact"

    code, _, said = pipeline(*run_words("infer", DIGITS, folder, tmp_path, artifact))

    assert code == 2
    assert "--config tiny" in said


@pytest.mark.parametrize(
    ("command", "backend", "said"),
    [
        ("train", "tensorflow", "requires jax"),
        ("train", "torch", "requires jax"),
        ("infer", "torch", "requires tensorflow or jax"),
        ("describe", "bogus", "requires jax or tensorflow"),
    ],
)
def test_a_backend_that_cannot_work_is_refused(
    trained, tmp_path, monkeypatch, command, backend, said
):
    """As wrong usage: the variable comes from the user's shell."""
    monkeypatch.setenv("KERAS_BACKEND", backend)
    artifact = trained[1] / "artifact" if command == "infer" else None
    words = run_words(
        command, trained[0] / "tiny.py", trained[0] / "competition", tmp_path, artifact
    )

    code, _, error = pipeline(*words[: 3 if command == "describe" else None])

    assert code == 2
    assert f"KERAS_BACKEND={backend}" in error and said in error


@pytest.mark.parametrize(
    ("command", "said"),
    [("train", "again to resume"), ("describe", "again to start over")],
)
def test_an_interrupted_command_shows_what_a_repetition_does(tmp_path, command, said):
    """On the last line of stdout, too."""
    config = tmp_path / "stopped.py"
    config.write_text("raise KeyboardInterrupt")
    words = run_words(command, config, tmp_path, tmp_path / "out")

    code, shown, error = pipeline(*words[: 3 if command == "describe" else None], "--json")

    assert code == 130
    assert said in error
    assert json.loads(shown.splitlines()[-1])["exit_code"] == 130
