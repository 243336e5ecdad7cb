"""Storage: files behind addresses that nobody can guess, and uploads that go on."""

import hashlib
import http.client
import time
from pathlib import Path

import kagglesdk.blobs.types.blob_api_service as types
import pytest
import requests

from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from localkaggle.services.uploads import KEPT_BYTES


@pytest.fixture
def kaggle(start) -> LocalKaggle:
    return start(competitions=())


def stored(kaggle: LocalKaggle, content: bytes) -> str:
    """Store a file and return its address."""
    path = kaggle.storage.fresh()
    path.write_bytes(content)
    return f"http://127.0.0.1:{kaggle.port}/storage/{kaggle.storage.share('x', path)}/x"


def announced(kaggle: LocalKaggle, size: int) -> str:
    """Announce an upload and return its address."""
    token = kaggle.uploads.announce(types.ApiStartBlobUploadResponse, "x", size).token
    return f"http://127.0.0.1:{kaggle.port}/upload/{token}"


def ask(method: str, url: str, body: bytes = b"", **headers: str) -> requests.Response:
    """Ask without any proxy; `headers`: with _ for -."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    with requests.Session() as session:
        session.trust_env = False
        return session.request(method, url, data=body, headers=given, timeout=30)


def test_nobody_guesses_an_address(kaggle):
    """Neither the next file's nor the next upload's: those who share the machine may try."""
    files = {stored(kaggle, b"x").split("/")[4] for _ in range(3)}
    uploads = {announced(kaggle, 1).split("/")[4] for _ in range(3)}

    assert len(files | uploads) == 6 and min(map(len, files | uploads)) >= 40
    for key in ("1", "2", "000001", "blob-000001"):
        assert ask("GET", f"http://127.0.0.1:{kaggle.port}/storage/{key}/x").status_code == 404
        assert ask("PUT", f"http://127.0.0.1:{kaggle.port}/upload/{key}", b"x").status_code == 404


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "localhost:1", "127.0.0.1.evil.example:{port}", ""],
)
def test_a_request_to_another_name_is_refused(kaggle, host):
    """A page in a browser may let its own name lead to this port."""
    path = stored(kaggle, b"x").partition(str(kaggle.port))[2]
    connection = http.client.HTTPConnection("127.0.0.1", kaggle.port, timeout=30)

    connection.request("GET", path, headers={"Host": host.format(port=kaggle.port)})

    assert connection.getresponse().status == 403
    connection.close()


@pytest.mark.parametrize(
    ("before", "host"),
    [
        ("", "localhost:{port}"),
        ("", "127.0.0.1:{port}"),
        ("", "[::1]:{port}"),
        ("http://localhost", "localhost"),
        ("http://127.0.0.1:{port}", "127.0.0.1:{port}"),
    ],
)
def test_a_request_to_this_machine_is_answered(kaggle, before, host):
    """Directly, and as through a proxy."""
    path = stored(kaggle, b"x").partition(str(kaggle.port))[2]
    connection = http.client.HTTPConnection("127.0.0.1", kaggle.port, timeout=30)

    url = before.format(port=kaggle.port) + path
    connection.request("GET", url, headers={"Host": host.format(port=kaggle.port)})

    assert connection.getresponse().read() == b"x"
    connection.close()


def test_a_file_is_hashed_once(kaggle, monkeypatch):
    """However often it is fetched; another file at its place has another hash."""
    url = stored(kaggle, b"one")
    path = kaggle.storage.find(url.split("/")[4])
    hashed = []
    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *given: hashed.append(1) or real(*given))

    first, second = (ask("GET", url).headers["x-goog-hash"] for _ in range(2))
    path.write_bytes(b"other")

    assert first == second != ask("GET", url).headers["x-goog-hash"] and len(hashed) == 2


def test_the_rest_of_a_file_is_sent_if_it_is_still_that_file(kaggle):
    """By its tag or its date; otherwise the whole file comes."""
    url = stored(kaggle, b"0123456789")
    whole = ask("GET", url)
    tag, date = whole.headers["ETag"], whole.headers["Last-Modified"]

    for same in (tag, date):
        rest = ask("GET", url, Range="bytes=4-", If_Range=same)
        assert (rest.status_code, rest.content) == (206, b"456789")
        assert rest.headers["Content-Range"] == "bytes 4-9/10"
        assert rest.headers["x-goog-hash"] == whole.headers["x-goog-hash"]  # of all of it
    other = ask("GET", url, Range="bytes=4-", If_Range='"another"')
    assert (other.status_code, other.content) == (200, b"0123456789")
    beyond = ask("GET", url, Range="bytes=10-")
    assert (beyond.status_code, beyond.headers["Content-Range"]) == (416, "bytes */10")


def test_an_address_is_for_get_alone(kaggle):
    """As Kaggle signs it: to HEAD it answers 404."""
    url = stored(kaggle, b"x")

    assert (ask("HEAD", url).status_code, ask("GET", url).status_code) == (404, 200)


def test_an_address_ends(start):
    """By itself after a while, in a mode; or when a test says so. Another one works."""
    kaggle = start(competitions=(), facts=Facts(address_seconds=1e-9))
    answer = ask("GET", stored(kaggle, b"x"))
    assert answer.status_code == 400 and "ExpiredToken" in answer.text

    kaggle.storage.address_seconds = 0
    url = stored(kaggle, b"x")
    assert ask("GET", url).status_code == 200
    kaggle.storage.expire()
    assert ask("GET", url).status_code == 400
    assert ask("GET", stored(kaggle, b"x")).status_code == 200


def test_a_connection_breaks_after_so_many_bytes(kaggle):
    """Of each connection, while a file passes; what passed is counted."""
    url = stored(kaggle, b"0123456789")
    kaggle.wire.breaks_after = 4

    with pytest.raises(requests.RequestException):
        ask("GET", url)
    with pytest.raises(requests.RequestException):
        ask("GET", url, Range="bytes=4-")
    assert ask("GET", url, Range="bytes=8-").content == b"89"

    end = time.monotonic() + 30  # the server counts a piece once it has sent it
    while kaggle.wire.down < 10 and time.monotonic() < end:
        time.sleep(0.01)
    assert (kaggle.wire.down, kaggle.wire.up) == (10, 0)


def test_an_upload_that_breaks_keeps_whole_pieces(kaggle):
    """Of 256 KiB, as Google's storage does; a client asks how many, and goes on there."""
    content = bytes(range(256)) * (3 * KEPT_BYTES // 256)
    url, size = announced(kaggle, len(content)), len(content)
    kaggle.wire.breaks_after = 2 * KEPT_BYTES + 100

    with pytest.raises(requests.RequestException):
        ask("PUT", url, content)
    how_far = ask("PUT", url, Content_Range=f"bytes */{size}")
    start = 2 * KEPT_BYTES
    assert (how_far.status_code, how_far.headers["Range"]) == (308, f"bytes=0-{start - 1}")
    kaggle.wire.breaks_after = 0
    rest = ask("PUT", url, content[start:], Content_Range=f"bytes {start}-{size - 1}/{size}")

    assert rest.status_code == 200 and kaggle.wire.up == start + 100 + size - start
    blob = kaggle.uploads.complete(url.split("/")[4])
    assert Path(blob.path).read_bytes() == content


def test_an_upload_that_expired_is_not_found(kaggle):
    """A week is long; then another one has to be announced."""
    url, done = announced(kaggle, 9), announced(kaggle, 1)
    assert ask("PUT", done, b"x").status_code == 200

    kaggle.uploads.expire()

    assert ask("PUT", url, Content_Range="bytes */9").status_code == 404
    assert ask("PUT", done, Content_Range="bytes */1").status_code == 200
