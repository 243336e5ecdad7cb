"""Publish artifacts and checkpoints as datasets, and check the datasets that a run mounts.

Checkpoints are only published if the output of their training run cannot be mounted. The official
client may upload data from an earlier failed run, drop files, or create two versions with one call.
We therefore verify the files first, upload them from a new folder, send the call once, and download
all files again to compare them.
"""

import hashlib
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy import auth, bundle, errors, failures, gate, output
from deploy.client import Kaggle
from deploy.connection import Polls
from deploy.errors import Denied, NotFound, SourceMissing, Unknown, Unverified, UsageError
from deploy.events import Note, Steps
from deploy.journal import PUBLISH, Journal, Request, State
from deploy.output import DATASET, FLAT, Manifest, Member, SavedProgress
from deploy.project import INFER, TRAIN, Project
from deploy.records import Records
from formats import checksums
from formats.errors import writing
from formats.sealed_folder import MANIFEST

FILES_AT_MOST = 200  # a checkpoint has a few files per fold
TEXT_AT_MOST = 50 * 10**6  # maximum size in bytes of files that are searched for secrets
LOST = 12  # how many times to look for a version after a lost response
READS = 4  # how many times to download a file that differs
NOT_THERE, ENDED = "NOT_THERE_YET", ("READY", "FAILED", "DELETED")
LATER = "Kaggle may need more time. To keep waiting:\ninvoke publish"
WITHOUT = 'To use a single model without a dataset, set handoff="kernel" in the config.'
# Folders for publishing. A folder named "artifact" would look like the artifact of a pulled run.
STAGING, UPLOADS = "staged", "uploads"


@dataclass(frozen=True)
class DatasetVersion:
    """A version of a dataset. `files` is {name: size in bytes}."""

    handle: str
    version: int
    files: Mapping[str, int]


# Publishing


def artifact(kaggle: Kaggle, records: Records, trained: Path) -> Steps[DatasetVersion]:
    """Publish the artifact in the folder of a pulled training run.

    Raises `UsageError` if training is not complete, the artifact is for a different competition, or
    its dataset would replace the dataset that the run started from. See `_published` for other
    errors.
    """
    project, folder = records.project, trained / output.ARTIFACT
    require_complete(project, trained)
    refuse_overwriting(kaggle, project)
    run_id, handle = output.own_manifest(project, folder).run_id, _handle(kaggle, project)
    return (yield from _published(kaggle, records, handle, run_id, output.artifact_files(folder)))


def members(
    kaggle: Kaggle, records: Records, ensemble: Sequence[Member]
) -> Steps[list[DatasetVersion]]:
    """Publish each member of an ensemble as a separate dataset, named after its weights."""
    made = []
    for one in ensemble:
        handle, files = _handle(kaggle, records.project, one), output.artifact_files(one.folder)
        made.append((yield from _published(kaggle, records, handle, one.run_id, files)))
    return made


def checkpoint(
    kaggle: Kaggle, records: Records, folder: Path, progress: SavedProgress
) -> Steps[None]:
    """Publish the files in a pulled folder that the next session needs.

    The file names are flattened, because an upload cannot contain folders.
    """
    handle = bundle.address(kaggle.username, records.project.competition, "checkpoint")
    wanted, run_id = progress.expect(DATASET)["files"], progress.newest.run_id
    flat = {name: name.replace("/", FLAT) for name in wanted}
    listed = {
        flat[name]: {"sha256": digest, "size": (folder / name).stat().st_size}
        for name, digest in wanted.items()
    }
    manifest = {
        "run_id": run_id,
        "step": progress.step,
        "weights_sha256": wanted[f"{progress.newest.folder}/state.npz"],
        "bundle_sha256": "",
        "files": listed,
    }
    files = {MANIFEST: checksums.sealed(manifest)} | {flat[name]: folder / name for name in wanted}
    name = f"{run_id} at step {progress.step}"  # no artifact uses such a name
    yield from _published(kaggle, records, handle, name, files)


# Requirements before a push


def require_complete(project: Project, folder: Path) -> None:
    """Raise `UsageError` if a pulled training run has saved checkpoints but no artifact yet."""
    found = output.saved_progress(folder)
    if found is not None and not found.complete:
        there = project.trained_on(output.of_bundle(folder, "machine_shape"))
        raise UsageError(
            f"{output.name_of(folder)} is {found}; expected a complete training run.\nTo resume:\n"
            f"{there.command('push-train --until-done')}"
        )


