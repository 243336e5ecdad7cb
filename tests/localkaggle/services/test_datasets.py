"""Datasets: an upload arrives whole or is no upload, and a version is current only once it is
ready.
"""

import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import kagglesdk.blobs.types.blob_api_service as blob_types
import kagglesdk.datasets.types.dataset_api_service as types
import pytest
import requests
from kagglesdk.kernels.types.kernels_enums import KernelExecutionType

from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from tests.localkaggle.pushed_notebooks import (
    Scripted,
    finished,
    notebook,
    refused,
    save,
    signed_in,
    soon,
)

FOR_EVER = 3600.0
HANDLE = "rehearsal/small-data"


@pytest.fixture
def kaggle(start) -> LocalKaggle:
    """Return a local Kaggle whose datasets are ready at once."""
    return start(competitions=(), ready_seconds=0)


@pytest.fixture
def slow(start) -> LocalKaggle:
    """Return a local Kaggle that processes datasets until `process` is called, and runs nothing."""
    return start(competitions=(), ready_seconds=FOR_EVER, queue_seconds=FOR_EVER)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKaggle]:
    """Return a local Kaggle to read from, with two versions: a.txt and sub/a.txt, then b.txt.

    Somebody else has a dataset there too; no call can make one for another account.
    """
    with LocalKaggle(tmp_path_factory.mktemp("stored"), competitions=(), ready_seconds=0) as kaggle:
        with signed_in(kaggle.environment) as sending:
            top, deep, later = (
                upload(sending, name, name.encode()) for name in ("a.txt", "a.txt", "b.txt")
            )
            create(sending, top, folders=[folder("sub", [deep])])
            add(sending, later)
        kaggle.datasets.datasets["stranger/small-data"] = replace(
            kaggle.datasets.datasets[HANDLE], owner="stranger"
        )
        yield kaggle


def process(kaggle: LocalKaggle) -> None:
    """Let the time pass that the newest version is processed."""
    kaggle.datasets.datasets[HANDLE].versions[-1].ready_seconds = 0


def announce(client, name: str, size: int):
    request = make(blob_types.ApiStartBlobUploadRequest, name=name, content_length=size)
    return client.blobs.blob_api_client.start_blob_upload(request)


def put(url: str, body: bytes, content_range: str | None = None) -> requests.Response:
    headers = {"Content-Range": content_range} if content_range else {}
    return requests.put(url, data=body, headers=headers, timeout=30)


def upload(client, name: str, content: bytes) -> str:
    """Announce and send a file whole; return its token."""
    announced = announce(client, name, len(content))
    assert put(announced.create_url, content).status_code == 200
    return announced.token


def new_files(tokens) -> list:
    return [make(types.ApiDatasetNewFile, token=token) for token in tokens]


def folder(name: str, tokens=(), folders=()):
    return make(
        types.ApiUploadDirectoryInfo,
        name=name,
        files=new_files(tokens),
        directories=list(folders),
    )


def create(client, *tokens: str, folders=(), **fields):
    """Make a dataset of what was uploaded."""
    usual = {
        "owner_slug": "rehearsal",
        "slug": "small-data",
        "title": "Small data",
        "is_private": True,
        "files": new_files(tokens),
        "directories": list(folders),
    }
    request = make(types.ApiCreateDatasetRequest, **{**usual, **fields})
    return client.datasets.dataset_api_client.create_dataset(request)


def add(client, *tokens: str, notes: str = "", owner: str = "rehearsal"):
    """Add a version of what was uploaded."""
    files = new_files(tokens)
    body = make(types.ApiCreateDatasetVersionRequestBody, files=files, version_notes=notes)
    handle = {"owner_slug": owner, "dataset_slug": "small-data"}
    request = make(types.ApiCreateDatasetVersionRequest, **handle, body=body)
    return client.datasets.dataset_api_client.create_dataset_version(request)


