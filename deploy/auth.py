"""Who we are on Kaggle, and which Kaggle we talk to.

Credentials that work for `kaggle` work here: `look` reads the same places in the same order, and
reports broken files that `kaggle` skips silently. Its library kagglesdk then logs in. `import
kaggle` would log in by itself, print a page of help without credentials, and wait for ever for a
server that hangs. Neither has a public way to set a timeout or to renew a login, so we use private
parts of kagglesdk, and only the versions in `NEEDS`. deploy/secrets.py keeps each secret out of the
output.
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
    "Kaggle no longer accepts the login of this machine: it has expired, or was revoked.\n"
    "Expected a valid login. Log in again:\nkaggle auth login --force"
)
LEAST = timedelta(hours=1)  # for which an access token must be valid when a command starts
Renew = Callable[[], None]
Problem = tuple[str, str]  # what is wrong, and the fix


@dataclass(frozen=True)
class Source:
    """A place with credentials.

    Attributes:
        name: for messages.
        kind: "token", "key" or "login".
        secret: the token or key; "" for a login.
        path: of a token's file; None if it is in a variable.
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
        problems: with places that should hold credentials.
        username: of the key; a token has none.
    """

    sources: list[Source] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    username: str = ""


# What is on this machine


def look() -> Found:
    """Return what the client would find now. From now on `secrets` redacts it."""
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
    """Look for a username and a key: each from its variable, or else from kaggle.json."""
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
        found.problems.append((f"{places}: the key in it is a token", fix))
    elif found.username and key:
        found.sources.append(Source(places, "key", str(key)))
    elif variables or file:
        what = f"{places}: there is no {'key' if found.username else 'username'}"
        found.problems.append((what, f"Set both, or remove it, and {NEW_TOKEN}"))


def _object(found: Found, path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} without one. Note a problem with it."""
    with contextlib.suppress(ValueError):
        if isinstance(value := json.loads(_text(found, path) or "{}"), dict):
            return value
    fix = "Download it again, or remove it."
    found.problems.append((f"{path} is not a JSON object", fix))
    return {}


def _text(found: Found, path: Path) -> str:
    """Return the text of a file; "" without one. Note a problem with it."""
    try:
        text = path.read_text(encoding="utf-8-sig").strip()  # Windows may write a byte order mark
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "it is not UTF-8")
        found.problems.append((f"{path} cannot be read: {why}", "Fix the file, or remove it."))
        return ""
    secrets.know(text)
    return text


def config_folder() -> Path:
    """Return where the client looks for kaggle.json."""
    usual, variable = Path.home() / ".kaggle", os.environ.get("KAGGLE_CONFIG_DIR")
    if variable or usual.exists() or not sys.platform.startswith("linux"):
        return Path(variable or usual)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kaggle"


# Which Kaggle, and the proxies on the way to it


def environment() -> str:
    """Return "PROD" or "LOCALHOST".

    Raises:
        UsageError: for any other KAGGLE_API_ENVIRONMENT: it may be a typo, or one of Kaggle's
            internal sites.
    """
    value = os.environ.get("KAGGLE_API_ENVIRONMENT", "PROD")
    if value in ("PROD", "LOCALHOST"):
        return value
    raise UsageError(
        f"KAGGLE_API_ENVIRONMENT={value!r}: expected LOCALHOST, PROD, or nothing.\nUnset it."
    )


def address() -> str:
    """Return the site's address, or host:port of a local Kaggle, without credentials.

    A local Kaggle is the proxy for http://localhost, so the proxy tells two of them apart.

    Raises:
        UsageError: as `environment` does.
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
    """Return the credentials of this machine, without asking Kaggle.

    Raises:
        UsageError: if the client cannot be used.
        CredentialError: if there are no credentials, or none that can be read.
    """
    require_client()
    found = look()
    if not found.sources:
        raise unusable(found)
    return found


def require_client() -> dict[str, str]:
    """Return the versions of the client and its dependencies.

    Nothing is imported, since that would log in.

    Raises:
        UsageError: if one is missing, or not a version that was tested: another package's pins may
            have changed it.
    """
    versions, wrong = {}, []
    for need in map(Requirement, NEEDS):
        try:
            installed = versions[need.name] = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is not installed")
        else:
            if installed not in need.specifier:
                wrong.append(f"{need} is expected, and {installed} is installed")
    if wrong:
        raise UsageError(f"The Kaggle client cannot be used: {'; '.join(wrong)}. Run:\n{INSTALL}")
    return versions


def log_in(timeouts: tuple[float, float]) -> tuple[Any, str, Renew | None]:
    """Return kagglesdk's HTTP client with credentials and timeouts, the username, and a renewal.

    The renewal gets a new access token, or raises `CredentialError` if the login has expired. It is
    None for a token or key, which cannot be renewed.

    Raises:
        CredentialError: if there are no credentials, or they cannot be read, or are not valid.
        UsageError: if the client cannot be used, or KAGGLE_API_ENVIRONMENT is wrong.
        requests.RequestException: if Kaggle has to check them and does not answer.
    """
    environment()
    found = require()
    first, *others = found.sources
    can_be_sent = first.secret.isascii() and first.secret.isprintable()  # in a header
    if first.kind == "token" and can_be_sent:
        client = _client(timeouts, first.secret)
        if name := _named(client, first.secret):
            return client.http_client(), name, None
    for source in (first, *others):  # after an expired token, as `kaggle` does
        if source.kind == "key":
            http = _client(timeouts).http_client()
            http._session.auth = (found.username, source.secret)
            return http, found.username, None
        if source.kind == "login":
            return _logged_in(timeouts)
    raise unusable(found)


def _client(timeouts: tuple[float, float], token: str = "") -> Any:
    """Return a client that signs its calls with a token, or does not sign them without one."""
    from kagglesdk import KaggleClient

    client = KaggleClient(api_token=token)  # None would make it look for one
    http = client.http_client()
    http._init_session()
    if not token:
        http._session.auth = None
    transfer.guarded(http._session, timeouts)
    return client


def _named(client: Any, token: str) -> str:
    """Return the owner of a token; "" if Kaggle does not know the token."""
    from kagglesdk.security.types.oauth_service import IntrospectTokenRequest

    request = IntrospectTokenRequest()
    request.token = token
    try:
        answer = client.security.oauth_client.introspect_token(request)
    except requests.HTTPError as error:
        if error.response.status_code not in (400, 401, 403, 404):  # the token signs this call too
            raise
        return ""
    return str(answer.username) if answer.active else ""


def _logged_in(timeouts: tuple[float, float]) -> tuple[Any, str, Renew]:
    """Return what `log_in` does for a login in the browser, with a new access token if due."""
    from kagglesdk import KaggleCredentials

    # An unsigned client: an expired access token would be refused.
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
    """Return the error for credentials that are missing, broken or expired."""
    if found.sources:
        first = found.sources[0]
        if first.kind == "login":
            return CredentialError(LOGIN_ENDED)
        why = f"Kaggle does not know the token in {first.name}: it has expired, or was revoked."
        return CredentialError(f"{why}\n{without(first)}, and {NEW_TOKEN}")
    broken = "; ".join(what for what, _ in found.problems)
    why = f"The Kaggle credentials cannot be used: {broken}" if broken else NOTHING
    fixes = dict.fromkeys(fix for _, fix in found.problems)
    return CredentialError("\n".join([f"{why}.", *fixes, HOW]))


def without(source: Source) -> str:
    """Return the edit that removes a token."""
    return f"Remove {source.path}" if source.path else f"unset {source.name}"