def require_current(
    kaggle: Kaggle, records: Records, artifact: Path, member: Member | None = None
) -> None:
    """Raise `UsageError` unless the dataset's current version is the artifact in this folder.

    Kaggle mounts the current version, so it must be the version that we published last. `member` is
    the ensemble member that the artifact belongs to, or None for the competition's own artifact.
    """
    run_id, handle = output.manifest(artifact).run_id, _handle(kaggle, records.project, member)
    of = f" --ensemble {shlex.quote(str(member.file))}" if member is not None else ""
    # Ignore requests that were refused or not sent.
    rows = records.journal.requests(PUBLISH, handle=handle)
    last = next((row for row in rows if row.is_made or row.is_open), None)
    version = _shown_version(kaggle, handle)
    if last is None or (last.state, last.run_id, last.number) != (State.ENDED, run_id, version):
        now = f"is at version {version}" if version else "has no version"
        before = f"last published {last.run_id}, as version {last.number}" if last else ""
        raise UsageError(
            f"{handle} {now}, and this project {before or 'has not published it'}; expected"
            f" {run_id}. {INFER} would reject the version that Kaggle mounts."
            f"\nPublish {artifact}:\n{records.project.command(f'publish{of}')}"
        )


def require_shared(kaggle: Kaggle, project: Project, kernel: str) -> Steps[None]:
    """Check that this account can access the datasets that a kernel mounts.

    They are listed in kernel-metadata.json and, for training, in `pretrained`. If this cannot be
    checked, a note is yielded instead of an error.

    Raises:
        SourceMissing: if a dataset does not exist or is not shared with this account. Kaggle would
            start the run without that dataset.
    """
    path = (project.kernels or project.root / "kernels") / kernel / "kernel-metadata.json"
    named = dict.fromkeys(project.needs, "pretrained in the config") if kernel == TRAIN else {}
    named |= dict.fromkeys(bundle.read_metadata(path)["dataset_sources"], str(path))
    for name, where in named.items():
        try:
            _require_ready(kaggle, "/".join(name.split("/")[:2]), f"{where} lists {name}")
        except errors.UNTOLD as error:
            if isinstance(error, Denied) and error.gate:
                raise
            yield Note(f"Could not check that Kaggle has {name}: {str(error).splitlines()[0]}")


def require_earlier(kaggle: Kaggle, project: Project) -> None:
    """Raise `UsageError` if a dataset in `project.earlier` does not exist or would be replaced."""
    for field, source in project.earlier.items():
        owner, slug, *pinned = source.split("/")  # the bundle is built, so this is valid
        handle, named = f"{owner}/{slug}", f"{field}={source!r} in the config"
        current = _require_ready(kaggle, handle, f"{named} {project.name} reads it")
        try:
            kaggle.dataset_files(handle, int(pinned[0]) if pinned else current)
        except (NotFound, Denied) as error:
            raise SourceMissing(
                f"{named} {project.name}: {handle} has no version"
                f' {pinned[0] if pinned else current}.\nSet {field}="{handle}/{current}" to use the'
                " current version, or choose another version."
            ) from error
    if project.earlier and project.handoff == "dataset":  # this training will be published
        refuse_overwriting(kaggle, project)


def refuse_overwriting(kaggle: Kaggle, project: Project) -> None:
    """Raise `UsageError` if `project.earlier` contains this config's own dataset without a version.

    The next run would then use this run's own weights.
    """
    handle = _handle(kaggle, project)
    for field, source in project.earlier.items():
        if source == handle and (current := _shown_version(kaggle, handle)):
            raise UsageError(
                f"{field}={handle!r} does not specify a version, and `invoke publish` adds new"
                " versions. Later runs would use this run's own weights.\nAdd the version that this"
                f' run uses to the config {project.name}: {field}="{handle}/{current}"'
            )


def _handle(kaggle: Kaggle, project: Project, member: Member | None = None) -> str:
    what = bundle.member(member.weights_sha256) if member is not None else "artifact"
    return bundle.address(kaggle.username, project.competition, what)


