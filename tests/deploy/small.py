"""A small project: notebooks of plain Python that runs in seconds, and what a test does with it."""

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

from deploy import output
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.journal import Journal, Request, State
from deploy.project import TRAIN as TRAINING
from deploy.project import Project
from deploy.runs import Run
from localkaggle.server import LocalKaggle
from tests.deploy import steps
from tests.faults.recorded_session import write_artifact

HANDLE = "rehearsal/digits-train-tpu"
QUICK = Pace(first=0.01, most=0.05, patience=60)
connect = partial(Kaggle.connect, pace=QUICK)
HEAD = """# %%
import hashlib
import json
from pathlib import Path

def seal(names):
    files = {}
    for path in map(Path, names):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        files[str(path)] = {"sha256": digest, "size": path.stat().st_size}
    Path("outputs.json").write_text(json.dumps({"files": files}))

"""
TRAIN = (
    "# %% [markdown]\n# # Train\n\n"
    + HEAD
    + """
from pipeline import model

origin = json.loads(Path("bundle.json").read_text())
weights = model.weights(origin["config"])
Path("artifact").mkdir()
Path("artifact/weights.npz").write_bytes(weights)
digest = hashlib.sha256(weights).hexdigest()
manifest = {
    "format": 1,
    "run_id": origin["bundle_sha256"][:12],
    "weights_sha256": digest,
    "bundle_sha256": origin["bundle_sha256"],
    "files": {"weights.npz": {"sha256": digest, "size": len(weights)}},
}
text = lambda: json.dumps(manifest, indent=2, sort_keys=True) + "\\n"
manifest["manifest_sha256"] = hashlib.sha256(text().encode()).hexdigest()
Path("artifact/manifest.json").write_text(text())
Path("curve.png").write_bytes(b"not really a picture")

seal(["bundle.json", "curve.png", "artifact/manifest.json", "artifact/weights.npz"])
print("trained")
"""
)


def metadata(kernel: str) -> dict[str, object]:
    tpu = kernel.startswith("train")
    return {
        "code_file": f"{kernel}.ipynb",
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "machine_shape": "TpuV5E8" if tpu else "NvidiaTeslaT4",
        "enable_gpu": not tpu,
        "enable_tpu": tpu,
        "enable_internet": tpu,
    }


def write_kernel(root: Path, kernel: str, source: str) -> None:
    """Write one kernel's two files."""
    folder = root / "kernels" / kernel
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notebook.py").write_text(source)
    (folder / "kernel-metadata.json").write_text(json.dumps(metadata(kernel)))


def write_project(folder: Path) -> Path:
    """Make a small project with things in it that must stay at home; return its root."""
    root = folder / "project"
    package = root / "pipeline"
    (package / "configs").mkdir(parents=True)
    (package / "__pycache__").mkdir()
    for name, text in {
        "__init__.py": "",
        "model.py": 'def weights(name: str) -> bytes:\n    return name.encode() * 999  # "€"\n',
        "configs/__init__.py": '"""Configs."""\n',
        "configs/digits.py": "CONFIG = 1\n",
    }.items():
        (package / name).write_text(text)
    home = ("configs/other.py", ".hidden.py", "notes.txt", "__pycache__/model.pyc")
    for path in (*(package / name for name in home), root / ".env"):
        path.write_text("KEPT = 'stays at home'\n")
    write_kernel(root, "train-tpu", TRAIN)
    write_kernel(root, "infer-gpu", "# %%\nprint('inferred')\n")
    return root


def commit(root: Path) -> None:
    """Commit the project, without what stays at home."""
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "pipeline", "kernels"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)


def push(kaggle: Kaggle, ours: Project, kernel: str = TRAINING, **more: Any) -> Run:
    """Push the project's training, and show nothing."""
    return steps.pushed(kaggle, ours, kernel, **more)


def trained(ours: Project, version: int = 1, weights: bytes = b"weights") -> tuple[Run, Path]:
    """Return a training, and a folder with what a pull of it would have left."""
    run = Run(HANDLE, version, "", f"b{version}")
    folder = ours.runs / output.folder_name(run)
    write_artifact(folder / output.ARTIFACT, run.bundle_sha256, {"weights.npz": weights})
    (folder / output.BUNDLE).write_text(json.dumps({"bundle_sha256": run.bundle_sha256}))
    return run, folder


def recorded(journal: Journal, request: Request, number: int, **ended: Any) -> Request:
    """Note what Kaggle made of a request, and how it ended, if it has; return it."""
    request = journal.record(journal.intend(request), State.SENT, before=number - 1)
    request = journal.record(request, State.VERSION, number=number)
    return journal.record(request, State.ENDED, **ended) if ended else request


def sent(local: LocalKaggle) -> int:
    """Return how many pushes were sent."""
    return local.faults.seen.count("SaveKernel")


def ended(local: LocalKaggle, version: int = 1) -> None:
    """Wait for the end of a version of the training."""
    found = local.kernels.version(HANDLE, version)
    assert found is not None and found.done.wait(60)
