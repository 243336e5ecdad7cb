"""Who we are on Kaggle, and which Kaggle we speak to.

The official client logs in, by its own lookup, so that who can use `kaggle` needs nothing else.
What it does badly stays in this module. `import kaggle` itself logs in, prints a page of help where
it finds nothing, and waits for ever where the server hangs. It has no public way to set a timeout,
or to renew a login; so the private parts in `OF_HTTP` and `OF_LOGIN` are used, which another
version may lack. And it passes over most broken files in silence; so `look` reads the same places
in the same order, without the client, and says what is wrong with them. A secret goes only to
deploy/secrets.py, which keeps it out of what is shown.
"""

import contextlib
import importlib.metadata
import io
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import requests
from packaging.requirements import Requirement
from requests.utils import get_environ_proxies, select_proxy

from deploy import secrets, transfer
from deploy.errors import CredentialError, UsageError
from formats.errors import writing

SITE = "api.kaggle.com"
NEEDS = ("kaggle>=2.2.4", "kagglesdk>=0.1.37", "six")  # kaggle imports six and does not declare it
INSTALL = "pip install 'kaggle>=2.2.4,<2.3' 'kagglesdk>=0.1.37,<0.1.39' six"
OF_HTTP = ("call", "_session", "_endpoint", "_verbose", "_response_processor", "_init_session")
OF_LOGIN = ("refresh_access_token", "_access_token", "_access_token_expiration")
# The variables that the client reads. Any other KAGGLE_X becomes its setting x.
KNOWN = {
    *("KAGGLE_API_TOKEN", "KAGGLE_USERNAME", "KAGGLE_KEY"),
    *("KAGGLE_CONFIG_DIR", "KAGGLE_API_ENVIRONMENT"),
}
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
LOGIN_ENDED = (
    "Kaggle does not take the login of this machine any more: it has expired, or was revoked.\n"
    "Expected one that gives new access tokens. Log in again:\nkaggle auth login --force"
)
# Raised where the client takes a broken file for credentials.
BROKEN = (IsADirectoryError, PermissionError, TypeError, ValueError, AttributeError)
LEAST = timedelta(hours=1)  # that an access token should last when a command starts
Renew = Callable[[], None]
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
    found = Found()
    _look_for_tokens(found)
    _look_for_key(found)
    path = _home() / ".kaggle" / "credentials.json"  # `kaggle auth login` writes it
    login = _object(found, path)
    for name in ("refresh_token", "access_token"):
        secrets.know(login.get(name))
    if login.get("refresh_token"):
        found.sources.append(Source("kaggle auth login", "login", path))
    elif login:
        found.problems.append((f"{path} holds no login", "Run: kaggle auth login"))
    for proxy in getproxies().values():
        secrets.know(proxy.rpartition("@")[0].rpartition(":")[2])
    return found


def _look_for_tokens(found: Found) -> None:
    names = ["KAGGLE_API_TOKEN"]  # a token, or the path of its file
    if {"KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_DATA_PROXY_URL"} <= set(os.environ):
        names.insert(0, "KAGGLE_API_V1_TOKEN")  # in Kaggle's own notebooks, a path
    places = {name: os.environ.get(name, "") for name in names}
    for name in ("access_token", "access_token.txt"):
        places[f"~/.kaggle/{name}"] = str(_home() / ".kaggle" / name)
    for name, place in places.items():
        # Path.exists raises for a long name, as a token may be.
        path = Path(place) if os.path.exists(place) else None  # noqa: PTH110
        text = _text(found, path) if path else place if name == "KAGGLE_API_TOKEN" else ""
        secrets.know(text)
        if text and text.strip():
            found.sources.append(Source(name, "token", path))
        elif path and text is not None:
            fix = f"Put a token into {path}, or remove it."
            found.problems.append((f"{name} leads to an empty file", fix))


