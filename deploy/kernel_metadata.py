"""Kernel metadata: what a kernel's kernel-metadata.json holds before the bundler adds to it, and
what the machine and the length of one session change.
"""

import json
import re
from pathlib import Path
from typing import Any

from deploy import travelling
from deploy.errors import UsageError

# A dataset, or one version of it.
DATASET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{1,49}/[a-z0-9][a-z0-9-]{1,99}(/[1-9][0-9]{0,8})?")


def read(path: Path) -> dict[str, Any]:
    """Return what the file holds, with lists of its sources.

    Raises:
        UsageError: if it is no JSON object, sets what the bundler adds, or lists what is no
            dataset.
    """
    try:
        metadata = json.loads(travelling.read(path))
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error}.\nFix that line.") from error
    if not isinstance(metadata, dict):
        raise UsageError(
            f"{path} holds {type(metadata).__name__}; expected a JSON object.\n"
            "See kernels/train-tpu/."
        )
    given = {"id", "title", "competition_sources", "kernel_sources"} & set(metadata)
    if given:
        raise UsageError(
            f"{path} sets {', '.join(sorted(given))}, which the bundler adds.\nRemove them there."
        )
    datasets = metadata.get("dataset_sources", [])
    if not isinstance(datasets, list) or not all(
        isinstance(name, str) and DATASET.fullmatch(name) for name in datasets
    ):
        raise UsageError(
            f"{path} sets dataset_sources to {json.dumps(datasets)[:200]}; expected a list of"
            ' datasets by owner/slug, as ["keras/weights"].\nCorrect it there.'
        )
    return {**metadata, "dataset_sources": datasets, "kernel_sources": []}


def machine(shape: str) -> dict[str, Any]:
    """Return the keys that ask for a machine.

    >>> machine("NvidiaTeslaT4")
    {'machine_shape': 'NvidiaTeslaT4', 'enable_tpu': False, 'enable_gpu': True}
    """
    tpu, gpu = shape.startswith("Tpu"), shape.startswith("Nvidia")
    return {"machine_shape": shape, "enable_tpu": tpu, "enable_gpu": gpu}


def within(text: str, seconds: int) -> str:
    """Return a notebook of ours whose bundle.json says how long its session is.

    Only a session that is shorter than others needs it, so it counts for no sha256.
    """
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        head, _, held = cell["source"].partition("\n")
        if head == "%%writefile bundle.json":
            told = json.loads(held) | {"session_seconds": seconds}
            cell["source"] = f"{head}\n{json.dumps(told, indent=2, sort_keys=True)}"
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
