"""Read ensemble.json, and verify that its members' artifacts are those that it pins.

The model side writes it (docs/dev/design.md). No framework is needed to read it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy import artifact_manifest
from deploy.errors import Unverified, UsageError
from deploy.project import Project
from deploy.responses import MALFORMED
from formats import checksums

AGAIN = "Find the weights again:\npython -m pipeline ensemble OUT OUT --output DIR"


@dataclass(frozen=True)
class Member:
    """A trained model of an ensemble.

    Attributes:
        run_id, weights_sha256: of its artifact.
        config: the name of its config.
        weight: above 0.
        folder: of its artifact, on this machine.
        file: the ensemble.json that names it.
    """

    run_id: str
    weights_sha256: str
    config: str
    weight: float
    folder: Path
    file: Path


def read(path: Path, project: Project) -> list[Member]:
    """Return the members that have a weight, the heaviest first, each verified byte for byte.

    Raises:
        UsageError: if there is no such file, a member's folder is gone, or a member was trained for
            another competition than the project's.
        Unverified: if the file was changed, or a folder holds something else.
    """
    if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises for a long name
        raise UsageError(f"{str(path)[:200]} is no file; expected an ensemble.json.\n{AGAIN}")
    try:
        value = checksums.opened(path.read_bytes())
        members = [
            Member(
                str(each["run_id"]),
                str(each["weights_sha256"]),
                str(each["config"]),
                float(each["weight"]),
                Path(each["folder"]),
                path,
            )
            for each in value["members"]
            if each["weight"] > 0
        ]
        if not members:
            raise ValueError("it has no members")
    except (*MALFORMED, RecursionError) as error:
        raise Unverified(
            f"{path} cannot be read: {type(error).__name__}: {error}.\nExpected run_id,"
            f" weights_sha256, config, weight and folder of each member. {AGAIN}"
        ) from error
    for member in members:
        _require(member, project)
    return sorted(members, key=lambda member: -member.weight)


def _require(member: Member, project: Project) -> None:
    """Raise unless the folder holds the artifact that was averaged, for that competition."""
    if not os.path.isfile(member.folder / artifact_manifest.NAME):  # noqa: PTH113 - as above
        raise UsageError(
            f"{member.file} says that the artifact of run {member.run_id} is in {member.folder}; it"
            f" is not there.\nExpected it where it was. Move it back, or pull it again. {AGAIN}"
        )
    found = artifact_manifest.verify(member.folder)
    if (found.run_id, found.weights_sha256) != (member.run_id, member.weights_sha256):
        raise Unverified(
            f"{member.folder} holds run {found.run_id}, weights {found.weights_sha256[:12]};"
            f" {member.file} pins run {member.run_id}, weights {member.weights_sha256[:12]}.\n"
            f"Restore the folder. {AGAIN}"
        )
    if found.competition != project.competition:
        raise UsageError(
            f"{member.file} has run {member.run_id}, of the competition {found.competition!r};"
            f" --config {project.config} is for {project.competition!r}.\n"
            f"Expected one competition. Give a config of that one, as --config {member.config}"
        )


def expected(members: Sequence[Member]) -> dict[str, Any]:
    """Return what the bundle of an inference expects: each member, with its weight."""
    return {
        "members": [
            {
                "run_id": member.run_id,
                "weights_sha256": member.weights_sha256,
                "config": member.config,
                "weight": member.weight,
            }
            for member in members
        ]
    }