def _require_ready(kaggle: Kaggle, handle: str, why: str) -> int:
    version = _shown_version(kaggle, handle)
    if not version:
        raise SourceMissing(
            f"{kaggle.username} has no access to the dataset {handle}, or the dataset is not ready."
            f" It is needed because {why}.\n"
            "Correct the name, or ask the owner to share it:"
            f" https://www.kaggle.com/datasets/{handle}"
        )
    return version


def _shown_version(kaggle: Kaggle, handle: str) -> int:
    """Return a dataset's current version, or 0 if this account has no access to a ready version.

    Raises:
        Unknown: if the dataset is ours and may exist.
        Denied: if an action on kaggle.com is required first.
    """
    try:
        now = kaggle.dataset(handle)
    except Denied as error:
        if isinstance(error, Unknown) or error.gate:
            raise
        return 0  # belongs to somebody else and is not shared
    return now.version if now is not None else 0


# The upload


def _published(
    kaggle: Kaggle, records: Records, handle: str, name: str, files: Mapping[str, Path | bytes]
) -> Steps[DatasetVersion]:
    """Publish files as a dataset's next version, unless its current version already has them.

    If this process is killed or loses the connection, its folder in `runs` is kept. The next
    attempt to publish to the same dataset then transfers only the missing files.

    Args:
        name: name for the journal entry, such as an artifact's run id.
        files: {name: path or content}, including a manifest.json. All files are verified first.

    Raises:
        UsageError: if there are folders or too many files, a text seems to contain a secret, or the
            dataset is public or used for something else. Nothing is sent in these cases.
        Unverified: if the artifact does not match its manifest, or a downloaded file differs.
        Refused: if Kaggle refuses the files, or somebody else adds versions at the same time.
        DeadlinePassed: if the dataset is not ready before the deadline.
        Ambiguous: if the response was lost and no new version has appeared.
        Unreachable: if Kaggle does not respond, or sends a file whose size differs from its own
            list.
    """
    project, journal = records.project, records.journal
    rows = journal.requests(PUBLISH, handle=handle)
    last = next((row for row in rows if row.before is not None), None)
    # Whether there may be a version that is not visible yet. If the last version is ready and
    # belongs to a different run, it was already visible.
    awaited = last is not None and (
        last.is_open or (last.is_made and (last.state != State.ENDED or last.run_id == name))
    )
    request = journal.intend(
        Request(PUBLISH, project.name, handle, project.competition, run_id=name)
    )
    end = time.monotonic() + project.deadline_seconds
    place = project.runs / f".publish.{handle.replace('/', '.')}"  # pulls do not use such names
    with journal.ended_by_errors(request), output.workplace(place) as folder:
        ours = _Upload(kaggle, handle, folder / STAGING, end)
        found = ours.stage(files)
        request = journal.note(request, weights_sha256=found.weights_sha256)
        version = yield from ours.current(last.before if last is not None and awaited else None)
        if version and (yield from ours.is_in(version, known=last is not None)):
            request = journal.record(request, State.VERSION, number=version)
            yield Note(
                f"{handle} version {version} already contains this artifact. Nothing was sent."
            )
        else:
            notes = f"run_id={found.run_id} sha256={found.weights_sha256}"
            request = yield from ours.send(journal, request, version, notes)
            yield Note(f"{handle} version {request.number} is ready and its checksums match.")
        journal.record(request, State.ENDED, status="READY")
        return DatasetVersion(handle, request.number, ours.sizes)


