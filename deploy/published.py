"""What was published: whether a dataset holds what an inference accepts, or a training begins with.

Reads  the journal's publishes, and the versions of a dataset
Gives  a refusal before anything is sent; and the datasets of an ensemble's members
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from deploy import artifact_manifest, bundle, kernel_metadata
from deploy.artifact_manifest import Manifest
from deploy.client import Kaggle
from deploy.ensemble_file import Member
from deploy.errors import UNTOLD, Denied, NotFound, SourceMissing, Unknown, UsageError
from deploy.journal import DONE, NOT_MADE
from deploy.last_runs import EVERY_ROW
from deploy.project import INFER, Project
from deploy.publish import DatasetVersion, publish_and_record
from deploy.push_and_watch import Show


def members(
    kaggle: Kaggle, project: Project, ensemble: Sequence[Member], *, show: Show
) -> list[DatasetVersion]:
    """Publish each member of an ensemble in a dataset of its own, named after its weights."""
    return [
        publish_and_record(
            kaggle, project, one.folder, _handle(kaggle, project, one), one.run_id, show=show
        )
        for one in ensemble
    ]


def _handle(kaggle: Kaggle, project: Project, member: Member) -> str:
    return bundle.member_handle(kaggle.username, project.competition, member.weights_sha256)


def require_member(kaggle: Kaggle, project: Project, member: Member) -> None:
    """Raise `UsageError` unless this member is the current version of its dataset, by us."""
    handle = _handle(kaggle, project, member)
    command = f"publish --ensemble {shlex.quote(str(member.file))}"
    require_current(kaggle, project, member.folder, handle=handle, command=command)


def require_own(project: Project, artifact: Path) -> Manifest:
    """Return the manifest of an artifact; raise `UsageError` if it is another competition's."""
    found = artifact_manifest.verify(artifact)
    if found.competition not in ("", project.competition):
        raise UsageError(
            f"The artifact in {artifact} was trained for the competition {found.competition}; the"
            f" config {project.name} is for {project.competition}. Nothing was sent.\n"
            f"Expected a model of the same competition. Correct the config, or train with it:\n"
            f"{project.command('push-train')}"
        )
    return found


def require_current(
    kaggle: Kaggle,
    project: Project,
    artifact: Path,
    *,
    handle: str = "",
    command: str = "publish",
) -> None:
    """Raise `UsageError` unless this artifact is what we published last, and the current version.

    Kaggle mounts the newest version.

    Args:
        handle: of the dataset; "": that of the competition's artifact.
        command: that publishes it.
    """
    run_id = artifact_manifest.verify(artifact).run_id
    handle = handle or bundle.dataset_handle(kaggle.username, project.competition)
    advice = f"{INFER} would refuse what Kaggle mounts.\n{project.command(command)}"
    rows = project.journal().recent("publishes", EVERY_ROW, handle=handle)
    # A publish that sent nothing, or was refused, hides none before it.
    made = (
        row
        for row in rows
        if row["outcome"] == DONE or (row["before"] is not None and row["outcome"] not in NOT_MADE)
    )
    last = next(made, None)
    if last is None or last["outcome"] != DONE or last["run_id"] != run_id:
        raise UsageError(
            f"The artifact in {artifact} is not what was published last, which is"
            f" {last['run_id'] if last else 'nothing'}. {advice}"
        )
    now = kaggle.dataset(handle)
    if now is None or now.version != last["version"]:
        raise UsageError(
            f"{handle} is at version {now.version if now else 'none'}; this artifact was published"
            f" as version {last['version']}. {advice}"
        )


def require_shared(kaggle: Kaggle, project: Project, kernel: str, show: Show) -> list[str]:
    """Return the datasets that a kernel-metadata.json lists, once Kaggle shows them to this
    account. Where it does not tell of one, a line says so.

    Raises:
        SourceMissing: if one is not there, or not for this account. Kaggle would start the run
            without it.
    """
    path = (project.kernels or project.root / "kernels") / kernel / "kernel-metadata.json"
    listed: list[str] = kernel_metadata.read(path)["dataset_sources"]
    for name in listed:
        handle = "/".join(name.split("/")[:2])
        try:
            now = kaggle.dataset(handle)
        except UNTOLD as error:
            if not isinstance(error, Denied) or isinstance(error, Unknown):
                show(f"Not known whether Kaggle has {name}: {str(error).splitlines()[0]}")
                continue
            if error.gate:
                raise
            now = None
        if now is None or not now.version:
            raise SourceMissing(
                f"Kaggle shows {kaggle.username} no dataset {handle} that is ready; {path} mounts"
                f" {name}. Nothing was sent.\n"
                "Expected one that exists and is shared with you. Ask its owner to share it, or"
                f" correct dataset_sources in that file. Its page:"
                f" https://www.kaggle.com/datasets/{handle}"
            )
    return listed


def require_first_stage(kaggle: Kaggle, project: Project) -> None:
    """Raise `UsageError` unless Kaggle has what `init_from` names, and this config keeps it."""
    if not project.first_stage:
        return
    owner, slug, *version = project.first_stage.split("/")  # the bundle is built: that is its form
    handle = f"{owner}/{slug}"
    try:
        now = kaggle.dataset(handle)
    except Unknown:
        raise  # it is ours, and may be there
    except (NotFound, Denied):
        now = None  # somebody else's, and not for us
    if now is None or not now.version:
        raise SourceMissing(
            f"init_from={project.first_stage!r}: Kaggle shows {kaggle.username} no dataset {handle}"
            " that is ready. Nothing was sent.\n"
            "Expected one that holds the artifact of a training. Publish that training (`invoke"
            f" publish`), or correct init_from in the config {project.name}."
        )
    try:
        if version:
            kaggle.dataset_files(handle, int(version[0]))
    except (NotFound, Denied) as error:
        if isinstance(error, Denied) and owner == kaggle.username:
            raise
        raise SourceMissing(
            f"init_from={project.first_stage!r}: {handle} has no version {version[0]}; the current"
            f" one is {now.version}. Nothing was sent.\n"
            f'Write init_from="{handle}/{now.version}", or another one that it has, into the config'
            f" {project.name}."
        ) from error
    if project.handoff == "dataset":  # this training will be published
        refuse_overwriting(kaggle, project)


def refuse_overwriting(kaggle: Kaggle, project: Project) -> None:
    """Raise `UsageError` if a publish of this config makes the next version of what its `init_from`
    names without a version: the next run would begin with its own weights.
    """
    handle = bundle.dataset_handle(kaggle.username, project.competition)
    now = kaggle.dataset(handle) if project.first_stage == handle else None
    if now is not None and now.version:
        raise UsageError(
            f"init_from={handle!r} names no version, and `invoke publish` makes the next one of"
            " that dataset: a later run would begin with this one's own weights. Nothing was"
            " sent.\n"
            f"Expected the version that this run begins with; the current one is {now.version}."
            f' Write init_from="{handle}/{now.version}" into the config {project.name}.'
        )
