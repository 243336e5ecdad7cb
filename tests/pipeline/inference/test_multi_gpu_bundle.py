"""A bundle alone infers in two processes: `pipeline.inference.gpu_worker`, which is started by its
name, travels with the modules that are imported.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.bundle import bundle
from tests.pipeline.inference import two_processes

ROOT = Path(__file__).resolve().parents[3]
# Two inferences, the second one without the module that the child processes run.
CODE = """
import json, sys
from pathlib import Path

import pipeline
from pipeline import artifact
from pipeline.inference import inference, restoring

folder, competition = map(Path, sys.argv[1:])
restore, runs = restoring.restore, []

def restored(*given):
    runs[-1]["models_of_the_parent"] += 1
    return restore(*given)

restoring.restore = restored
for name in ("whole", "without"):
    if name == "without":
        Path("pipeline/inference/gpu_worker.py").unlink()
    runs.append({"lines": [], "models_of_the_parent": 0})
    found = inference.infer(
        artifact.load(folder), competition, Path(name), processes=2, show=runs[-1]["lines"].append
    )
    runs[-1] |= {"labels": found.labels, "ids": found.ids, "left_out": found.left_out}
print(json.dumps({"package": list(pipeline.__path__), "runs": runs}))
"""


@pytest.fixture(scope="module")
def parent(trained, tmp_path_factory) -> tuple[list[str], list[dict[str, str]]]:
    """Return what the parent of two processes had touched when they began, and what they saw."""
    competition, output, _ = trained
    return two_processes.parent(output / "artifact", competition, tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def runs(trained, tiny, tmp_path_factory) -> list[dict]:
    """Return what two inferences from a bundle's modules told: with gpu_worker.py, and without."""
    competition, output, _ = trained
    folder, written = tmp_path_factory.mktemp("notebook"), tmp_path_factory.mktemp("bundle")
    config = written / "tiny.py"
    config.write_text(
        f"from pipeline.config import from_json\nCONFIG = from_json({tiny.to_json()!r})\n"
    )
    built = bundle.build(
        "infer-gpu",
        config=str(config),
        competition="digits",
        owner="ann",
        out=written,
        expect={"run_id": "r1", "weights_sha256": "ab"},
    )
    for cell in json.loads(built.notebook.read_text())["cells"]:
        first, _, text = cell["source"].partition("\n")
        if first.startswith("%%writefile "):
            path = folder / first.removeprefix("%%writefile ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    done = subprocess.run(
        [sys.executable, "-c", CODE, output / "artifact", competition],
        cwd=folder,
        # The checkout is on the path of every other Python that a test starts.
        env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'tests' / 'guard'}"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["package"] == [str(folder / "pipeline")]
    return told["runs"]


def right(run: dict) -> bool:
    """Return whether each of the 21 images has its label, which its id tells."""
    wanted = [("10", "9", "A b", "ß")[int(name[1:]) % 4] for name in run["ids"]]
    return len(wanted) == 21 and run["labels"] == wanted and run["left_out"] == 0


def test_two_processes_of_a_bundle_compute_every_row_and_the_parent_none(runs):
    """It builds no model, and there is nothing to warn of."""
    whole, _ = runs

    assert any("21 rows go to 2 processes" in line for line in whole["lines"])
    assert whole["models_of_the_parent"] == 0
    assert not any("Warning" in line or "computed here" in line for line in whole["lines"])
    assert right(whole)


def test_without_the_module_of_the_processes_the_parent_computes_every_row_and_says_so(runs):
    """So the test above can fail: a bundle that forgets the module shows."""
    _, without = runs

    assert without["models_of_the_parent"] == 1
    assert (
        sum("No module named pipeline.inference.gpu_worker" in line for line in without["lines"])
        == 2
    )
    assert any("computed here" in line for line in without["lines"])
    assert right(without)


def test_the_parent_of_several_processes_has_touched_no_device_when_they_begin(parent):
    """Its TensorFlow would have taken the memory of every GPU."""
    states, _ = parent

    assert states == ["untouched"]


def test_each_process_sees_one_gpu_and_takes_its_memory_as_it_needs_it(parent):
    """What a dead one has not done, the parent computes beside the other one."""
    _, seen = parent

    assert [each["CUDA_VISIBLE_DEVICES"] for each in seen] == ["0", "1"]
    assert {each["TF_FORCE_GPU_ALLOW_GROWTH"] for each in seen} == {"true"}
    assert {each["XLA_PYTHON_CLIENT_PREALLOCATE"] for each in seen} == {"false"}
