"""Credentials are found where the official client finds them, and misleading ones are named,
without asking Kaggle.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import auth

KEY = "0123456789abcdef0123456789abcdef"
TOKEN = "KGAT_0123456789abcdef"  # noqa: S105 - nobody's
PROXY = "http://ann:secret@proxy.example:3128"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with nothing in it, and no variable of Kaggle's."""
    for name in [name for name in os.environ if name.startswith("KAGGLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".kaggle").mkdir()
    return tmp_path


def put(home: Path, name: str, content: bytes | str | dict[str, str]) -> Path:
    text = json.dumps(content) if isinstance(content, dict) else content
    path = home / ".kaggle" / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_order_is_the_client_s_and_its_own_lookup_takes_the_same_token(home, monkeypatch):
    """Token before key before login; an empty home has none, and no problem either."""
    from kagglesdk.kaggle_env import get_access_token_from_env

    assert auth.look() == auth.Found()
    put(home, "kaggle.json", {"username": "ann", "key": KEY})
    put(home, "credentials.json", {"refresh_token": "refresh-me", "username": "ann"})
    taken = []
    for make in (
        lambda: put(home, "access_token.txt", "two\n"),
        lambda: put(home, "access_token", "one\n"),
        lambda: monkeypatch.setenv("KAGGLE_API_TOKEN", str(put(home, "elsewhere", "three"))),
        lambda: monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN),
    ):
        make()
        taken.append(auth.look().sources[0].secret)
        assert get_access_token_from_env()[0] == taken[-1]

    assert taken == ["two", "one", "three", TOKEN]
    files = ["~/.kaggle/access_token", "~/.kaggle/access_token.txt", "kaggle.json"]
    names = [source.name for source in auth.look().sources]
    assert names == ["KAGGLE_API_TOKEN", *files, "kaggle auth login"]
    assert TOKEN not in repr(auth.look())


def test_a_token_that_windows_saved_is_taken_without_its_mark(home):
    put(home, "access_token", b"\xef\xbb\xbf" + TOKEN.encode() + b"\r\n")

    assert [source.secret for source in auth.look().sources] == [TOKEN]


def test_the_client_s_own_lookup_takes_the_same_kaggle_json(home, monkeypatch):
    """Even if ~/.kaggle does not exist and another folder counts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    (home / ".kaggle").rmdir()
    code = "from kaggle.api.kaggle_api_extended import KaggleApi; print(KaggleApi.config_dir)"

    actual = subprocess.check_output([sys.executable, "-c", code], text=True)

    assert actual.splitlines()[-1] == str(auth.config_folder())


LOGIN = {
    "refresh_token": "refresh-me",
    "access_token": TOKEN,
    "access_token_expiration": "2999-01-01T00:00:00+00:00",
    "username": "by-login",
}
THERE = {
    "token": ("access_token", TOKEN),
    "key": ("kaggle.json", {"username": "by-key", "key": KEY}),
    "login": ("credentials.json", LOGIN),
}


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("there", ["key", "login", "token key", "token login", "token key login"])
def test_the_client_logs_in_by_the_same_credentials(home, between, monkeypatch, there, is_known):
    """An invalid token is skipped."""
    monkeypatch.setenv("KAGGLE_API_ENVIRONMENT", "LOCALHOST")
    for name in ("KAGGLE_USERNAME", "KAGGLE_KEY"):
        monkeypatch.delenv(name)
    for place in there.split():
        put(home, *THERE[place])
    between.always("IntrospectToken", {"active": is_known, "username": "by-token"})
    from kaggle.api.kaggle_api_extended import KaggleApi

    monkeypatch.setattr(KaggleApi, "config", str(home / ".kaggle" / "kaggle.json"))
    theirs = KaggleApi()
    theirs.authenticate()
    _, username, renew = auth.log_in((60, 60))

    assert username == theirs.config_values["username"]
    assert bool(renew) == (theirs.config_values["auth_method"] == "OAUTH")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("kaggle.json", "{", "not a JSON object"),
        ("kaggle.json", {"username": "ann"}, "the key is missing"),
        ("kaggle.json", {"username": "ann", "key": TOKEN}, "the key is actually a token"),
        ("access_token", b"\xff", "not valid UTF-8"),
    ],
)
def test_a_broken_credentials_file_is_named_with_the_edit(home, name, content, said):
    """The client silently skips most of them."""
    put(home, name, content)

    found = auth.look()

    assert found.sources == []
    assert [said in what and bool(fix) for what, fix in found.problems] == [True]


def test_a_proxy_is_named_without_its_password(monkeypatch):
    monkeypatch.setenv("http_proxy", PROXY)

    assert "http_proxy proxy.example:3128" in auth.proxies() and "secret" not in auth.proxies()


def test_the_address_is_known_before_anything_is_asked(monkeypatch):
    """A local Kaggle is the proxy for http://localhost; a company's proxy is not a Kaggle."""
    for proxy in ("http://ann:secret@127.0.0.1:4001/", "127.0.0.1:4001"):
        monkeypatch.setenv("http_proxy", proxy)
        assert auth.address() == "127.0.0.1:4001"
    monkeypatch.delenv("KAGGLE_API_ENVIRONMENT")
    assert auth.address() == "api.kaggle.com"
