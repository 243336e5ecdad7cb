"""Find the Kaggle credentials on this machine and log in with them.

`look` checks the same locations as the `kaggle` command, in the same order. It also reports broken
files, which `kaggle` silently skips. `log_in` uses kagglesdk. Importing `kaggle` would log in right
away and, if there are no credentials, print a help page. `kaggle` also waits indefinitely for a
server that hangs. Neither package has a public API for timeouts or for renewing a login. We
therefore use private parts of kagglesdk, and support only the versions in `NEEDS`.
"""

import contextlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import requests
from packaging.requirements import Requirement
from requests.utils import get_environ_proxies, select_proxy

from deploy import secrets, transfer
from deploy.errors import CredentialError, UsageError
from formats.errors import writing

SITE = "api.kaggle.com"
# kaggle imports six, but does not declare it as a dependency.
NEEDS = ("kaggle>=2.2.4,<2.3", "kagglesdk>=0.1.37,<0.1.39", "six")
INSTALL = f"pip install {' '.join(map(repr, NEEDS))}"
TOKEN = "KGAT_"  # noqa: S105 - the prefix of all tokens
NEW_TOKEN = "create a new one at https://www.kaggle.com/settings/api"  # noqa: S105
HOW = (
    "Expected one of these:\n"
    "  - a token from https://www.kaggle.com/settings/api, in the file ~/.kaggle/access_token or in"
    " KAGGLE_API_TOKEN\n"
    "  - a legacy key in the file ~/.kaggle/kaggle.json, or in KAGGLE_USERNAME and KAGGLE_KEY\n"
    "  - a browser login:  kaggle auth login --force\n"
    "To rehearse without an account:\ninvoke dry-run"
)
NOTHING = "No Kaggle credentials were found"
LOGIN_ENDED = (
    "The Kaggle login on this machine is no longer valid: it has expired or was revoked.\n"
    "Log in again:\nkaggle auth login --force"
)
LEAST = timedelta(hours=1)  # access tokens that expire sooner are renewed
Renew = Callable[[], None]
Problem = tuple[str, str]  # what is wrong, and how to fix it


@dataclass(frozen=True)
class Source:
    """A token, key or login found on this machine.

    Attributes:
        name: name to show in messages.
        kind: "token", "key" or "login".
        path: the token's file, or None if it comes from an environment variable.
    """

    name: str
    kind: str
    secret: str = field(default="", repr=False)
    path: Path | None = None


@dataclass
class Found:
    """The credentials found on this machine.

    `sources` are in order of precedence, and the client uses the first. `problems` describe files
    and variables that should contain credentials but cannot be used. `username` belongs to the key.
    """

    sources: list[Source] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    username: str = ""


# Credentials on this machine


def look() -> Found:
    """Find all credentials on this machine, and redact them in all output from now on."""
    found, home = Found(), Path.home() / ".kaggle"
    variable = os.environ.get("KAGGLE_API_TOKEN", "").strip()
    files = {f"~/.kaggle/{name}": home / name for name in ("access_token", "access_token.txt")}
    if os.path.exists(variable):  # noqa: PTH110 - Path.exists raises for a name as long as a token
        files = {"KAGGLE_API_TOKEN": Path(variable), **files}
    elif variable:
        secrets.know(variable)
        found.sources.append(Source("KAGGLE_API_TOKEN", "token", variable))
    for name, path in files.items():
        if token := _text(found, path):
            found.sources.append(Source(name, "token", token, path))
    _look_for_key(found)
    path = home / "credentials.json"  # `kaggle auth login` writes it
    login = _object(found, path)
    for name in ("refresh_token", "access_token"):
        secrets.know(login.get(name))
    if login.get("refresh_token") and login.get("username"):
        found.sources.append(Source("kaggle auth login", "login"))
    for proxy in getproxies().values():
        secrets.know(proxy.rpartition("@")[0].rpartition(":")[2])
    return found


def _look_for_key(found: Found) -> None:
    path = config_folder() / "kaggle.json"
    file = _object(found, path)
    name, key = (os.environ.get(f"KAGGLE_{x.upper()}", file.get(x)) for x in ("username", "key"))
    found.username = name if isinstance(name, str) else ""
    for secret in (file.get("key"), key):
        secrets.know(secret, found.username)
    variables = [name for name in ("KAGGLE_USERNAME", "KAGGLE_KEY") if name in os.environ]
    places = " and ".join([*variables, "kaggle.json"][:2])
    if str(key).startswith(TOKEN):
        fix = f"Move it to ~/.kaggle/access_token, or {NEW_TOKEN}"
        found.problems.append((f"{places}: the key is actually a token", fix))
    elif found.username and key:
        found.sources.append(Source(places, "key", str(key)))
    elif variables or file:
        what = f"{places}: the {'key' if found.username else 'username'} is missing"
        found.problems.append((what, f"Set both, or delete the file or variable, and {NEW_TOKEN}"))


def _object(found: Found, path: Path) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        if isinstance(value := json.loads(_text(found, path) or "{}"), dict):
            return value
    fix = "Download it again, or delete it."
    found.problems.append((f"{path} is not a JSON object", fix))
    return {}


