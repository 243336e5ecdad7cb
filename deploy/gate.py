"""Gate: what a bundle must fulfil before it may leave this machine.

Reads  the notebook and the metadata, as they would be pushed
Gives  nothing, or one `UsageError` that names every problem at once

Kaggle's client checks almost none of this, and Kaggle itself answers most of it with a run on the wrong machine.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from deploy.errors import UsageError

BYTES_AT_MOST = 900_000  # Kaggle refuses 1 MB
SHAPES = (
    "TpuV5E8",
    "TpuV6E8",
    "NvidiaTeslaT4",
    "NvidiaL4",
    "NvidiaL4X1",
    "NvidiaTeslaA100",
    "NvidiaH100",
    "NvidiaRtxPro6000",
)
RETIRED = {
    "NvidiaTeslaP100": "NvidiaTeslaT4",
    "TpuV38": "TpuV5E8",
    "Tpu1VmV38": "TpuV5E8",
    "TpuV232": "TpuV5E8 (Kaggle would give a CPU)",
    "TpuV2256": "TpuV5E8 (Kaggle would give a CPU)",
}
BOOLEANS = ("is_private", "enable_gpu", "enable_tpu", "enable_internet")
KNOWN = {
    *BOOLEANS,
    *("id", "title", "code_file", "language", "kernel_type", "machine_shape"),
    *("competition_sources", "dataset_sources", "kernel_sources", "model_sources"),
}
SECRETS = (
    ("a Kaggle token", re.compile(r"KGAT_[A-Za-z0-9_-]{8,}")),
    (
        "a Kaggle key",
        re.compile(r"""username.{0,200}?key["']?\s*[:=]\s*["']?[0-9a-f]{32}\b""", re.DOTALL | re.IGNORECASE),
    ),
    (
        "a Kaggle key",
        re.compile(r"""\bkey["']?\s*[:=]\s*["']?[0-9a-f]{32}\b.{0,200}?username""", re.DOTALL | re.IGNORECASE),
    ),
    ("a Kaggle key", re.compile(r"""KAGGLE_KEY["'\])]*\s*[:=]\s*["']?[0-9a-f]{32}\b""")),
    # At least one digit: "Bearer authentication-something" is a sentence.
    ("an Authorization header", re.compile(r"\b(?:Basic|Bearer)\s+(?=[A-Za-z+/_=.~-]*[0-9])[A-Za-z0-9+/_=.~-]{16,}")),
)


def check(notebook: Mapping[str, Any], metadata: Mapping[str, Any], *, size: int, offline: bool) -> None:
    """Raise `UsageError` unless this may be pushed.

    Args:
        notebook: nbformat 4 with each cell's source as one text, as Kaggle expects it.
        metadata: the keys of kernel-metadata.json.
        size: bytes of the notebook's file.
        offline: the kernel is scored with the internet off, so it must not ask for it.
    """
    problems = [*_notebook(notebook, size), *_metadata(metadata, offline), *secrets(notebook, metadata)]
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise UsageError(f"The bundle {metadata.get('id')} may not be pushed:\n{listed}\nNothing was sent.")


def _notebook(notebook: Mapping[str, Any], size: int) -> Iterator[str]:
    import nbformat

    if size >= BYTES_AT_MOST:
        yield f"it has {size:,} bytes; expected fewer than {BYTES_AT_MOST:,}. Move data out of pipeline/"
    try:
        nbformat.validate(nbformat.from_dict(notebook))
    except (nbformat.ValidationError, AttributeError, KeyError, TypeError) as error:
        yield f"it is not a valid notebook: {str(error).splitlines()[0]}. Correct notebook.py"
    header = notebook.get("metadata", {})
    if header.get("kernelspec", {}).get("name") != "python3":
        yield "metadata.kernelspec is not python3; without it Kaggle's runner finds no kernel"
    if "kaggle" in header:
        yield "metadata.kaggle pins an image and an accelerator, and silently makes a TPU run a CPU run. Remove it"


def _metadata(metadata: Mapping[str, Any], offline: bool) -> Iterator[str]:
    from slugify import slugify  # the function by which the client foretells Kaggle's address

    for key in sorted(set(metadata) - KNOWN):
        pins = " It silently makes a TPU run a CPU run." if key.startswith("docker") else ""
        yield f"kernel-metadata.json has the key {key!r}, which nothing may set.{pins} Remove it"
    owner, _, slug = str(metadata.get("id", "")).partition("/")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,50}", owner) or not re.fullmatch(r"[a-z0-9-]{5,50}", slug):
        yield f"id is {metadata.get('id')!r}; expected owner/slug, the slug of 5 to 50 lower-case letters, digits and hyphens"
    if slugify(str(metadata.get("title", ""))) != slug:
        yield f"title {metadata.get('title')!r} gives the address {slugify(str(metadata.get('title', '')))!r}, not {slug!r}"
    for key, expected in (("language", "python"), ("kernel_type", "notebook")):
        if metadata.get(key) != expected:
            yield f"{key} is {metadata.get(key)!r}; expected {expected!r}"
    for key in BOOLEANS:
        if not isinstance(metadata.get(key), bool):
            yield f"{key} is {metadata.get(key)!r}; expected true or false, written out: Kaggle's defaults are not what its page says"
    if metadata.get("is_private") is False:
        yield "is_private is false; expected true. Publish a notebook on kaggle.com, after reading it"
    if offline and metadata.get("enable_internet") is not False:
        yield "enable_internet is not false; a code competition refuses a notebook that has it"
    shape = metadata.get("machine_shape")
    if shape in RETIRED:
        yield f"machine_shape {shape!r} is retired; expected {RETIRED[shape]}"
    elif shape not in SHAPES:
        yield f"machine_shape {shape!r} is unknown; expected one of {', '.join(SHAPES)}"
    elif metadata.get("enable_tpu") is not shape.startswith("Tpu") or metadata.get(
        "enable_gpu"
    ) is not shape.startswith("Nvidia"):
        yield f"enable_tpu and enable_gpu do not fit machine_shape {shape!r}"


def secrets(notebook: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a key seems to be, never the key itself."""
    texts = [(f"cell {place} ({source.partition(chr(10))[0][:60]})", source) for place, source in _sources(notebook)]
    for where, text in [*texts, ("kernel-metadata.json", json.dumps(dict(metadata)))]:
        for kind, shape in SECRETS:
            found = shape.search(text)
            if found:
                yield f"{kind} seems to be in {_without_secrets(where)}, line {text.count(chr(10), 0, found.start()) + 1}. Remove it, and revoke it"


def _sources(notebook: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for place, cell in enumerate(notebook.get("cells", []), start=1):
        yield place, str(cell.get("source", ""))
        if cell.get("metadata"):
            yield place, json.dumps(cell["metadata"])


def _without_secrets(text: str) -> str:
    for _, shape in SECRETS:
        text = shape.sub("…", text)
    return text
