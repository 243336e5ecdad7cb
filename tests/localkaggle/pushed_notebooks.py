"""Notebooks of plain Python, pushed to a local Kaggle and waited for."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kagglesdk.kernels.types.kernels_api_service as kernel_types
import nbformat

from localkaggle.server import LocalKaggle


def notebook(*cells: str, **metadata: Any) -> str:
    """Return an .ipynb with these code cells."""
    kernelspec = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    }
    made = nbformat.v4.new_notebook(metadata={**kernelspec, **metadata})
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return str(nbformat.writes(made))


def save(client: Any, text: str, slug: str = "small-kernel", **fields: Any) -> Any:
    """Push a notebook and return the server's answer."""
    request = kernel_types.ApiSaveKernelRequest()
    request.slug, request.new_title, request.text = (
        f"rehearsal/{slug}",
        slug.replace("-", " ").title(),
        text,
    )
    request.language, request.kernel_type, request.is_private, request.enable_internet = (
        "python",
        "notebook",
        True,
        False,
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return client.kernels.kernels_api_client.save_kernel(request)


def finished(kaggle: LocalKaggle, slug: str = "small-kernel", number: int = 1) -> Any:
    """Wait for a version's end and return it."""
    version = kaggle.kernels.version(f"rehearsal/{slug}", number)
    assert version is not None
    assert version.done.wait(60)
    deadline = time.monotonic() + 5
    while version.status in ("QUEUED", "RUNNING") and time.monotonic() < deadline:
        time.sleep(0.01)
    return version


def ran(kaggle: LocalKaggle, client: Any, *cells: str, **fields: Any) -> Any:
    """Push a notebook of these cells, wait for its end, and return the version."""
    answer = save(client, notebook(*cells), **fields)
    assert not answer.error
    return finished(kaggle, number=answer.version_number)


def command(kaggle: LocalKaggle, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Kaggle's own command line."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ["PYTHONPATH"],
        "LANG": "C.UTF-8",
        **kaggle.environment,
    }
    environment["RELAY_NETWORK_VIOLATIONS"] = os.environ["RELAY_NETWORK_VIOLATIONS"]
    return subprocess.run(
        [str(Path(sys.executable).parent / "kaggle"), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