def _text(found: Found, path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8-sig").strip()  # Windows may add a byte order mark
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is not valid UTF-8")
        found.problems.append((f"{path} cannot be read: {why}", "Fix the file, or delete it."))
        return ""
    secrets.know(text)
    return text


def config_folder() -> Path:
    usual, variable = Path.home() / ".kaggle", os.environ.get("KAGGLE_CONFIG_DIR")
    if variable or usual.exists() or not sys.platform.startswith("linux"):
        return Path(variable or usual)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kaggle"


# The Kaggle server and its proxies


def environment() -> str:
    """Return "PROD" or "LOCALHOST".

    `UsageError` is raised if the value is misspelled or names one of Kaggle's internal sites.
    """
    value = os.environ.get("KAGGLE_API_ENVIRONMENT", "PROD")
    if value in ("PROD", "LOCALHOST"):
        return value
    raise UsageError(
        f"KAGGLE_API_ENVIRONMENT is {value!r}; expected LOCALHOST, PROD or no value.\nUnset it."
    )


def address() -> str:
    """Return the host name of Kaggle's site, or host:port for a local Kaggle.

    A local Kaggle acts as the proxy for http://localhost, so the proxy's address identifies it. If
    the proxy's URL contains a password, the password is removed.
    """
    return SITE if environment() == "PROD" else _proxy("http://localhost") or "localhost"


def proxies() -> str:
    hosts = {name: _host(proxy) for name, proxy in sorted(getproxies().items()) if name != "no"}
    return ", ".join(f"{name}_proxy {host}" for name, host in hosts.items()) or "none"


def _proxy(site: str) -> str:
    used = select_proxy(site, get_environ_proxies(site))
    return _host(used) if used else ""


def _host(address: str) -> str:
    # A proxy's URL may also contain a password.
    return address.rpartition("@")[2].rpartition("//")[2].partition("/")[0]


# The client


def require() -> Found:
    """Return the credentials on this machine without contacting Kaggle.

    Raises `UsageError` if the client is unsupported, and `CredentialError` if no credentials are
    found.
    """
    require_client()
    found = look()
    if not found.sources:
        raise unusable(found)
    return found


def require_client() -> dict[str, str]:
    """Return the installed versions of the client and its dependencies, or raise `UsageError`.

    The packages are not imported, because importing `kaggle` logs in.
    """
    versions, wrong = {}, []
    for need in map(Requirement, NEEDS):
        try:
            installed = versions[need.name] = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is not installed")
        else:
            if installed not in need.specifier:
                wrong.append(f"expected {need}, but {installed} is installed")
    if wrong:
        raise UsageError(f"The Kaggle client cannot be used: {'; '.join(wrong)}. Run:\n{INSTALL}")
    return versions


def log_in(timeouts: tuple[float, float]) -> tuple[Any, str, Renew | None]:
    """Log in with kagglesdk.

    Returns:
        A tuple of an HTTP client that has credentials and timeouts, the username, and a function
        that gets a new access token. The function raises `CredentialError` if the login has
        expired. For tokens and keys, which cannot be renewed, it is None.

    Raises:
        CredentialError: if the credentials are missing, unreadable or invalid.
        UsageError: if the client is unsupported, or KAGGLE_API_ENVIRONMENT is invalid.
        requests.RequestException: if the credentials must be checked and Kaggle does not respond.
    """
    environment()
    found = require()
    first = found.sources[0]
    can_be_sent = first.secret.isascii() and first.secret.isprintable()  # in a header
    if first.kind == "token" and can_be_sent:
        client = _client(timeouts, first.secret)
        if name := _named(client, first.secret):
            return client.http_client(), name, None
    for source in found.sources:  # `kaggle` also tries these if the token has expired
        if source.kind == "key":
            http = _client(timeouts).http_client()
            http._session.auth = (found.username, source.secret)
            return http, found.username, None
        if source.kind == "login":
            return _logged_in(timeouts)
    raise unusable(found)


def _client(timeouts: tuple[float, float], token: str = "") -> Any:
    from kagglesdk import KaggleClient

    client = KaggleClient(api_token=token)  # with None, it would search for a token
    http = client.http_client()
    http._init_session()
    if not token:
        http._session.auth = None
    transfer.guarded(http._session, timeouts)
    return client


def _named(client: Any, token: str) -> str:
    from kagglesdk.security.types.oauth_service import IntrospectTokenRequest

    request = IntrospectTokenRequest()
    request.token = token
    try:
        answer = client.security.oauth_client.introspect_token(request)
    except requests.HTTPError as error:
        if error.response.status_code not in (400, 401, 403, 404):  # not a rejected token
            raise
        return ""
    return str(answer.username) if answer.active else ""


def _logged_in(timeouts: tuple[float, float]) -> tuple[Any, str, Renew]:
    from kagglesdk import KaggleCredentials

    # This client must be unauthenticated, because Kaggle would reject an expired access token.
    login = KaggleCredentials.load(client=_client(timeouts))
    http = _client(timeouts).http_client()

    def sign() -> None:
        secrets.know(login._access_token)
        http._session.auth = http.BearerAuth(login._access_token)

    def renew() -> None:
        try:
            with writing(Path(KaggleCredentials.DEFAULT_CREDENTIALS_FILE)):
                login.refresh_access_token()
        except requests.HTTPError as error:
            if error.response.status_code not in (400, 401, 403, 404):
                raise
            raise CredentialError(LOGIN_ENDED) from error
        sign()

    ends = login._access_token_expiration
    (renew if ends is None or ends - datetime.now(UTC) < LEAST else sign)()
    return http, login.get_username(), renew


def unusable(found: Found) -> CredentialError:
    if found.sources:
        first = found.sources[0]
        if first.kind == "login":
            return CredentialError(LOGIN_ENDED)
        why = f"Kaggle does not recognize the token in {first.name}: it has expired or was revoked."
        return CredentialError(f"{why}\n{without(first)}, and {NEW_TOKEN}")
    broken = "; ".join(what for what, _ in found.problems)
    why = f"The Kaggle credentials are invalid: {broken}" if broken else NOTHING
    fixes = dict.fromkeys(fix for _, fix in found.problems)
    return CredentialError("\n".join([f"{why}.", *fixes, HOW]))


def without(source: Source) -> str:
    return f"Remove {source.path}" if source.path else f"unset {source.name}"
