"""What two processes that predict at once find of the GPUs, when their parent starts them.

As a program, with an artifact, a competition and a Python: infers in two processes of that Python.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# In place of Python: each process only writes down its environment.
STAND_IN = """#!/bin/sh
env > "$SEEN/$(basename "$3")"
"""
EACH = ("TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE")


def parent(
    artifact: Path, competition: Path, folder: Path
) -> tuple[list[str], list[dict[str, str]]]:
    """Return what the parent of two processes had touched when they began, and their environments.

    Args:
        folder: gets what is written.
    """
    script, seen = folder / "python", folder / "seen"
    seen.mkdir()
    script.write_text(STAND_IN)
    script.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", __name__, artifact, competition, script],
        cwd=folder,
        env={
            **{name: text for name, text in os.environ.items() if name not in EACH},
            "KERAS_BACKEND": "tensorflow",
            "SEEN": str(seen),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [path.read_text().splitlines() for path in sorted(seen.iterdir())]
    return json.loads(done.stdout.splitlines()[-1]), [
        dict(line.split("=", 1) for line in each if "=" in line) for each in lines
    ]


def infer(held: Path, competition: Path, python: str) -> None:
    """Infer as infer-gpu does, and print whether TensorFlow had used a device when the processes
    began. It splits a device only before that, and then takes its memory.
    """
    import tensorflow as tf

    from pipeline import artifact
    from pipeline.inference import inference
    from pipeline.runtime import devices

    states = list[str]()

    def show(line: str) -> None:
        if "rows go to 2 processes" in line:
            half = tf.config.LogicalDeviceConfiguration()
            try:
                tf.config.set_logical_device_configuration(
                    tf.config.list_physical_devices("CPU")[0], [half, half]
                )
                states.append("untouched")
            except RuntimeError as error:
                states.append(str(error))

    sys.executable = python
    devices.share_memory()
    inference.infer(artifact.load(held), competition, Path("out"), processes=2, show=show)
    print(json.dumps(states))


if __name__ == "__main__":
    infer(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
