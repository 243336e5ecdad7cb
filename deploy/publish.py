"""Publish: an artifact becomes a version of a private dataset, and is claimed so only after its bytes came back equal.

Reads  a pulled artifact and its manifest
Gives  a `DatasetVersion` that is ready to be mounted

The official client may upload bytes of an earlier, failed run, may drop a file, and may make two versions of one call;
so the files go up from a fresh folder, the call is sent once, and the result is downloaded and compared.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy import manifest
from deploy.client import Kaggle
from deploy.errors import Ambiguous, DeadlinePassed, NotFound, Refused, RunFailed, Unverified, writing
from deploy.manifest import Manifest

Show = Callable[[str], None]

FILES_AT_MOST = 20
LOST = 12  # polls for the version of a call whose answer was lost


@dataclass(frozen=True)
class DatasetVersion:
    """One version of a dataset. `files`: {name: bytes}."""

    handle: str
    version: int
    files: Mapping[str, int]


def publish(
    kaggle: Kaggle, artifact: Path, handle: str, *, title: str, deadline_seconds: float, show: Show
) -> DatasetVersion:
    """Publish the artifact as the next version of the dataset, or return the current one where it is equal.

    Args:
        artifact: a folder with manifest.json; every file in it is verified first.
        handle: owner/slug. title: slugifies to the slug; used when the dataset is created.
        deadline_seconds: for the new version to be ready.

    Raises:
        Unverified: if the artifact is not what its manifest says, or what came back is not what was sent.
        Refused: if Kaggle says no, or somebody else adds versions at the same time.
        DeadlinePassed: if it is not ready in time; the same command goes on from there.
        Ambiguous: if the call's answer was lost and no version has appeared.
    """
    with tempfile.TemporaryDirectory(prefix="relay-publish-") as temporary:
        staging = Path(temporary) / "artifact"
        with writing(staging):
            staging.mkdir()
            for path in artifact.rglob("*"):
                if path.is_file():
                    (staging / path.relative_to(artifact)).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, staging / path.relative_to(artifact))
        found = manifest.verify(staging)  # the copy, which nothing else can change any more
        sizes = {path.name: path.stat().st_size for path in staging.iterdir()}
        if len(sizes) > FILES_AT_MOST or any("/" in name for name in found.files):
            raise Refused(
                f"{artifact} holds {len(found.files) + 1} files, or folders; expected at most {FILES_AT_MOST} files, flat.\n"
                "Kaggle skips folders. Pack them into one file."
            )
        before = kaggle.dataset(handle)
        version = before.version if before else 0
        if before and _ready(kaggle, handle, version, sizes) and _same_manifest(kaggle, handle, version, staging):
            _compare(kaggle, handle, version, found, staging)
            show(f"{handle} version {version} holds this artifact already; nothing was sent.")
            return DatasetVersion(handle, version, sizes)
        show(f"Uploading {len(sizes)} files, {sum(sizes.values()):,} bytes, to {handle}")
        tokens = [kaggle.upload(staging / name) for name in sorted(sizes)]
        note = f"run_id={found.run_id} sha256={found.weights_sha256}"
        lost = None
        try:
            if before is None:
                kaggle.create_dataset(handle, title=title, description=note, tokens=tokens)
            else:
                kaggle.create_dataset_version(handle, notes=note, tokens=tokens)
        except Ambiguous as error:
            lost = error
        _wait(kaggle, handle, version + 1, sizes, deadline_seconds, show, lost)
        _compare(kaggle, handle, version + 1, found, staging)
        show(f"{handle} version {version + 1} is ready; its bytes came back equal.")
        return DatasetVersion(handle, version + 1, sizes)


def _wait(
    kaggle: Kaggle,
    handle: str,
    expected: int,
    sizes: Mapping[str, int],
    deadline_seconds: float,
    show: Show,
    lost: Ambiguous | None,
) -> None:
    """Return when the current version is the expected one, ready, and lists the files that were sent."""
    began, pause, last, looks = time.monotonic(), kaggle.pace.first, "", 0
    while True:
        now = kaggle.dataset(handle)
        version = now.version if now else 0
        status = kaggle.dataset_status(handle) if now else "NOT_THERE_YET"
        seen = f"version {version} {status}"
        if seen != last:
            show(f"{handle}  {seen}")
            last, pause = seen, kaggle.pace.first
        if version > expected:
            raise Refused(
                f"{handle} is at version {version}; expected {expected}: somebody else adds versions, or a call counted twice.\n"
                "Look at its versions on kaggle.com, then publish again."
            )
        if version == expected:
            lost = None
            if status in ("FAILED", "DELETED"):
                raise RunFailed(f"{handle} version {version} is {status}; expected READY.\nPublish again.")
            if status == "READY" and _listed(kaggle, handle, version) == sizes:
                return
        looks += 1
        if lost is not None and looks >= LOST:
            raise lost
        if time.monotonic() - began + pause > deadline_seconds:
            raise DeadlinePassed(
                f"{handle} is at {seen} after {deadline_seconds:.0f} seconds; expected version {expected}, READY, with"
                f" {len(sizes)} files.\nKaggle may need longer. To go on from here: invoke publish"
            )
        time.sleep(pause)
        pause = min(pause * 1.5, kaggle.pace.most)


def _ready(kaggle: Kaggle, handle: str, version: int, sizes: Mapping[str, int]) -> bool:
    return kaggle.dataset_status(handle) == "READY" and _listed(kaggle, handle, version) == sizes


def _listed(kaggle: Kaggle, handle: str, version: int) -> dict[str, int]:
    try:
        return kaggle.dataset_files(handle, version)
    except NotFound:
        return {}  # a new version is not found for some seconds


def _same_manifest(kaggle: Kaggle, handle: str, version: int, staging: Path) -> bool:
    """Return whether that version has our manifest, which names every other file by its sha256.

    Not the notes: the first version of a dataset has none, and notes can be edited.
    """
    path = staging.parent / "published" / manifest.NAME
    kaggle.download_dataset_file(handle, version, manifest.NAME, path)
    return manifest.sha256(path) == manifest.sha256(staging / manifest.NAME)


def _compare(kaggle: Kaggle, handle: str, version: int, found: Manifest, staging: Path) -> None:
    """Download every file of that version and raise `Unverified` where one has other bytes."""
    wanted = {name: digest for name, (_, digest) in found.files.items()}
    wanted[manifest.NAME] = manifest.sha256(staging / manifest.NAME)
    for name, digest in sorted(wanted.items()):
        path = staging.parent / "returned" / name
        kaggle.download_dataset_file(handle, version, name, path)
        if manifest.sha256(path) != digest:
            raise Unverified(
                f"{name} of {handle} version {version} has other bytes than were sent.\n"
                "Expected them equal; inference would refuse it. Publish again."
            )
        path.unlink()
