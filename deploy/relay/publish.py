"""Publish: an artifact becomes a version of a private dataset, and is claimed so only after its
bytes came back equal.

Reads  a pulled artifact and its manifest
Gives  a `DatasetVersion` that is ready to be mounted

The official client may upload bytes of an earlier, failed run, may drop a file, and may make two
versions of one call; so the files go up from a fresh folder, the call is sent once, and the result
is downloaded and compared.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.bundle import gate
from deploy.client.client import Kaggle
from deploy.errors import (
    Ambiguous,
    DeadlinePassed,
    Denied,
    NotFound,
    Refused,
    RunFailed,
    Unverified,
    UsageError,
    writing,
)
from deploy.kernel import artifact_manifest
from deploy.kernel.artifact_manifest import Manifest

Show = Callable[[str], None]

FILES_AT_MOST = 20
TEXT_AT_MOST = (
    50 * 10**6
)  # bytes of a file that is looked through; no text of an artifact is as large
LOST = 12  # polls for the version of a call whose answer was lost, and for sizes that agree
SETTLED = ("READY", "FAILED", "DELETED")


@dataclass(frozen=True)
class DatasetVersion:
    """One version of a dataset. `files`: {name: bytes}."""

    handle: str
    version: int
    files: Mapping[str, int]


def publish(
    kaggle: Kaggle,
    artifact: Path,
    handle: str,
    *,
    title: str,
    deadline_seconds: float,
    show: Show,
    sending: Callable[[int], None] = lambda before: None,
    sent_after: int | None = None,
    most: int = FILES_AT_MOST,
) -> DatasetVersion:
    """Publish the artifact as the next version of the dataset, or return the current one where it
    is equal.

    Args:
        artifact: a folder with manifest.json; every file in it is verified first.
        handle: owner/slug. title: slugifies to the slug; used when the dataset is created.
        deadline_seconds: for all of it.
        sending: is told the version before ours, right before the one call that must not be made
            twice.
        sent_after: that number, if an earlier call may have been made and nobody knows what came of
            it.
        most: so many files at most.

    Raises:
        UsageError: if it has folders or too many files, or a secret seems to be in one of its
            texts. Nothing is sent then.
        Unverified: if the artifact is not what its manifest says, or what came back is not what was
            sent.
        Refused: if Kaggle says no, or somebody else adds versions at the same time.
        DeadlinePassed: if it is not ready in time; the same command goes on from there.
        Ambiguous: if the call's answer was lost and no version has appeared.
    """
    end = time.monotonic() + deadline_seconds
    with tempfile.TemporaryDirectory(prefix="relay-publish-") as temporary:
        staging = Path(temporary) / "artifact"
        with writing(staging):
            staging.mkdir()
            for path in artifact.rglob("*"):
                if path.is_file():
                    (staging / path.relative_to(artifact)).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, staging / path.relative_to(artifact))
        found = artifact_manifest.verify(
            staging
        )  # the copy, which nothing else can change any more
        sizes = {path.name: path.stat().st_size for path in staging.iterdir()}
        if len(sizes) > most or any("/" in name for name in found.files):
            raise UsageError(
                f"{artifact} holds {len(found.files) + 1} files, or folders; expected at most {most} files, flat.\n"
                "Kaggle skips folders. Nothing was sent. Pack them into one file."
            )
        _require_no_secrets(staging, f"{handle}: {title}")
        version = _settled(kaggle, handle, end, show, sent_after)
        if version and _same_manifest(kaggle, handle, version, staging):
            try:
                _compare(kaggle, handle, version, found, staging)
            except Unverified as error:
                show(f"{error}\nIt is uploaded once more.")
            else:
                show(f"{handle} version {version} holds this artifact already; nothing was sent.")
                return DatasetVersion(handle, version, sizes)
        show(f"Uploading {len(sizes)} files, {sum(sizes.values()):,} bytes, to {handle}")
        tokens = [kaggle.upload(staging / name) for name in sorted(sizes)]
        note = f"run_id={found.run_id} sha256={found.weights_sha256}"
        lost = None
        sending(version or 0)
        try:
            if version is None:
                kaggle.create_dataset(handle, title=title, description=note, tokens=tokens)
            else:
                kaggle.create_dataset_version(handle, notes=note, tokens=tokens)
        except Ambiguous as error:
            lost = error
        expected = (version or 0) + 1
        _wait(kaggle, handle, expected, sizes, end, show, lost)
        _compare(kaggle, handle, expected, found, staging)
        show(f"{handle} version {expected} is ready; its bytes came back equal.")
        return DatasetVersion(handle, expected, sizes)


def _require_no_secrets(staging: Path, name: str) -> None:
    """Raise `UsageError` if one seems to be in the texts among these files, in their names, or in
    the name of the dataset.
    """
    gate.without_secrets("the dataset's name", name)
    for path in sorted(staging.iterdir()):
        gate.without_secrets("a file's name", path.name)
        if path.stat().st_size <= TEXT_AT_MOST:
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # numbers
            gate.without_secrets(path.name, text)


def _settled(
    kaggle: Kaggle, handle: str, end: float, show: Show, sent_after: int | None
) -> int | None:
    """Return the current version, None without a dataset, once no other is on its way: an
    unfinished one is not current yet.
    """
    pause, last, looks = kaggle.pace.first, "", 0
    while True:
        status = _status(
            kaggle, handle
        )  # first: what is ready by now is counted in the number that is asked for next
        now = kaggle.dataset(handle)
        version = now.version if now else None
        arrived = sent_after is None or (version or 0) > sent_after
        if (
            now is not None
            and status in SETTLED
            and (version or status != "READY")
            and (arrived or looks >= LOST)
        ):
            return version
        if now is None and (arrived or looks >= LOST):
            return None
        looks += 1
        seen = f"version {version or 0} {status}"
        if seen != last:
            show(f"{handle}  {seen}: an earlier call is waited for")
            last, pause = seen, kaggle.pace.first
        _sleep(pause, end, f"{handle} is at {seen}; expected READY.")
        pause = min(pause * 1.5, kaggle.pace.most)


def _wait(
    kaggle: Kaggle,
    handle: str,
    expected: int,
    sizes: Mapping[str, int],
    end: float,
    show: Show,
    lost: Ambiguous | None,
) -> None:
    """Return when the current version is the expected one, ready, and lists the files that were
    sent.

    Sizes that stay others are left to the comparison of the bytes: Kaggle may have converted a
    file, or count otherwise.
    """
    pause, last, looks, others = kaggle.pace.first, "", 0, 0
    while True:
        now = kaggle.dataset(handle)
        version = now.version if now else 0
        status = _status(kaggle, handle) if now else "NOT_THERE_YET"
        seen = f"version {version} {status}"
        if seen != last:
            show(f"{handle}  {seen}")
            last, pause = seen, kaggle.pace.first
        if version > expected:
            raise Refused(
                f"{handle} is at version {version}; expected {expected}: somebody else adds versions, or a call counted twice.\n"
                "Look at its versions on kaggle.com, then publish again."
            )
        if status in ("FAILED", "DELETED"):
            raise RunFailed(
                f"{handle} is {status} at version {version}; expected {expected}, READY.\nPublish again."
            )
        if version == expected and status == "READY":
            listed = _listed(kaggle, handle, version)
            whole = listed.keys() == sizes.keys()
            others += whole
            if listed == sizes or (whole and others >= LOST):
                return
        looks += 1
        if (
            lost is not None
            and version < expected
            and status in ("READY", "NOT_THERE_YET")
            and looks >= LOST
        ):
            raise lost
        _sleep(
            pause,
            end,
            f"{handle} is at {seen}; expected version {expected}, READY, with {len(sizes)} files.",
        )
        pause = min(pause * 1.5, kaggle.pace.most)


def _sleep(pause: float, end: float, state: str) -> None:
    if time.monotonic() + pause > end:
        raise DeadlinePassed(f"{state}\nKaggle may need longer. To go on from here: invoke publish")
    time.sleep(pause)


def _status(kaggle: Kaggle, handle: str) -> str:
    try:
        return kaggle.dataset_status(handle)
    except (NotFound, Denied):
        return "NOT_THERE_YET"  # a new dataset is not found for some seconds, in one call and not in another


def _listed(kaggle: Kaggle, handle: str, version: int) -> dict[str, int]:
    try:
        return kaggle.dataset_files(handle, version)
    except (NotFound, Denied):
        return {}  # as above


def _same_manifest(kaggle: Kaggle, handle: str, version: int, staging: Path) -> bool:
    """Return whether that version has our manifest, which names every other file by its sha256.

    Not the notes: the first version of a dataset has none, and notes can be edited. What differs is
    read once more, since another version would be made of it.

    Raises:
        NotFound: if it has a manifest, by its list of files, and does not give it.
    """
    path = staging.parent / "published" / artifact_manifest.NAME
    ours = artifact_manifest.sha256(staging / artifact_manifest.NAME)
    for _ in range(2):
        try:
            kaggle.download_dataset_file(handle, version, artifact_manifest.NAME, path)
        except NotFound:
            if artifact_manifest.NAME in kaggle.dataset_files(handle, version):
                raise
            continue  # another thing was published there, without a manifest
        if artifact_manifest.sha256(path) == ours:
            return True
    return False


def _compare(kaggle: Kaggle, handle: str, version: int, found: Manifest, staging: Path) -> None:
    """Download every file of that version and raise `Unverified` where one has other bytes."""
    wanted = {name: digest for name, (_, digest) in found.files.items()}
    wanted[artifact_manifest.NAME] = artifact_manifest.sha256(staging / artifact_manifest.NAME)
    for name, digest in sorted(wanted.items()):
        path = staging.parent / "returned" / name
        kaggle.download_dataset_file(handle, version, name, path)
        if artifact_manifest.sha256(path) != digest:
            raise Unverified(
                f"{name} of {handle} version {version} has other bytes than were sent.\n"
                "Expected them equal; inference would refuse it. Publish again."
            )
        path.unlink()