def ask(client, method: str, owner: str = "rehearsal", slug: str = "small-data", **fields):
    """Ask something about a dataset."""
    kind = getattr(types, f"Api{method.title().replace('_', '')}Request")
    request = make(kind, owner_slug=owner, dataset_slug=slug, **fields)
    return getattr(client.datasets.dataset_api_client, method)(request)


def names(client, version: int | None = None) -> list[str]:
    answer = ask(client, "list_dataset_files", dataset_version_number=version, page_size=100)
    return [file.name for file in answer.dataset_files]


def fetch(client, name: str | None = None, version: int | None = None) -> bytes:
    return ask(client, "download_dataset", file_name=name, dataset_version_number=version).content


def archive(**files: str) -> bytes:
    """Return a zip; `dict` keys may be any name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


def tree(place: Path) -> set[Path]:
    """Return all files below."""
    return {path for path in place.rglob("*") if path.is_file()}


# Uploads


def test_an_upload_is_announced_and_sent(kaggle, client):
    """Its address needs no credentials, and its token becomes a file."""
    connected = client(kaggle)

    create(connected, upload(connected, "a.txt", b"whole"))

    assert fetch(connected, "a.txt") == b"whole"


def test_an_upload_goes_on_where_it_was_cut(kaggle, client):
    """308 says how far it is; a part is no file yet."""
    connected = client(kaggle)
    announced = announce(connected, "a.txt", 10)
    url = announced.create_url

    def how_far() -> tuple[int, str | None]:
        answer = put(url, b"", "bytes */10")
        return answer.status_code, answer.headers.get("Range")

    assert how_far() == (308, None)
    part = put(url, b"01234", "bytes 0-4/10")
    assert (part.status_code, part.headers["Range"]) == (308, "bytes=0-4")
    assert how_far() == (308, "bytes=0-4")
    with pytest.raises(requests.HTTPError, match="was never uploaded"):
        create(connected, announced.token)
    assert put(url, b"56789", "bytes 5-9/10").status_code == 200
    assert how_far() == (200, None)
    create(connected, announced.token)

    assert fetch(connected, "a.txt") == b"0123456789"


def test_a_part_that_is_sent_again_replaces_what_followed(kaggle, client):
    """Whoever lost the answer begins further back."""
    connected = client(kaggle)
    announced = announce(connected, "a.txt", 10)
    put(announced.create_url, b"0123xxxx", "bytes 0-7/10")

    assert put(announced.create_url, b"45", "bytes 4-5/10").headers["Range"] == "bytes=0-5"
    assert put(announced.create_url, b"", "bytes */10").headers["Range"] == "bytes=0-5"
    assert put(announced.create_url, b"6789", "bytes 6-9/10").status_code == 200
    create(connected, announced.token)

    assert fetch(connected, "a.txt") == b"0123456789"


@pytest.mark.parametrize(
    "wrong",
    [
        "bytes 6-9/10",
        "bytes 10-19/20",
        "bytes x-9/10",
        "items 5-9/10",
        "bytes -9/10",
        "bytes",
        "5-9/10",
    ],
)
def test_a_wrong_range_is_refused_and_spoils_nothing(kaggle, client, wrong):
    """A gap would be a file with a hole."""
    connected = client(kaggle)
    announced = announce(connected, "a.txt", 10)
    put(announced.create_url, b"01234", "bytes 0-4/10")

    assert put(announced.create_url, b"xxxxx", wrong).status_code == 400

    assert put(announced.create_url, b"56789", "bytes 5-9/10").status_code == 200
    create(connected, announced.token)
    assert fetch(connected, "a.txt") == b"0123456789"


@pytest.mark.parametrize("body", [b"", b"four", b"sixsix"])
def test_another_size_than_announced_is_no_upload(kaggle, client, body):
    """Neither less nor more."""
    connected = client(kaggle)
    announced = announce(connected, "a.txt", 5)

    assert put(announced.create_url, body).status_code != 200
    with refused(400, "was never uploaded"):
        create(connected, announced.token)

    assert kaggle.datasets.datasets == {}


def test_an_empty_file_is_a_file(kaggle, client):
    """Announced with no bytes, sent with none."""
    connected = client(kaggle)

    create(connected, upload(connected, "empty.txt", b""))

    assert (names(connected), fetch(connected, "empty.txt")) == (["empty.txt"], b"")


def test_an_upload_that_was_not_announced_is_not_found(stored, client):
    """Nor can a token be a path."""
    client(stored)

    for token in ("blob-999999", "..", "", "../x"):
        assert put(f"http://localhost/upload/{token}", b"x").status_code == 404


@pytest.mark.parametrize(
    "name", ["../a.txt", "a/b.txt", "/a.txt", "a\\b.txt", "..", ".", "", "a\0b", "a\nb", "x" * 201]
)
def test_a_name_that_could_be_a_path_is_not_announced(stored, client, name):
    """Names come over the network."""
    before = set(stored.uploads.blobs)

    with refused(400, "Invalid file name"):
        announce(client(stored), name, 1)

    assert set(stored.uploads.blobs) == before


# A first version


def test_a_version_is_current_only_when_it_is_ready(slow, client):
    """Until then it is listed nowhere, and no notebook can mount it."""
    connected = client(slow)

    def invalid() -> list[str]:
        fields = {
            "dataset_data_sources": [HANDLE],
            "kernel_execution_type": KernelExecutionType.QUICK_SAVE,
        }
        return save(connected, notebook("1"), **fields).invalid_dataset_sources

    answer = create(connected, upload(connected, "a.txt", b"a"))
    assert (answer.status, answer.ref) == ("ok", "/rehearsal/small-data")
    assert ask(connected, "get_dataset_status").status.name == "NOT_YET_PERSISTED"
    before = ask(connected, "get_dataset")
    assert (before.current_version_number, before.versions, invalid()) == (0, [], [HANDLE])
    for version in (None, 1):
        with refused(404):
            names(connected, version)

    process(slow)

    assert ask(connected, "get_dataset_status").status.name == "READY"
    after = ask(connected, "get_dataset")
    assert (after.current_version_number, len(after.versions), invalid()) == (1, 1, [])
    assert names(connected) == names(connected, 1) == ["a.txt"]


def test_processing_goes_through_kaggles_stages(slow, client):
    """In their order, to READY."""
    connected = client(slow)
    create(connected, upload(connected, "a.txt", b"a"))
    version = slow.datasets.datasets[HANDLE].versions[0]
    seen = []
    for _ in range(6):
        seen.append(ask(connected, "get_dataset_status").status.name)
        version.made -= FOR_EVER / 5

    assert seen == [
        "NOT_YET_PERSISTED",
        "BLOBS_RECEIVED",
        "BLOBS_DECOMPRESSED",
        "BLOBS_COPIED_TO_SDS",
        "INDIVIDUAL_BLOBS_COMPRESSED",
        "READY",
    ]


@pytest.mark.parametrize("title", ["five5", "x" * 51, ""])
def test_a_title_has_six_to_fifty_letters(kaggle, client, title):
    """Kaggle says it inside a success."""
    connected = client(kaggle)

    answer = create(connected, upload(connected, "a.txt", b"a"), title=title)

    assert answer.status == "error" and "between 6 and 50 characters" in answer.error
    assert (kaggle.datasets.datasets, list(tree(kaggle.folder / "datasets"))) == ({}, [])


def test_a_name_in_use_is_refused_and_the_dataset_stays(kaggle, client):
    """A second creation is no new version."""
    connected = client(kaggle)
    create(connected, upload(connected, "a.txt", b"a"))

    answer = create(connected, upload(connected, "b.txt", b"b"))

    assert answer.status == "error" and "already in use" in answer.error
    assert (ask(connected, "get_dataset").current_version_number, names(connected)) == (
        1,
        ["a.txt"],
    )


@pytest.mark.parametrize("slug", ["../escape", "Upper", "a_b", "", "x", "x" * 101, "a/b"])
def test_a_slug_that_could_be_a_path_is_refused(kaggle, client, slug):
    """400, and nothing is written."""
    connected = client(kaggle)
    token = upload(connected, "a.txt", b"a")
    before = tree(kaggle.folder.parent)

    with refused(400, "Invalid slug"):
        create(connected, token, slug=slug)

    assert tree(kaggle.folder.parent) == before


def test_nobody_creates_for_somebody_else(kaggle, client):
    """403."""
    connected = client(kaggle)

    with refused(403, r"Permission 'datasets\.create' was denied"):
        create(connected, upload(connected, "a.txt", b"a"), owner_slug="stranger")

    assert kaggle.datasets.datasets == {}


@pytest.mark.parametrize(
    ("owner", "slug"), [("stranger", "small-data"), ("rehearsal", "missing"), ("", "")]
)
@pytest.mark.parametrize(
    "method",
    [
        "get_dataset",
        "get_dataset_status",
        "list_dataset_files",
        "download_dataset",
    ],
)
def test_a_missing_dataset_and_somebody_elses_look_the_same(
    stored, client, monkeypatch, owner, slug, method
):
    """403, as Kaggle says it, where its owner too is told nothing."""
    monkeypatch.setattr(stored.datasets, "_facts", Facts(missing="403"))
    with refused(403, r"Permission 'datasets\.get' was denied"):
        ask(client(stored), method, owner=owner, slug=slug)


def test_nobody_adds_to_what_is_not_theirs(kaggle, client):
    """404; the upload is not lost by it."""
    connected = client(kaggle)
    token = upload(connected, "a.txt", b"a")

    with refused(404):
        add(connected, token)
    assert create(connected, token).status == "ok"


# Further versions


def test_a_second_version_waits_until_the_first_is_ready(slow, client):
    """It is refused meanwhile, and then taken."""
    connected = client(slow)
    create(connected, upload(connected, "a.txt", b"a"))
    token = upload(connected, "b.txt", b"b")

    with refused(403, "still being processed"):
        add(connected, token)
    process(slow)

    assert add(connected, token).status == "ok"
    assert len(slow.datasets.datasets[HANDLE].versions) == 2


def test_the_old_version_is_current_while_the_new_one_is_processed(slow, client):
    """The status is the new one's, all the rest the old one's."""
    connected = client(slow)
    create(connected, upload(connected, "a.txt", b"a"))
    process(slow)
    add(connected, upload(connected, "b.txt", b"b"), notes="run_id=r2")

    assert ask(connected, "get_dataset_status").status.name == "NOT_YET_PERSISTED"
    assert (ask(connected, "get_dataset").current_version_number, names(connected)) == (
        1,
        ["a.txt"],
    )
    with refused(404):
        names(connected, 2)
    process(slow)

    described = ask(connected, "get_dataset")
    assert (described.current_version_number, names(connected)) == (2, ["b.txt"])
    assert [version.version_notes for version in described.versions] == [
        "Initial release",
        "run_id=r2",
    ]


def test_files_are_not_inherited(kaggle, client):
    """A version is what was sent for it; the one before stays as it was."""
    connected = client(kaggle)
    create(
        connected, upload(connected, "a.txt", b"first a"), upload(connected, "b.txt", b"first b")
    )

    add(connected, upload(connected, "b.txt", b"second b"))

    assert (names(connected), fetch(connected, "b.txt")) == (["b.txt"], b"second b")
    assert (names(connected, 1), fetch(connected, "b.txt", 1)) == (["a.txt", "b.txt"], b"first b")


@pytest.mark.parametrize("version", [3, -1, 99])
def test_a_version_that_is_not_there_is_not_found(stored, client, version):
    """It is never taken for the current one."""
    connected = client(stored)

    for read in (lambda: names(connected, version), lambda: fetch(connected, "b.txt", version)):
        with refused(404):
            read()


def test_a_version_that_is_refused_leaves_nothing(kaggle, client):
    """The next one gets its number."""
    connected = client(kaggle)
    create(connected, upload(connected, "a.txt", b"a"))
    good = upload(connected, "b.txt", b"b")
    before = tree(kaggle.folder)

    with pytest.raises(requests.HTTPError, match="never uploaded"):
        add(connected, good, "blob-999999")
    assert tree(kaggle.folder) == before
    add(connected, good)

    assert (ask(connected, "get_dataset").current_version_number, names(connected)) == (
        2,
        ["b.txt"],
    )


# What is in a version


def test_a_zip_is_unpacked_into_a_folder_of_its_name(kaggle, client):
    """As Kaggle does; it may hold folders."""
    connected = client(kaggle)
    packed = archive(**{"top.txt": "1", "deep/er/file.txt": "2", "deep/": ""})

    create(connected, upload(connected, "pack.zip", packed), upload(connected, "plain.txt", b"3"))

    assert names(connected) == ["pack/deep/er/file.txt", "pack/top.txt", "plain.txt"]
    assert fetch(connected, "pack/deep/er/file.txt") == b"2"


def test_folders_keep_their_files(kaggle, client):
    """Also one in another, and two files of one name in two of them."""
    connected = client(kaggle)
    tokens = [upload(connected, "a.txt", content) for content in (b"0", b"1", b"2")]

    create(connected, tokens[0], folders=[folder("one", tokens[1:2], [folder("two", tokens[2:])])])

    assert names(connected) == ["a.txt", "one/a.txt", "one/two/a.txt"]
    assert [fetch(connected, name) for name in names(connected)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "name",
    [
        "../evil.txt",
        "good/../../evil.txt",
        "good/../evil.txt",
        "../rehearsal--other-data--v1/evil.txt",
        "..",
        "{place}/evil.txt",
        "/evil.txt",
        "//evil.txt",
        "..\\evil.txt",
        "C:\\evil.txt",
        "evil\x01.txt",
        "x" * 201,
        "x/" * 3000 + "x",
    ],
)
def test_a_name_in_a_zip_that_leads_outside_is_refused(kaggle, client, tmp_path, name):
    """400; nothing is written, neither there nor here, and what came before it in the zip is gone
    too.
    """
    connected = client(kaggle)
    evil = {"first.txt": "1", name.format(place=tmp_path): "evil"}
    token = upload(connected, "pack.zip", archive(**evil))
    before = tree(tmp_path)

    with refused(400, "Invalid name in the archive"):
        create(connected, token)

    assert (tree(tmp_path), kaggle.datasets.datasets) == (before, {})
    assert not Path("/evil.txt").exists()
    assert create(connected, upload(connected, "good.txt", b"g")).status == "ok"
    assert names(connected) == ["good.txt"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_with_one_name_twice_is_refused(kaggle, client):
    """Which of the two would be used, nobody could tell."""
    connected, buffer = client(kaggle), io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a.txt", "1")
        file.writestr("a.txt", "2")

    with pytest.raises(requests.HTTPError, match=r"Duplicate name in the archive: 'a\.txt'"):
        create(connected, upload(connected, "pack.zip", buffer.getvalue()))

    assert kaggle.datasets.datasets == {}


@pytest.mark.parametrize("name", ["..", ".", "", "../up", "/top", "a/b", "a\\b", "\ud800"])
def test_a_folders_name_that_leads_outside_is_refused(kaggle, client, tmp_path, name):
    """400, and nothing is written."""
    connected = client(kaggle)
    token = upload(connected, "a.txt", b"a")
    before = tree(tmp_path)

    with refused(400, "Invalid folder name"):
        create(connected, folders=[folder(name, [token])])

    assert (tree(tmp_path), kaggle.datasets.datasets) == (before, {})


def test_two_files_of_one_name_are_refused(kaggle, client):
    """Neither of them wins."""
    connected = client(kaggle)
    tokens = [upload(connected, "a.txt", content) for content in (b"one", b"two")]

    with refused(400, r"Duplicate file name: a\.txt"):
        create(connected, *tokens)

    assert kaggle.datasets.datasets == {}
    assert list(tree(kaggle.folder / "datasets")) == []


@pytest.mark.parametrize("arrives", [False, True])
def test_a_blob_that_was_never_uploaded_is_refused(kaggle, client, arrives):
    """Neither announced, nor announced alone."""
    connected = client(kaggle)
    token = announce(connected, "a.txt", 1).token if arrives else "blob-999999"

    with refused(400, f"Blob {token} was never uploaded"):
        create(connected, token)

    assert kaggle.datasets.datasets == {}


# Reading


def test_files_are_listed_in_pages_with_their_sizes(kaggle, client):
    """Twenty a page, or as many as asked for."""
    connected = client(kaggle)
    create(
        connected,
        upload(connected, "p.zip", archive(**{f"{n:02}.txt": "x" * n for n in range(25)})),
    )

    first = ask(connected, "list_dataset_files")
    second = ask(connected, "list_dataset_files", page_token=first.next_page_token)
    third = ask(connected, "list_dataset_files", page_size=3, page_token="22")  # noqa: S106 - the place in a list

    assert [len(answer.dataset_files) for answer in (first, second, third)] == [20, 5, 3]
    assert [second.next_page_token, third.next_page_token] == ["", ""]
    listed = [*first.dataset_files, *second.dataset_files]
    assert [(file.name, file.total_bytes) for file in listed] == [
        (f"p/{n:02}.txt", n) for n in range(25)
    ]


@pytest.mark.parametrize("token", ["x", "-1", "1.0"])
def test_a_page_that_nobody_gave_out_is_refused(stored, client, token):
    """400, instead of the first page once more."""
    with refused(400, "Invalid page token"):
        ask(client(stored), "list_dataset_files", page_token=token)


def test_a_download_goes_on_where_it_was_cut(stored, client):
    """A redirect leads to one address, and its tag stays."""
    whole = ask(client(stored), "download_dataset", file_name="b.txt")

    rest = requests.get(whole.url, headers={"Range": "bytes=2-"}, timeout=30)

    assert (whole.history[0].status_code, whole.content) == (302, b"b.txt")
    assert (rest.status_code, rest.content, rest.headers["Content-Range"]) == (
        206,
        b"txt",
        "bytes 2-4/5",
    )
    assert rest.headers["ETag"] == whole.headers["ETag"]


@pytest.mark.parametrize(
    "name",
    [
        "missing.txt",
        "sub",
        "../rehearsal--small-data--v2/b.txt",
        "sub/../a.txt",
        "./a.txt",
        "/etc/hostname",
        "a.txt/",
    ],
)
def test_nothing_but_its_files_can_be_downloaded(stored, client, name):
    """Neither a folder, nor another version's file by a path."""
    assert (stored.folder / "datasets" / "rehearsal--small-data--v2" / "b.txt").is_file()

    with refused(404):
        fetch(client(stored), name, 1)


