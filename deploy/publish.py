"""Publish a folder as a version of a private dataset, and record it in the journal.

Reads  a verified artifact, or what a training saved, where its own output cannot be mounted
Gives  a `DatasetVersion` that can be mounted, once every file was downloaded and compared

The official client may upload bytes of an earlier, failed run, may drop a file, and may make two
versions of one call. So the files are uploaded from a fresh folder, the call is sent once, and the
result is downloaded and compared.
"""

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import artifact_manifest, bundle, dataset_refusals, output, push_rules, server_address
from deploy.client import Kaggle
from deploy.errors import (
    Ambiguous,
    DeadlinePassed,
    Denied,
    NotFound,
    Refused,
    RunFailed,
    Unreachable,
    Unverified,
    UsageError,
)
from deploy.journal import DONE, NOT_MADE
from deploy.last_runs import EVERY_ROW
from deploy.project import Project
from deploy.push_and_watch import Show
from deploy.saved_progress import DATASET, FLAT, SavedProgress
from formats import checksums
from formats.errors import writing

FILES_AT_MOST = 20
CHECKPOINT_FILES_AT_MOST = 200  # several folds have a few each
TEXT_AT_MOST = 50 * 10**6  # bytes of a file that is searched; no text of an artifact is as large
LOST = 12  # polls for the version of a call whose answer was lost, and for sizes that agree
READS = 4  # of a file that came back with other bytes
ENDED = ("READY", "FAILED", "DELETED")
WITHOUT = 'For the weights of one model, handoff="kernel" in the config needs no dataset.'
STAGING, UPLOADS = "artifact", "uploads"  # in the folder that a publish works in


@dataclass(frozen=True)
class DatasetVersion:
    """One version of a dataset. `files`: {name: bytes}."""

    handle: str
    version: int
    files: Mapping[str, int]


# The journal's record


def publish_and_record(
    kaggle: Kaggle,
    project: Project,
    folder: Path,
    handle: str,
    name: str,
    *,
    show: Show,
    most: int = FILES_AT_MOST,
) -> DatasetVersion:
    """Publish a folder with its manifest.json, and record its version under `name`.

    Args:
        handle: owner/slug of the dataset.
        name: by which the journal knows what was published; the run id of an artifact.
        most: so many files at most.
    """
    found, journal = artifact_manifest.verify(folder), project.journal()
    # The last call that was sent: later commands may have ended before they sent anything.
    rows = journal.recent("publishes", EVERY_ROW, handle=handle)
    last = next((row for row in rows if row["before"] is not None), None)
    sent_after = None
    if last is not None and (
        last["run_id"] == name if last["outcome"] == DONE else last["outcome"] not in NOT_MADE
    ):
        # A version was made, or may have been: if it is not seen yet, that asks for no other.
        sent_after = last["before"]
    with journal.recording(
        "publishes",
        config=project.name,
        handle=handle,
        run_id=name,
        weights_sha256=found.weights_sha256,
    ) as outcome:
        version = publish(
            kaggle,
            folder,
            handle,
            title=bundle.title(handle),
            deadline_seconds=project.deadline_seconds,
            show=show,
            sending=lambda before: journal.note("publishes", outcome["id"], before=before),
            sent=lambda: outcome.update(made=True),
            sent_after=sent_after,
            known=last is not None,
            most=most,
            # No folder of a pull has such a name.
            place=project.runs / f".publish.{handle.replace('/', '.')}",
        )
        outcome.update(version=version.version)
    return version


def checkpoint(
    kaggle: Kaggle, project: Project, folder: Path, progress: SavedProgress, *, show: Show
) -> None:
    """Publish what the next session takes of this pulled folder.

    The files are flat, since Kaggle's datasets have no folders here.
    """
    handle = bundle.checkpoint_handle(kaggle.username, project.competition)
    expect = progress.expect(DATASET)
    details = {
        "run_id": progress.run_id,
        "step": progress.step,
        "weights_sha256": expect["files"][f"{progress.checkpoint}/state.npz"],
    }
    saved_files(kaggle, project, folder, expect["files"], handle, details, show=show)


