"""A login in the browser gives access tokens that expire within hours; a command outlives them."""

import json
from functools import partial

import pytest

from deploy import secrets
from deploy.errors import CredentialError
from localkaggle.server import LocalKaggle
from tests.deploy.small import HANDLE, connect, metadata
from tests.faults.world import log_in
from tests.localkaggle.pushed_notebooks import Scripted, notebook

PUSH = {**metadata("train-tpu"), "id": HANDLE, "title": "Digits Train Tpu"}
RENEW, ASK, SAVE = "GenerateAccessToken", "GetAcceleratorQuotaStatistics", "SaveKernel"


@pytest.fixture
def local(host) -> LocalKaggle:
    """Return a Kaggle where nothing runs, and to which the client is led."""
    return host(session=partial(Scripted, lambda session: None))


def codes(local: LocalKaggle, method: str) -> list[int]:
    """Return how the calls of a method were answered."""
    return [call.code for call in local.journal if call.method == method]


def test_a_read_renews_an_expired_token(local):
    """A watch of thirty hours needs three of them. Temporary errors do not end it, and the newest
    token is kept for the next command.
    """
    file, kaggle = log_in(local), connect()
    local.oauth.end_access()
    local.faults.say(RENEW, ["502", "HTML with 200", "reset", "500 after"])

    assert kaggle.quota().tpu_seconds == 20 * 3600

    kept = json.loads(file.read_text())["access_token"]
    assert kaggle._http._session.auth.token == kept and kept not in secrets.redact(f"token {kept}")


def test_a_write_that_got_a_401_is_sent_again_and_happens_once(local):
    """The first call did nothing."""
    log_in(local)
    kaggle = connect()
    local.oauth.end_access()

    saved = kaggle.save_kernel(PUSH, notebook("1"), timeout_seconds=60)

    assert saved.version == 1 and codes(local, SAVE)[:2] == [401, 200]
    assert codes(local, SAVE).count(200) == 1


@pytest.mark.parametrize(("seconds", "renewed"), [(-600, 1), (1800, 1), (7200, 0)])
def test_a_token_with_less_than_an_hour_is_renewed_at_the_start(local, seconds, renewed):
    """The client uses it until half an hour after it has expired."""
    log_in(local, local.oauth.token, seconds)

    connect().quota()

    assert codes(local, RENEW) == [200] * renewed and codes(local, ASK) == [200]


@pytest.mark.parametrize("fault", [None, "404"])
def test_an_expired_login_names_the_command(local, fault):
    """Without --force, `kaggle auth login` reports that one is logged in already."""
    log_in(local)
    kaggle = connect()
    local.oauth.end_access()
    local.oauth.revoke()

    for call in (kaggle.quota, lambda: log_in(local) and connect()):
        local.faults.say(RENEW, [fault])
        with pytest.raises(CredentialError, match="expired or was revoked") as caught:
            call()
        assert str(caught.value).splitlines()[-1] == "kaggle auth login --force"
