"""Manifest: the Kaggle side's look at an artifact, without a framework: which files, how large,
which bytes.

Reads  <artifact>/manifest.json, written by the train run (docs/design.md)
Gives  what deploying needs of it, and the proof that the files are those that the run wrote
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.errors import Unverified, UsageError

NAME, SEAL = "manifest.json", "manifest_sha256"
AGAIN = "Pull it again: invoke pull (it sets a changed folder aside). If Kaggle has no better one, train again."


@dataclass(frozen=True)
class Manifest:
    """What deploying needs of a manifest. `files`: {name: (bytes, sha256)} of every other file in
    the folder.

    `bundle_sha256` is empty where the training was no bundle's.
    """

    run_id: str
    weights_sha256: str
    bundle_sha256: str
    files: Mapping[str, tuple[int, str]]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as the bytes of its file, with the sha256 of the rest of it inside, as the
    run that trained writes it.

    >>> sealed({"run_id": "r1", "files": {}}) == sealed({"files": {}, "run_id": "r1", "manifest_sha256": "of an older text"})
    True
    """
    rest = {key: value for key, value in manifest.items() if key != SEAL}
    return _text({**rest, SEAL: hashlib.sha256(_text(rest)).hexdigest()})


def verify(artifact: Path) -> Manifest:
    """Return the manifest of the folder, after every file in it was found equal to what the
    manifest says.

    Raises:
        UsageError: if there is no artifact.
        Unverified: if a file is missing, is one too many, or has other bytes; or if the manifest
            was changed itself.
    """
    path = artifact / NAME
    if not path.is_file():
        raise UsageError(
            f"{artifact} holds no {NAME}; expected a pulled artifact.\nRun: invoke pull"
        )
    manifest = _parse(path)
    there = {
        file.relative_to(artifact).as_posix(): file
        for file in artifact.rglob("*")
        if not file.is_dir()
    }
    problems = [f"{name} is missing" for name in sorted(set(manifest.files) - set(there))]
    problems += [
        f"{name} is not in the manifest"
        for name in sorted(set(there) - set(manifest.files) - {NAME})
    ]
    for name in sorted(set(manifest.files) & set(there)):
        size, digest = manifest.files[name]
        if there[name].is_symlink():
            problems.append(f"{name} is a link")
        elif there[name].stat().st_size != size:
            problems.append(f"{name} has {there[name].stat().st_size} bytes, expected {size}")
        elif sha256(there[name]) != digest:
            problems.append(f"{name} has another sha256 than {digest}")
    if manifest.weights_sha256 not in {digest for _, digest in manifest.files.values()}:
        problems.append("weights_sha256 is that of no file")
    if problems:
        listed = "\n".join(f"  - {problem}" for problem in problems)
        raise Unverified(f"{artifact} is not what its manifest says:\n{listed}\n{AGAIN}")
    return manifest


def _parse(path: Path) -> Manifest:
    try:
        content = path.read_bytes()
        value = json.loads(content)
        files = {
            str(name): (int(entry["size"]), str(entry["sha256"]))
            for name, entry in value["files"].items()
        }
        texts = [value[key] for key in ("run_id", "weights_sha256")]
        texts.append(value["bundle_sha256"] or "")  # null: trained from a checkout
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise Unverified(
            f"{path} cannot be read: {type(error).__name__}: {error}.\n"
            f"Expected run_id, weights_sha256, bundle_sha256 and files.\n{AGAIN}"
        ) from error
    if not all(isinstance(text, str) for text in texts):
        raise Unverified(f"{path} holds {texts}; expected three texts.\n{AGAIN}")
    if sealed(value) != content:  # inference would refuse it
        raise Unverified(
            f"{path} {'was changed after it was written' if SEAL in value else f'has no {SEAL}'};"
            f" expected the bytes that the run wrote, and the sha256 of them in {SEAL}.\n{AGAIN}"
        )
    run_id, weights, bundle = texts
    return Manifest(run_id, weights, bundle, files)


def _text(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()
