"""What was published: whether a dataset still holds the artifact that an inference accepts.

Reads  the journal's publishes, and the current version of a dataset
Gives  a refusal before anything is pushed; and the datasets of an ensemble's members
"""

from collections.abc import Sequence
from pathlib import Path

from deploy.bundle import bundle
from deploy.client.client import Kaggle
from deploy.errors import UsageError
from deploy.journal import DONE, NOT_MADE
from deploy.kernel import artifact_manifest
from deploy.kernel.ensemble_file import Member
from deploy.kernel.push_and_watch import Show
from deploy.project import INFER, Project
from deploy.relay.last_runs import EVERY_ROW
from deploy.relay.publish import DatasetVersion, publish_and_record


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
    handle, command = _handle(kaggle, project, member), "publish --ensemble FILE"
    require_current(kaggle, project, member.folder, handle=handle, command=command)


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