def _look_for_key(found: Found) -> None:
    """Look for a name and a key: each from its variable, or else from kaggle.json."""
    path = config_folder() / "kaggle.json"
    file = _object(found, path)
    name, key = (os.environ.get(f"KAGGLE_{x.upper()}", file.get(x)) for x in ("username", "key"))
    found.username = name if isinstance(name, str) else ""
    for secret in (file.get("key"), file.get("token"), key):
        secrets.know(secret, found.username)
    given = [name for name in ("KAGGLE_USERNAME", "KAGGLE_KEY") if name in os.environ]
    where, what, fix = " and ".join([*given, *["kaggle.json"] * (len(given) < 2)]), "", ""
    if str(key).startswith(TOKEN):
        place, then = str(path), f"remove {path}"
        if "KAGGLE_KEY" in given:
            place, then = "KAGGLE_KEY", "unset KAGGLE_USERNAME KAGGLE_KEY"
        what = f"{place}: the key in it is a token"
        fix = f"Put it into ~/.kaggle/access_token, and {then}. If Kaggle does not know it there,"
        fix += f" {NEW_TOKEN}"
    elif name and key:
        found.sources.append(Source(where, "key", path if len(given) < 2 else None))
        if len(given) == 1:
            other = "key" if given == ["KAGGLE_USERNAME"] else "name"
            what = f"{given[0]} goes with the {other} of kaggle.json"
            fix = f"Set both variables, or: unset {given[0]}"
    elif given:
        what = f"{' and '.join(given)}: expected a name and a key"
        fix = "Set both KAGGLE_USERNAME and KAGGLE_KEY, or none."
    elif file:
        what, fix = f"{path} has no username or no key", f"Remove it, and {NEW_TOKEN}"
    elif os.environ.get("KAGGLE_CONFIG_DIR") and not found.sources and path not in found.files:
        what = f"KAGGLE_CONFIG_DIR is {os.environ['KAGGLE_CONFIG_DIR']}, and there is no {path}"
        fix = "Let it name the folder of kaggle.json, as /home/ann/.kaggle, or:\n"
        fix += "unset KAGGLE_CONFIG_DIR"
    if what:
        found.problems.append((what, fix))


def _object(found: Found, path: Path) -> dict[str, Any]:
    """Return what a JSON file holds; {} without one, or with a problem."""
    text = _text(found, path)
    if text is None:
        return {}
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(value := json.loads(text), dict):
            return value
    secrets.know(text)
    what, fix = "is not a JSON object", "Download it again, or remove it."
    if text.startswith("\ufeff"):
        quoted = shlex.quote(str(path))
        what = "begins with a byte order mark, which the client does not read"
        fix = (
            f"tail -c +4 {quoted} > {quoted}.new && mv {quoted}.new {quoted} && chmod 600 {quoted}"
        )
        fix = f"Save it as UTF-8 without one:\n{fix}"
    found.problems.append((f"{path} {what}", fix))
    return {}


def _text(found: Found, path: Path) -> str | None:
    """Return what a file holds; None without one, or with a problem."""
    text = None
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        found.problems.append((f"{path} cannot be read: {why}", "Fix the file, or remove it."))
    found.files.append(path)
    return text


def config_folder() -> Path:
    """Return where the client looks for kaggle.json."""
    given, home = os.environ.get("KAGGLE_CONFIG_DIR"), _home() / ".kaggle"
    if given:
        return Path(given)
    if os.path.exists(home) or not sys.platform.startswith("linux"):  # noqa: PTH110
        return home
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config") / "kaggle"


def _home() -> Path:
    return Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises if there is none


# Which Kaggle, and what changes the way to it


def environment() -> str:
    """Return "PROD" or "LOCALHOST".

    Raises:
        UsageError: for any other KAGGLE_API_ENVIRONMENT: the client would take it for PROD, so
            that a test talks to the real site.
    """
    value = os.environ.get("KAGGLE_API_ENVIRONMENT", "PROD")
    if value not in ("PROD", "LOCALHOST"):
        raise UsageError(
            f"KAGGLE_API_ENVIRONMENT={value!r} cannot work: expected LOCALHOST, PROD, or nothing.\n"
            "Unset it."
        )
    return value


def address() -> str:
    """Return the site's address, or host:port of a local Kaggle; never with credentials.

    A local Kaggle is the proxy for http://localhost, so the proxy distinguishes two of them.

    Raises:
        UsageError: for a KAGGLE_API_ENVIRONMENT that the client would ignore.
    """
    if environment() == "PROD":
        return SITE
    return _proxy("http://localhost") or "localhost"


def settings() -> list[Problem]:
    """Return the other variables that change the client. Names alone: a value may be secret."""
    told = {}
    for name in ("VERBOSE", "VERBOSE_OUTPUT"):
        if os.environ.get(name, "").lower() in ("1", "true", "yes"):
            told[name] = "`kaggle` prints every request with its key or token"
    for name in sorted({name for name in os.environ if name.startswith("KAGGLE_")} - KNOWN):
        told[name] = f"it becomes the client's setting {name.removeprefix('KAGGLE_').lower()!r}"
    return [(f"{name} is set: {effect}", f"unset {name}") for name, effect in told.items()]