# Mounting


def test_a_session_keeps_the_version_that_was_current_when_it_was_pushed(start, client):
    """A newer one is for the next session, even while the older one still runs."""

    def read(session: Scripted) -> None:
        assert soon((session.working / "go").exists)
        data = session.inputs[f"datasets/{HANDLE}"]
        found = sorted(path.name for path in data.iterdir())
        session.log.add("stdout", f"found {found} {(data / 'a.txt').read_text()}")

    kaggle = start(competitions=(), ready_seconds=0, session=partial(Scripted, read))
    connected = client(kaggle)
    create(connected, upload(connected, "a.txt", b"one"), upload(connected, "old.txt", b""))
    save(connected, notebook("1"), dataset_data_sources=[HANDLE])
    add(connected, upload(connected, "a.txt", b"two"))
    save(connected, notebook("1"), dataset_data_sources=[HANDLE])
    versions = [kaggle.kernels.version("rehearsal/small-kernel", number) for number in (1, 2)]
    for version in versions:
        (version.working / "go").touch()

    logs = [finished(kaggle, number=number).log.text() for number in (1, 2)]

    assert "found ['a.txt', 'old.txt'] one" in logs[0]
    assert "found ['a.txt'] two" in logs[1]


def read_one(session: Scripted) -> None:
    """Tell what a session finds in its only input."""
    ((place, folder),) = session.inputs.items()
    session.log.add("stdout", f"{place} {(folder / 'a.txt').read_text()}")


