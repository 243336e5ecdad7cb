"""The local Kaggle: what it answers, refuses and limits, and what its facts change."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from localkaggle import facts
from localkaggle.__main__ import main
from localkaggle.competitions import Competition, accuracy
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from tests.localkaggle.pushed_notebooks import (
    Answer,
    Scripted,
    ask,
    finished,
    publish,
    push,
    request,
    upload,
)

STATUS = "/api/v1/kernels.KernelsApiService/GetKernelSessionStatus"
LOG = "/v1/kernels/logs/stream/rehearsal/small-kernel"


def stored(kaggle: LocalKaggle, content: bytes) -> str:
    """Store a file and return its address."""
    path = kaggle.storage.fresh()
    path.write_bytes(content)
    return kaggle.storage.share("x", path)


def announced(kaggle: LocalKaggle, size: int) -> str:
    """Announce an upload and return its address."""
    return str(ask(kaggle, "StartBlobUpload", name="x", contentLength=size).said["createUrl"])


def put(kaggle: LocalKaggle, url: str, body: bytes, content_range: str = "") -> requests.Response:
    headers = {"Content-Range": content_range} if content_range else {}
    return request(kaggle, "PUT", url, data=body, headers=headers, auth=None)


# Credentials


@pytest.mark.parametrize("header", ["", "Basic !", "Bearer KGAT_0", None])
def test_only_the_right_credentials_are_accepted(kaggle, header):
    """For calls and logs; None: the right user name without a key."""
    given = {"auth": None, "headers": {"Authorization": header}}
    if header is None:
        given = {"auth": ("rehearsal", "")}
    for method, path in (("POST", STATUS), ("GET", LOG)):
        assert request(kaggle, method, path, data=b"{}", **given).status_code == 401
    right = {"Authorization": f"Bearer {kaggle.oauth.token}"}
    for given in ({"auth": None, "headers": right}, {}):
        assert request(kaggle, "POST", STATUS, **given).status_code == 403


def test_the_environment_has_only_credentials_of_this_kaggle(kaggle):
    """Its home is private and empty: a token in the real one would override them, and be sent."""
    environment = kaggle.environment

    assert environment["KAGGLE_KEY"] == kaggle.oauth.key
    for name in ("HOME", "KAGGLE_CONFIG_DIR", "TMPDIR"):
        assert Path(environment[name]).is_relative_to(kaggle.folder)
        assert environment[name] != os.environ[name]
    assert not [path for path in Path(environment["HOME"]).rglob("*") if path.is_file()]


# Requests


@pytest.mark.parametrize("body", [b'{"user_name": "rehearsal"}', b"no json", b"[]", b"\xff"])
def test_a_malformed_request_is_refused(kaggle, body):
    """An unknown field is an error of the caller."""
    answer = request(kaggle, "POST", STATUS, data=body)

    assert answer.status_code == 400 and "Malformed" in answer.json()["message"]


def test_only_calls_and_stored_files_are_served(kaggle):
    """Other methods of a service are not calls, and a key is not a file name."""
    for method, path in (
        ("POST", "/api/v1/kernels.KernelsApiService/close"),
        ("GET", STATUS),
        ("GET", "/storage/../state.json/x"),
        ("PUT", "/upload/.."),
    ):
        assert request(kaggle, method, path, data=b"{}").status_code == 404


# Files


@pytest.mark.parametrize("wrong", ["bytes 6-9/10", "bytes 5-8/20", "items 5-8/10", "5-9/10"])
def test_a_wrong_range_does_not_change_an_upload(kaggle, wrong):
    """A gap would leave a hole; a part that is sent again replaces what followed."""
    url = announced(kaggle, 10)
    for body in (b"", b"four", b"eleven byte"):  # of another size than was announced
        assert put(kaggle, url, body).status_code != 200
    put(kaggle, url, b"0123xxx", "bytes 0-6/10")
    assert put(kaggle, url, b"4", "bytes 4-4/10").headers["Range"] == "bytes=0-4"

    assert put(kaggle, url, b"xxxx", wrong).status_code == 400

    assert put(kaggle, url, b"56789", "bytes 5-9/10").status_code == 200
    assert kaggle.uploads.complete(url.split("/")[-1]).path.read_bytes() == b"0123456789"


DATA = {"ownerSlug": "rehearsal", "datasetSlug": "small-data"}
KERNEL = {"userName": "rehearsal", "kernelSlug": "small-kernel"}
SAMPLE = b"id,label\nseen,0\n"
SMALL = Competition(
    "small",
    "Small Things",
    training={"train.csv": b"id,label\nt,0\n"},
    visible_test={"sample_submission.csv": SAMPLE},
    hidden_test={"sample_submission.csv": b"id,label\nh1,0\nh2,0\n", "test/h1.txt": b"hidden"},
    solution={"label": {"h1": "1", "h2": "0"}},
    score=accuracy,
    daily_submissions=2,
    gpu_seconds=7200,
)
BY_FILE = replace(SMALL, slug="by-file", takes_files=True, hidden_test=SMALL.visible_test)


# Kernels


@pytest.mark.parametrize(
    ("fields", "verified", "given"),
    [
        ({"machineShape": "TpuV5E8"}, True, "TpuV5E8"),
        ({"enableTpu": True}, True, "TpuV5E8"),
        ({"machineShape": "None"}, True, ""),
        ({"machineShape": "NvidiaTeslaT4"}, False, "NvidiaTeslaT4"),
        ({"machineShape": "TpuV5E8"}, False, ""),
    ],
)
def test_a_push_gets_the_machine_that_it_asks_for(start, fields, verified, given):
    """Unless it asks for a TPU and the account is not verified."""
    kaggle = start(verified=verified, queue_seconds=3600)

    assert not push(kaggle, **fields).get("error")

    assert kaggle.kernels.version("rehearsal/small-kernel", 1).shape == given


@pytest.mark.parametrize(
    ("shape", "kind", "most", "hours"),
    [("TpuV5E8", "TPU", 1, 20), ("NvidiaTeslaT4", "GPU", 2, 30), ("", "CPU", 5, None)],
)
def test_sessions_and_weekly_hours_are_limited(kaggle, shape, kind, most, hours):
    """A refusal comes with status 200, and makes no version."""
    for _ in range(most):
        assert not push(kaggle, machineShape=shape).get("error")

    said = push(kaggle, slug="rehearsal/another-one", machineShape=shape)

    assert said["error"] == f"Maximum batch {kind} session count of {most} reached."
    assert list(kaggle.kernels.kernels) == ["rehearsal/small-kernel"]
    ask(kaggle, "DeleteKernel", **KERNEL)
    kaggle.kernels.used_seconds |= dict.fromkeys(["TPU", "GPU"], 30 * 3600.0)
    error = push(kaggle, machineShape=shape).get("error") or None
    assert error == (f"Maximum weekly {kind} quota of {hours}.00 hours reached." if hours else None)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (400, {"newTitle": "four"}),
        (400, {"slug": "rehearsal/../escape"}),
        (400, {"machineShape": "TpuV9"}),
        (200, {"slug": "stranger/small-kernel"}),
    ],
)
def test_an_invalid_push_is_refused_and_leaves_nothing(kaggle, code, fields):
    fields = {"slug": "rehearsal/small-kernel", "newTitle": "Good Title", "text": "1"} | fields

    answer = ask(kaggle, "SaveKernel", **fields)

    assert answer.code == code and answer.message
    assert kaggle.kernels.kernels == {} and not (kaggle.folder / "sessions").exists()


def test_an_output_is_listed_in_pages_without_links(start):
    def act(session: Scripted) -> None:
        (session.working / "deep").mkdir()
        for number in range(24):
            (session.working / f"deep/{number:02}.txt").write_text(f"number {number}")
        (session.working / "link").symlink_to("/etc/hostname")

    kaggle = start(act)
    push(kaggle)
    finished(kaggle)
    found, token = [], ""
    while token is not None:
        said = ask(kaggle, "ListKernelSessionOutput", **KERNEL, pageSize=10, pageToken=token).said
        found += [file["fileName"] for file in said["files"]]
        token = said.get("nextPageToken")

    assert found == [f"deep/{number:02}.txt" for number in range(24)]


# Datasets


def test_a_version_is_current_and_mounted_once_it_is_processed(start):
    """Until then no other version is accepted."""
    kaggle = start(ready_seconds=3600, queue_seconds=3600)
    assert publish(kaggle, **{"a.txt": b"a"}).said["status"] == "ok"
    version, seen = kaggle.datasets.datasets["rehearsal/small-data"].versions[0], []

    def shown() -> tuple[bool, bool]:
        said = push(
            kaggle, kernelExecutionType="QUICK_SAVE", datasetDataSources=["rehearsal/small-data"]
        )
        listed = ask(kaggle, "ListDatasetFiles", **DATA).code == 200
        return listed, not said.get("invalidDatasetSources")

    assert shown() == (False, False) and publish(kaggle, **{"b.txt": b"b"}).code == 403
    for _ in range(2):
        seen.append(ask(kaggle, "GetDatasetStatus", **DATA).said["status"])
        version.ready_at = 0.0

    assert seen == ["BLOBS_RECEIVED", "READY"]
    assert shown() == (True, True) and publish(kaggle, **{"b.txt": b"b"}).code == 200
    assert ask(kaggle, "GetDataset", **DATA).said["currentVersionNumber"] == 1


@pytest.mark.parametrize("name", ["a/b.txt", "a\\b", "..", "a\0b"])
def test_a_name_that_could_be_a_path_is_refused(kaggle, name):
    """Of a file or a dataset."""
    made = {"ownerSlug": "rehearsal", "slug": name, "title": "Small data"}

    assert ask(kaggle, "StartBlobUpload", name=name, contentLength=1).code == 400
    assert ask(kaggle, "CreateDataset", **made, files=[]).code == 400
    assert kaggle.datasets.datasets == {} and not [*kaggle.folder.glob("datasets/*")]


def test_a_missing_repeated_or_archived_file_makes_no_version(kaggle):
    begun = ask(kaggle, "StartBlobUpload", name="a.txt", contentLength=1).said["token"]
    twice = upload(kaggle, "a.txt", b"a")

    for files in ({"a": "x"}, {"a": begun}, {"a": twice, "b": twice}, {"a.zip": b"PK"}):
        assert publish(kaggle, **files).code == 400
    assert kaggle.datasets.datasets == {} and not [*kaggle.folder.glob("datasets/*")]


def test_things_of_other_users_are_denied(start, tmp_path):
    """A public dataset can be read."""
    (tmp_path / "a.txt").write_text("theirs")
    kaggle = start(datasets={"ann/weights": tmp_path}, queue_seconds=3600)
    publish(kaggle, **{"a.txt": b"mine"})
    push(kaggle)
    for things in (kaggle.datasets.datasets, kaggle.kernels.kernels):
        mine = next(thing for handle, thing in things.items() if handle.startswith("rehearsal"))
        things[f"ann/{mine.slug}"] = replace(mine, owner="ann")
    data, kernel = {**DATA, "ownerSlug": "ann"}, {**KERNEL, "userName": "ann"}

    for call in ("GetDataset", "ListDatasetFiles", "CreateDatasetVersion", "DeleteDataset"):
        assert ask(kaggle, call, **data).code == 403
    for call in ("GetKernel", "GetKernelSessionStatus", "DeleteKernel"):
        assert ask(kaggle, call, **kernel).code == 403
    weights = {"ownerSlug": "ann", "datasetSlug": "weights"}
    assert ask(kaggle, "GetDataset", **weights).said["currentVersionNumber"] == 1
    assert ask(kaggle, "CreateDatasetVersion", **weights, body={}).code == 403


# Submissions


def complete(kaggle, **fields):
    """Add a version that looks complete, with a submission.csv."""
    fields = {"competitionDataSources": ["small"], "kernelExecutionType": "QUICK_SAVE"} | fields
    number = push(kaggle, **fields)["versionNumber"]
    version = kaggle.kernels.version("rehearsal/small-kernel", number)
    version.working.mkdir(parents=True)
    (version.working / "submission.csv").write_bytes(SAMPLE)
    version.status = "COMPLETE"
    return version


def submit(kaggle, **fields) -> Answer:
    usual = {"competitionName": "small", "kernelOwner": "rehearsal", "fileName": "submission.csv"}
    usual |= {"kernelSlug": "small-kernel", "kernelVersion": 1}
    return ask(kaggle, "CreateCodeSubmission", **{**usual, **fields})


NOT_ALLOWED = {
    "complete successfully": ({}, {}, {"status": "RUNNING"}),
    "cannot use TPU": ({"enableTpu": True}, {}, {}),
    "cannot use internet": ({"enableInternet": True}, {}, {}),
    "include this competition": ({"competitionDataSources": []}, {}, {}),
    "must be named": ({}, {"fileName": "answers.csv"}, {}),
    "exceeds this competition's GPU max": ({"enableGpu": True}, {}, {"seconds": 7260.0}),
    "kernelSessions.get": ({}, {"kernelVersion": None}, {}),
    "version not found": ({}, {"kernelVersion": 2}, {}),
    "Not found": ({}, {"competitionName": "../small"}, {}),
    "not accept Submissions from Notebooks": ({}, {"competitionName": "by-file"}, {}),
    "Could not find output file": ({}, {}, {"failure": "no file"}),
    "disabled for this competition": ({}, {"competitionName": "closed"}, {}),
}


@pytest.mark.parametrize("said", NOT_ALLOWED)
def test_a_refused_submission_costs_nothing_and_reruns_nothing(start, said):
    hosted = [SMALL, BY_FILE, replace(SMALL, slug="closed", closed=True)]
    kaggle = start(competitions=hosted, queue_seconds=3600)
    pushed, fields, changed = NOT_ALLOWED[said]
    version = complete(kaggle, **pushed)
    for name, value in changed.items():
        setattr(version, name, value)
    if version.failure:
        (version.working / "submission.csv").unlink()

    answer = submit(kaggle, **fields)

    assert answer.code in (400, 403, 404) and said in answer.message
    limits = ask(kaggle, "GetSubmissionLimits", competitionName="small").said
    assert limits["numAllowedNow"] == 2 and not [*kaggle.folder.rglob("rerun-*")]


def ended(kaggle, ref: int) -> dict[str, str]:
    kaggle.submissions.submissions[ref].thread.join(60)
    return ask(kaggle, "GetSubmission", ref=ref).said


def test_of_a_rerun_only_the_score_is_seen(start):
    """Its log and output stay hidden; a failed one counts, too."""

    def act(session: Scripted) -> None:
        sample = session.inputs["competitions/small"] / "sample_submission.csv"
        session.log.add("stdout", f"rerun: {session.rerun}")
        assert not session.rerun or "broken" not in session.notebook
        if "nothing" not in session.notebook:
            (session.working / "submission.csv").write_bytes(sample.read_bytes())

    kaggle = start(act, competitions=[SMALL])
    for number, cell in enumerate(("'fine'", "'broken'"), 1):
        push(kaggle, cell, competitionDataSources=["small"])
        finished(kaggle, number=number)

    def shown() -> tuple[str, list[bytes]]:
        said = ask(kaggle, "ListKernelSessionOutput", **KERNEL, versionLabel="v1").said
        files = [request(kaggle, "GET", file["url"], auth=None) for file in said["files"]]
        return said["log"], [file.content for file in files]

    before = shown()
    items = [ended(kaggle, submit(kaggle, kernelVersion=n).said["ref"]) for n in (1, 2)]
    listed = ask(kaggle, "ListSubmissions", competitionName="small").said["submissions"]
    assert [item["ref"] for item in listed] == [item["ref"] for item in items[::-1]]

    assert [item["status"] for item in items] == ["COMPLETE", "ERROR"]
    assert (items[0]["publicScore"], items[1]["errorDescription"]) == (
        "0.50000",
        "Notebook Threw Exception",
    )
    assert shown() == before and "rerun: False" in before[0] and before[1] == [SAMPLE]
    said = submit(kaggle).message
    assert "has used its daily Submission allowance (2) today" in said
    assert not ask(kaggle, "GetSubmissionLimits", competitionName="small").said.get("numAllowedNow")


def test_a_file_that_cannot_be_scored_counts_and_shows_the_reason(start):
    kaggle = start(competitions=[BY_FILE])
    named = {"competitionName": "by-file"}
    token = upload(kaggle, "answers.csv", b"id,label\nother,1\n", **named)

    item = ended(kaggle, ask(kaggle, "CreateSubmission", **named, blobFileTokens=token).said["ref"])

    assert item["status"] == "ERROR" and "Submission Scoring Error" in item["errorDescription"]
    assert ask(kaggle, "GetSubmissionLimits", **named).said["numAllowedNow"] == 1
    assert ask(kaggle, "CreateSubmission", **named, blobFileTokens="never").code == 400


def test_no_call_leads_to_the_hidden_test_set_or_its_labels(start):
    kaggle = start(competitions=[SMALL])
    listed = ask(kaggle, "ListDataFiles", competitionName="small").said["files"]
    folder = kaggle.competitions.folder("small", hidden=True)

    assert [file["name"] for file in listed] == ["sample_submission.csv", "train.csv"]
    assert (folder / "test/h1.txt").is_file()
    for name in ("test/h1.txt", "../hidden/test/h1.txt", "", "/etc/hostname", "train.csv\0"):
        asked = ask(kaggle, "DownloadDataFile", competitionName="small", fileName=name)
        assert asked.code == 404
    kept = [path.read_bytes() for path in kaggle.folder.rglob("*") if path.is_file()]
    assert not [content for content in kept if b"h1,1" in content or b'"h1": "1"' in content]


SOURCE = "rehearsal/small-data"


def written(path: Path, **values: Any) -> Path:
    path.write_text(json.dumps({"facts": values, "assumed": {}, "notes": [], "answers": []}))
    return path


def test_a_file_of_facts_becomes_arguments_of_a_server(tmp_path):
    """Facts that are not in the file keep their defaults."""
    path = written(tmp_path / "seen.json", layout="flat", prefixes=True)

    assert facts.read(path) == {"layout": "flat", "facts": Facts(prefixes=True)}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"colour": "red"}, ": expected only refused_push, "),
        (None, "not a file written by `invoke doctor --live`"),
    ],
)
def test_another_file_than_one_of_facts_is_refused_before_anything_is_served(
    values, said, tmp_path, capsys
):
    path = tmp_path / "seen.json"
    path.write_text("[]") if values is None else written(path, **values)

    with pytest.raises(SystemExit):
        main(["serve", "--facts", str(path)])

    assert said in " ".join(capsys.readouterr().err.split())


def test_an_output_is_listed_late_if_the_facts_say_so(start):
    kaggle = start(lambda session: None, facts=Facts(listing_seconds=3600.0))
    push(kaggle)
    finished(kaggle)

    assert not ask(kaggle, "ListKernelSessionOutput", **KERNEL).said.get("files")


def test_a_source_is_mounted_by_layout_in_the_version_of_the_push(start):
    """The next session gets a newer one; a push may ask for an older one."""

    def act(session: Scripted) -> None:
        found = {path: (folder / "a.txt").read_text() for path, folder in session.inputs.items()}
        session.log.add("stdout", json.dumps(found))

    kaggle = start(act, layout="both", queue_seconds=0.05)
    publish(kaggle, **{"a.txt": b"one"})
    push(kaggle, datasetDataSources=[SOURCE])
    publish(kaggle, **{"a.txt": b"two"})
    push(kaggle, datasetDataSources=[SOURCE])
    wrong = [f"{SOURCE}/{number}" for number in ("3", "0", "x", "1/2")]
    said = push(kaggle, datasetDataSources=[f"{SOURCE}/1", *wrong])

    logs = [json.loads(finished(kaggle, number=n).log.text())[0]["data"] for n in (1, 2, 3)]
    places = (f"datasets/{SOURCE}", "small-data")
    assert [json.loads(log) for log in logs] == [
        dict.fromkeys(places, content) for content in ("one", "two", "one")
    ]
    assert said["invalidDatasetSources"] == wrong


def test_a_model_is_mounted_in_lower_case_once_its_licence_is_accepted(start, tmp_path):
    """As on Kaggle, with or without capitals in the push."""

    def act(session: Scripted) -> None:
        session.log.add("stdout", json.dumps(sorted(session.inputs)))

    name = "keras/tiny/keras/small/2"
    kaggle = start(act, layout="both", facts=Facts(gate="licence"))
    kaggle.models.publish({name: tmp_path})
    asked = {"ownerSlug": "keras", "modelSlug": "tiny", "framework": "MODEL_FRAMEWORK_KERAS"}
    asked |= {"instanceSlug": "small", "versionNumber": 2}

    def seen() -> str:
        return ask(kaggle, "ListModelInstanceVersionFiles", **asked).message

    refused = push(kaggle, modelDataSources=[name])["invalidModelSources"]
    assert (refused, seen()) == ([name], "User has not consented to terms of use.")
    finished(kaggle)
    kaggle.facts = Facts()
    spelled = name.replace("/keras/", "/Keras/")
    said = push(kaggle, modelDataSources=[spelled, spelled.replace("/2", "/3")])

    assert (said["invalidModelSources"], seen()) == ([spelled.replace("/2", "/3")], "")
    places = [f"models/{name}", "tiny/keras/small/2"]
    assert json.loads(json.loads(finished(kaggle, number=2).log.text())[0]["data"]) == places


@pytest.mark.parametrize(("internet", "offline"), [(True, False), (False, False), (True, True)])
def test_a_session_gets_the_internet_if_the_facts_say_so(start, internet, offline):
    """An offline Kaggle gives it to no session."""
    kaggle = start(facts=Facts(internet=internet), offline=offline)
    push(kaggle, enableInternet=True)

    machine = finished(kaggle).session.given["machine"]
    assert machine.internet == (internet and not offline)