def proxies(local: bool) -> tuple[str, list[Problem]]:
    """Return the proxies in words, without passwords, and what is wrong with them.

    Args:
        local: for a Kaggle on this machine.
    """
    hosts = {name: _host(proxy) for name, proxy in sorted(getproxies().items()) if name != "no"}
    words = ", ".join(f"{name}_proxy {host}" for name, host in hosts.items()) or "none"
    host = _proxy("http://localhost" if local else f"https://{SITE}")
    if local and not transfer.is_loopback(f"http://{host}"):
        what = f"http_proxy leads to {host or 'nowhere'}, not to a Kaggle on this machine"
        fix = "Set http_proxy to the address that `python -m localkaggle serve` printed"
        return words, [(what, f"{fix}, and if no_proxy holds localhost:\nexport no_proxy=")]
    if local or not host:
        return words, []
    fix = (
        "Check that it is up and lets api.kaggle.com and storage.googleapis.com through, or:"
        " unset https_proxy all_proxy"
    )
    return words, [(f"everything goes through the proxy {host}", fix)]


def _proxy(site: str) -> str:
    """Return host and port of the proxy that leads to a site; "" without one."""
    used = select_proxy(site, get_environ_proxies(site))
    return _host(used) if used else ""


def _host(address: str) -> str:
    """Return host and port alone: a proxy's address may hold a password."""
    try:
        place = urlsplit(address if "//" in address else f"//{address}").netloc
    except ValueError:
        place = ""
    return place.rpartition("@")[2] or "an address that cannot be read"


# The client


def require() -> None:
    """Refuse to begin what needs a login where nobody is logged in; Kaggle is not asked.

    Raises:
        UsageError: if the client cannot be imported.
        CredentialError: if there are no credentials on this machine, or none that can be read.
    """
    require_client()
    found = look()
    if not found.sources:
        raise _unusable(found)


def require_client() -> dict[str, str]:
    """Refuse a client that is missing, or that the pins of another package have broken.

    The installed versions tell. Nothing is imported, so nobody is logged in.

    Returns:
        The versions of the client and of what it needs.

    Raises:
        UsageError: if it cannot be imported.
    """
    versions, wrong = {}, []
    for need in map(Requirement, NEEDS):
        try:
            versions[need.name] = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is not installed")
            continue
        if versions[need.name] not in need.specifier:
            pinned = [
                f", as {other.name} {other.version} pins it"
                for other in importlib.metadata.distributions()
                if any(text.startswith(f"{need.name}==") for text in other.requires or ())
            ]
            wrong.append(
                f"it needs {need}, and {versions[need.name]} is installed{''.join(pinned)}"
            )
    if wrong:
        raise UsageError(
            f"The Kaggle client cannot be imported: {'; '.join(wrong)}.\n"
            f"Expected kaggle 2.2.4 or newer, and what it needs. Run:\n{INSTALL}"
        )
    return versions


def require_parts(owner: object, names: Sequence[str]) -> None:
    """Refuse a client whose object lacks what is used of it. Raises `UsageError`."""
    lacking = [name for name in names if not hasattr(owner, name)]
    if lacking:
        raise UsageError(
            f"kagglesdk {importlib.metadata.version('kagglesdk')} cannot be used:"
            f" {type(owner).__name__} has no {', '.join(lacking)}; expected a version that was"
            f" tested. Run:\n{INSTALL}"
        )


def log_in(timeouts: tuple[float, float]) -> tuple[Any, str, Renew | None]:
    """Return a kagglesdk client with credentials and timeouts, the user's name, and what renews it.

    The last gives the client a new access token. It is None for a token or key, which cannot be
    renewed, and raises `CredentialError` if the login has ended.

    Raises:
        CredentialError: if there are no credentials, or they cannot be read, or Kaggle does not
            know them.
        UsageError: if the client is missing or too old, or would ignore KAGGLE_API_ENVIRONMENT.
        requests.RequestException: if Kaggle had to be asked and did not answer.
    """
    place = environment()
    found = look()  # before the client removes a login that Kaggle refuses
    with _tamed(timeouts):
        api = _api(timeouts)
        try:
            with _login_ends([source.kind for source in found.sources[:1]] == ["login"]):
                api.authenticate()
        except (SystemExit, *BROKEN) as error:
            if found.sources and not isinstance(error, SystemExit):
                raise
            raise _unusable(found) from error
        client, values = api.build_kaggle_client(), api.config_values
        method = values.get(api.CONFIG_NAME_AUTH_METHOD)
        renew = _renewal(api, client) if method == "OAUTH" else None
    name, key = values.get(api.CONFIG_NAME_USER), values.get(api.CONFIG_NAME_KEY)
    if not name:
        raise CredentialError(f"The Kaggle credentials that were found name no user.\n{HOW}")
    http = client.http_client()
    if transfer.is_loopback(http._endpoint) != (place == "LOCALHOST"):
        raise UsageError(
            f"The Kaggle client talks to {http._endpoint} although"
            f" KAGGLE_API_ENVIRONMENT={place}.\n"
            "It reads that variable when it is imported. Set it before Python starts."
        )
    if method == "LEGACY_API_KEY":
        if str(key).startswith(TOKEN):
            raise _unusable(replace(found, sources=[]))
        http._session.auth = (name, key)  # else the client sends an expired token in its place
    return client, str(name), renew


