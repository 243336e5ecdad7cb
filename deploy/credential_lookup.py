"""Where the official client finds credentials, in its order, and which variables mislead it.

It reads the environment and the files in ~/.kaggle or KAGGLE_CONFIG_DIR, and never starts the
client. A secret goes only to deploy/secrets.py, which keeps it out of what is shown.
"""

import json
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies

from deploy import secrets
from deploy.file_transfer import is_loopback

# The variables that the client reads. Any other KAGGLE_X becomes its setting x.
KNOWN = (
    *("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY"),
    *("KAGGLE_CONFIG_DIR", "KAGGLE_API_ENVIRONMENT"),
)
TOKEN = "KGAT_"  # noqa: S105 - how each token begins
Problem = tuple[str, str]  # what is wrong, and the fix


@dataclass(frozen=True)
class Source:
    """A place with credentials.

    Attributes:
        name: for a message.
        kind: "token", "key" or "login".
        path: of the file that holds them; None for variables.
    """

    name: str
    kind: str
    path: Path | None = None


@dataclass(frozen=True)
class Found:
    """The credentials on this machine.

    Attributes:
        sources: in the client's order; it uses the first.
        problems: of places that look like credentials but are not.
        files: those that hold a secret, used or not.
        username: of the key; a token names nobody.
    """

    sources: tuple[Source, ...]
    problems: tuple[Problem, ...]
    files: tuple[Path, ...]
    username: str


def look() -> Found:
    """Return what the client would find now. All secrets are hidden from now on."""
    search = _Search()
    search.tokens()
    search.key()
    search.login()
    for name in ("http", "https", "all"):
        secrets.know(_password(getproxies().get(name, "")))
    return Found(
        tuple(search.sources), tuple(search.problems), tuple(search.files), search.username
    )


def config_folder() -> Path:
    """Return where the client looks for kaggle.json."""
    given, home = os.environ.get("KAGGLE_CONFIG_DIR"), _home() / ".kaggle"
    if given:
        return Path(given)
    if _exists(str(home)) or not sys.platform.startswith("linux"):
        return home
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config") / "kaggle"


def settings() -> list[Problem]:
    """Return the other variables that change the client. Names alone: a value may be secret."""
    problems = [
        (f"{name} is set: `kaggle` prints every request with its key or token", f"unset {name}")
        for name in ("VERBOSE", "VERBOSE_OUTPUT")
        if os.environ.get(name, "").lower() in ("1", "true", "yes")
    ]
    for name in sorted(os.environ):
        if not name.startswith("KAGGLE_") or name in KNOWN:
            continue
        setting = name.removeprefix("KAGGLE_").lower()
        effect = {
            "token": "`kaggle` sends it as a token, unchecked, in place of a key",
            "path": "`kaggle` downloads to it by default",
            "competition": "`kaggle` uses it where no competition is named",
            "kernel_run_type": "the client takes this machine for a Kaggle notebook",
            "proxy": "it has no effect; https_proxy has one",
            "ssl_ca_cert": "it has no effect; REQUESTS_CA_BUNDLE has one",
        }.get(setting, f"it becomes the client's setting {setting!r}")
        problems.append((f"{name} is set: {effect}", f"unset {name}"))
    return problems


def proxies(local: bool) -> tuple[str, list[Problem]]:
    """Return the proxies in words, without passwords, and what is wrong with them.

    Args:
        local: for a Kaggle on this machine.
    """
    configured = getproxies()
    hosts = {
        name: _host(configured[name]) for name in ("all", "http", "https") if name in configured
    }
    bypassed = configured.get("no", "")
    words = ", ".join(f"{name}_proxy {host}" for name, host in hosts.items()) or "none"
    if local:
        if not is_loopback(f"http://{hosts.get('http', '')}"):
            host = hosts.get("http", "nowhere")
            what = f"http_proxy leads to {host}, not to a Kaggle on this machine"
            fix = "Set http_proxy to the address that `python -m localkaggle serve` printed."
            return words, [(what, fix)]
        if bypassed == "*" or "localhost" in bypassed:
            what = "no_proxy holds localhost, so http_proxy is bypassed"
            return words, [(what, "export no_proxy=")]
        return words, []
    used = hosts.get("https") or hosts.get("all")
    if not used or bypassed == "*" or "kaggle.com" in bypassed:
        return words, []
    fix = (
        "Check that it is up and lets api.kaggle.com and storage.googleapis.com through, or:"
        " unset https_proxy all_proxy"
    )
    return words, [(f"everything goes through the proxy {used}", fix)]


