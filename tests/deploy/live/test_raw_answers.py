"""The file of a smoke test has every answer, and no name, address or secret."""

import json

import pytest

from deploy.client.file_transfer import Heard
from deploy.errors import UsageError
from deploy.live.raw_answers import RawAnswers, read

KEY = "0123456789abcdef" * 2


def heard(call: str, answer: object, asked: object = None, code: int = 200) -> Heard:
    path = f"/api/v1/kernels.KernelsApiService/{call}"
    said = answer if isinstance(answer, str) else json.dumps(answer)
    return Heard("POST", path, json.dumps(asked or {}), code, said)


def answers(path, user="ann") -> RawAnswers:
    return RawAnswers(path, 0.0, user, "k1234567")


def test_a_question_and_its_answer_are_in_the_file_as_they_came(tmp_path):
    """Also a refusal, with its code."""
    found = answers(tmp_path / "facts.json")
    found.step = "reads"

    found.hear(heard("GetKernel", {"metadata": {"id": 7}}, {"kernelSlug": "absent"}))
    found.hear(heard("GetKernel", {"code": 404, "message": "Not found"}, code=404))

    first, second = read(tmp_path / "facts.json")["answers"]
    assert (first["step"], first["call"], first["code"]) == ("reads", "GetKernel", 200)
    assert first["asked"] == {"kernelSlug": "absent"}
    assert first["answer"] == {"metadata": {"id": 7}}
    assert (second["code"], second["answer"]["message"]) == (404, "Not found")


def test_an_answer_that_repeats_itself_is_written_once(tmp_path):
    """With how often it came; another question between does not matter."""
    found = answers(tmp_path / "facts.json")
    for status in ("QUEUED", "QUEUED", "RUNNING", "QUEUED"):
        found.hear(heard("GetKernelSessionStatus", {"status": status}))
        found.hear(heard("GetAcceleratorQuotaStatistics", {}))
    found.save()

    statuses = [
        (record["answer"]["status"], record["times"])
        for record in read(tmp_path / "facts.json")["answers"]
        if record["call"] == "GetKernelSessionStatus"
    ]
    assert statuses == [("QUEUED", 2), ("RUNNING", 1), ("QUEUED", 1)]


def test_a_test_that_was_killed_continues_its_file(tmp_path):
    """Facts that were saved stay, too."""
    before = answers(tmp_path / "facts.json")
    before.hear(heard("GetKernel", {"id": 1}))
    before.save(facts={"layout": "flat"})

    after = answers(tmp_path / "facts.json")
    after.hear(heard("GetKernel", {"id": 2}))

    held = read(tmp_path / "facts.json")
    assert held["facts"] == {"layout": "flat"}
    assert [record["answer"]["id"] for record in held["answers"]] == [1, 2]


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("/kaggle/input/datasets/Ann/data", "/kaggle/input/datasets/owner/data"),
        ("Anna and ann-b and [\\nann]", "Anna and owner-b and [\\nowner]"),
        ("write to ann.b+c@example.org.", "write to …@…."),
        ("from 203.0.113.7:443, OpenCV 4.13.0.92", "from …:443, OpenCV 4.13.0.92"),
        ("https://x:" + "pw12345@storage.example.com/a?sig=b#c", "https://storage.example.com/…"),
        ("https://www.kaggle.com/code/ann/x", "https://www.kaggle.com/code/owner/x"),
    ],
)
def test_names_and_addresses_are_taken_out_of_texts(told, kept, tmp_path):
    """What is not a name stays: paths, versions, Kaggle's own pages."""
    found = answers(tmp_path / "facts.json")

    found.hear(heard("ListKernelSessionOutput", {"log": told}))

    assert read(tmp_path / "facts.json")["answers"][0]["answer"] == {"log": kept}


def test_fields_that_name_a_person_or_open_something_are_empty(tmp_path):
    """Whatever they hold; the page of a listing and the owner of a thing stay."""
    found = answers(tmp_path / "facts.json")
    held = {"author": "Ann Example", "userId": 7, "token": "blob-1", "createUrl": "x", "key": "k"}

    found.hear(heard("X", {**held, "nextPageToken": "100", "ownerSlug": "ann"}))

    answer = read(tmp_path / "facts.json")["answers"][0]["answer"]
    assert answer == {
        "author": "…",
        "userId": 0,
        "token": "…",
        "createUrl": "…",
        "key": "…",
        "nextPageToken": "100",
        "ownerSlug": "owner",
    }


def test_no_secret_is_written_wherever_it_comes(tmp_path):
    """In a field, a text, a page that is no JSON, and the question about a token."""
    found = answers(tmp_path / "facts.json")

    found.hear(heard("A", {"said": f"KAGGLE_KEY={KEY}", f"KGAT_{KEY}": 1}))
    found.hear(heard("B", {"username": "ann", "secret": KEY}))
    found.hear(heard("C", f"<html>Authorization: Bearer {KEY} {'x' * 9000}", code=502))
    found.hear(heard("D", f"<html>{'x' * 1985}KGAT_{KEY}", code=502))
    found.hear(heard("IntrospectToken", {"active": True}, {"token": KEY}))

    text = (tmp_path / "facts.json").read_text()
    assert KEY[:8] not in text
    assert len(read(tmp_path / "facts.json")["answers"]) == 5


def test_nothing_is_kept_of_the_submissions_that_the_test_did_not_make(tmp_path):
    """Kaggle lists all of them, and their descriptions are the user's own words."""
    found, listed = answers(tmp_path / "facts.json"), "ListSubmissions"
    ours = {"ref": 7, "description": "k1234567-submission", "status": "COMPLETE"}
    other = {"ref": 6, "description": "my secret trick", "fileName": "trick.csv"}

    found.hear(heard(listed, {"submissions": [other, ours]}, {"page": 1}))
    found.hear(heard(listed, {"submissions": [other]}, {"page": 2}))
    found.hear(heard(listed, json.dumps({"submissions": [other]})[:-9], {"page": 3}))

    held = [record["answer"] for record in read(tmp_path / "facts.json")["answers"]]
    assert held == [{"submissions": [ours]}, {"submissions": []}, {"submissions": []}]
    assert "trick" not in (tmp_path / "facts.json").read_text()


def test_the_notebook_is_shown_by_its_sha256(tmp_path):
    """It is in this project; whether it came back unchanged can still be seen."""
    found, notebook = answers(tmp_path / "facts.json"), "print(1)\n" * 1000

    found.hear(heard("SaveKernel", {}, {"text": notebook}))
    found.hear(heard("GetKernel", {"blob": {"source": notebook}}))

    pushed, got = read(tmp_path / "facts.json")["answers"]
    assert pushed["asked"]["text"] == got["answer"]["blob"]["source"]
    assert "9000 characters, sha256" in pushed["asked"]["text"]


def test_a_file_that_is_no_such_file_is_refused(tmp_path):
    """Rather than overwritten."""
    (tmp_path / "facts.json").write_text("{}")

    with pytest.raises(UsageError, match="Move it away"):
        answers(tmp_path / "facts.json")
