"""The address of the Kaggle is known before anything is asked, and shown without secrets."""

import pytest

from deploy.client import server_address
from deploy.client.client import Kaggle
from deploy.errors import UsageError


def test_the_site_is_the_site_whatever_the_proxy(monkeypatch):
    """A company's proxy is no Kaggle."""
    monkeypatch.delenv("KAGGLE_API_ENVIRONMENT")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:3128")

    assert server_address.address() == "api.kaggle.com"


@pytest.mark.parametrize(
    "proxy", ["http://127.0.0.1:4001", "http://ann:secret@127.0.0.1:4001/", "127.0.0.1:4001"]
)
def test_a_local_kaggle_is_told_by_its_port_and_without_credentials(monkeypatch, proxy):
    """It is the proxy for http://localhost."""
    monkeypatch.setenv("http_proxy", proxy)

    assert server_address.address() == "127.0.0.1:4001"


def test_without_a_proxy_it_is_localhost_itself(monkeypatch):
    """The official client's address of a local one."""
    monkeypatch.setenv("no_proxy", "localhost")

    assert server_address.address() == "localhost"


def test_an_environment_that_the_client_would_ignore_is_refused(monkeypatch):
    """The client would silently take it for the site."""
    monkeypatch.setenv("KAGGLE_API_ENVIRONMENT", "TEST")

    for ask in (server_address.address, Kaggle.connect):
        with pytest.raises(UsageError, match="LOCALHOST"):
            ask()
