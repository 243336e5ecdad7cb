"""Credentials are found where the official client finds them, and what misleads it is named; nobody
is asked.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import auth
from deploy.client import Kaggle
from tests.deploy.invoked import ROOT

KEY = "0123456789abcdef0123456789abcdef"
TOKEN = "KGAT_0123456789abcdef"  # noqa: S105 - nobody's


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


def test_the_order_is_the_client_s(home, monkeypatch):
    """Token before key before login; an empty home has none, and no problem either."""
    found = auth.look()
    assert found == auth.Found()
    monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN)
    put(home, "access_token", "one\n")
    put(home, "access_token.txt", "two\n")
    put(home, "kaggle.json", {"username": "ann", "key": KEY})
    put(home, "credentials.json", {"refresh_token": "refresh-me", "username": "ann"})

    found = auth.look()

    files = ["~/.kaggle/access_token", "~/.kaggle/access_token.txt", "kaggle.json"]
    names = [source.name for source in found.sources]
    assert names == ["KAGGLE_API_TOKEN", *files, "kaggle auth login"]
    assert found.username == "ann" and len(found.files) == 4


def test_the_client_s_own_lookup_takes_the_same_token(home, monkeypatch, tmp_path):
    """This module only predicts it."""
    from kagglesdk.kaggle_env import get_access_token_from_env

    expected = []
    for make in (
        lambda: put(home, "access_token.txt", "two"),
        lambda: put(home, "access_token", "one"),
        lambda: monkeypatch.setenv("KAGGLE_API_TOKEN", str(put(home, "elsewhere", "three"))),
        lambda: monkeypatch.setenv("KAGGLE_API_TOKEN", TOKEN),
    ):
        make()
        first = auth.look().sources[0]
        expected.append(first.path.read_text() if first.path else TOKEN)

        assert get_access_token_from_env()[0] == expected[-1]

    assert expected == ["two", "one", "three", TOKEN]


def test_the_client_s_own_lookup_takes_the_same_kaggle_json(home, monkeypatch):
    """Also where ~/.kaggle does not exist, and another folder counts."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    (home / ".kaggle").rmdir()
    code = "from kaggle.api.kaggle_api_extended import KaggleApi; print(KaggleApi.config_dir)"

    actual = subprocess.check_output([sys.executable, "-c", code], text=True)

    assert actual.splitlines()[-1] == str(auth.config_folder())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("kaggle.json", "{", "not a JSON object"),
        ("kaggle.json", "\ufeff" + json.dumps({"username": "ann", "key": KEY}), "byte order mark"),
        ("kaggle.json", {"username": "ann"}, "no username or no key"),
        ("kaggle.json", {"username": "ann", "key": TOKEN}, "the key in it is a token"),
        ("credentials.json", {"username": "ann"}, "holds no login"),
        ("access_token", " \n", "empty"),
        ("access_token", b"\xff", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_edit(home, name, content, said):
    """The client passes over most of them in silence."""
    put(home, name, content)

    found = auth.look()

    assert found.sources == []
    assert [said in what and bool(fix) for what, fix in found.problems] == [True]


def test_a_config_folder_without_a_key_is_named(home, monkeypatch):
    """As the path of the file itself."""
    put(home, "kaggle.json", {"username": "ann", "key": KEY})
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", f"{home}/.kaggle/kaggle.json")

    found = auth.look()

    assert found.sources == [] and len(found.problems) == 1
    assert "/kaggle.json/kaggle.json" in found.problems[0][0]
    assert found.problems[0][1].endswith("\nunset KAGGLE_CONFIG_DIR")


def test_a_home_that_cannot_be_written_is_named_and_nothing_is_to_be_installed(home):
    """The client makes its folder there when it is imported."""
    (home / ".kaggle").rmdir()
    (home / ".config").write_text("a file in the way")

    code = "from deploy.client import Kaggle; Kaggle.connect()"

    words = [sys.executable, "-c", code]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stderr

    assert f"It makes the folder {home}/.config/kaggle" in said and "pip" not in said
    assert "deploy.errors.UsageError" in said
    assert 'export KAGGLE_CONFIG_DIR="$(mktemp -d)"' in said


@pytest.mark.parametrize("alone", ["KAGGLE_USERNAME", "KAGGLE_KEY"])
def test_half_a_login_is_named(home, monkeypatch, alone):
    """Alone it is nothing; beside kaggle.json it takes the other half from there."""
    monkeypatch.setenv(alone, "bob-or-his-key")

    found = auth.look()
    assert found.sources == [] and alone in found.problems[0][0]

    put(home, "kaggle.json", {"username": "ann", "key": KEY})
    found = auth.look()
    assert [source.kind for source in found.sources] == ["key"]
    assert f"{alone} goes with what is in kaggle.json" in found.problems[0][0]
    assert found.problems[0][1].endswith(f"unset {alone}")


def test_variables_that_change_the_client_are_not_seen_by_it(between, monkeypatch):
    """Any KAGGLE_X becomes its setting x: this one, what it signs with."""
    monkeypatch.setenv("KAGGLE_TOKEN", TOKEN)

    assert Kaggle.connect().signed_by == "key" and os.environ["KAGGLE_TOKEN"] == TOKEN


PROXY, LOCAL = "http://ann:secret@proxy.example:3128", "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("http", "https", "no", "local", "said"),
    [
        ("", "", "", False, ""),
        ("", PROXY, "", False, "through the proxy proxy.example:3128"),
        ("", "http://ann:secret@[bad", "", False, "an address that cannot be read"),
        ("", PROXY, ".kaggle.com", False, ""),
        ("http://[::1]:8080", "", "", True, ""),
        (LOCAL, "", "", True, ""),
        (LOCAL, "", "localhost", True, "leads to nowhere"),
        (PROXY, "", "", True, "not to a Kaggle on this machine"),
    ],
)
def test_a_proxy_is_named_without_its_password(monkeypatch, http, https, no, local, said):
    """A Kaggle on this machine is reached through one; the real one need not be."""
    for name, value in {"http_proxy": http, "https_proxy": https, "no_proxy": no}.items():
        monkeypatch.setenv(name, value)

    words, problems = auth.proxies(local)

    assert [said in what for what, _ in problems] == ([True] if said else [])
    assert "secret" not in words + str(problems)


def test_the_address_is_known_before_anything_is_asked(monkeypatch):
    """A local Kaggle is the proxy for http://localhost; a company's proxy is no Kaggle."""
    for proxy in ("http://ann:secret@127.0.0.1:4001/", "127.0.0.1:4001"):
        monkeypatch.setenv("http_proxy", proxy)
        assert auth.address() == "127.0.0.1:4001"
    monkeypatch.setenv("no_proxy", "localhost")
    assert auth.address() == "localhost"
    monkeypatch.delenv("KAGGLE_API_ENVIRONMENT")
    assert auth.address() == "api.kaggle.com"
