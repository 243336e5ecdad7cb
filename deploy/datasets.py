"""Datasets: publishes artifacts and checkpoints, and checks what a run mounts.

Reads  a verified artifact, or the checkpoint of a training whose output cannot be mounted
Gives  a `DatasetVersion` whose files were all downloaded and compared, or a refusal before anything
       is sent

The official client may upload bytes from an earlier failed run, may drop a file, and may make two
versions with one call. So files are uploaded from a fresh folder, the call is sent once, and the
result is downloaded and compared.
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

FILES_AT_MOST = 200  # a checkpoint has a few per fold
TEXT_AT_MOST = 50 * 10**6  # bytes of a file that is searched for secrets
LOST = 12  # polls for the version of a call whose answer was lost
READS = 4  # downloads of a file that differs
NOT_THERE, ENDED = "NOT_THERE_YET", ("READY", "FAILED", "DELETED")
LATER = "Kaggle may need longer. To keep waiting:\ninvoke publish"
WITHOUT = 'For the weights of one model, handoff="kernel" in the config needs no dataset.'
# Folders of a publish. The name "artifact" would look like that of a pulled run.
STAGING, UPLOADS = "staged", "uploads"


@dataclass(frozen=True)
class DatasetVersion:
    """A version of a dataset. `files`: {name: bytes}."""

    handle: str
    version: int
    files: Mapping[str, int]


# What is published


def artifact(kaggle: Kaggle, records: Records, trained: Path) -> Steps[DatasetVersion]:
    """Publish the artifact in the pulled folder of a training.

    Raises:
        UsageError: if the training is partial, the artifact is for a different competition, or its
            dataset would replace what the run started from.
        Others: as `_published` does.
    """
    project, folder = records.project, trained / output.ARTIFACT
    require_complete(project, trained)
    refuse_overwriting(kaggle, project)
    run_id, handle = output.own_manifest(project, folder).run_id, _handle(kaggle, project)
    return (yield from _published(kaggle, records, handle, run_id, output.artifact_files(folder)))


def members(
    kaggle: Kaggle, records: Records, ensemble: Sequence[Member]
) -> Steps[list[DatasetVersion]]:
    """Publish each member of an ensemble in its own dataset, named after its weights.

    Raises as `_published` does.
    """
    made = []
    for one in ensemble:
        handle, files = _handle(kaggle, records.project, one), output.artifact_files(one.folder)
        made.append((yield from _published(kaggle, records, handle, one.run_id, files)))
    return made


def checkpoint(
    kaggle: Kaggle, records: Records, folder: Path, progress: SavedProgress
) -> Steps[None]:
    """Publish the files of a pulled folder that the next session needs, under flat names, since an
    upload to a dataset has no folders. Raises as `_published` does.
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
    name = f"{run_id} at step {progress.step}"  # no artifact has such a name
    yield from _published(kaggle, records, handle, name, files)


# What is required of what was published


def require_complete(project: Project, folder: Path) -> None:
    """Raise `UsageError` if a pulled folder is from a partial training, without an artifact."""
    found = output.saved_progress(folder)
    if found is not None and not found.complete:
        there = project.trained_on(output.of_bundle(folder, "machine_shape"))
        raise UsageError(
            f"{output.name_of(folder)} is {found}; expected a complete training.\nTo resume it:\n"
            f"{there.command('push-train --until-done')}"
        )


def require_current(
    kaggle: Kaggle, records: Records, artifact: Path, member: Member | None = None
) -> None:
    """Raise `UsageError` unless we published this artifact last, and it is the current version,
    which is the one that Kaggle mounts.

    Args:
        member: the member of an ensemble that it belongs to; None for the competition's artifact.
    """
    run_id, handle = output.manifest(artifact).run_id, _handle(kaggle, records.project, member)
    of = f" --ensemble {shlex.quote(str(member.file))}" if member is not None else ""
    # A publish that sent nothing, or was refused, does not hide the one before it.
    rows = records.journal.requests(PUBLISH, handle=handle)
    last = next((row for row in rows if row.is_made or row.is_open), None)
    version = _shown_version(kaggle, handle)
    if last is None or (last.state, last.run_id, last.number) != (State.ENDED, run_id, version):
        published = f"{last.run_id}, as version {last.number}" if last else "nothing"
        raise UsageError(
            f"{handle} is at version {version or 'none'}, and what was published last is"
            f" {published}; expected {run_id}. {INFER} would refuse what Kaggle mounts.\nPublish"
            f" {artifact}:\n{records.project.command(f'publish{of}')}"
        )


