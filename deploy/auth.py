"""Who we are on Kaggle, and which Kaggle we speak to.

Who can use `kaggle` needs nothing else: `look` reads the same places in the same order, and says
what is wrong with files that `kaggle` passes over in silence. Its library kagglesdk then logs in.
`import kaggle` itself would do so, print a page of help where it finds nothing, and wait for ever
where the server hangs. Neither has a public way to set a timeout, or to renew a login; so private
parts of kagglesdk are used, and no other versions are taken than those in `NEEDS`. Each secret goes
to deploy/secrets.py, which keeps it out of what is shown.
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
# kaggle imports six and does not declare it.
NEEDS = ("kaggle>=2.2.4,<2.3", "kagglesdk>=0.1.37,<0.1.39", "six")
INSTALL = f"pip install {' '.join(map(repr, NEEDS))}"
TOKEN = "KGAT_"  # noqa: S105 - how each token begins
NEW_TOKEN = "make a new one at https://www.kaggle.com/settings/api"  # noqa: S105
HOW = (
    "Expected one of these:\n"
    "  - a token from https://www.kaggle.com/settings/api, in the file ~/.kaggle/access_token or in"
    " KAGGLE_API_TOKEN\n"
    "  - the older key: the file ~/.kaggle/kaggle.json, or KAGGLE_USERNAME and KAGGLE_KEY\n"
    "  - a login in the browser:  kaggle auth login --force\n"
    "To rehearse without an account:\ninvoke dry-run"
)
NOTHING = "No Kaggle credentials were found"
LOGIN_ENDED = (
    "Kaggle does not take the login of this machine any more: it has expired, or was revoked.\n"
    "Expected one that gives new access tokens. Log in again:\nkaggle auth login --force"
)
LEAST = timedelta(hours=1)  # that an access token should last when a command starts
Renew = Callable[[], None]
Problem = tuple[str, str]  # what is wrong, and the fix


@dataclass(frozen=True)
class Source:
    """A place with credentials.

    Attributes:
        name: for a message.
        kind: "token", "key" or "login".
        secret: the token or key; a login has others.
        path: of a token's file; None: it is in a variable.
    """

    name: str
    kind: str
    secret: str = field(default="", repr=False)
    path: Path | None = None


@dataclass
class Found:
    """The credentials on this machine.

    Attributes:
        sources: in the client's order; it uses the first.
        problems: of places that look like credentials but are not.
        files: those that hold a secret, used or not.
        username: of the key; a token names nobody.
    """

    sources: list[Source] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    username: str = ""


# What is on this machine


def look() -> Found:
    """Return what the client would find now. All secrets are hidden from now on."""
    found, home = Found(), Path.home() / ".kaggle"
    given = os.environ.get("KAGGLE_API_TOKEN", "").strip()
    files = {f"~/.kaggle/{name}": home / name for name in ("access_token", "access_token.txt")}
    if os.path.exists(given):  # noqa: PTH110 - Path.exists raises for a name as long as a token
        files = {"KAGGLE_API_TOKEN": Path(given), **files}
    elif given:
        secrets.know(given)
        found.sources.append(Source("KAGGLE_API_TOKEN", "token", given))
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
    """Look for a name and a key: each from its variable, or else from kaggle.json."""
    path = config_folder() / "kaggle.json"
    file = _object(found, path)
    name, key = (os.environ.get(f"KAGGLE_{x.upper()}", file.get(x)) for x in ("username", "key"))
    found.username = name if isinstance(name, str) else ""
    for secret in (file.get("key"), key):
        secrets.know(secret, found.username)
    given = [name for name in ("KAGGLE_USERNAME", "KAGGLE_KEY") if name in os.environ]
    places = " and ".join([*given, "kaggle.json"][:2])
    if str(key).startswith(TOKEN):
        fix = f"Put it into ~/.kaggle/access_token, and remove it there; or {NEW_TOKEN}"
        found.problems.append((f"{places}: the key in it is a token", fix))
    elif found.username and key:
        found.sources.append(Source(places, "key", str(key)))
    elif given or file:
        what = f"{places}: there is no {'key' if found.username else 'username'}"
        found.problems.append((what, f"Give both, or remove it, and {NEW_TOKEN}"))


def _object(found: Found, path: Path) -> dict[str, Any]:
    """Return what a JSON file holds; {} without one, or with a problem."""
    with contextlib.suppress(ValueError):
        if isinstance(value := json.loads(_text(found, path) or "{}"), dict):
            return value
    fix = "Download it again, or remove it."
    found.problems.append((f"{path} is not a JSON object", fix))
    return {}


def _text(found: Found, path: Path) -> str:
    """Return what a file holds; "" without one, or with a problem."""
    try:
        text = path.read_text(encoding="utf-8-sig").strip()  # Windows may write a byte order mark
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is not UTF-8")
        found.problems.append((f"{path} cannot be read: {why}", "Fix the file, or remove it."))
        return ""
    secrets.know(text)
    found.files.append(path)
    return text


def config_folder() -> Path:
    """Return where the client looks for kaggle.json."""
    usual, given = Path.home() / ".kaggle", os.environ.get("KAGGLE_CONFIG_DIR")
    if given or usual.exists() or not sys.platform.startswith("linux"):
        return Path(given or usual)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kaggle"


# Which Kaggle, and what changes the way to it


def environment() -> str:
    """Return "PROD" or "LOCALHOST".

    Raises:
        UsageError: for any other KAGGLE_API_ENVIRONMENT: it may be a slip, or name a site of
            Kaggle's own.
    """
    value = os.environ.get("KAGGLE_API_ENVIRONMENT", "PROD")
    if value in ("PROD", "LOCALHOST"):
        return value
    raise UsageError(
        f"KAGGLE_API_ENVIRONMENT={value!r}: expected LOCALHOST, PROD, or nothing.\nUnset it."
    )


def address() -> str:
    """Return the site's address, or host:port of a local Kaggle; never with credentials.

    A local Kaggle is the proxy for http://localhost, so the proxy distinguishes two of them.

    Raises:
        UsageError: for any other KAGGLE_API_ENVIRONMENT than `environment` returns.
    """
    return SITE if environment() == "PROD" else _proxy("http://localhost") or "localhost"


def proxies() -> str:
    """Return the proxies in words, without passwords."""
    hosts = {name: _host(proxy) for name, proxy in sorted(getproxies().items()) if name != "no"}
    return ", ".join(f"{name}_proxy {host}" for name, host in hosts.items()) or "none"


def _proxy(site: str) -> str:
    """Return host and port of the proxy that leads to a site; "" without one."""
    used = select_proxy(site, get_environ_proxies(site))
    return _host(used) if used else ""


def _host(address: str) -> str:
    """Return host and port alone: a proxy's address may hold a password."""
    return address.rpartition("@")[2].rpartition("//")[2].partition("/")[0]


