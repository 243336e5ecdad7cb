"""How the local Kaggle speaks HTTP: to whom, by which names, and what it keeps of files that break
off.
"""

import base64
import http.client
import json
import os
import threading
from pathlib import Path

import pytest
import requests

from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from tests.localkaggle.pushed_notebooks import SECONDS_AT_MOST, Scripted, ask, push, request

STATUS = "/api/v1/kernels.KernelsApiService/GetKernelSessionStatus"
LOG = "/v1/kernels/logs/stream/rehearsal/small-kernel"


def stored(kaggle: LocalKaggle, content: bytes) -> str:
    """Store a file and return its address."""
    path = kaggle.storage.fresh()
    path.write_bytes(content)
    return f"/storage/{kaggle.storage.share('x', path)}/x"


def announced(kaggle: LocalKaggle, size: int) -> str:
    """Announce an upload and return its address."""
    return str(ask(kaggle, "StartBlobUpload", name="x", contentLength=size).said["createUrl"])


def put(kaggle: LocalKaggle, url: str, body: bytes, content_range: str = "") -> requests.Response:
    headers = {"Content-Range": content_range} if content_range else {}
    return request(kaggle, "PUT", url, data=body, headers=headers, auth=None)


# Who is answered


def basic(text: bytes) -> str:
    return f"Basic {base64.b64encode(text).decode()}"


@pytest.mark.parametrize(
    "header",
    ["", "Basic", "Basic not-base-64!", basic(b"rehearsal:"), basic(b"rehearsal"), basic(b"\xff"),
     "Bearer ", "Bearer KGAT_0", "Digest x"],
)  # fmt: skip
def test_no_header_but_the_right_one_opens(kaggle, header):
    """No call, and no log."""
    headers = {"Authorization": header} if header else {}

    for method, path in (("POST", STATUS), ("GET", LOG)):
        answer = request(kaggle, method, path, auth=None, data=b"{}", headers=headers)
        assert answer.status_code == 401
    for header in (basic(f"rehearsal:{kaggle.key}".encode()), f"Bearer {kaggle.token}"):
        headers = {"Authorization": header}
        assert request(kaggle, "POST", STATUS, auth=None, headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("before", "host", "code"),
    [
        ("", "localhost:{port}", 200),
        ("", "[::1]:{port}", 200),
        ("http://localhost", "localhost", 200),
        ("", "evil.example", 403),
        ("", "127.0.0.1.evil.example:{port}", 403),
        ("", "localhost:1", 403),
        ("", "", 403),
        ("http://www.kaggle.com", "www.kaggle.com", 403),
    ],
)
def test_only_requests_to_this_machine_are_answered(kaggle, before, host, code):
    """A page in a browser may let its own name lead to this port; and it is no proxy for others."""
    path = before.format(port=kaggle.port) + stored(kaggle, b"x")
    connection = http.client.HTTPConnection("127.0.0.1", kaggle.port, timeout=30)

    connection.request("GET", path, headers={"Host": host.format(port=kaggle.port)})

    assert connection.getresponse().status == code
    connection.close()


def test_the_environment_holds_credentials_of_this_kaggle_alone(kaggle):
    """Its home is private and empty: a token in the real one would win, and be sent."""
    environment = kaggle.environment

    assert (environment["KAGGLE_USERNAME"], environment["KAGGLE_KEY"]) == ("rehearsal", kaggle.key)
    for name in ("HOME", "KAGGLE_CONFIG_DIR", "TMPDIR"):
        assert Path(environment[name]).is_relative_to(kaggle.folder)
        assert environment[name] != os.environ[name]
    assert not [path for path in Path(environment["HOME"]).rglob("*") if path.is_file()]


def test_the_journal_has_each_call_and_never_a_credential(kaggle):
    push(kaggle)
    ask(kaggle, "GetKernel", kernelSlug="missing")
    call = "/api/v1/security.OAuthService/IntrospectToken"
    request(kaggle, "POST", call, json={"token": kaggle.token})
    request(kaggle, "POST", STATUS, json={}, auth=("rehearsal", "f" * 32))

    assert [(call, code) for call, _, code, _ in kaggle.journal] == [
        ("SaveKernel", 200),
        ("GetKernel", 403),
        ("IntrospectToken", 200),
        ("GetKernelSessionStatus", 401),
    ]
    assert kaggle.journal[1][1] == {"kernelSlug": "missing"}
    for secret in (kaggle.key, kaggle.token, "f" * 32):
        assert secret not in (text := json.dumps(kaggle.journal))
        assert basic(f"rehearsal:{secret}".encode()) not in text