def require_shared(kaggle: Kaggle, project: Project, kernel: str) -> Steps[None]:
    """Check that this account can see the datasets that a kernel-metadata.json lists, and those in
    `pretrained` for a training. If Kaggle does not say, a note reports it.

    Raises:
        SourceMissing: if one does not exist, or is not shared with this account. Kaggle would start
            the run without it.
    """
    path = (project.kernels or project.root / "kernels") / kernel / "kernel-metadata.json"
    named = dict.fromkeys(project.needs, "pretrained in the config") if kernel == TRAIN else {}
    named |= dict.fromkeys(bundle.read_metadata(path)["dataset_sources"], str(path))
    for name, where in named.items():
        try:
            _require_ready(kaggle, "/".join(name.split("/")[:2]), f"{where} names {name}")
        except errors.UNTOLD as error:
            if isinstance(error, Denied) and error.gate:
                raise
            yield Note(f"Unknown whether Kaggle has {name}: {str(error).splitlines()[0]}")


def require_first_stage(kaggle: Kaggle, project: Project) -> None:
    """Raise `UsageError` unless Kaggle has what `init_from` names, and no publish replaces it."""
    if not project.first_stage:
        return
    owner, slug, *pinned = project.first_stage.split("/")  # the bundle is built: that is its form
    handle, named = f"{owner}/{slug}", f"init_from={project.first_stage!r} in the config"
    current = _require_ready(kaggle, handle, f"{named} {project.name} starts from it")
    try:
        kaggle.dataset_files(handle, int(pinned[0]) if pinned else current)
    except (NotFound, Denied) as error:
        raise SourceMissing(
            f"{named} {project.name}: {handle} has no version {pinned[0] if pinned else current}."
            f'\nWrite init_from="{handle}/{current}", the current one, or another existing one.'
        ) from error
    if project.handoff == "dataset":  # this training will be published
        refuse_overwriting(kaggle, project)


def refuse_overwriting(kaggle: Kaggle, project: Project) -> None:
    """Raise `UsageError` if `init_from` names the dataset that this config publishes to, without a
    version: the next run would start from its own weights.
    """
    handle = _handle(kaggle, project)
    if project.first_stage == handle and (current := _shown_version(kaggle, handle)):
        raise UsageError(
            f"init_from={handle!r} names no version, and `invoke publish` adds one: a later run"
            " would start from this one's weights.\nWrite the version that this run starts from,"
            f' init_from="{handle}/{current}", into the config {project.name}.'
        )


def _handle(kaggle: Kaggle, project: Project, member: Member | None = None) -> str:
    """Return the dataset of the competition's artifact, or of a member of an ensemble."""
    what = bundle.member(member.weights_sha256) if member is not None else "artifact"
    return bundle.address(kaggle.username, project.competition, what)


def _require_ready(kaggle: Kaggle, handle: str, why: str) -> int:
    """Return the current version of a dataset. Raises `SourceMissing` if there is none."""
    version = _shown_version(kaggle, handle)
    if not version:
        raise SourceMissing(
            f"Kaggle shows {kaggle.username} no dataset {handle} that is ready; {why}.\nCorrect its"
            f" name, or ask its owner to share it: https://www.kaggle.com/datasets/{handle}"
        )
    return version


def _shown_version(kaggle: Kaggle, handle: str) -> int:
    """Return the current version of a dataset; 0 if this account sees none that is ready.

    Raises:
        Unknown: if it is ours, and may exist.
        Denied: if Kaggle names what a person has to do first.
    """
    try:
        now = kaggle.dataset(handle)
    except Denied as error:
        if isinstance(error, Unknown) or error.gate:
            raise
        return 0  # somebody else's, and not shared
    return now.version if now is not None else 0


# The upload