def _renewal(api: Any, client: Any) -> Renew:
    """Return what gives the client a new access token; it has one already where one is due."""
    from kagglesdk.kaggle_creds import KaggleCredentials

    bare = api.build_kaggle_client()
    bare.http_client()._session.auth = None  # an access token that has ended would be refused
    login, http = KaggleCredentials.load(client=bare), client.http_client()
    require_parts(login, OF_LOGIN)

    def renew() -> None:
        with _login_ends(True), writing(Path(KaggleCredentials.DEFAULT_CREDENTIALS_FILE)):
            login.refresh_access_token()
        secrets.know(login._access_token)
        http._session.auth = type(http._session.auth)(login._access_token)

    ends = login._access_token_expiration
    # The client takes a token for valid until half an hour after its end.
    if ends is None or ends - datetime.now(UTC) < LEAST:
        renew()
    return renew


@contextlib.contextmanager
def _login_ends(used: bool) -> Iterator[None]:
    """Turn a refusal into a `CredentialError`, if the login is what the client used."""
    try:
        yield
    except requests.HTTPError as error:
        if not used or error.response.status_code not in (400, 401, 403, 404):
            raise
        raise CredentialError(LOGIN_ENDED) from error


def _unusable(found: Found) -> CredentialError:
    """Return the error for a client that found nothing usable: broken files differ from none."""
    if [source.kind for source in found.sources] == ["login"]:
        return CredentialError(LOGIN_ENDED)
    token = next((source for source in found.sources if source.kind == "token"), None)
    if token is not None:
        return CredentialError(
            f"Kaggle does not know the token in {token.name}: it has expired, or was revoked.\n"
            f"{without(token)}, and {NEW_TOKEN}"
        )
    if found.problems:
        broken = "; ".join(what for what, _ in found.problems)
        fixes = "\n".join(dict.fromkeys(fix for _, fix in found.problems))
        return CredentialError(f"The Kaggle credentials cannot be used: {broken}.\n{fixes}\n{HOW}")
    return CredentialError(f"No Kaggle credentials were found.\n{HOW}")


def without(source: Source) -> str:
    """Return the edit that removes a token."""
    return f"unset {source.name}" if source.name.startswith("KAGGLE_") else f"Remove {source.path}"


def _api(timeouts: tuple[float, float]) -> Any:
    """Return a `KaggleApi` whose clients have timeouts and print nothing."""
    require_client()
    try:
        from kaggle.api.kaggle_api_extended import KaggleApi
    except (OSError, ImportError) as error:
        fix = f"Expected kaggle 2.2.4 or newer. Run:\n{INSTALL}"
        if isinstance(error, OSError):
            fix = (
                f"It makes the folder {config_folder()} when it is imported; expected a place that"
                " can be written. Make it so, or name another folder:\n"
                'export KAGGLE_CONFIG_DIR="$(mktemp -d)"'
            )
        raise UsageError(f"The Kaggle client cannot be imported: {error}.\n{fix}") from error
    api = KaggleApi()
    build = api.build_kaggle_client

    def build_with_timeouts() -> Any:
        secrets.know(api.config_values.get("token"))  # that a login has just given
        client = build()
        http = client.http_client()
        require_parts(http, OF_HTTP)
        http._verbose = False  # else it prints the key
        http._response_processor = None
        http._init_session()
        transfer.guarded(http._session, timeouts)
        return client

    api.build_kaggle_client = build_with_timeouts
    return api


@contextlib.contextmanager
def _tamed(timeouts: tuple[float, float]) -> Iterator[None]:
    """Import and use the client: hide what it prints, and VERBOSE, which makes it log every signed
    address; and give timeouts to the sessions that it opens by itself.
    """
    send = requests.Session.send
    hidden = {name: os.environ.pop(name, None) for name in ("VERBOSE", "VERBOSE_OUTPUT")}

    def bounded(session: requests.Session, *args: Any, **kwargs: Any) -> requests.Response:
        return send(session, *args, **{**kwargs, "timeout": kwargs.get("timeout") or timeouts})

    requests.Session.send = bounded  # type: ignore[method-assign, assignment]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        requests.Session.send = send  # type: ignore[method-assign]
        os.environ.update({name: value for name, value in hidden.items() if value is not None})
