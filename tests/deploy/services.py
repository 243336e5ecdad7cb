"""What Kaggle's services for datasets and submissions answer where nothing fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deploy import publish as datasets
from deploy import submit as submissions
from deploy.client import Kaggle
from deploy.push_and_watch import Run
from tests.deploy.between import Between

GONE = (404, {"code": 404, "message": "Not found"})
FILES = ("manifest.json", "weights.npz")


def published(
    kaggle: Kaggle, artifact: Path, shown: list[str], seconds: float = 60, **given: Any
) -> Any:
    """Publish an artifact, and note what is shown."""
    given = {"title": "Digits Artifact", "deadline_seconds": seconds, **given}
    return datasets.publish(kaggle, artifact, "ann/digits-artifact", show=shown.append, **given)


def submitted(
    kaggle: Kaggle, run: Run, path: Path, shown: list[str], check: Any = None, **given: Any
) -> Any:
    """Submit a file of a run, without a check of it if none is given; note what is shown."""
    usual = {"message": "digits", "deadline_seconds": 60, "command": "invoke {} --config x".format}
    check = check or (lambda given, sample: None)
    given = {"submission": path, "check": check, **usual, **given}
    return submissions.submit(kaggle, run, "digits", show=shown.append, **given)


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
    files = [{"fileName": "submission.csv", "url": url}]
    between.always("ListKernelSessionOutput", {"files": files})
    between.always("ListKernelFiles", {"files": [{"name": "submission.csv", "size": 13}]})
    between.always("ListSubmissions", {"submissions": []})
    between.always("GetSubmissionLimits", {"numToday": 3, "numTotal": 9, "numAllowedNow": 2})
    between.say("CreateCodeSubmission", [{"message": "ok", "ref": 7}])
    between.always("GetSubmission", {"ref": 7, "status": "COMPLETE", "publicScore": "0.987"})