# What is answered


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/kernels.KernelsApiService/NoSuchMethod"),
        ("POST", "/api/v1/kernels.KernelsApiService/close"),
        ("POST", "/api/v1/kernels.KernelsApiService/GetDataset"),
        ("POST", "/api/v2/kernels.KernelsApiService/GetKernel"),
        ("POST", "/"),
        ("GET", STATUS),
        ("GET", "/storage/../state.json/x"),
        ("PUT", "/upload/.."),
    ],
)
def test_what_is_not_served_is_not_found(kaggle, method, path):
    """The server's own methods are no calls, and a key is no file's name."""
    stored(kaggle, b"x"), announced(kaggle, 1)

    assert request(kaggle, method, path, data=b"{}").status_code == 404


@pytest.mark.parametrize(
    "body",
    [b'{"colour": "red"}', b'{"user_name": "rehearsal"}', b"no json", b"[]", b'"text"', b"\xff"],
)
def test_a_request_that_kaggle_would_not_understand_is_refused(kaggle, body):
    """An unknown field is an error of the caller, not one to overlook."""
    answer = request(kaggle, "POST", STATUS, data=body)

    assert answer.status_code == 400 and "Malformed" in answer.json()["message"]


def test_a_body_may_come_in_chunks_on_one_connection(kaggle):
    whole = json.dumps({"slug": "rehearsal/small-kernel", "newTitle": "Small Kernel"}).encode()
    address = f"http://127.0.0.1:{kaggle.port}/api/v1/kernels.KernelsApiService/SaveKernel"
    with requests.Session() as session:
        session.trust_env, session.auth = False, ("rehearsal", kaggle.key)
        answers = [session.post(address, data=iter([whole[:9], whole[9:]])) for _ in range(2)]

    assert [answer.json()["versionNumber"] for answer in answers] == [1, 2]


# Files


def test_an_address_ends(start):
    """By itself after a while, or when a test says so. Another one works."""
    kaggle = start(facts=Facts(address_seconds=1e-9))
    answer = request(kaggle, "GET", stored(kaggle, b"x"))
    assert answer.status_code == 400 and "ExpiredToken" in answer.text

    kaggle.storage.address_seconds = 0
    url = stored(kaggle, b"x")
    kaggle.storage.expire()
    assert request(kaggle, "GET", url).status_code == 400
    assert request(kaggle, "GET", stored(kaggle, b"x")).status_code == 200


@pytest.mark.parametrize("wrong", ["bytes 6-9/10", "bytes 5-8/20", "items 5-8/10", "5-9/10"])
def test_a_wrong_range_spoils_nothing(kaggle, wrong):
    """A gap would be a file with a hole; a part that is sent again replaces what followed."""
    url = announced(kaggle, 10)
    put(kaggle, url, b"0123xxx", "bytes 0-6/10")
    assert put(kaggle, url, b"4", "bytes 4-4/10").headers["Range"] == "bytes=0-4"

    assert put(kaggle, url, b"xxxx", wrong).status_code == 400

    assert put(kaggle, url, b"56789", "bytes 5-9/10").status_code == 200
    assert kaggle.uploads.complete(url.split("/")[-1]).path.read_bytes() == b"0123456789"


def test_another_size_than_announced_is_no_upload_and_one_may_expire(kaggle):
    url = announced(kaggle, 5)

    for body in (b"", b"four", b"sixsix"):
        assert put(kaggle, url, body).status_code != 200
    kaggle.uploads.expire()
    assert put(kaggle, url, b"", "bytes */5").status_code == 404


def test_a_file_that_is_another_one_by_now_comes_whole(kaggle):
    """By its tag."""
    url = stored(kaggle, b"0123456789")
    tag = request(kaggle, "GET", url).headers["ETag"]

    for same, content in ((tag, b"456789"), ('"another"', b"0123456789")):
        headers = {"Range": "bytes=4-", "If-Range": same}
        assert request(kaggle, "GET", url, headers=headers).content == content
    assert request(kaggle, "GET", url, headers={"Range": "bytes=10-"}).status_code == 416


def test_an_upload_that_breaks_keeps_whole_pieces(kaggle):
    """Of 256 KiB, as Google's storage does; what passed is counted."""
    size = 3 * 256 * 1024
    url, kept = announced(kaggle, size), 2 * 256 * 1024
    kaggle.wire.breaks_after = kept + 100

    with pytest.raises(requests.RequestException):
        put(kaggle, url, bytes(size))

    assert kaggle.wire.up == kept + 100
    assert put(kaggle, url, b"", f"bytes */{size}").headers["Range"] == f"bytes=0-{kept - 1}"


def test_a_log_is_followed_while_the_run_goes(start):
    """As server-sent events, until Kaggle's word for the end."""
    seen = threading.Event()

    def act(session: Scripted) -> None:
        session.log.add("stdout", "said\n")
        assert seen.wait(SECONDS_AT_MOST)

    push(kaggle := start(act))
    answer = request(kaggle, "GET", LOG, params={"versionLabel": "v1"}, stream=True)
    lines = filter(None, answer.iter_lines(chunk_size=1, decode_unicode=True))

    assert any("said" in line for line in lines)
    seen.set()
    assert [*lines][-1] == "data: END_OF_LOG"