def _published(
    kaggle: Kaggle, records: Records, handle: str, name: str, files: Mapping[str, Path | bytes]
) -> Steps[DatasetVersion]:
    """Publish files as the next version of a dataset, or find them in the current one.

    If this is killed or loses Kaggle, its folder in `runs` stays, and the next publish to the same
    dataset transfers only what is missing.

    Args:
        name: the name in the journal; for an artifact its run id.
        files: {name: its path, or its bytes}, with a manifest.json. Each is verified first.

    Raises:
        UsageError: if there are folders or too many files, or a text seems to contain a secret; or
            if the dataset is public, or was made for something else. Nothing is sent then.
        Unverified: if the artifact does not match its manifest, or a file came back different.
        Refused: if Kaggle refuses, or somebody else adds versions at the same time.
        DeadlinePassed: if it is not ready in time; the same command resumes.
        Ambiguous: if the call's answer was lost and no version has appeared.
        Unreachable: if Kaggle does not answer, or sends files of other sizes than it lists.
    """
    project, journal = records.project, records.journal
    rows = journal.requests(PUBLISH, handle=handle)
    last = next((row for row in rows if row.before is not None), None)
    # Whether a version was made, or may have been, that is not visible yet. The ready version of a
    # different run has been visible.
    awaited = last is not None and (
        last.is_open or (last.is_made and (last.state != State.ENDED or last.run_id == name))
    )
    request = journal.intend(
        Request(PUBLISH, project.name, handle, project.competition, run_id=name)
    )
    end = time.monotonic() + project.deadline_seconds
    place = project.runs / f".publish.{handle.replace('/', '.')}"  # no folder of a pull is so named
    with journal.ended_by_errors(request), output.workplace(place) as folder:
        ours = _Upload(kaggle, handle, folder / STAGING, end)
        found = ours.stage(files)
        request = journal.note(request, weights_sha256=found.weights_sha256)
        version = yield from ours.current(last.before if last is not None and awaited else None)
        if version and (yield from ours.is_in(version, known=last is not None)):
            request = journal.record(request, State.VERSION, number=version)
            yield Note(f"{handle} version {version} has this artifact already; nothing was sent.")
        else:
            notes = f"run_id={found.run_id} sha256={found.weights_sha256}"
            request = yield from ours.send(journal, request, version, notes)
            yield Note(f"{handle} version {request.number} is ready; checksum verified.")
        journal.record(request, State.ENDED, status="READY")
        return DatasetVersion(handle, request.number, ours.sizes)


