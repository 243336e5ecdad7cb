"""Check bundles and text before they leave this machine.

All problems are reported in a single `UsageError`. The official client checks almost nothing, so
most mistakes would otherwise go unnoticed until a run gets the wrong machine.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deploy import models
from deploy.errors import UsageError
from deploy.secrets import ALLOWED, find, redact

REVOKE = f"Remove and revoke it. If it is not a secret, end its line with  # {ALLOWED}"
BYTES_AT_MOST = 960_000  # Kaggle rejects 1 MB
SHAPES = (
    *("TpuV5E8", "TpuV6E8", "NvidiaTeslaT4", "NvidiaL4", "NvidiaL4X1"),
    *("NvidiaTeslaA100", "NvidiaH100", "NvidiaRtxPro6000"),
)
BOOLEAN = ("true|false", "true or false, because Kaggle's defaults differ from its documentation")
# A dataset, optionally with a version.
DATASET = r"[A-Za-z0-9][A-Za-z0-9_-]{1,49}/[a-z0-9][a-z0-9-]{1,99}(/[1-9][0-9]{0,8})?"
# Valid JSON for each key in kernel-metadata.json, as a pattern and a description.
VALUES = {
    "id": (
        r'"[A-Za-z0-9_-]{1,50}/(?=[a-z0-9-]{5,50}")[a-z0-9]+(-[a-z0-9]+)*"',
        "owner/slug, with a slug of 5 to 50 lower-case letters and digits, separated by hyphens",
    ),
    "language": ('"python"', "python"),
    "kernel_type": ('"notebook"', "notebook"),
    "is_private": ("true", "true. To publish a notebook, review it, then do so on kaggle.com"),
    **dict.fromkeys(("enable_tpu", "enable_gpu", "enable_internet"), BOOLEAN),
    "machine_shape": (
        f'"({"|".join(SHAPES)})?"',
        f'one of {", ".join(SHAPES)}, or "" for a CPU. Kaggle has retired all others',
    ),
    **dict.fromkeys(("title", "code_file"), ('".+"', "text")),
    "dataset_sources": (
        rf'\[("{DATASET}"(, )?)*\]',
        'a list of datasets as owner/slug, such as ["keras/weights"]. Correct kernel-metadata.json,'
        " or pretrained in the config, or publish that training run and correct init_from or"
        " pseudo_labels.teacher there",
    ),
    "model_sources": (
        rf'\[("{models.NAME}"(, )?)*\]',
        "a list of models as owner/model/framework/variation/version, such as"
        f' ["{models.EXAMPLE}"], with one of these frameworks: {", ".join(models.FRAMEWORKS)}.'
        " Correct pretrained in the config, or kernel-metadata.json",
    ),
}
SOURCES = {f"{kind}_sources" for kind in ("competition", "kernel")}


def check(text: str, metadata: Mapping[str, Any], *, offline: bool) -> None:
    """Raise `UsageError` with all problems if this bundle must not be pushed.

    The source of each cell in `text` must be a string. An `offline` kernel is scored without
    internet access and must not request it.
    """
    notebook, size = json.loads(text), len(text.encode())
    problems = [*_of_metadata(metadata, offline)]
    if size >= BYTES_AT_MOST:
        too_many = f"it has {size:,} bytes; expected fewer than {BYTES_AT_MOST:,}"
        problems.append(f"{too_many}. Move data out of pipeline/")
    problems += (
        f"{where}, line {line}, seems to contain {kind}. {REVOKE}"
        for where, part in _sent_texts(notebook, metadata)
        for line, kind in find(part).items()
    )
    if problems:
        # The problems quote invalid values, which may be secrets.
        listed = "\n".join(f"  - {_quotable(problem)}" for problem in problems)
        raise UsageError(
            f"Nothing was sent. Cannot push the bundle {_quotable(str(metadata.get('id')))}:"
            f"\n{listed}\nFix these problems, then run the same command again."
        )


def check_text(what: str, text: str) -> None:
    """Raise `UsageError` if the text seems to contain a secret.

    `what` describes the text in the message.
    """
    found = find(text)
    if found:
        listed = "\n".join(f"  - {kind}, line {line}" for line, kind in found.items())
        raise UsageError(
            f"Nothing was sent. {_quotable(what)} seems to contain a secret:\n{listed}\n"
            f"Everything sent to Kaggle is stored there and may be shared later. {REVOKE}"
        )


def _quotable(text: str) -> str:
    shown = redact(text)
    return "…" if find(shown) else shown


def _of_metadata(metadata: Mapping[str, Any], offline: bool) -> Iterator[str]:
    for key in sorted(metadata.keys() - VALUES.keys() - SOURCES):
        pins = ""
        if key.startswith("docker"):
            pins = " If the Docker image is pinned, a TPU run silently becomes a CPU run."
        yield f"kernel-metadata.json must not set {key!r}.{pins} Remove it"
    for key, (pattern, expected) in VALUES.items():
        value = json.dumps(metadata.get(key))
        if not re.fullmatch(pattern, value):
            yield f"{key} is {value}; expected {expected}"
    asked = machine(str(metadata.get("machine_shape")))
    if not asked.items() <= metadata.items():
        yield f"enable_tpu and enable_gpu do not match machine_shape {asked['machine_shape']!r}"
    if offline and metadata.get("enable_internet") is not False:
        yield "enable_internet is not false, which code competitions require"


def machine(shape: str) -> dict[str, Any]:
    """Return the keys of kernel-metadata.json that request a machine.

    >>> machine("NvidiaTeslaT4")
    {'machine_shape': 'NvidiaTeslaT4', 'enable_tpu': False, 'enable_gpu': True}
    """
    tpu, gpu = shape.startswith("Tpu"), shape.startswith("Nvidia")
    return {"machine_shape": shape, "enable_tpu": tpu, "enable_gpu": gpu}


def _sent_texts(
    notebook: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    parts = {"the notebook": {**notebook, "cells": []}, "kernel-metadata.json": metadata}
    for place, cell in enumerate(notebook["cells"], start=1):
        # Redact before truncating, because partial secrets are not recognized.
        where = f"cell {place} ({_quotable(cell['source'].partition(chr(10))[0])[:60]})"
        yield where, cell["source"]
        parts[f"the metadata of {where}"] = {**cell, "source": ""}
    for where, part in parts.items():
        yield where, json.dumps(part, ensure_ascii=False, indent=1)
