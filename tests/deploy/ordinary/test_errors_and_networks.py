"""Ordinary network trouble: offline, behind a company's proxy, no local Kaggle."""

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from deploy import status
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.errors import CredentialError, Unreachable
from deploy.records import Records
from tests.deploy.between import RESET

SHORT, PATIENT = (Pace(first=0.01, most=0.05, patience=seconds) for seconds in (0, 3600))
QUOTA, STORAGE = "GetAcceleratorQuotaStatistics", "storage.googleapis.com"
TOO_MANY = (429, {"error": {"code": 429, "message": "Too many requests"}}, {"Retry-After": "60"})
LEFT = {"tpuQuota": {"timeUsed": "0s", "totalTimeAllowed": "72000s"}}


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but what a test says is on the way to the site."""
    for name in ("https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, shown: list[str], direct: None) -> Kaggle:
    """Return a client of the site's own address, which asks once."""
    monkeypatch.setenv("KAGGLE_USERNAME", "ann")
    monkeypatch.setenv("KAGGLE_KEY", "not-a-key")
    monkeypatch.setenv("KAGGLE_API_ENVIRONMENT", "PROD")
    return Kaggle.connect(pace=SHORT, show=shown.append)


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that lets nobody look up a name that ends so."""
    real = socket.getaddrinfo

    def forget(ending: str) -> None:
        def looked_up(host: str, *rest: object, **more: object) -> object:
            if host.endswith(ending):
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            return real(host, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", looked_up)

    return forget


def test_an_offline_machine_is_recognized_within_seconds(site, unknown, monkeypatch, shown):
    unknown("api.kaggle.com")
    site.pace = PATIENT
    monkeypatch.setattr("deploy.connection.FIRST_PATIENCE", 0.2)

    with pytest.raises(Unreachable, match="this machine is offline") as caught:
        site.quota()

    assert caught.value.exit_code == 6
    assert shown[-1].endswith("Retrying for up to 0 s.")


def test_a_kaggle_that_has_answered_is_retried_patiently(kaggle, between, monkeypatch):
    """Ten seconds are for an offline machine. A 502 once ended a watch of nine hours."""
    kaggle.pace, now = PATIENT, [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    blips = [RESET, TOO_MANY, TOO_MANY, (502, b""), (200, b"<html>a login page</html>")]
    between.say(QUOTA, [*blips, *[RESET] * 5, LEFT])

    assert kaggle.quota().tpu_seconds == 72_000


def test_a_storage_that_is_blocked_is_named_and_kaggle_is_not(
    kaggle, between, unknown, direct, tmp_path
):
    """A company's network may allow kaggle.com alone."""
    unknown(STORAGE)
    between.say(QUOTA, [LEFT])
    kaggle.quota()
    kaggle.pace = SHORT

    with pytest.raises(Unreachable) as caught:
        kaggle.download(f"https://{STORAGE}/x?signature=1", tmp_path / "x")

    why, todo = str(caught.value).split("\n")
    assert f"{STORAGE} cannot be resolved: " in why and "its network blocks that name" in why
    assert STORAGE in todo and "kaggle.com," not in todo


def test_a_local_kaggle_that_does_not_run_is_reported_with_the_command(kaggle, between):
    kaggle.pace = SHORT
    between.__exit__()

    with pytest.raises(Unreachable, match=r"nothing is listening at 127\.0\.0\.1:\d") as caught:
        kaggle.quota()

    said = str(caught.value)
    assert "\ninvoke serve" in said and "\npython -m localkaggle serve" in said
    assert "ProxyError" not in said


def test_status_reports_an_unknown_quota_and_ends_with_an_expired_key(kaggle, between, ours):
    between.always(QUOTA, (403, {"code": 403, "message": "Not allowed"}))
    found = status.now(kaggle, Records(ours))
    assert "403 Not allowed" in found["hours_unknown"]
    assert f"unknown: {found['hours_unknown']}" in "".join(status.state_lines(found))

    between.always(QUOTA, (401, {"code": 401, "message": "Unauthorized"}))
    with pytest.raises(CredentialError, match="401 Unauthorized"):
        status.now(kaggle, Records(ours))


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[socketserver.TCPServer]:
    """Lead the client through a proxy, which answers each CONNECT by `says`, and counts them."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.server.asked += 1
            self.request.recv(65536)
            self.request.sendall(f"HTTP/1.1 {self.server.says}\r\n\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.says, server.daemon_threads = 0, "200 OK", True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("https_proxy", f"http://ann:secret@127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("no_proxy", "intranet.example")
        yield server
        server.shutdown()


def test_a_proxy_that_wants_a_login_is_named_without_its_password_and_asked_once(site, proxy):
    proxy.says = "407 Proxy Authentication Required"

    with pytest.raises(Unreachable, match="407 Proxy Authentication Required") as caught:
        site.quota()

    said = str(caught.value)
    assert f"https_proxy 127.0.0.1:{proxy.server_address[1]}" in said and "secret" not in said
    assert "no_proxy intranet.example" in said and proxy.asked == 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        # A name with a slip, a company's network that this machine has left, and no address.
        ("https_proxy", "http://nowhere.invalid:3128", "Correct https_proxy"),
        ("https_proxy", "http://127.0.0.1:9", "Correct https_proxy"),
        ("https_proxy", "socks9://127.0.0.1:1", "Correct https_proxy"),
        ("https_proxy", "http://[::1", "Correct https_proxy"),
        ("REQUESTS_CA_BUNDLE", "/no.pem", r"no\.pem(.|\n)*REQUESTS_CA_BUNDLE"),
    ],
)
def test_a_wrong_setting_is_not_reported_as_offline(site, unknown, monkeypatch, name, value, said):
    unknown("nowhere.invalid")
    monkeypatch.setenv(name, value)

    with pytest.raises(Unreachable, match=said) as caught:
        site.quota()

    assert "offline" not in str(caught.value)