# The client


def require() -> Found:
    """Return the credentials of this machine, or refuse to begin what needs them; Kaggle is not
    asked.

    Raises:
        UsageError: if the client cannot be imported.
        CredentialError: if there are no credentials on this machine, or none that can be read.
    """
    require_client()
    found = look()
    if not found.sources:
        raise unusable(found)
    return found


def require_client() -> dict[str, str]:
    """Refuse a client that is missing, or that the pins of another package have broken.

    The installed versions tell. Nothing is imported, so nobody is logged in.

    Returns:
        The versions of the client and of what it needs.

    Raises:
        UsageError: if it is not one of those that were tested.
    """
    versions, wrong = {}, []
    for need in map(Requirement, NEEDS):
        try:
            there = versions[need.name] = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is not installed")
        else:
            if there not in need.specifier:
                wrong.append(f"{need} is expected, and {there} is installed")
    if wrong:
        raise UsageError(f"The Kaggle client cannot be used: {'; '.join(wrong)}. Run:\n{INSTALL}")
    return versions


def log_in(timeouts: tuple[float, float]) -> tuple[Any, str, Renew | None]:
    """Return kagglesdk's HTTP client with credentials and timeouts, the user's name, and a renewal.

    That gives the client a new access token. It is None for a token or key, which cannot be
    renewed, and raises `CredentialError` if the login has ended.

    Raises:
        CredentialError: if there are no credentials, or they cannot be read, or Kaggle does not
            know them.
        UsageError: if the client is missing or too old, or KAGGLE_API_ENVIRONMENT is another.
        requests.RequestException: if Kaggle had to be asked and did not answer.
    """
    environment()
    found = require()
    first, *others = found.sources
    can_be_sent = first.secret.isascii() and first.secret.isprintable()  # in a header
    if first.kind == "token" and can_be_sent:
        client = _client(timeouts, first.secret)
        if name := _named(client, first.secret):
            return client.http_client(), name, None
    for source in (first, *others):  # of an ended token, as `kaggle` does
        if source.kind == "key":
            http = _client(timeouts).http_client()
            http._session.auth = (found.username, source.secret)
            return http, found.username, None
        if source.kind == "login":
            return _logged_in(timeouts)
    raise unusable(found)


def _client(timeouts: tuple[float, float], token: str = "") -> Any:
    """Return a client that signs with a token; without one it signs nothing."""
    from kagglesdk import KaggleClient

    client = KaggleClient(api_token=token)  # for None it would look for one
    http = client.http_client()
    http._init_session()
    if not token:
        http._session.auth = None
    transfer.guarded(http._session, timeouts)
    return client


def _named(client: Any, token: str) -> str:
    """Return whose token it is; "" if Kaggle does not know it."""
    from kagglesdk.security.types.oauth_service import IntrospectTokenRequest

    request = IntrospectTokenRequest()
    request.token = token
    try:
        answer = client.security.oauth_client.introspect_token(request)
    except requests.HTTPError as error:
        if error.response.status_code not in (400, 401, 403, 404):  # it signs this very call
            raise
        return ""
    return str(answer.username) if answer.active else ""


def _logged_in(timeouts: tuple[float, float]) -> tuple[Any, str, Renew]:
    """Return what `log_in` does, by the login in the browser; with a new access token if due."""
    from kagglesdk import KaggleCredentials

    # It signs nothing: an access token that has ended would be refused.
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
    """Return the error for a client that found nothing usable: broken files differ from none."""
    if found.sources:
        first = found.sources[0]
        if first.kind == "login":
            return CredentialError(LOGIN_ENDED)
        said = f"Kaggle does not know the token in {first.name}: it has expired, or was revoked."
        return CredentialError(f"{said}\n{without(first)}, and {NEW_TOKEN}")
    broken = "; ".join(what for what, _ in found.problems)
    said = f"The Kaggle credentials cannot be used: {broken}" if broken else NOTHING
    fixes = dict.fromkeys(fix for _, fix in found.problems)
    return CredentialError("\n".join([f"{said}.", *fixes, HOW]))


def without(source: Source) -> str:
    """Return the edit that removes a token."""
    return f"Remove {source.path}" if source.path else f"unset {source.name}"
