"""A run made by hand: the files that a training leaves, with what a test wants in them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from formats import checksums
from pipeline.config import Config

NAMES = ("ant", "bee", "cat")
AWKWARD = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "$x_$ & {x} %s </bdi></td>",
    "long " * 2000,
    "\u202eright to left\u2067",
    "a\x01b\nc\x85",
    "</style></title><!-- ]]>",
)


def with_data(config: Config, **fields: Any) -> Config:
    """Return a config with these fields of its data changed."""
    return replace(config, data=replace(config.data, **fields))


def run(
    folder: Path,
    target: str = "classes",
    names: Sequence[str] = NAMES,
    rows: int = 60,
    name: str = "tiny",
    **more: Any,
) -> Path:
    """Write a complete run without folds and return its folder. `more`: goes into the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    validation(folder, target, names, rows)
    progress(folder)
    manifest(
        folder,
        name=name,
        classes=list(names),
        **({} if target == "classes" else {"target": {"kind": target}}),
        **more,
    )
    return folder


def validation(folder: Path, target: str, names: Sequence[str], rows: int) -> None:
    """Write validation.csv, and validation.npz where there are classes. Rows are right about nine
    times of ten.
    """
    random = np.random.default_rng(1)
    texts = np.array(names, object)
    table: dict[str, Any] = {"id": [f"r{row:03d}" for row in range(rows)]}
    if target == "classes":
        labels = np.arange(rows) % len(names)
        scores = random.gumbel(size=(rows, len(names))) + 4 * np.eye(len(names))[labels]
        found = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        found = found.astype(np.float32)
        table |= {
            "label": texts[labels],
            "prediction": texts[found.argmax(axis=1)],
            "confidence": found.max(axis=1),
        }
        np.savez(folder / "validation.npz", probabilities=found)
    elif target == "regression":
        table["label"] = random.normal(10, 3, rows)
        table["prediction"] = table["label"] + random.normal(0, 0.5, rows)
    else:
        for text in texts:
            label = random.integers(0, 2, rows)
            table |= {
                f"label_{text}": label,
                f"prediction_{text}": np.clip(label * 0.4 + random.random(rows) * 0.6, 0, 1),
            }
    pd.DataFrame(table).to_csv(folder / "validation.csv", index=False)


def progress(folder: Path, epochs: int = 6) -> None:
    """Write history.csv and progress.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    epoch = np.arange(1, epochs + 1)
    columns = {"epoch": epoch, "step": epoch * 10, "loss": 1 / epoch, "accuracy": 1 - 0.5 / epoch}
    columns |= {
        "validation_loss": 1.2 / epoch,
        "validation_accuracy": 1 - 0.6 / epoch,
        "learning_rate": 0.01 / epoch,
    }
    pd.DataFrame({**columns, "images_per_second": 100.0, "seconds": epoch}).to_csv(
        folder / "history.csv", index=False
    )
    lines = [
        json.dumps({"step": 10 * number, "steps": 60, "images_per_second": 90.0 + number})
        for number in epoch.tolist()
    ]
    (folder / "progress.jsonl").write_text("".join(f"{line}\n" for line in lines))


def manifest(
    folder: Path, *, name: str = "tiny", classes: Sequence[str] = NAMES, **more: Any
) -> None:
    """Write artifact/manifest.json, sealed."""
    value: Mapping[str, Any] = {
        "run_id": "tiny-20260101-000000-abcdef",
        "status": "complete",
        "config": {"name": name, "competition": "insects", "epochs": 6, "batch": 16},
        "classes": list(classes),
        "versions": {"keras": "3.15.1"},
        "git_commit": "a" * 40,
        "git_dirty": True,
        "bundle_sha256": "b" * 64,
        "metrics": {},
        "files": {"weights.npz": {"sha256": "c" * 64, "size": 1234}},
        "devices": "8 x cpu (cpu)",
        "precision": "float32",
        "parameters": {"total": 68138},
        "applied": {"batch": 16, "peak_rate": 0.004, "warmup_steps": 3, "warnings": ["few steps"]},
        "seconds": {"read": 1.0, "train": 8.0, "validate": 2.0, "total": 10.5},
        **more,
    }
    (folder / "artifact").mkdir(exist_ok=True)
    (folder / "artifact" / "manifest.json").write_bytes(checksums.sealed(value))


def resealed(artifact: Path, **values: Any) -> Path:
    """Seal a manifest with these values, as somebody would who changed files of the artifact."""
    told = json.loads((artifact / "manifest.json").read_bytes()) | values
    for name in told["files"]:
        file = artifact / name
        told["files"][name] = {"sha256": checksums.sha256(file), "size": file.stat().st_size}
    told["weights_sha256"] = told["files"]["weights.npz"]["sha256"]
    (artifact / "manifest.json").write_bytes(checksums.sealed(told))
    return artifact
