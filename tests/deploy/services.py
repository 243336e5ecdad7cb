"""Answers of Kaggle's services for datasets and submissions when nothing fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy import competition, datasets
from deploy.client import Kaggle
from deploy.competition import Submission
from deploy.datasets import DatasetVersion
from deploy.project import Project
from deploy.records import Records
from deploy.runs import Run
from tests.deploy.between import Between
from tests.deploy.steps import done

GONE = (404, {"code": 404, "message": "Not found"})
FILES = ("manifest.json", "weights.npz")


def records_in(folder: Path, **changes: Any) -> Records:
    """Return the records of a project whose `runs` are in this folder."""
    words = (folder, "digits", "digits", "dataset", folder / "runs", folder / "build")
    return Records(Project(*words, **{"deadline_seconds": 60, **changes}))


def published(
    kaggle: Kaggle, artifact: Path, shown: list[str], seconds: float = 60
) -> DatasetVersion:
    """Publish an artifact, and note what is shown."""
    records = records_in(artifact.parent, deadline_seconds=seconds)
    return done(datasets.artifact(kaggle, records, artifact.parent), shown.append)


def submitted(
    kaggle: Kaggle, run: Run, file: Path, shown: list[str], check: Any = None, **changes: Any
) -> Submission:
    """Submit the file of a run, without a check of it if none is given; note what is shown.

    Args:
        changes: of the project.
    """
    check = check or (lambda given, sample: None)
    records = records_in(file.parent, **changes)
    return done(competition.submit(kaggle, records, run, file.parent, check), shown.append)


def at(version: int) -> dict[str, Any]:
    """Return what Kaggle says of a private dataset that is at this version."""
    return {"currentVersionNumber": version, "isPrivate": True}


def takes_all(between: Between, artifact: Path) -> None:
    """Take every upload, and return the same bytes for any version."""
    between.always("StartBlobUpload", {"token": "t", "createUrl": "http://localhost/put/x"})
    between.always("put", (200, b""))
    between.always("GetDatasetStatus", {"status": "READY"})
    sizes = [{"name": name, "totalBytes": (artifact / name).stat().st_size} for name in FILES]
    between.always("ListDatasetFiles", {"datasetFiles": sizes})
    returns(between, artifact)
    for operation in ("CreateDataset", "CreateDatasetVersion"):
        between.always(operation, {"status": "ok"})


def returns(between: Between, artifact: Path, **changed: bytes) -> None:
    """Let downloads give the artifact's files, or other bytes for those with such an initial."""
    urls = {
        name: between.serve(name, changed.get(name[0], (artifact / name).read_bytes()))
        for name in FILES
    }

    def located() -> Iterator[Any]:
        while True:
            yield 302, {}, {"Location": urls[between.bodies("DownloadDataset")[-1]["fileName"]]}

    between.say("DownloadDataset", located())


def scores_all(between: Between) -> None:
    """Have a competition with its sample, two submissions left, and a score for everyone."""
    url = between.serve("sample_submission.csv", b"id,label\n1,0\n")
    between.always("DownloadDataFile", (302, {}, {"Location": url}))
    entered = {"id": 1, "isKernelsSubmissionsOnly": True, "userHasEntered": True}
    between.always("GetCompetition", entered)
    between.always("ListSubmissions", {"submissions": []})
    between.always("GetSubmissionLimits", {"numToday": 3, "numTotal": 9, "numAllowedNow": 2})
    between.say("CreateCodeSubmission", [{"message": "ok", "ref": 7}])
    between.always("GetSubmission", {"ref": 7, "status": "COMPLETE", "publicScore": "0.987"})