@dataclass(frozen=True)
class _Upload:
    """A folder, `staging`, whose contents become the dataset's next version.

    `end` is the deadline, as a value of `time.monotonic`.
    """

    kaggle: Kaggle
    handle: str
    staging: Path
    end: float

    @property
    def page(self) -> str:
        return f"https://www.kaggle.com/datasets/{self.handle}"

    @property
    def sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in sorted(self.staging.iterdir())}

    def stage(self, files: Mapping[str, Path | bytes]) -> Manifest:
        if len(files) > FILES_AT_MOST or any("/" in name for name in files):
            raise UsageError(
                f"The dataset {self.handle} would contain {len(files)} files or folders. It"
                f" can contain at most {FILES_AT_MOST} files, and no folders, because Kaggle skips"
                " folders.\nPack them into a single file."
            )
        with writing(self.staging):
            shutil.rmtree(self.staging, ignore_errors=True)
            self.staging.mkdir()
            for name, content in files.items():
                if isinstance(content, bytes):
                    (self.staging / name).write_bytes(content)
                else:
                    shutil.copyfile(content, self.staging / name)
        found = output.manifest(self.staging)
        gate.check_text("a file's name", "\n".join(files))
        for name, size in self.sizes.items():
            with suppress(UnicodeDecodeError):  # not text
                if size <= TEXT_AT_MOST:
                    gate.check_text(name, (self.staging / name).read_text(encoding="utf-8"))
        return found

    def current(self, sent_after: int | None) -> Steps[int | None]:
        """Wait until no version is being processed, and return the current version.

        If the dataset does not exist, None is returned. If an earlier call may have been made,
        `sent_after` is the version that was current before that call, and the function waits for a
        later version. Otherwise, `sent_after` is None.
        """
        polls = Polls(self.kaggle.pace, self.end)
        while True:
            found, status = self._look()
            version = found or 0
            seen_all = sent_after is None or version > sent_after or polls.count >= LOST
            has_ended = status in ENDED and (version or status != "READY")
            if seen_all and (found is None or has_ended):
                return found
            seen = f"version {version} {status}"
            if polls.changed(seen):
                yield Note(f"{self.handle}  {seen}: waiting for an earlier call")
            polls.wait(
                f"An earlier call should have created a READY version of {self.handle} by now."
                f" Found: {seen}\n{LATER}"
            )

    def _look(self) -> tuple[int | None, str]:
        """Return the dataset's current version and its status.

        The version is None if the dataset does not exist. The status is read first, so it never
        belongs to a newer version than the returned one.
        """
        status = NOT_THERE
        with suppress(NotFound, Denied):  # Kaggle may not find a new dataset for a few seconds
            status = self.kaggle.dataset_status(self.handle)
        now = self.kaggle.dataset(self.handle)
        if now is not None and not now.is_private:
            raise UsageError(
                f"The dataset {self.handle} is public; expected a private one.\nMake it private at"
                f" {self.page} (Settings), and run the same command again. {WITHOUT}"
            )
        return (now.version if now is not None else None), status

    def is_in(self, version: int, *, known: bool) -> Steps[bool]:
        """Return whether a version contains the same files as `staging`.

        The version notes are not compared, because the first version of a dataset does not have
        any, and users can edit them.

        Raises:
            NotFound: if a manifest is listed but cannot be downloaded.
            UsageError: if the version contains files but no manifest, unless `known` is set because
                the dataset is ours.
        """
        try:
            if not self._returns(version, self.staging / MANIFEST):
                return False
            self._compare(version)
        except Unverified as error:
            yield Note(f"{error}\nUploading it again.")
            return False
        except NotFound:
            listed = self.kaggle.dataset_files(self.handle, version)
            if MANIFEST in listed:
                raise
            if listed and not known:
                raise UsageError(
                    f"{self.handle} version {version} contains {', '.join(sorted(listed)[:5])}, but"
                    f" no {MANIFEST}. That version was not created by this project, and"
                    " publishing would replace it.\nSave its files, delete the dataset at"
                    f" {self.page}, and run the same command again. {WITHOUT}"
                ) from None
            return False  # only some of the files were published
        return True

    def send(
        self, journal: Journal, request: Request, version: int | None, notes: str
    ) -> Steps[Request]:
        """Create the next version, verify its files, and return the updated request.

        `version` is the current version, or None if the dataset does not exist.
        """
        sizes, before = self.sizes, version or 0
        yield Note(f"Uploading {len(sizes)} files ({sum(sizes.values()):,} bytes) to {self.handle}")
        paths = [self.staging / name for name in sizes]
        tokens = [self.kaggle.upload(path, self._upload_note(path)) for path in paths]
        request = journal.record(request, State.SENT, before=before)
        try:
            if version is None:
                words = {"title": bundle.title(self.handle), "description": notes}
                self.kaggle.create_dataset(self.handle, **words, tokens=tokens)
            else:
                self.kaggle.create_dataset_version(self.handle, notes=notes, tokens=tokens)
        except errors.Ambiguous as lost:
            request = journal.fail(request, lost)
            if ((yield from self.current(before)) or 0) <= before:
                raise
        except (Denied, errors.Refused) as error:
            heading = str(error).splitlines()[0]
            if version is None and failures.IN_USE.search(heading):
                raise type(error)(
                    f"{heading}\nAnother dataset or notebook already uses that name: {self.page}\n"
                    f"Delete it by hand, and publish again. {WITHOUT}"
                ) from error
            if version is not None and isinstance(error, Denied) and not error.gate:
                raise Denied(
                    f"{heading}\nKaggle also returns this error while it is processing the previous"
                    f" version. Publish again in a few minutes.\n{failures.CAUSES}"
                ) from error
            raise
        request = journal.record(request, State.VERSION, number=before + 1)
        shutil.rmtree(self.staging.parent / UPLOADS, ignore_errors=True)  # now part of the version
        yield from self._ready(before + 1)
        self._compare(before + 1)
        return request

    def _ready(self, expected: int) -> Steps[None]:
        """Wait until the expected version is current and ready, and Kaggle lists its files.

        This must hold for `kaggle.pace.stable` seconds, because Kaggle does not mount a new version
        right away. File sizes are not compared, because Kaggle may calculate them differently.
        """
        polls, names = Polls(self.kaggle.pace, self.end), self.sizes.keys()
        why = (
            f"Kaggle may show the reason at {self.page}. Kaggle does not create a version if your"
            " private datasets have used up your storage quota."
        )
        while True:
            (version, status), listed = self._look(), dict[str, int]()
            if version == expected and status == "READY":
                with suppress(NotFound, Denied):  # Kaggle may not find it for a few seconds
                    listed = self.kaggle.dataset_files(self.handle, expected)
            if (version or 0) > expected:
                raise errors.Refused(
                    f"{self.handle} is at version {version}; expected version {expected}.\n"
                    "Someone else is adding versions, or Kaggle processed a call twice. Check the"
                    " dataset's page, then publish again."
                )
            if status in ("FAILED", "DELETED"):
                raise errors.RunFailed(
                    f"{self.handle} is {status}, but version {expected} should be READY.\n{why}"
                    " Then publish again."
                )
            whole = listed.keys() == names
            seen = f"not there yet. {why}" if version is None else f"version {version} {status}"
            seen += ": waiting until it is stable, as Kaggle may mount it later" if whole else ""
            if polls.changed(seen):
                yield Note(f"{self.handle}  {seen}")
            if whole and time.monotonic() >= polls.changed_at + self.kaggle.pace.stable:
                return
            polls.wait(
                f"Version {expected} of {self.handle} should be READY by now. Found: {seen}\n"
                f"{LATER}"
            )

    def _compare(self, version: int) -> None:
        for sent in sorted(self.staging.iterdir()):
            if not self._returns(version, sent):
                raise Unverified(
                    f"{sent.name} of {self.handle} version {version} differs from the file that was"
                    " sent, so inference would reject it.\nPublish again."
                )

    def _returns(self, version: int, sent: Path) -> bool:
        """Download a file from a version, and return whether it is identical to the one we sent.

        If the file differs, it is downloaded a few more times before we create another version. If
        its size is still wrong, but Kaggle lists the correct size, this raises `Unreachable`.
        """
        folder, digest = self.staging.parent / f"version-{version}", checksums.sha256(sent)
        path, note = folder / "files" / sent.name, folder / "notes" / sent.name
        for _ in range(READS):
            self.kaggle.download_dataset_file(self.handle, version, sent.name, path, note)
            note.unlink(missing_ok=True)  # so that the next download fetches the whole file
            if checksums.sha256(path) == digest:
                path.unlink()
                return True
        came, size = path.stat().st_size, sent.stat().st_size
        if came != size == self.kaggle.dataset_files(self.handle, version).get(sent.name):
            raise errors.Unreachable(
                f"Kaggle sent {came:,} bytes for {sent.name} of {self.handle} version {version},"
                f" but lists its size as {size:,} bytes.\nRun the same command again later."
                f" {WITHOUT}"
            )
        return False

    def _upload_note(self, path: Path) -> Path:
        digest = checksums.sha256(path)
        key = f"{auth.address()} {self.kaggle.username} {path.name} {digest}"
        return self.staging.parent / UPLOADS / hashlib.sha256(key.encode()).hexdigest()
