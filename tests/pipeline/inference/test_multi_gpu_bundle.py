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

ROOT = Path(__file__).resolve().parents[3]
# TensorFlow splits a device only before it uses one.
CODE = """
import json, subprocess, sys
from pathlib import Path

import pipeline
import tensorflow as tf
from pipeline import artifact
from pipeline.inference import inference, multi_gpu, restoring
from pipeline.runtime import devices

folder, competition = map(Path, sys.argv[1:])
lines, seen = [], []

class Popen(subprocess.Popen):
    def __init__(self, *words, env, **more):
        seen.append(env)
        super().__init__(*words, env=env, **more)

def show(line):
    lines.append(line)
    if "rows go to 2 processes" in line:
        half, cpu = tf.config.LogicalDeviceConfiguration(), tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu[0], [half, half])

if Path("pipeline/inference/gpu_worker.py").exists():
    restoring.restore = None  # the parent builds no model
subprocess.Popen = Popen
devices.share_memory()
found = inference.infer(
    artifact.load(folder), competition, Path("out"), processes=2, show=show
)
told = {"labels": found.labels, "ids": found.ids, "left_out": found.left_out, "lines": lines}
print(json.dumps({"package": list(pipeline.__path__), "seen": seen, **told}))
"""
EACH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", [None, "pipeline/inference/gpu_worker.py"])
def test_two_processes_of_a_bundle_compute_every_row(
    trained, written_config, tiny, tmp_path, forgotten
):
    """The parent builds no model, uses no device before they begin, and has nothing to warn of.
    Each process sees one GPU, and takes its memory as it needs it. Where a bundle forgets the
    module of the processes, the parent computes every row and says so.
    """
    competition, output, _ = trained
    folder = tmp_path / "notebook"
    built = bundle.build(
        "infer-gpu",
        config=str(written_config(tiny)),
        competition="digits",
        owner="ann",
        out=tmp_path / "bundle",
        expect={"run_id": "r1", "weights_sha256": "ab"},
    )
    for cell in json.loads(built.notebook.read_text())["cells"]:
        first, _, text = cell["source"].partition("\n")
        name = first.removeprefix("%%writefile ")
        if name not in (first, forgotten):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    done = subprocess.run(
        [sys.executable, "-c", CODE, output / "artifact", competition],
        cwd=folder,
        # The checkout is on the path of every other Python that a test starts.
        env={
            **{name: text for name, text in os.environ.items() if name not in EACH},
            "KERAS_BACKEND": "tensorflow",
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'tests' / 'guard'}",
        },
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["package"] == [str(folder / "pipeline")]
    assert any("21 rows go to 2 processes" in line for line in told["lines"])
    assert [each["CUDA_VISIBLE_DEVICES"] for each in told["seen"]] == ["0", "1"]
    assert all(EACH.items() <= each.items() for each in told["seen"])
    lacking = [line for line in told["lines"] if "No module named" in line]
    assert len(lacking) == (2 if forgotten else 0)
    assert any("computed here" in line for line in told["lines"]) == bool(forgotten)
    assert forgotten or not any("Warning" in line for line in told["lines"])
    wanted = [("10", "9", "A b", "ß")[int(name[1:]) % 4] for name in told["ids"]]
    assert len(wanted) == 21 and told["labels"] == wanted and told["left_out"] == 0