def saved_files(
    kaggle: Kaggle,
    project: Project,
    folder: Path,
    wanted: Mapping[str, str],
    handle: str,
    details: Mapping[str, Any],
    *,
    show: Show,
) -> None:
    """Publish some files of a pulled folder, {name: sha256}, for the next session.

    Args:
        handle: owner/slug of the dataset.
        details: run_id, step and weights_sha256, by which the version is known.
    """
    with tempfile.TemporaryDirectory(prefix="relay-checkpoint-") as temporary:
        files = {}
        for name, digest in wanted.items():
            source, target = folder / name, Path(temporary) / name.replace("/", FLAT)
            with writing(target):
                shutil.copyfile(source, target)
            files[target.name] = {"sha256": digest, "size": source.stat().st_size}
        manifest = {**details, "bundle_sha256": "", "files": files}
        (Path(temporary) / artifact_manifest.NAME).write_bytes(checksums.sealed(manifest))
        name = f"{details['run_id']} at step {details['step']}"  # no artifact has such a name
        most = CHECKPOINT_FILES_AT_MOST
        publish_and_record(kaggle, project, Path(temporary), handle, name, show=show, most=most)


# The upload


def publish(
    kaggle: Kaggle,
    artifact: Path,
    handle: str,
    *,
    title: str,
    deadline_seconds: float,
    show: Show,
    sending: Callable[[int], None] = lambda before: None,
    sent: Callable[[], None] = lambda: None,
    sent_after: int | None = None,
    known: bool = False,
    most: int = FILES_AT_MOST,
    place: Path | None = None,
) -> DatasetVersion:
    """Publish the artifact as the next version of the dataset, or find it equal to the current one.

    Args:
        artifact: a folder with manifest.json; every file in it is verified first.
        handle: owner/slug.
        title: slugifies to the slug; used when the dataset is created.
        deadline_seconds: for all of it.
        sending: is called with the version before ours, right before the one call that must not be
            made twice.
        sent: is called once Kaggle has not refused it.
        sent_after: that number, if an earlier call may have been made and nobody knows what came of
            it.
        known: whether this dataset is ours, also if its current version has no manifest.json.
        most: so many files at most.
        place: a folder to work in. If this is killed, or loses Kaggle, it stays, and the next
            publish with it sends and fetches only what is missing. None: nothing stays.

    Raises:
        UsageError: if it has folders or too many files, or a secret seems to be in one of its
            texts; or if the dataset is public, or was made for something else. Nothing is sent
            then.
        Unverified: if the artifact is not what its manifest says, or what came back is not what was
            sent.
        Refused: if Kaggle refuses, or somebody else adds versions at the same time.
        DeadlinePassed: if it is not ready in time; the same command resumes.
        Ambiguous: if the call's answer was lost and no version has appeared.
        Unreachable: if Kaggle cannot be reached, or gives files of other sizes than it lists.
    """
    end = time.monotonic() + deadline_seconds
    with _workplace(place) as folder:
        staging = folder / STAGING
        with writing(staging):
            staging.mkdir(parents=True)
            for path in artifact.rglob("*"):
                if path.is_file() and path.name not in artifact_manifest.OF_DESKTOPS:
                    target = staging / path.relative_to(artifact)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)
        found = artifact_manifest.verify(staging)  # the copy, which nothing else can change
        sizes = {path.name: path.stat().st_size for path in staging.iterdir()}
        if len(sizes) > most or any("/" in name for name in found.files):
            raise UsageError(
                f"{artifact} holds {len(found.files) + 1} files, or folders; expected at most"
                f" {most} files, flat.\n"
                "Kaggle skips folders. Nothing was sent. Pack them into one file."
            )
        _require_no_secrets(staging, f"{handle}: {title}")
        version = _current_version(kaggle, handle, end, show, sent_after)
        if version and _same_manifest(kaggle, handle, version, staging, known):
            try:
                _compare(kaggle, handle, version, staging)
            except Unverified as error:
                show(f"{error}\nUploading it again.")
            else:
                show(f"{handle} version {version} holds this artifact already; nothing was sent.")
                return DatasetVersion(handle, version, sizes)
        show(f"Uploading {len(sizes)} files, {sum(sizes.values()):,} bytes, to {handle}")
        tokens = [
            kaggle.upload(staging / name, _upload_note(kaggle, staging / name))
            for name in sorted(sizes)
        ]
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
        except (Denied, Refused) as error:
            advice = dataset_refusals.advice(error, handle, version)
            if not advice:
                raise
            raise type(error)(f"{str(error).splitlines()[0]}\n{advice}") from error
        else:
            shutil.rmtree(folder / UPLOADS, ignore_errors=True)  # they belong to that version now
        sent()
        expected = (version or 0) + 1
        _wait(kaggle, handle, expected, sizes, end, show, lost)
        _compare(kaggle, handle, expected, staging)
        show(f"{handle} version {expected} is ready; checksum verified.")
        return DatasetVersion(handle, expected, sizes)