def test_a_version_that_is_ready_may_not_be_mounted_yet(start, client):
    """Until then a session gets the one before it; a first one is no source."""
    facts, session = Facts(mount_seconds=FOR_EVER), partial(Scripted, read_one)
    kaggle = start(competitions=(), ready_seconds=0, facts=facts, session=session)
    connected, versions = client(kaggle), []
    for text in (b"one", b"two"):
        token = upload(connected, "a.txt", text)
        add(connected, token) if versions else create(connected, token)
        versions = kaggle.datasets.datasets[HANDLE].versions
        asked = save(connected, notebook("1"), dataset_data_sources=[HANDLE])
        assert asked.invalid_dataset_sources == ([] if len(versions) > 1 else [HANDLE])
        assert ask(connected, "get_dataset").current_version_number == len(versions)
        if len(versions) == 1:
            versions[0].mount_seconds = 0

    versions[1].mount_seconds = 0
    save(connected, notebook("1"), dataset_data_sources=[HANDLE])
    logs = [finished(kaggle, number=number).log.text() for number in (2, 3)]
    assert f"datasets/{HANDLE} one" in logs[0] and f"datasets/{HANDLE} two" in logs[1]


def test_a_session_gets_the_version_that_it_names(start, client):
    """An older one, too; one that is not there is no source."""
    kaggle = start(competitions=(), ready_seconds=0, session=partial(Scripted, read_one))
    connected = client(kaggle)
    create(connected, upload(connected, "a.txt", b"one"))
    add(connected, upload(connected, "a.txt", b"two"))
    wrong = [f"{HANDLE}/{number}" for number in ("3", "0", "x", "1/2")]

    answer = save(connected, notebook("1"), dataset_data_sources=[f"{HANDLE}/1", *wrong])

    assert answer.invalid_dataset_sources == wrong
    assert f"datasets/{HANDLE} one" in finished(kaggle).log.text()


def test_a_folder_stands_for_each_version_of_somebody_elses_dataset(start, client, tmp_path):
    """Nobody knows of which it is; everybody may look at it, and only its owner adds to it."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.txt").write_text("theirs")
    given = {"ann/small-data": tmp_path / "weights"}
    kaggle = start(competitions=(), datasets=given, session=partial(Scripted, read_one))
    connected = client(kaggle)

    answer = save(connected, notebook("1"), dataset_data_sources=["ann/small-data/7"])

    assert answer.invalid_dataset_sources == []
    assert "datasets/ann/small-data theirs" in finished(kaggle).log.text()
    assert ask(connected, "get_dataset", owner="ann").current_version_number == 1
    listed = ask(connected, "list_dataset_files", owner="ann", dataset_version_number=7)
    assert [file.name for file in listed.dataset_files] == ["a.txt"]
    with refused(403, r"datasets\.update"):
        add(connected, upload(connected, "b.txt", b""), owner="ann")
