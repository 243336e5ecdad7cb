"""What two processes that predict at once find of the GPUs, when their parent starts them.

Run as a program: `make FOLDER` makes an artifact and a competition; `infer ARTIFACT COMPETITION
PYTHON` infers in two processes of that program.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from proofs.shared.results_table import Row

ROOT = Path(__file__).resolve().parents[2]
ROWS = 64
# In place of Python: each process only writes down its environment.
STAND_IN = """#!/bin/sh
env > "$SEEN/$(basename "$3")"
"""
EACH = ("TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE")


def row() -> Row:
    """Return the row of two T4 at once: what the parent had used, and what each process sees."""
    with tempfile.TemporaryDirectory(prefix="prove-pair-") as name:
        folder = Path(name)
        subprocess.run(
            [sys.executable, "-m", __name__, "make", str(folder)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "tensorflow"},
            check=True,
            capture_output=True,
        )
        states, seen = parent(folder / "artifact", folder / "competition", folder)
    own = [each.get("CUDA_VISIBLE_DEVICES") for each in seen]
    memory = [" ".join(str(each.get(name)) for name in EACH) for each in seen]
    return Row(
        "20. Inference in two processes, one a T4, beside the parent that started them",
        "the parent has used no device; each sees one GPU and takes its memory as it needs it",
        f"devices of the parent: {', '.join(states)}; GPU {' and '.join(map(str, own))}; allow"
        f" growth, take all: {' and '.join(memory)}",
        states == ["untouched"] and own == ["0", "1"] and set(memory) == {"true false"},
    )


def parent(
    artifact: Path, competition: Path, folder: Path
) -> tuple[list[str], list[dict[str, str]]]:
    """Return what the parent of two processes had touched when they began, and their environments.

    Args:
        folder: gets what is written.

    Raises:
        RuntimeError: if the inference failed; with its error.
    """
    script, seen = folder / "python", folder / "seen"
    seen.mkdir()
    script.write_text(STAND_IN)
    script.chmod(0o755)
    kept = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    done = subprocess.run(
        [sys.executable, "-m", __name__, "infer", artifact, competition, script],
        cwd=folder,
        env={
            **{name: text for name, text in os.environ.items() if name not in EACH},
            "KERAS_BACKEND": "tensorflow",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, kept)]),
            "SEEN": str(seen),
        },
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    lines = [path.read_text().splitlines() for path in sorted(seen.iterdir())]
    return json.loads(done.stdout.splitlines()[-1]), [
        dict(line.split("=", 1) for line in each if "=" in line) for each in lines
    ]


def _make(folder: Path) -> None:
    from proofs.competitions import inference_arms

    inference_arms.trained(folder / "artifact", inference_arms.settings())
    inference_arms.competition(folder / "competition", ROWS)


def _infer(held: Path, competition: Path, python: str) -> None:
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
    if sys.argv[1] == "make":
        _make(Path(sys.argv[2]))
    else:
        _infer(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