@contextmanager
def _workplace(place: Path | None) -> Iterator[Path]:
    """Give a folder to work in, with what a publish left there that was killed or lost Kaggle.

    It is a temporary one if there is no place, or another publish works there.
    """
    with ExitStack() as stack:
        if place is not None:
            with writing(place):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place is None or not stack.enter_context(output.locked(place, wait=False)):
            yield Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relay-publish-")))
            return
        shutil.rmtree(place / STAGING, ignore_errors=True)
        try:
            yield place
        except BaseException as error:
            passes = not isinstance(error, Exception) or isinstance(error, output.KEPT)
            shutil.rmtree(place / STAGING if passes else place, ignore_errors=True)
            raise
        shutil.rmtree(place, ignore_errors=True)


def _upload_note(kaggle: Kaggle, path: Path) -> Path:
    """Return where the upload of a staged file is noted: by its bytes, for this account alone."""
    digest = checksums.sha256(path)
    key = f"{server_address.address()} {kaggle.username} {path.name} {digest}"
    return path.parent.parent / UPLOADS / hashlib.sha256(key.encode()).hexdigest()


def _require_no_secrets(staging: Path, name: str) -> None:
    """Raise `UsageError` if a secret seems to be in a text, a file's name or the dataset's name."""
    push_rules.without_secrets("the dataset's name", name)
    for path in sorted(staging.iterdir()):
        push_rules.without_secrets("a file's name", path.name)
        if path.stat().st_size <= TEXT_AT_MOST:
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # numbers
            push_rules.without_secrets(path.name, text)


