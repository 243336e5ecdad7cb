"""A small project to deploy: a package of two modules and two plain-Python notebooks that run in seconds."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from between import Between

from deploy.client import Kaggle
from deploy.exchange import Pace

TRAIN = """# %% [markdown]
# # Train

# %%
import hashlib
import json
from pathlib import Path

from pipeline import model

origin = json.loads(Path("bundle.json").read_text())
weights = model.weights(origin["config"])
Path("artifact").mkdir()
Path("artifact/weights.npz").write_bytes(weights)
digest = hashlib.sha256(weights).hexdigest()
manifest = {
    "run_id": origin["bundle_sha256"][:12],
    "weights_sha256": digest,
    "bundle_sha256": origin["bundle_sha256"],
    "files": {"weights.npz": {"sha256": digest, "size": len(weights)}},
}
Path("artifact/manifest.json").write_text(json.dumps(manifest))
Path("curve.png").write_bytes(b"not really a picture")
print("trained")
"""
INFER = """# %%
import json
from pathlib import Path

expect = json.loads(Path("bundle.json").read_text())["expect"]
root = next(folder for folder in [Path.cwd(), *Path.cwd().parents] if (folder / "input").is_dir())
found = [path for path in root.glob("input/**/manifest.json")]
manifest = json.loads(found[0].read_text())
assert manifest["run_id"] == expect["run_id"] and manifest["weights_sha256"] == expect["weights_sha256"], found
sample = next(iter(root.glob("input/**/sample_submission.csv")))
Path("submission.csv").write_bytes(sample.read_bytes())
print("inferred")
"""
FAIL = """# %%
print("before \\x1b[31mred\\x1b[0m")
raise ValueError("the batch does not fit")
"""


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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a small project, with things in it that must stay at home."""
    root = tmp_path / "project"
    package = root / "pipeline"
    (package / "configs").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "model.py").write_text('def weights(name: str) -> bytes:\n    return name.encode() * 999  # "€"\n')
    (package / "configs" / "__init__.py").write_text('"""Configs."""\n')
    (package / "configs" / "digits.py").write_text("CONFIG = 1\n")
    (package / "configs" / "other.py").write_text("CONFIG = 'stays at home'\n")
    (package / ".hidden.py").write_text("stays = 'at home'\n")
    (package / "notes.txt").write_text("stays at home")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "model.py").write_text("stays = 'at home'\n")
    (root / ".env").write_text("KAGGLE_KEY=stays at home")
    write_kernel(root, "train-tpu", TRAIN)
    write_kernel(root, "infer-gpu", INFER)
    return root


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Iterator[Between]:
    """What answers the real client here: only what a test says."""
    with Between("http://127.0.0.1:9") as between:
        for name, value in {
            "http_proxy": between.address,
            "KAGGLE_USERNAME": "ann",
            "KAGGLE_KEY": "not-a-key",
        }.items():
            monkeypatch.setenv(name, value)
        yield between


@pytest.fixture
def kaggle(between: Between) -> Kaggle:
    """A real client on that wire, in a hurry."""
    return Kaggle.connect(pace=Pace(first=0.05, most=0.2, patience=5), timeouts=(2, 5))


@pytest.fixture
def shown() -> list[str]:
    """The lines that were shown; pass `shown.append`."""
    return []
