"""The gate: what a bundle must fulfil before it may leave this machine.

It raises one `UsageError` that names every problem at once. Kaggle's client checks almost none of
this, and Kaggle answers most of it with a run on the wrong machine.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.errors import UsageError
from deploy.secrets import ALLOWED, find, redact

REVOKE = f"Remove it, and revoke it; if it is no secret, end its line with  # {ALLOWED}"
BYTES_AT_MOST = 900_000  # Kaggle refuses 1 MB
SHAPES = (
    "",  # a CPU
    *("TpuV5E8", "TpuV6E8", "NvidiaTeslaT4", "NvidiaL4", "NvidiaL4X1"),
    *("NvidiaTeslaA100", "NvidiaH100", "NvidiaRtxPro6000"),
)
RETIRED = {
    "NvidiaTeslaP100": "NvidiaTeslaT4",
    "TpuV38": "TpuV5E8",
    "Tpu1VmV38": "TpuV5E8",
    "TpuV232": "TpuV5E8 (Kaggle would give a CPU)",
    "TpuV2256": "TpuV5E8 (Kaggle would give a CPU)",
}
ENABLED = ("enable_tpu", "enable_gpu")
BOOLEANS = ("is_private", *ENABLED, "enable_internet")
KNOWN = {
    *BOOLEANS,
    *("id", "title", "code_file", "language", "kernel_type", "machine_shape"),
    *("competition_sources", "dataset_sources", "kernel_sources", "model_sources"),
}


def share_of_limit(size: int) -> str:
    """Return how near to the limit a bundle is.

    >>> share_of_limit(436_200)
    '436 kB, 48 % of the 900 kB that the gate allows'
    """
    share = f"{100 * size / BYTES_AT_MOST:.0f} %"
    return f"{size / 1000:.0f} kB, {share} of the {BYTES_AT_MOST // 1000} kB that the gate allows"


def check(
    notebook: Mapping[str, Any], metadata: Mapping[str, Any], *, size: int, offline: bool
) -> None:
    """Raise `UsageError`, naming every problem, unless this may be pushed.

    Args:
        notebook: nbformat 4; each cell's source is one text, as Kaggle expects.
        metadata: the keys of kernel-metadata.json.
        size: bytes of the notebook's file.
        offline: the kernel is scored without the internet, so it must not ask for it.
    """
    problems = [*_notebook(notebook, size), *_metadata(metadata, offline)]
    problems += secrets(notebook, metadata)
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        message = f"Nothing was sent. The bundle {metadata.get('id')} may not be pushed:\n{listed}"
        message += "\nCorrect each of these, and give the same command again."
        raise UsageError(redact(message))  # it quotes what it refuses, which may be a key


def _notebook(notebook: Mapping[str, Any], size: int) -> Iterator[str]:
    import nbformat

    if size >= BYTES_AT_MOST:
        yield (
            f"it has {size:,} bytes; expected fewer than {BYTES_AT_MOST:,}."
            " Move data out of pipeline/"
        )
    try:
        nbformat.validate(nbformat.from_dict(notebook))
    except (nbformat.ValidationError, AttributeError, KeyError, TypeError) as error:
        yield f"it is not a valid notebook: {str(error).splitlines()[0]}. Fix notebook.py"
    header = notebook.get("metadata", {})
    if header.get("kernelspec", {}).get("name") != "python3":
        yield "metadata.kernelspec is not python3; without it Kaggle's runner finds no kernel"
    if "kaggle" in header:
        yield (
            "metadata.kaggle pins an image and an accelerator, and silently makes a TPU run a CPU"
            " run. Remove it"
        )


def _metadata(metadata: Mapping[str, Any], offline: bool) -> Iterator[str]:
    from slugify import slugify  # the client predicts Kaggle's address with it

    for key in sorted(set(metadata) - KNOWN):
        pins = " It silently makes a TPU run a CPU run." if key.startswith("docker") else ""
        yield f"kernel-metadata.json has the key {key!r}, which nothing may set.{pins} Remove it"
    slug = str(metadata.get("id", "")).partition("/")[2]
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,50}/[a-z0-9-]{5,50}", str(metadata.get("id", ""))):
        yield (
            f"id is {metadata.get('id')!r}; expected owner/slug, the slug of 5 to 50 lower-case"
            " letters, digits and hyphens"
        )
    title = str(metadata.get("title", ""))
    if slugify(title) != slug:
        # Redact before slugify, which would change the shape of a key.
        yield f"title {title!r} gives the address {slugify(redact(title))!r}, not {slug!r}"
    for key, expected in (("language", "python"), ("kernel_type", "notebook")):
        if metadata.get(key) != expected:
            yield f"{key} is {metadata.get(key)!r}; expected {expected!r}"
    for key in BOOLEANS:
        if not isinstance(metadata.get(key), bool):
            yield (
                f"{key} is {metadata.get(key)!r}; expected true or false, written out: Kaggle's"
                " defaults are not those of its page"
            )
    if metadata.get("is_private") is False:
        yield "is_private is false; expected true. Read a notebook, then publish it on kaggle.com"
    if offline and metadata.get("enable_internet") is not False:
        yield "enable_internet is not false; a code competition refuses a notebook that has it"
    shape, asked = metadata.get("machine_shape"), tuple(map(metadata.get, ENABLED))
    if shape in RETIRED:
        yield f"machine_shape {shape!r} is retired; expected {RETIRED[shape]}"
    elif shape not in SHAPES:
        known = ", ".join(SHAPES[1:])
        yield f'machine_shape {shape!r} is unknown; expected one of {known}, or "" for a CPU'
    elif asked != (shape.startswith("Tpu"), shape.startswith("Nvidia")):
        yield f"enable_tpu and enable_gpu do not fit machine_shape {shape!r}"


def secrets(notebook: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a key seems to be in anything that would be sent; never the key itself."""
    for where, text in _texts(notebook, metadata):
        for kind, line in _places(text):
            yield f"{kind} seems to be in {where}, line {line}. {REVOKE}"


def _places(text: str) -> dict[tuple[str, int], None]:
    """Return (kind, line) of each secret in a text, once each."""
    return dict.fromkeys((found.kind, found.line) for found in find(text))


def without_secrets(what: str, text: str) -> None:
    """Raise `UsageError` if a key seems to be in a text that is about to be sent as `what`."""
    found = _places(text)
    if found:
        listed = "\n".join(f"  - {kind}, line {line}" for kind, line in found)
        raise UsageError(
            f"Nothing was sent. A secret seems to be in {redact(what)}:\n{listed}\n"
            f"Expected none: what is sent stays there, and may be shared later. {REVOKE}"
        )


def _texts(notebook: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (where it is, text) of all that a push sends."""
    for place, cell in enumerate(notebook.get("cells", []), start=1):
        source = cell.get("source", "")
        text = "".join(map(str, source)) if isinstance(source, list) else str(source)
        # Redact before cutting: a part of a key would not be recognized.
        where = f"cell {place} ({redact(text.partition(chr(10))[0])[:60]})"
        yield where, text
        yield from _values({**cell, "source": ""}, where)
    yield from _values({**notebook, "cells": []}, "the notebook")
    yield from _values(metadata, "kernel-metadata.json")


def _values(value: Any, where: str, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each name and each text after its name, not as JSON, which would escape a key."""
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield where, str(key)
            yield from _values(held, f"{where}, {redact(str(key))}", str(key))
    elif isinstance(value, (list, tuple)):
        for held in value:
            yield from _values(held, where, name)
    else:
        yield where, f"{name}: {value}"
