"""Ordinary days of a network: offline, behind a company's proxy, a Kaggle that is not there; and
an error of our own, which is none of these.
"""

import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kagglesdk.kernels.types.kernels_api_service import ApiDeleteKernelRequest

from deploy import calls, status
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.errors import BadAnswer, CredentialError, Unreachable, UsageError
from deploy.records import Records
from tests.deploy.between import RESET

PATIENT = Pace(first=0.01, most=0.05, patience=3600)
TOO_MANY = (429, {"error": {"code": 429, "message": "Too many requests"}}, {"Retry-After": "60"})
LEFT = {"tpuQuota": {"timeUsed": "0s", "totalTimeAllowed": "72000s"}}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, shown: list[str]) -> Kaggle:
    """Return a client of the site's own address; a test decides what is on the way to it."""
    monkeypatch.setenv("KAGGLE_USERNAME", "ann")
    monkeypatch.setenv("KAGGLE_KEY", "not-a-key")
    kaggle = Kaggle.connect(pace=PATIENT, show=shown.append)
    kaggle._http._endpoint = "https://api.kaggle.com"  # else settled when the client is imported
    monkeypatch.setenv("KAGGLE_API_ENVIRONMENT", "PROD")
    for name in ("https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return kaggle


@dataclass(frozen=True)
class Ours:
    """An answer in whose making our own code fails."""

    def __post_init__(self) -> None:
        raise TypeError("ours")


def test_an_error_of_our_own_is_raised_as_it_is_and_asked_once(kaggle, between):
    kaggle.pace, call = PATIENT, replace(calls.QUOTA, answer=Ours)
    between.always(call.method, {})

    for ask in (kaggle._read, kaggle._write):
        with pytest.raises(TypeError, match="ours"):
            ask("ask", call, {})
    assert between.count(call.method) == 2


def test_answers_that_cannot_be_read_are_told(kaggle, between):
    """Not after minutes of "check the network": Kaggle did answer."""
    kaggle.pace = PATIENT
    between.always("GetKernelSessionStatus", (200, None))

    with pytest.raises(BadAnswer, match="this project expects"):
        kaggle.kernel_status("ann/x-train-tpu", 1)

    assert between.count("GetKernelSessionStatus") == 3  # a single one may be a blip


def test_a_field_that_the_client_has_renamed_is_told_before_anything_is_sent(
    kaggle, between, monkeypatch
):
    monkeypatch.delattr(ApiDeleteKernelRequest, "kernel_slug")

    with pytest.raises(UsageError, match="ApiDeleteKernelRequest has no kernel_slug"):
        kaggle.delete_kernel("ann/x-train-tpu")

    assert not between.seen


# The network of this machine


def test_a_machine_that_is_offline_is_told_in_seconds_what_it_looks_like(site, monkeypatch, shown):
    looked_up = []

    def offline(host, *rest, **more):
        looked_up.append(host)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    monkeypatch.setattr("deploy.connection.FIRST_PATIENCE", 0.2)

    with pytest.raises(Unreachable, match="this machine seems to be offline") as caught:
        site.quota()

    assert set(looked_up) == {"api.kaggle.com"} and caught.value.exit_code == 6
    assert shown[-1].endswith("offline. Retrying for up to 0 s.")


def test_a_network_that_drops_for_a_minute_ends_nothing(kaggle, between, monkeypatch):
    monkeypatch.setattr("deploy.connection.FIRST_PATIENCE", 0.0)
    between.say("GetAcceleratorQuotaStatistics", [LEFT, *[RESET] * 5, LEFT])
    kaggle.quota()

    assert kaggle.quota().tpu_seconds == 72_000


def test_a_kaggle_that_answers_gets_all_the_patience_after_a_first_break(
    kaggle, between, monkeypatch
):
    """Ten seconds are for a machine without a network."""
    kaggle.pace, now = PATIENT, [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    between.say("GetAcceleratorQuotaStatistics", [RESET, TOO_MANY, TOO_MANY, LEFT])

    assert kaggle.quota().tpu_seconds == 72_000


def test_a_storage_that_is_blocked_is_named_and_kaggle_is_not(
    kaggle, between, monkeypatch, tmp_path
):
    """A company's network may know kaggle.com alone."""
    for name in ("https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    real = socket.getaddrinfo

    def looked_up(host, *rest, **more):
        if host == "storage.googleapis.com":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    between.say("GetAcceleratorQuotaStatistics", [LEFT])
    kaggle.quota()
    kaggle.pace = replace(PATIENT, patience=0.0)

    with pytest.raises(Unreachable) as caught:
        kaggle.download("https://storage.googleapis.com/x?signature=1", tmp_path / "x")

    why, todo = str(caught.value).split("\n")
    assert "storage.googleapis.com cannot be looked up; Kaggle itself answered" in why
    assert "storage.googleapis.com" in todo and "kaggle.com," not in todo


def test_a_local_kaggle_that_is_not_running_is_told_at_once_and_once(between, shown):
    kaggle = Kaggle.connect(pace=PATIENT, show=shown.append)
    between.__exit__()

    with pytest.raises(Unreachable, match=r"nothing answers at 127\.0\.0\.1:\d") as caught:
        kaggle.quota()

    said = str(caught.value)
    assert "\ninvoke serve" in said and "\npython -m localkaggle serve" in said
    assert "ProxyError" not in said and len(shown) == 1  # logging in, and no retry


def test_status_says_why_the_quota_is_not_known_and_ends_with_a_key_that_has_ended(
    kaggle, between, ours
):
    between.always("GetAcceleratorQuotaStatistics", (403, {"code": 403, "message": "Not allowed"}))
    found = status.now(kaggle, Records(ours))
    assert "403 Not allowed" in found["hours_unknown"]
    assert f"not known: {found['hours_unknown']}" in "".join(status.state_lines(found))

    between.always("GetAcceleratorQuotaStatistics", (401, {"code": 401, "message": "Unauthorized"}))
    with pytest.raises(CredentialError, match="401 Unauthorized"):
        status.now(kaggle, Records(ours))


@contextmanager
def proxy(patch: pytest.MonkeyPatch, answer: bytes, certificate: Path | None = None):
    """Lead the client through a proxy that answers each CONNECT so, and speaks TLS itself if it has
    a certificate; give its server.
    """

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.server.asked += 1
            self.request.recv(65536)
            self.request.sendall(answer)
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                with suppress(OSError):
                    context.wrap_socket(self.request, server_side=True).close()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.asked, server.daemon_threads = 0, True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        patch.setenv("https_proxy", f"http://ann:secret@127.0.0.1:{server.server_address[1]}")
        patch.setenv("no_proxy", "intranet.example")
        yield server
        server.shutdown()


def test_a_proxy_that_wants_a_login_is_named_without_its_password_and_asked_once(site, monkeypatch):
    with (
        proxy(monkeypatch, b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n") as server,
        pytest.raises(Unreachable, match="407 Proxy Authentication Required") as caught,
    ):
        site.quota()

    said = str(caught.value)
    assert f"https_proxy 127.0.0.1:{server.server_address[1]}" in said and "secret" not in said
    assert "no_proxy intranet.example" in said and server.asked == 1


@pytest.mark.parametrize("address", ["http://nowhere.invalid:3128", "http://127.0.0.1:9"])
def test_a_proxy_that_is_not_there_is_told_from_a_machine_that_is_offline(
    site, monkeypatch, address
):
    """A name with a slip, or a company's network that this machine has left."""
    real = socket.getaddrinfo

    def looked_up(host, *rest, **more):
        if host == "nowhere.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setenv("https_proxy", address)
    site.pace = replace(PATIENT, patience=0.0)

    with pytest.raises(Unreachable, match=r"the proxy(.|\n)*Correct https_proxy") as caught:
        site.quota()

    assert "offline" not in str(caught.value)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_a_company_s_certificate_says_which_variable_names_it(site, monkeypatch, tmp_path):
    """Nobody has signed it."""
    key, signed = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=api.kaggle.com", "-keyout", key]
    command = ["openssl", "req", "-x509", *words, "-out", signed]
    subprocess.run(command, check=True, capture_output=True)
    key.write_text(key.read_text() + signed.read_text())

    with (
        proxy(monkeypatch, b"HTTP/1.1 200 OK\r\n\r\n", key) as server,
        pytest.raises(Unreachable, match=r"(?s)does not trust.*export REQUESTS_CA_BUNDLE="),
    ):
        site.quota()

    assert server.asked == 1


def test_a_file_of_authorities_that_is_not_there_is_named(site, monkeypatch, tmp_path):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "no.pem"))

    with pytest.raises(UsageError, match=r"no\.pem.*REQUESTS_CA_BUNDLE") as caught:
        site.quota()

    assert caught.value.exit_code == 2


@pytest.mark.parametrize("proxy", ["socks9://127.0.0.1:1", "http://[::1"])
def test_a_proxy_that_is_no_address_is_told_at_once(site, monkeypatch, proxy):
    monkeypatch.setenv("https_proxy", proxy)

    with pytest.raises(Unreachable, match="cannot be made as it is set up"):
        site.quota()
