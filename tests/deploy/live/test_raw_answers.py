"""The file of a smoke test has every answer, and no name, address or secret."""

import json

import pytest

from deploy.errors import UsageError
from deploy.file_transfer import Heard
from deploy.raw_answers import RawAnswers, read

KEY = "0123456789abcdef" * 2


def heard(call: str, answer: object, asked: object = None, code: int = 200) -> Heard:
    path = f"/api/v1/kernels.KernelsApiService/{call}"
    said = answer if isinstance(answer, str) else json.dumps(answer)
    return Heard("POST", path, json.dumps(asked or {}), code, said)


def answers(path) -> RawAnswers:
    return RawAnswers(path, 0.0, "ann", "k1234567")


def kept(folder, *told: Heard) -> list[dict]:
    """Return what is in the file once these were heard."""
    found = answers(folder / "facts.json")
    for one in told:
        found.hear(one)
    return read(folder / "facts.json")["answers"]


def test_an_answer_is_written_as_it_came_and_once_if_it_repeats_itself(tmp_path):
    """With how often it came; another question between does not matter. A test that was killed
    continues the file.
    """
    found = answers(tmp_path / "facts.json")
    found.step = "reads"
    for status in ("QUEUED", "QUEUED", "RUNNING", "QUEUED"):
        found.hear(heard("GetKernelSessionStatus", {"status": status}, {"kernelSlug": "x"}))
        found.hear(heard("GetKernel", {"code": 404, "message": "Not found"}, code=404))
    found.save(facts={"layout": "flat"})
    answers(tmp_path / "facts.json").hear(heard("GetKernel", {"id": 2}))

    held = read(tmp_path / "facts.json")
    first, refused, *rest = held["answers"]
    assert (first["step"], first["call"], first["code"]) == ("reads", "GetKernelSessionStatus", 200)
    assert (first["asked"], first["answer"]) == ({"kernelSlug": "x"}, {"status": "QUEUED"})
    assert (refused["code"], refused["answer"]["message"]) == (404, "Not found")
    assert [one["times"] for one in held["answers"]] == [2, 4, 1, 1, 1]
    assert held["facts"] == {"layout": "flat"} and rest[-1]["answer"] == {"id": 2}


@pytest.mark.parametrize(
    ("told", "stays"),
    [
        ("/kaggle/input/datasets/Ann/data", "/kaggle/input/datasets/owner/data"),
        ("Anna and ann-b and [\\nann]", "Anna and owner-b and [\\nowner]"),
        ("write to ann.b+c@example.org.", "write to …@…."),
        ("from 203.0.113.7:443, OpenCV 4.13.0.92", "from …:443, OpenCV 4.13.0.92"),
        ("https://x:" + "pw12345@storage.example.com/a?sig=b#c", "https://storage.example.com/…"),
        ("https://www.kaggle.com/code/ann/x", "https://www.kaggle.com/code/owner/x"),
    ],
)
def test_names_and_addresses_are_taken_out_of_texts(told, stays, tmp_path):
    """What is not a name stays: paths, versions, Kaggle's own pages."""
    (record,) = kept(tmp_path, heard("ListKernelSessionOutput", {"log": told}))

    assert record["answer"] == {"log": stays}


def test_fields_that_name_a_person_or_open_something_are_empty(tmp_path):
    """Whatever they hold; the page of a listing and the owner of a thing stay."""
    held = {"author": "Ann Example", "userId": 7, "token": "blob-1", "nextPageToken": "100"}

    (record,) = kept(tmp_path, heard("X", {**held, "ownerSlug": "ann"}))

    empty = {"author": "…", "userId": 0, "token": "…", "nextPageToken": "100"}
    assert record["answer"] == {**empty, "ownerSlug": "owner"}


def test_no_secret_is_written_wherever_it_comes(tmp_path):
    """In a field, a text, a page that is no JSON, and the question about a token."""
    held = kept(
        tmp_path,
        heard("A", {"said": f"KAGGLE_KEY={KEY}", f"KGAT_{KEY}": 1}),
        heard("B", {"username": "ann", "secret": KEY}),
        heard("C", f"<html>Authorization: Bearer {KEY} {'x' * 9000}", code=502),
        heard("D", f"<html>{'x' * 1985}KGAT_{KEY}", code=502),
        heard("IntrospectToken", {"active": True}, {"token": KEY}),
    )

    assert len(held) == 5
    assert KEY[:8] not in (tmp_path / "facts.json").read_text()


def test_nothing_is_kept_of_the_submissions_that_the_test_did_not_make(tmp_path):
    """Kaggle lists all of them, and their descriptions are the user's own words."""
    ours = {"ref": 7, "description": "k1234567-submission", "status": "COMPLETE"}
    other = {"ref": 6, "description": "my secret trick", "fileName": "trick.csv"}
    pages = [{"submissions": [other, ours]}, json.dumps({"submissions": [other]})[:-9]]

    held = kept(tmp_path, *(heard("ListSubmissions", page) for page in pages))

    assert [record["answer"]["submissions"] for record in held] == [[ours], []]
    assert "trick" not in (tmp_path / "facts.json").read_text()


def test_a_file_that_is_no_such_file_is_refused(tmp_path):
    """Rather than overwritten."""
    (tmp_path / "facts.json").write_text("{}")

    with pytest.raises(UsageError, match="Move it away"):
        answers(tmp_path / "facts.json")