@dataclass(frozen=True)
class _Upload:
    """A folder that becomes the next version of a dataset.

    Attributes:
        handle: owner/slug of the dataset.
        staging: the folder.
        end: the deadline, by `time.monotonic`.
    """

    kaggle: Kaggle
    handle: str
    staging: Path
    end: float

    @property
    def page(self) -> str:
        """The page of the dataset."""
        return f"https://www.kaggle.com/datasets/{self.handle}"

    @property
    def sizes(self) -> dict[str, int]:
        """{name: bytes} of the files, sorted by name."""
        return {path.name: path.stat().st_size for path in sorted(self.staging.iterdir())}

    def stage(self, files: Mapping[str, Path | bytes]) -> Manifest:
        """Copy the files to the folder, and return their manifest."""
        if len(files) > FILES_AT_MOST or any("/" in name for name in files):
            raise UsageError(
                f"{self.handle} should get {len(files)} files or folders; expected at most"
                f" {FILES_AT_MOST} files, flat: Kaggle skips folders.\nPack them into one file."
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
            with suppress(UnicodeDecodeError):  # not a text
                if size <= TEXT_AT_MOST:
                    gate.check_text(name, (self.staging / name).read_text(encoding="utf-8"))
        return found

    def current(self, sent_after: int | None) -> Steps[int | None]:
        """Return the current version once none is being processed; None without a dataset.

        Args:
            sent_after: the version before a call that may have been made and is waited for; None
                if there was no such call.
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
            polls.wait(f"{self.handle} is at {seen}; expected READY.\n{LATER}")

    def _look(self) -> tuple[int | None, str]:
        """Return the current version, None without a dataset, and the status. The status is read
        first, so the number is not older.
        """
        status = NOT_THERE
        with suppress(NotFound, Denied):  # Kaggle may not find a new dataset for some seconds
            status = self.kaggle.dataset_status(self.handle)
        now = self.kaggle.dataset(self.handle)
        if now is not None and not now.is_private:
            raise UsageError(
                f"The dataset {self.handle} is public; expected a private one.\nMake it private at"
                f" {self.page} (Settings), and run the same command again. {WITHOUT}"
            )
        return (now.version if now is not None else None), status

    def is_in(self, version: int, *, known: bool) -> Steps[bool]:
        """Return whether a version has these files, by the sha256 in its manifest.

        The notes do not count: the first version of a dataset has none, and notes can be edited.

        Args:
            known: whether this dataset is ours even without a manifest.

        Raises:
            NotFound: if it lists a manifest that cannot be downloaded.
            UsageError: if it has other files and no manifest, and is not `known`.
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
                    f"{self.handle} version {version} has {', '.join(sorted(listed)[:5])}, and no"
                    f" {MANIFEST}: it is not ours, and would be replaced.\nSave its files, delete"
                    f" it at {self.page}, and run the same command again. {WITHOUT}"
                ) from None
            return False  # only a part was published
        return True

    def send(
        self, journal: Journal, request: Request, version: int | None, notes: str
    ) -> Steps[Request]:
        """Make the next version, compare every byte, and return its request.

        Args:
            version: the current one; None if there is no dataset.
            notes: of the version.
        """
        sizes, before = self.sizes, version or 0
        yield Note(f"Uploading {len(sizes)} files, {sum(sizes.values()):,} bytes, to {self.handle}")
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
                    f"{heading}\nAnother dataset or notebook has that name: {self.page}\n"
                    f"Delete it by hand, and publish again. {WITHOUT}"
                ) from error
            if version is not None and isinstance(error, Denied) and not error.gate:
                raise Denied(
                    f"{heading}\nKaggle also answers this while it still processes the version"
                    f" before. Publish again in some minutes.\n{failures.CAUSES}"
                ) from error
            raise
        request = journal.record(request, State.VERSION, number=before + 1)
        shutil.rmtree(self.staging.parent / UPLOADS, ignore_errors=True)  # they belong to it now
        yield from self._ready(before + 1)
        self._compare(before + 1)
        return request

    def _ready(self, expected: int) -> Steps[None]:
        """Wait until the current version is the expected one, is ready, lists the files, and has
        done so for `kaggle.pace.stable` seconds, since Kaggle does not mount it at once.

        Sizes are not compared: Kaggle may count them differently.
        """
        polls, names = Polls(self.kaggle.pace, self.end), self.sizes.keys()
        why = (
            f"Kaggle may say why at {self.page}; it makes none if your private datasets have used"
            " up your storage."
        )
        while True:
            (version, status), listed = self._look(), dict[str, int]()
            if version == expected and status == "READY":
                with suppress(NotFound, Denied):  # it may find it some seconds later
                    listed = self.kaggle.dataset_files(self.handle, expected)
            if (version or 0) > expected:
                raise errors.Refused(
                    f"{self.handle} is at version {version}; expected {expected}.\nSomebody else"
                    " adds versions, or a call counted twice. Look there, then publish again."
                )
            if status in ("FAILED", "DELETED"):
                raise errors.RunFailed(
                    f"{self.handle} is {status}; expected version {expected}, READY.\n{why} Then"
                    " publish again."
                )
            whole = listed.keys() == names
            seen = f"not there yet. {why}" if version is None else f"version {version} {status}"
            seen += ": waiting until it stays so, since Kaggle may mount it later" if whole else ""
            if polls.changed(seen):
                yield Note(f"{self.handle}  {seen}")
            if whole and time.monotonic() >= polls.changed_at + self.kaggle.pace.stable:
                return
            polls.wait(f"{self.handle} is at {seen}; expected {expected}, READY.\n{LATER}")

    def _compare(self, version: int) -> None:
        """Download every file of a version; raise `Unverified` if one differs."""
        for sent in sorted(self.staging.iterdir()):
            if not self._returns(version, sent):
                raise Unverified(
                    f"{sent.name} of {self.handle} version {version} has other bytes than were"
                    " sent: inference would refuse it.\nPublish again."
                )

    def _returns(self, version: int, sent: Path) -> bool:
        """Download a version's file with the name of `sent`, and return whether it is the same.

        A different file leads to another version, so it is downloaded several times. An answer of
        the wrong size raises `Unreachable` if Kaggle lists the file with our size.
        """
        folder, digest = self.staging.parent / f"version-{version}", checksums.sha256(sent)
        path, note = folder / "files" / sent.name, folder / "notes" / sent.name
        for _ in range(READS):
            self.kaggle.download_dataset_file(self.handle, version, sent.name, path, note)
            note.unlink(missing_ok=True)  # so that another download fetches all of it
            if checksums.sha256(path) == digest:
                path.unlink()
                return True
        came, size = path.stat().st_size, sent.stat().st_size
        if came != size == self.kaggle.dataset_files(self.handle, version).get(sent.name):
            raise errors.Unreachable(
                f"Kaggle sent {came:,} bytes for {sent.name} of {self.handle} version {version};"
                f" expected {size:,}, as it lists.\nRun the same command again later. {WITHOUT}"
            )
        return False

    def _upload_note(self, path: Path) -> Path:
        """Return the note of a file's upload: one for its bytes and this account."""
        digest = checksums.sha256(path)
        key = f"{auth.address()} {self.kaggle.username} {path.name} {digest}"
        return self.staging.parent / UPLOADS / hashlib.sha256(key.encode()).hexdigest()
