"""Handover: what the next kernel needs becomes a version of a private dataset, recorded in the
journal.

Reads  a verified artifact; or what a training left, where its own output cannot be mounted
Gives  the version, once its bytes came back equal
"""

import shutil
import tempfile
from pathlib import Path

from deploy.bundle import bundle
from deploy.client.client import Kaggle
from deploy.errors import writing
from deploy.journal import DONE, NOT_MADE
from deploy.kernel import artifact_manifest
from deploy.kernel.saved_progress import DATASET, FLAT, Left
from deploy.project import Project
from deploy.relay import publish
from deploy.relay.last_runs import LOOK_BACK
from deploy.relay.publish import DatasetVersion, Show

FILES_AT_MOST = 200  # of a checkpoint: several folds have a few each


def recorded(
    kaggle: Kaggle, project: Project, folder: Path, handle: str, name: str, *, show: Show, most: int
) -> DatasetVersion:
    """Publish a folder with its manifest.json, and record its version in the journal under that
    name.
    """
    found, journal = artifact_manifest.verify(folder), project.journal()
    # The last call that was sent: commands since then may have ended before they sent anything.
    calls = (
        row
        for row in journal.recent("publishes", LOOK_BACK, handle=handle)
        if row["before"] is not None
    )
    last, sent_after = next(calls, None), None
    if (
        last is not None
        and last["outcome"] not in NOT_MADE
        and (last["outcome"] != DONE or last["run_id"] == name)
    ):
        # A version was made, or may have been: that it is not seen yet is no reason for another.
        sent_after = last["before"]
    with journal.recording(
        "publishes",
        config=project.name,
        handle=handle,
        run_id=name,
        weights_sha256=found.weights_sha256,
    ) as outcome:
        version = publish.publish(
            kaggle,
            folder,
            handle,
            title=bundle.title(handle),
            deadline_seconds=project.deadline_seconds,
            show=show,
            sending=lambda before: journal.note("publishes", outcome["id"], before=before),
            sent_after=sent_after,
            most=most,
        )
        outcome.update(version=version.version)
    return version


def checkpoint(
    kaggle: Kaggle, project: Project, folder: Path, left: Left, *, show: Show
) -> DatasetVersion:
    """Publish what the next session takes of this pulled folder, flat, since Kaggle's datasets have
    no folders here.
    """
    handle, expect = (
        bundle.checkpoint_handle(kaggle.username, project.competition),
        left.expect(DATASET),
    )
    with tempfile.TemporaryDirectory(prefix="relay-checkpoint-") as temporary:
        files = {}
        for name, digest in expect["files"].items():
            source, target = folder / name, Path(temporary) / name.replace("/", FLAT)
            with writing(target):
                shutil.copyfile(source, target)
            files[target.name] = {"sha256": digest, "size": source.stat().st_size}
        told = {
            "run_id": left.run_id,
            "step": left.step,
            "weights_sha256": expect["files"][f"{left.checkpoint}/state.npz"],
            "bundle_sha256": "",
            "files": files,
        }
        (Path(temporary) / artifact_manifest.NAME).write_bytes(artifact_manifest.sealed(told))
        name = f"{left.run_id} at step {left.step}"  # of no artifact
        return recorded(
            kaggle, project, Path(temporary), handle, name, show=show, most=FILES_AT_MOST
        )