class _Search:
    """Collects what `look` returns."""

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.problems: list[Problem] = []
        self.files: list[Path] = []
        self.username = ""

    def tokens(self) -> None:
        """Look for a token, which the client prefers to all else."""
        environment = os.environ
        if {"KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_DATA_PROXY_URL"} <= set(environment):
            self._token_file("KAGGLE_API_V1_TOKEN", environment.get("KAGGLE_API_V1_TOKEN", ""))
        given = environment.get("KAGGLE_API_TOKEN")
        if given and _exists(given):
            self._token_file("KAGGLE_API_TOKEN", given)
        elif given:
            secrets.know(given)
            self.sources.append(Source("KAGGLE_API_TOKEN", "token"))
        for name in ("access_token", "access_token.txt"):
            self._token_file(f"~/.kaggle/{name}", str(_home() / ".kaggle" / name))

    def _token_file(self, name: str, path: str) -> None:
        text = self._text(name, Path(path)) if path and _exists(path) else None
        if text is None:
            return
        secrets.know(text)
        if text.strip():
            self.sources.append(Source(name, "token", Path(path)))
        else:
            self._problem(
                f"{name} leads to an empty file", f"Put a token into {path}, or remove it."
            )

    def key(self) -> None:
        """Look for a name and a key: each from its variable, or else from kaggle.json."""
        path = config_folder() / "kaggle.json"
        held = self._object("kaggle.json", path)
        name, key = (
            os.environ.get(f"KAGGLE_{part}", held.get(part.lower())) for part in ("USERNAME", "KEY")
        )
        self.username = name if isinstance(name, str) else ""
        for secret in (held.get("key"), key):
            secrets.know(secret, self.username)
        given = [part for part in ("KAGGLE_USERNAME", "KAGGLE_KEY") if part in os.environ]
        folder = os.environ.get("KAGGLE_CONFIG_DIR")
        if folder and not given and not self.sources and not _exists(str(path)):
            self._problem(
                f"KAGGLE_CONFIG_DIR is {folder}, and there is no {path}",
                "Let it name the folder of kaggle.json, as /home/ann/.kaggle, or:\n"
                "unset KAGGLE_CONFIG_DIR",
            )
        if held.get("proxy"):
            self._problem(
                f"{path} has a proxy, which the client does not use",
                "Remove it there, and name the proxy in https_proxy",
            )
        if str(key).startswith(TOKEN):
            where, then = str(path), f"remove {path}"
            if "KAGGLE_KEY" in given:
                where, then = "KAGGLE_KEY", "unset KAGGLE_USERNAME KAGGLE_KEY"
            self._problem(
                f"{where}: the key in it is a token",
                f"Put it into ~/.kaggle/access_token, and {then}. If Kaggle does not know it there,"
                " make a new one at https://www.kaggle.com/settings/api",
            )
        elif name and key:
            where = " and ".join([*given, *(["kaggle.json"] if len(given) < 2 else [])])
            self.sources.append(Source(where, "key", path if len(given) < 2 else None))
            if len(given) == 1:
                other = "key" if given == ["KAGGLE_USERNAME"] else "name"
                self._problem(
                    f"{given[0]} goes with the {other} of kaggle.json",
                    f"Set both variables, or: unset {given[0]}",
                )
        elif given:
            self._problem(
                f"{' and '.join(given)}: expected a name and a key",
                "Set both KAGGLE_USERNAME and KAGGLE_KEY, or none.",
            )
        elif held:
            fix = "Make a new one at https://www.kaggle.com/settings/api"
            self._problem(f"{path} has no username or no key", fix)

    def login(self) -> None:
        """Look for the file that `kaggle auth login` writes."""
        path = _home() / ".kaggle" / "credentials.json"
        held = self._object("credentials.json", path)
        for name in ("refresh_token", "access_token"):
            secrets.know(held.get(name))
        if held.get("refresh_token"):
            self.sources.append(Source("kaggle auth login", "login", path))
        elif held:
            self._problem(f"{path} holds no login", "Run: kaggle auth login")

    def _problem(self, what: str, fix: str) -> None:
        self.problems.append((what, fix))

    def _object(self, name: str, path: Path) -> dict[str, Any]:
        text = self._text(name, path) if _exists(str(path)) else None
        if text is None:
            return {}
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
        secrets.know(text)
        if text.startswith("\ufeff"):
            quoted = shlex.quote(str(path))
            self._problem(
                f"{path} begins with a byte order mark, which the client does not read",
                "Save it as UTF-8 without one:\n"
                f"tail -c +4 {quoted} > {quoted}.new && mv {quoted}.new {quoted} && chmod 600"
                f" {quoted}",
            )
        else:
            self._problem(f"{path} is not a JSON object", "Download it again, or remove it.")
        return {}

    def _text(self, name: str, path: Path) -> str | None:
        self.files.append(path)
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            self._problem(f"{name}: {path} cannot be read: {why}", "Fix the file, or remove it.")
            return None


def _home() -> Path:
    return Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises if there is none


def _exists(path: str) -> bool:
    # Path.exists raises for a long name, as a token may be, and for a folder without permission.
    return os.path.exists(path)  # noqa: PTH110


def _parts(address: str) -> SplitResult | None:
    try:
        return urlsplit(address if "//" in address else f"//{address}")
    except ValueError:
        return None


def _password(address: str) -> str | None:
    parts = _parts(address)
    return parts.password if parts else None


def _host(address: str) -> str:
    """Return host and port alone: a proxy's address may hold a password."""
    parts = _parts(address)
    if parts is None or not parts.hostname:
        return "an address that cannot be read"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    try:
        return f"{host}:{parts.port}" if parts.port else host
    except ValueError:
        return host
