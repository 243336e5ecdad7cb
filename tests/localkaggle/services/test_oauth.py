"""OAuth: logging in with the official client, and access tokens that end."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import kagglesdk.users.types.account_service as types
import pytest
import requests
from kagglesdk import KaggleClient
from kagglesdk.kaggle_env import KaggleEnv
from kagglesdk.kernels.types.kernels_api_service import ApiListKernelsRequest
from kagglesdk.kernels.types.kernels_enums import KernelsListViewType

from localkaggle.facts import Facts
from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from tests.localkaggle.pushed_notebooks import refused


@pytest.fixture
def kaggle(start) -> LocalKaggle:
    """Return a local Kaggle without competitions."""
    return start(competitions=())


def commands(kaggle: LocalKaggle, *words: str, **options) -> "subprocess.Popen[str]":
    """Start the official command in the private home, without the key that would win."""
    environment = {**os.environ, **kaggle.environment, "PYTHONUNBUFFERED": "1"}
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_API_TOKEN"):
        environment.pop(name, None)
    return subprocess.Popen(
        [Path(sys.executable).with_name("kaggle"), *words],
        env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, **options,
    )  # fmt: skip


def said(kaggle: LocalKaggle, *words: str) -> str:
    return commands(kaggle, *words).communicate(timeout=120)[0]


def signed_in(token: str) -> KaggleClient:
    return KaggleClient(env=KaggleEnv.LOCAL, api_token=token)


def access(client, refresh: str):
    request = make(types.GenerateAccessTokenRequest, refresh_token=refresh)
    return client.users.account_client.generate_access_token(request)


def lists(client) -> list:
    request = make(ApiListKernelsRequest, group=KernelsListViewType.PROFILE)
    return client.kernels.kernels_api_client.list_kernels(request).kernels


def test_kaggle_auth_logs_in_prints_a_token_and_revokes_it(kaggle):
    """The browser's page asks for user name and key, and shows the code that the client wants."""
    login = commands(kaggle, "auth", "login", "--no-launch-browser")
    url = next(line.strip() for line in login.stdout if "oauth2/authorize" in line)
    here = url.replace("http://localhost", f"http://127.0.0.1:{kaggle.port}")
    with requests.Session() as browser:
        browser.trust_env = False
        asked = browser.get(here, timeout=30)
        shown = browser.get(here, auth=("rehearsal", kaggle.key), timeout=30)
    told, _ = login.communicate(shown.text, timeout=120)

    assert (asked.status_code, asked.text) == (401, "") and "Basic" in str(asked.headers)
    assert "logged in as [rehearsal]" in told
    kept = Path(kaggle.environment["HOME"]) / ".kaggle" / "credentials.json"
    refresh = json.loads(kept.read_text())["refresh_token"]
    token = re.search(r"KGAT_\w+", said(kaggle, "auth", "print-access-token"))[0]
    assert kaggle.oauth.accepts(token) and "Not found" in said(kaggle, "kernels", "list", "--mine")

    said(kaggle, "auth", "revoke")

    assert not kaggle.oauth.accepts(token) and not kept.exists()
    noted = json.dumps(kaggle.journal)
    assert not any(secret in noted for secret in (refresh, token, shown.text.strip()))


def test_a_code_is_good_for_the_client_that_asked_and_once(kaggle, client):
    """Another one does not know what the code's challenge was made of."""
    code = kaggle.oauth.authorize("of another client")
    body = {"code": code, "codeVerifier": "mine", "grantType": "authorization_code"}
    url = f"http://127.0.0.1:{kaggle.port}/v1/security.OAuthService/ExchangeOAuthToken"
    with requests.Session() as session:
        session.trust_env = False
        answers = [session.post(url, json=body, timeout=30) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [400, 400]
    assert kaggle.oauth._challenges == {} and kaggle.oauth._refresh == {kaggle.refresh_token}


@pytest.mark.parametrize(("life", "expected"), [(0.0, 12 * 3600), (0.5, 1), (90.0, 90)])
def test_an_access_token_says_when_it_ends(start, client, life, expected):
    """After twelve hours if the client does not ask for less, and after what the facts say."""
    kaggle = start(competitions=(), facts=Facts(token_seconds=life))

    answer = access(client(kaggle), kaggle.oauth.sign_in())

    assert (answer.expires_in, answer.user_name) == (expected, "rehearsal")


def test_an_access_token_that_has_ended_is_refused(kaggle, client):
    """Calls are answered by 401 until there is a new one, for the same refresh token."""
    refresh = kaggle.oauth.sign_in()
    token = access(client(kaggle), refresh).token
    assert lists(signed_in(token)) == []

    kaggle.oauth._access[token] = replace(kaggle.oauth._access[token], ends=0.0)

    with refused(401):
        lists(signed_in(token))
    assert lists(signed_in(access(client(kaggle), refresh).token)) == []


def test_a_refresh_token_is_no_access_token_and_a_wrong_one_gives_none(kaggle, client):
    """Both are answered by 401."""
    connected = client(kaggle)

    with refused(401):
        lists(signed_in(kaggle.oauth.sign_in()))
    with refused(401):
        access(connected, "KGRT_wrong")
