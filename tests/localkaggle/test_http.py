"""How the local Kaggle speaks HTTP: to whom, by which names, and what it keeps of files that break
off.
"""

import base64
import http.client
import json
import os
from pathlib import Path

import pytest
import requests

from localkaggle import http_handler
from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from localkaggle.services.uploads import KEPT_BYTES
from tests.localkaggle.pushed_notebooks import Scripted, ask, push, request, soon

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
        ("", "127.0.0.1:{port}", 200),
        ("", "[::1]:{port}", 200),
        ("http://localhost", "localhost", 200),
        ("http://127.0.0.1:{port}", "127.0.0.1:{port}", 200),
        ("", "evil.example", 403),
        ("", "127.0.0.1.evil.example:{port}", 403),
        ("", "localhost:1", 403),
        ("", "", 403),
        ("http://www.kaggle.com", "www.kaggle.com", 403),
        ("http://10.0.0.1", "localhost", 403),
    ],
)
def test_only_requests_to_this_machine_are_answered(kaggle, before, host, code):
    """A page in a browser may let its own name lead to this port; and it is no proxy for others."""
    path = before.format(port=kaggle.port) + stored(kaggle, b"x")
    connection = http.client.HTTPConnection("127.0.0.1", kaggle.port, timeout=30)

    connection.request("GET", path, headers={"Host": host.format(port=kaggle.port)})

    assert connection.getresponse().status == code
    connection.close()


def test_no_tunnel_is_opened(kaggle):
    connection = http.client.HTTPConnection("127.0.0.1", kaggle.port, timeout=30)
    connection.request("CONNECT", "www.kaggle.com:443")

    assert connection.getresponse().status == 501
    connection.close()


def test_the_environment_holds_credentials_of_this_kaggle_alone(kaggle):
    """Its home is private and empty: a token in the real one would win, and be sent."""
    environment = kaggle.environment

    assert (environment["KAGGLE_USERNAME"], environment["KAGGLE_KEY"]) == ("rehearsal", kaggle.key)
    for name in ("HOME", "KAGGLE_CONFIG_DIR", "TMPDIR"):
        assert Path(environment[name]).is_relative_to(kaggle.folder)
        assert environment[name] != os.environ[name]
    assert not [path for path in Path(environment["HOME"]).rglob("*") if path.is_file()]


def test_the_journal_has_each_call_before_its_answer_and_never_a_credential(kaggle, monkeypatch):
    noted, send = [], http_handler.Handler._send

    def look(handler, *rest):
        noted.append(len(kaggle.journal))
        return send(handler, *rest)

    monkeypatch.setattr(http_handler.Handler, "_send", look)
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
    assert noted == [1, 2, 3, 4]
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
        ("POST", "/api/v1/models.ModelApiService/ListModels"),
        ("POST", "/api/v2/kernels.KernelsApiService/GetKernel"),
        ("POST", "/"),
        ("GET", STATUS),
        ("PUT", STATUS),
        ("GET", "/storage/000001/x"),
        ("GET", "/storage/../state.json/x"),
        ("PUT", "/upload/000001"),
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


def test_a_log_is_followed_while_the_run_goes(start):
    """As server-sent events, from the first line on, until Kaggle's word for the end."""

    def act(session: Scripted) -> None:
        session.log.add("stdout", "before\n")
        assert soon((session.working / "go").exists)
        session.log.add("stdout", "after\n")

    kaggle = start(act)
    push(kaggle)
    version = kaggle.kernels.version("rehearsal/small-kernel", 1)

    answer = request(kaggle, "GET", LOG, params={"versionLabel": "v1"}, stream=True)
    lines = filter(None, answer.iter_lines(chunk_size=1, decode_unicode=True))
    first = next(line for line in lines if "before" in line)
    running = not version.done.is_set()
    (version.working / "go").touch()
    rest = list(lines)

    assert json.loads(first.removeprefix("data: "))["stream_name"] == "stdout" and running
    assert any("after" in line for line in rest) and rest[-1] == "data: END_OF_LOG"


# Files


def test_the_rest_of_a_file_is_sent_if_it_is_still_that_file(kaggle):
    """By its tag or its date; otherwise the whole file comes."""
    url = stored(kaggle, b"0123456789")

    def fetch(**headers: str) -> requests.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return request(kaggle, "GET", url, headers=named, auth=None)

    whole = fetch()
    for same in (whole.headers["ETag"], whole.headers["Last-Modified"]):
        rest = fetch(Range="bytes=4-", If_Range=same)
        assert (rest.status_code, rest.content) == (206, b"456789")
        assert rest.headers["Content-Range"] == "bytes 4-9/10"
        assert rest.headers["x-goog-hash"] == whole.headers["x-goog-hash"]  # of all of it
    other = fetch(Range="bytes=4-", If_Range='"another"')
    assert (other.status_code, other.content) == (200, b"0123456789")
    assert fetch(Range="bytes=10-").status_code == 416
    assert request(kaggle, "HEAD", url).status_code == 404


def test_an_address_ends(start):
    """By itself after a while, or when a test says so. Another one works."""
    kaggle = start(facts=Facts(address_seconds=1e-9))
    answer = request(kaggle, "GET", stored(kaggle, b"x"))
    assert answer.status_code == 400 and "ExpiredToken" in answer.text

    kaggle.storage.address_seconds = 0
    url = stored(kaggle, b"x")
    assert request(kaggle, "GET", url).status_code == 200
    kaggle.storage.expire()
    assert request(kaggle, "GET", url).status_code == 400
    assert request(kaggle, "GET", stored(kaggle, b"x")).status_code == 200


def test_a_connection_breaks_after_so_many_bytes(kaggle):
    """Of each connection, while a file passes; what passed is counted."""
    url = stored(kaggle, b"0123456789")
    kaggle.wire.breaks_after = 4

    for start in (0, 4):
        with pytest.raises(requests.RequestException):
            request(kaggle, "GET", url, headers={"Range": f"bytes={start}-"})
    assert request(kaggle, "GET", url, headers={"Range": "bytes=8-"}).content == b"89"

    assert soon(lambda: (kaggle.wire.down, kaggle.wire.up) == (10, 0))


def test_an_upload_that_breaks_keeps_whole_pieces(kaggle):
    """Of 256 KiB, as Google's storage does; a client asks how many, and goes on there."""
    content = bytes(range(256)) * (3 * KEPT_BYTES // 256)
    url, size, start = announced(kaggle, len(content)), len(content), 2 * KEPT_BYTES
    kaggle.wire.breaks_after = start + 100

    with pytest.raises(requests.RequestException):
        put(kaggle, url, content)
    how_far = put(kaggle, url, b"", f"bytes */{size}")
    assert (how_far.status_code, how_far.headers["Range"]) == (308, f"bytes=0-{start - 1}")
    kaggle.wire.breaks_after = 0
    rest = put(kaggle, url, content[start:], f"bytes {start}-{size - 1}/{size}")

    assert rest.status_code == 200 and kaggle.wire.up == start + 100 + size - start
    assert kaggle.uploads.complete(url.split("/")[-1]).path.read_bytes() == content


@pytest.mark.parametrize(
    "wrong", ["bytes 6-9/10", "bytes 5-8/20", "bytes x-9/10", "items 5-8/10", "bytes", "5-9/10"]
)
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