def _current_version(
    kaggle: Kaggle, handle: str, end: float, show: Show, sent_after: int | None
) -> int | None:
    """Return the current version once no other is being processed; None without a dataset."""
    pause, last, looks = kaggle.pace.first, "", 0
    while True:
        # The status first: a version that is ready by now is in the number that is asked for next.
        status = _status(kaggle, handle)
        now = kaggle.dataset(handle)
        if now is not None and not now.is_private:
            raise UsageError(
                f"The dataset {handle} is public, and what is published there is for you alone."
                " Expected a private one; nothing was sent.\n"
                f"Make it private at https://www.kaggle.com/datasets/{handle} (Settings), and run"
                f" the same command again. {WITHOUT}"
            )
        version = now.version if now else None
        arrived = sent_after is None or (version or 0) > sent_after or looks >= LOST
        if now is None and arrived:
            return None
        if now is not None and status in ENDED and (version or status != "READY") and arrived:
            return version
        looks += 1
        seen = f"version {version or 0} {status}"
        if seen != last:
            show(f"{handle}  {seen}: waiting for an earlier call")
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
    sent; and has been so for `kaggle.pace.stable` seconds, since it is not mounted at once.

    Sizes that stay different are left to the comparison of the bytes: Kaggle may have converted a
    file, or may count otherwise.
    """
    pause, last, looks, listings = kaggle.pace.first, "", 0, 0
    since: float | None = None
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
                f"{handle} is at version {version}; expected {expected}: somebody else adds"
                " versions, or a call counted twice.\n"
                "Look at its versions on kaggle.com, then publish again."
            )
        if status in ("FAILED", "DELETED"):
            raise RunFailed(
                f"{handle} is {status} at version {version}; expected {expected}, READY.\n"
                f"{dataset_refusals.look_there(handle)} Then publish again."
            )
        whole = False
        if version == expected and status == "READY":
            listed = _listed(kaggle, handle, version)
            complete = listed.keys() == sizes.keys()
            listings += complete
            whole = listed == sizes or (complete and listings >= LOST)
        if whole and since is None:
            show(f"{handle}  Kaggle may mount it later: waiting until it stays so")
            pause = kaggle.pace.first
        since = (since or time.monotonic()) if whole else None
        if since is not None and time.monotonic() >= since + kaggle.pace.stable:
            return
        looks += 1
        if now is None and looks == LOST:
            show(f"{handle}  is still not there. {dataset_refusals.look_there(handle)}")
        idle = version < expected and status in ("READY", "NOT_THERE_YET")
        if lost is not None and idle and looks >= LOST:
            raise lost
        wanted = f"expected version {expected}, READY, with {len(sizes)} files."
        _sleep(pause, end, f"{handle} is at {seen}; {wanted}")
        pause = min(pause * 1.5, kaggle.pace.most)


def _sleep(pause: float, end: float, state: str) -> None:
    if time.monotonic() + pause > end:
        raise DeadlinePassed(f"{state}\nKaggle may need longer. To keep waiting:\ninvoke publish")
    time.sleep(pause)


def _status(kaggle: Kaggle, handle: str) -> str:
    try:
        return kaggle.dataset_status(handle)
    except (NotFound, Denied):
        return "NOT_THERE_YET"  # some calls do not find a new dataset for some seconds


def _listed(kaggle: Kaggle, handle: str, version: int) -> dict[str, int]:
    try:
        return kaggle.dataset_files(handle, version)
    except (NotFound, Denied):
        return {}  # as above


def _same_manifest(kaggle: Kaggle, handle: str, version: int, staging: Path, known: bool) -> bool:
    """Return whether that version has our manifest, which names every other file by its sha256.

    The notes do not count: the first version of a dataset has none, and notes can be edited.

    Raises:
        NotFound: if it has a manifest, by its list of files, and does not give it.
        UsageError: if it has other files, and none, unless this dataset is `known`.
    """
    name = artifact_manifest.NAME
    folder = staging.parent / "published"
    for _ in range(2):  # a list of files may be wrong once, too
        try:
            return _same_bytes(kaggle, handle, version, folder, staging / name)
        except NotFound:
            listed = kaggle.dataset_files(handle, version)
            if name in listed:
                raise
    if listed and not known:
        raise UsageError(
            f"{handle} version {version} holds {', '.join(sorted(listed)[:5])}, and no {name}: the"
            " dataset was made for something else. A new version would replace these files."
            " Expected a dataset of this project, or none; nothing was sent.\n"
            "Keep its files in a dataset of another name, delete this one at"
            f" https://www.kaggle.com/datasets/{handle}, and run the same command again. {WITHOUT}"
        )
    return False  # a part of it was published there, and not its manifest


def _same_bytes(kaggle: Kaggle, handle: str, version: int, folder: Path, sent: Path) -> bool:
    """Download that version's file of the name of `sent`, and return whether it is the same.

    Other bytes lead to another version, so they are read several times: a wrong answer does not
    stay.

    Raises:
        Unreachable: if Kaggle lists the file with the size of ours, and gives one of another size.
    """
    path, note = folder / sent.name, folder.parent / f"{folder.name}-notes" / sent.name
    digest, size, came = checksums.sha256(sent), sent.stat().st_size, set()
    for _ in range(READS):
        kaggle.download_dataset_file(handle, version, path.name, path, note)
        equal = checksums.sha256(path) == digest
        note.unlink(missing_ok=True)  # another read fetches all of it again
        if equal:
            path.unlink()
            return True
        came.add(path.stat().st_size)
    if came != {size} and _listed(kaggle, handle, version).get(path.name) == size:
        raise Unreachable(
            f"Kaggle gave {' or '.join(f'{each:,}' for each in sorted(came))} bytes for {path.name}"
            f" of {handle} version {version}; expected {size:,}, the size that it lists.\n"
            f"Run the same command again later. If it stays so, publish elsewhere. {WITHOUT}"
        )
    return False


def _compare(kaggle: Kaggle, handle: str, version: int, staging: Path) -> None:
    """Download every file of that version and raise `Unverified` if one has other bytes."""
    for sent in sorted(staging.iterdir()):
        if not _same_bytes(kaggle, handle, version, staging.parent / "returned", sent):
            raise Unverified(
                f"{sent.name} of {handle} version {version} has other bytes than were sent.\n"
                "Expected them equal; inference would refuse it. Publish again."
            )
