"""A training that mounts a model of Kaggle, from its files to a score."""

import json
import subprocess
import sys

import pytest

from tests.deploy.invoked import HANGS_AFTER
from tests.doors.given import copy_project, write_config
from tests.small_competition import write_competition

MODEL = "keras/tiny/Keras/small/1"
# A network whose width is in the mounted file, which inference does not have.
CUSTOM = f"""

def stored(images, num_classes, batchnorm_momentum):
    import os
    from pathlib import Path

    import keras

    from pipeline.models import architectures
    from pipeline.runtime import mounts

    width = 16
    if keras.backend.backend() == "jax":
        home = Path(os.environ.get("KAGGLEHUB_CACHE", "nowhere"), "models/{MODEL}/numbers.txt")
        mounted = mounts.root() / "input/models/{MODEL.lower()}/numbers.txt"
        width = int((mounted if mounted.is_file() else home).read_text())
    return architectures.mlp(images, num_classes, batchnorm_momentum, width=width, depth=1)
"""
TELL = """
# %%
print("Models:", sorted(path.name for path in mounts.root().glob("input/models/*/*/*/*/*/*")))
"""


@pytest.mark.slow
def test_only_the_training_reads_the_files_of_a_model(tmp_path):
    """The check before the rehearsal reads them, too."""
    project, model = copy_project(tmp_path), tmp_path / "downloaded"
    model.mkdir()
    (model / "numbers.txt").write_text("16")
    folder = write_competition(tmp_path / "four-kinds")
    config = write_config(tmp_path, CUSTOM, model="stored", model_options={})
    path = project / "kernels" / "train-tpu" / "kernel-metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_sources": [MODEL]}))
    for path in project.glob("kernels/*/notebook.py"):
        path.write_text(path.read_text() + TELL)
    given = ["--config", str(config), "--input", str(folder), "--full"]

    done = subprocess.run(
        [sys.executable, "-m", "invoke", "dry-run", *given, "--model", f"{MODEL.lower()}={model}"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HANGS_AFTER,
    )

    assert done.returncode == 0 and "score       " in done.stdout, done.stdout
    assert f"rehearsal   {MODEL} uses the files in {model}" in done.stdout
    for kernel, names in (("train-tpu", ["numbers.txt"]), ("infer-gpu", [])):
        (log,) = project.glob(f"runs/*/four-kinds-{kernel}-v1/*.log")
        assert f"Models: {names}" in log.read_text().replace('\\"', '"')
