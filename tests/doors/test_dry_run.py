"""One dry run of the whole chain, with a folder of which some labels are hidden.

Both notebooks really run; the tests look at the output.
"""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.deploy.invoked import HANGS_AFTER
from tests.doors.given import copy_project, write_config
from tests.doors.world import opened
from tests.faults.recorded_session import Recorded
from tests.faults.world import competition
from tests.small_competition import write_competition

PROMISED = {
    *("submission", "rows", "score", "train_kernel", "train_version", "dataset", "dataset_version"),
    *("infer_kernel", "infer_version", "seconds", "pictures"),
}
EDIT = "# edited while train-tpu ran\n"
LABELLED, HIDDEN = 240, 48  # rows; a fifth is hidden


@dataclass(frozen=True)
class Rehearsed:
    """A dry run that has ended.

    Attributes:
        project: the copy of the project in which it ran.
        said: its output.
        told: the last line of it.
        folder: the folders of its runs.
    """

    project: Path
    said: str
    told: dict[str, Any]
    folder: Path

    def json(self, *parts: str) -> dict[str, Any]:
        """Return a JSON file in a folder of the runs."""
        found: dict[str, Any] = json.loads(self.folder.joinpath(*parts).read_bytes())
        return found


@pytest.fixture(scope="module")
def dry_run(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    """Return the dry run of a network that compiles fast and would train for long."""
    project = copy_project(tmp_path_factory.mktemp("project"))
    folder = write_competition(project.parent / "four kinds", train=LABELLED)
    options = {"width": 1024, "depth": 2, "dropout": 0.0}
    rate = {"base_rate": 4e-3, "base_batch": 128}
    config = write_config(
        project.parent, optimizer=rate, batch=128, epochs=1000, model_options=options
    )
    words = ["dry-run", "--config", config, "--input", folder, "--budget", "90s", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "invoke", *map(str, words)],
        cwd=project,
        env={name: value for name, value in os.environ.items() if "XLA" not in name},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "Watch rehearsal/four-kinds-train-tpu" in line:
            with config.open("a") as file:
                file.write(EDIT)
    assert process.wait(HANGS_AFTER) == 0, said[-3000:]
    told = json.loads(said.splitlines()[-1])
    return Rehearsed(project, said, told, Path(told["submission"]).parent.parent)


def test_its_last_line_has_what_scripts_rely_on(dry_run):
    told = dry_run.told

    assert set(told) >= PROMISED
    assert [told[f"{name}_version"] for name in ("train", "dataset", "infer")] == [1, 1, 1]


def test_the_score_is_that_of_the_hidden_rows(dry_run):
    """The bright quarter of an image shows its label."""
    assert f"{HIDDEN} of {LABELLED} labelled rows are the hidden test set" in dry_run.said
    assert dry_run.told["score"] >= 0.9
    said = f"on {HIDDEN} hidden rows, higher is better; this short training run shows"
    assert re.search(rf"accuracy [\d.]+ ± [\d.]+ {said}", dry_run.said)


def test_the_submission_has_a_row_for_every_id_of_the_sample(dry_run):
    with Path(dry_run.told["submission"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    asked = (dry_run.project.parent / "four kinds" / "sample_submission.csv").read_text()

    assert [row["id"] for row in rows] == [line.split(",")[0] for line in asked.splitlines()[1:]]
    assert len(rows) == dry_run.told["rows"] == 21
    assert set(rows[0]) == {"id", "label"}


def test_it_writes_pictures(dry_run):
    pictures = [Path(path) for path in dry_run.told["pictures"]]

    assert {path.name for path in pictures} == {
        *("curves.png", "confusion.png", "images.png", "predictions.png", "time.png")
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)


@pytest.mark.parametrize(("kernel", "pictures"), [("train-tpu", 4), ("infer-gpu", 1)])
def test_the_notebooks_were_really_executed(dry_run, kernel, pictures):
    """Each code cell in order, with the pictures."""
    path = dry_run.folder / f"four-kinds-{kernel}-v1" / "__notebook__.ipynb"
    cells = [each for each in nbformat.read(path, as_version=4).cells if each.cell_type == "code"]
    outputs = [output for cell in cells for output in cell.outputs]
    images = [each for each in outputs if "image/png" in each.get("data", {})]

    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert len(images) == pictures


def test_each_run_lists_its_output(dry_run):
    for kernel, name in (("train-tpu", "artifact/weights.npz"), ("infer-gpu", "submission.csv")):
        run = f"four-kinds-{kernel}-v1"
        files = dry_run.json(run, "outputs.json")["files"]

        assert name in files
        kept = [path for path in files if not path.startswith("checkpoints/")]
        for path in kept:
            assert (dry_run.folder / run / path).stat().st_size == files[path]["size"]


def test_a_complete_rehearsal_keeps_one_copy_of_its_weights_and_no_checkpoint(dry_run):
    """A picture network's checkpoints and copies took 11 GB."""
    assert [path.parts[-3] for path in dry_run.folder.rglob("weights.npz")] == [
        "four-kinds-train-tpu-v1"
    ]
    assert not [*dry_run.folder.rglob("state.npz")]


def test_the_artifact_names_the_bundle_that_made_it(dry_run):
    """So a submission can be traced back to the commit."""
    trained, inferred = "four-kinds-train-tpu-v1", "four-kinds-infer-gpu-v1"
    artifact = dry_run.json(trained, "artifact", "manifest.json")

    assert artifact["bundle_sha256"] == dry_run.json(trained, "bundle.json")["bundle_sha256"]
    expect = {name: artifact[name] for name in ("run_id", "weights_sha256")}
    assert dry_run.json(inferred, "bundle.json")["expect"] == expect


def test_it_shows_what_it_leaves_out(dry_run):
    assert "of 1,000 epochs" in dry_run.said


def test_no_session_keeps_a_hidden_label(dry_run):
    """A busy machine trains on fewer rows."""
    tables = [*(dry_run.project / "runs").rglob("train.csv")]
    labelled = [{row["id"] for row in csv.DictReader(path.open())} for path in tables]
    (sample,) = (dry_run.project / "runs").rglob("hidden/sample_submission.csv")
    hidden = {row["id"] for row in csv.DictReader(sample.open())}

    assert len(tables) == 2  # what everybody sees, and what the scored rerun sees
    assert hidden and not any(hidden & ids for ids in labelled)
    assert all(0 < len(ids) <= LABELLED - HIDDEN for ids in labelled)


def test_the_table_of_runs_has_its_scores_with_their_errors(dry_run):
    """Of the local score, and of the one on hidden rows."""
    words = [sys.executable, "-m", "invoke", "runs", "--json"]
    said = subprocess.run(words, cwd=dry_run.project, capture_output=True, text=True, check=True)

    (row,) = json.loads(said.stdout.splitlines()[-1])["runs"]
    assert (row["place"], row["competition"]) == ("dry run", "four-kinds")
    assert row["hidden"] == dry_run.told["score"] and 0 < row["minutes"] < 10
    shown = re.search(r"accuracy [\d.]+ ± ([\d.]+) on", dry_run.said)
    assert shown is not None and row["hidden_error"] == pytest.approx(float(shown[1]), rel=0.1)
    assert row["local"] > 0.5 and row["local_error"] < 0.2


def test_a_rehearsal_is_recorded_for_a_push(dry_run):
    known = json.loads((dry_run.project / "runs" / "rehearsed.json").read_bytes())

    assert len(known) == 2  # train-tpu and infer-gpu
    assert all("epochs" in how for how in known.values())


RECORDED = """
import sys
from commands import rehearsal
for folder in sys.argv[2:]:
    print(bool(rehearsal.recorded(sys.argv[1], folder)))
"""


def test_a_rehearsal_is_recorded_for_the_code_and_the_folder_that_it_was_of(dry_run, tmp_path):
    """By which `invoke start` does not rehearse again."""
    config, folder = dry_run.project.parent / "tiny.py", dry_run.project.parent / "four kinds"
    edited = config.read_text()
    shutil.copytree(folder, tmp_path / "four kinds")

    def recorded() -> list[str]:
        words = [config, folder, tmp_path / "four kinds", ""]
        command = [sys.executable, "-c", RECORDED, *map(str, words)]
        done = subprocess.run(command, cwd=dry_run.project, capture_output=True, text=True)
        return done.stdout.split() or [done.stderr]

    before = recorded()
    config.write_text(edited.removesuffix(EDIT))
    after = recorded()
    config.write_text(edited)

    assert (before, after) == (["False"] * 3, ["True", "False", "False"])
    assert dry_run.told["about"] in dry_run.said and Path(dry_run.told["folder"]).is_dir()


@pytest.mark.slow
@pytest.mark.parametrize(("edit", "rehearsed"), [(EDIT, "not this version"), ("", "20")])
def test_what_was_edited_meanwhile_was_not_rehearsed(dry_run, tmp_path, edit, rehearsed):
    config = dry_run.project.parent / "tiny.py"
    text = config.read_text()
    assert text.endswith(EDIT)
    config.write_text(text.removesuffix(EDIT) + edit)
    hosting = {"competitions": [replace(competition(), slug="four-kinds")], "session": Recorded}

    with opened(tmp_path, dry_run.project, **hosting) as world:
        code, shown, _ = world("push-train", "--yes", config=str(config))

    config.write_text(text)
    assert code == 0 and f"rehearsed   {rehearsed}" in shown, shown
