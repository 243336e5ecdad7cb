"""Pushed notebook: what a push holds, as the runner and the machine take it."""

import json
from typing import Any


def text_of(request: Any) -> str:
    """Return what papermill gets; a script becomes a notebook of one cell."""
    text: str = request.text or ""
    if request.kernel_type != "script":
        return text
    cell: dict[str, Any] = {
        "cell_type": "code",
        "id": "script",
        "metadata": {},
        "source": text,
        "outputs": [],
        "execution_count": None,
    }
    kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernelspec}
    return json.dumps({"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def image_is_pinned(request: Any) -> bool:
    """Return whether request or notebook pins a docker image, which overrides the TPU machine."""
    try:
        metadata = json.loads(request.text or "{}").get("metadata", {}).get("kaggle", {})
    except (ValueError, AttributeError):
        metadata = {}  # not a notebook; papermill will say so
    return bool(request.docker_image) or any(
        metadata.get(key) for key in ("dockerImageVersionId", "accelerator")
    )
