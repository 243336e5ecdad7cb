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
from deploy.decoding import MALFORMED
from deploy.errors import CredentialError, UsageError
from formats.errors import writing

SITE = "api.kaggle.com"
NEEDS = ("kaggle>=2.2.4", "kagglesdk>=0.1.37", "six")  # kaggle imports six and does not declare it
TESTED = ("kaggle>=2.2.4,<2.3", "kagglesdk>=0.1.37,<0.1.39")
INSTALL = f"pip install {' '.join(map(repr, TESTED))} six"
OF_HTTP = ("call", "_session", "_endpoint", "_verbose", "_response_processor", "_init_session")
OF_LOGIN = ("refresh_access_token", "_access_token", "_access_token_expiration")
# The variables that the client may see. Any other KAGGLE_X becomes its setting x, as KAGGLE_TOKEN
# what it signs with; with VERBOSE it logs every signed address.
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
LEAST = timedelta(hours=1)  # that an access token should last when a command starts
Renew = Callable[[], None]
Problem = tuple[str, str]  # what is wrong, and the fix


@dataclass(frozen=True)
class Source:
    """A place with credentials.

    Attributes:
        name: for a message.
        kind: "token", "key" or "login".
        path: of a token's file; None: it is in a variable.
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
    found, home = Found(), _home() / ".kaggle"
    given, files = os.environ.get("KAGGLE_API_TOKEN", "").strip(), dict[str, Path]()
    if os.path.exists(given):  # noqa: PTH110 - Path.exists raises for a name as long as a token
        files["KAGGLE_API_TOKEN"] = Path(given)
    elif given:
        secrets.know(given)
        found.sources.append(Source("KAGGLE_API_TOKEN", "token"))
    for name in ("access_token", "access_token.txt"):
        files[f"~/.kaggle/{name}"] = home / name
    for name, path in files.items():
        text = _text(found, path)
        if text and text.strip():
            found.sources.append(Source(name, "token", path))
        elif text is not None:
            fix = f"Put a token into {path}, or remove it."
            found.problems.append((f"{name} leads to an empty file", fix))
    _look_for_key(found)
    path = home / "credentials.json"  # `kaggle auth login` writes it
    login = _object(found, path)
    for name in ("refresh_token", "access_token"):
        secrets.know(login.get(name))
    if login.get("refresh_token"):
        found.sources.append(Source("kaggle auth login", "login"))
    elif login:
        found.problems.append((f"{path} holds no login", "Run: kaggle auth login"))
    for proxy in getproxies().values():
        secrets.know(proxy.rpartition("@")[0].rpartition(":")[2])
    return found


def _look_for_key(found: Found) -> None:
    """Look for a name and a key: each from its variable, or else from kaggle.json."""
    path = config_folder() / "kaggle.json"
    file, what, fix = _object(found, path), "", ""
    name, key = (os.environ.get(f"KAGGLE_{x.upper()}", file.get(x)) for x in ("username", "key"))
    found.username = name if isinstance(name, str) else ""
    for secret in (file.get("key"), file.get("token"), key):
        secrets.know(secret, found.username)
    given = [name for name in ("KAGGLE_USERNAME", "KAGGLE_KEY") if name in os.environ]
    if str(key).startswith(TOKEN):
        place = "KAGGLE_KEY" if "KAGGLE_KEY" in given else str(path)
        what = f"{place}: the key in it is a token"
        fix = f"Put it into ~/.kaggle/access_token, and remove {place}; or {NEW_TOKEN}"
    elif name and key:
        found.sources.append(Source(" and ".join([*given, "kaggle.json"][:2]), "key"))
        if len(given) == 1:
            what = f"{given[0]} goes with what is in kaggle.json"
            fix = f"Set both KAGGLE_USERNAME and KAGGLE_KEY, or: unset {given[0]}"
    elif given or file:
        what = f"{' and '.join(given) or path}: there is no username or no key"
        fix = f"Give both, or remove it, and {NEW_TOKEN}"
    elif os.environ.get("KAGGLE_CONFIG_DIR") and not found.sources and path not in found.files:
        what = f"KAGGLE_CONFIG_DIR is {os.environ['KAGGLE_CONFIG_DIR']}, and there is no {path}"
        fix = "Let it name the folder of kaggle.json, or:\nunset KAGGLE_CONFIG_DIR"
    if what:
        found.problems.append((what, fix))


def _object(found: Found, path: Path) -> dict[str, Any]:
    """Return what a JSON file holds; {} without one, or with a problem."""
    text = _text(found, path)
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(value := json.loads("{}" if text is None else text), dict):
            return value
    marked = str(text).startswith("\ufeff")
    what = "begins with a byte order mark" if marked else "is not a JSON object"
    fix = "Download it again, or save it as UTF-8 without a byte order mark, or remove it."
    found.problems.append((f"{path} {what}", fix))
    return {}


def _text(found: Found, path: Path) -> str | None:
    """Return what a file holds; None without one, or with a problem."""
    text = None
    try:
        text = path.read_text(encoding="utf-8")
        secrets.know(text)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        found.problems.append((f"{path} cannot be read: {why}", "Fix the file, or remove it."))
    found.files.append(path)
    return text


def config_folder() -> Path:
    """Return where the client looks for kaggle.json."""
    usual, given = _home() / ".kaggle", os.environ.get("KAGGLE_CONFIG_DIR")
    if given or usual.exists() or not sys.platform.startswith("linux"):
        return Path(given or usual)
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
    if value in ("PROD", "LOCALHOST"):
        return value
    raise UsageError(
        f"KAGGLE_API_ENVIRONMENT={value!r}: expected LOCALHOST, PROD, or nothing.\nUnset it."
    )


def address() -> str:
    """Return the site's address, or host:port of a local Kaggle; never with credentials.

    A local Kaggle is the proxy for http://localhost, so the proxy distinguishes two of them.

    Raises:
        UsageError: for a KAGGLE_API_ENVIRONMENT that the client would ignore.
    """
    return SITE if environment() == "PROD" else _proxy("http://localhost") or "localhost"


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
    fix = f"Let it pass {SITE} and storage.googleapis.com, or: unset https_proxy all_proxy"
    return words, [(f"all goes through the proxy {host}", fix)] if host and not local else []


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
        raise unusable(found)


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
            there = versions[need.name] = importlib.metadata.version(need.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{need.name} is not installed")
            continue
        if there not in need.specifier:
            pins = [
                f", as {other.name} {other.version} pins it"
                for other in importlib.metadata.distributions()
                if any(text.startswith(f"{need.name}==") for text in other.requires or ())
            ]
            wrong.append(f"it needs {need}, and {there} is installed{''.join(pins)}")
    if wrong:
        why = f"The Kaggle client cannot be imported: {'; '.join(wrong)}."
        raise UsageError(f"{why}\nExpected kaggle 2.2.4 or newer. Run:\n{INSTALL}")
    return versions


def require_parts(owner: object, names: Sequence[str]) -> None:
    """Refuse a client whose object lacks what is used of it. Raises `UsageError`."""
    lacking = [name for name in names if not hasattr(owner, name)]
    if lacking:
        raise UsageError(
            f"kagglesdk {importlib.metadata.version('kagglesdk')} is not as expected:"
            f" {type(owner).__name__} has no {', '.join(lacking)}. Run:\n{INSTALL}"
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
    with _api(timeouts) as api:
        try:
            with _login_ends([source.kind for source in found.sources[:1]] == ["login"]):
                api.authenticate()
        except (SystemExit, OSError, *MALFORMED) as error:  # of which a broken file is one
            if found.sources and not isinstance(error, SystemExit):
                raise
            raise unusable(found) from error
        client, values = api.build_kaggle_client(), api.config_values
        method = values.get(api.CONFIG_NAME_AUTH_METHOD)
        renew = _renewal(api, client) if method == "OAUTH" else None
    name, key = values.get(api.CONFIG_NAME_USER), values.get(api.CONFIG_NAME_KEY)
    if not name:
        raise CredentialError(f"The Kaggle credentials that were found name no user.\n{HOW}")
    http = client.http_client()
    if transfer.is_loopback(http._endpoint) != (place == "LOCALHOST"):
        raise UsageError(
            f"The Kaggle client talks to {http._endpoint} although KAGGLE_API_ENVIRONMENT={place}."
            "\nIt reads that when it is imported. Set it before Python starts."
        )
    if method == "LEGACY_API_KEY":
        if str(key).startswith(TOKEN):
            raise unusable(replace(found, sources=[]))
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


def unusable(found: Found) -> CredentialError:
    """Return the error for a client that found nothing usable: broken files differ from none."""
    first = found.sources[0] if found.sources else Source("", "")
    if first.kind == "login":
        return CredentialError(LOGIN_ENDED)
    if first.kind == "token":
        said = f"Kaggle does not know the token in {first.name}: it has expired, or was revoked."
        return CredentialError(f"{said}\n{without(first)}, and {NEW_TOKEN}")
    said, fixes = (
        "No Kaggle credentials were found",
        dict.fromkeys(fix for _, fix in found.problems),
    )
    if fixes:
        broken = "; ".join(what for what, _ in found.problems)
        said = f"The Kaggle credentials cannot be used: {broken}"
    return CredentialError("\n".join([f"{said}.", *fixes, HOW]))


def without(source: Source) -> str:
    """Return the edit that removes a token."""
    return f"Remove {source.path}" if source.path else f"unset {source.name}"


@contextlib.contextmanager
def _api(timeouts: tuple[float, float]) -> Iterator[Any]:
    """Import the client, and give its `KaggleApi`, whose clients have timeouts.

    Meanwhile nothing that it prints is shown, and it sees none of the variables that change it. The
    sessions that it opens by itself have timeouts, too.
    """
    require_client()
    send = requests.Session.send
    changing = [name for name in os.environ if name.startswith(("KAGGLE_", "VERBOSE"))]
    hidden = {name: os.environ.pop(name) for name in changing if name not in KNOWN}

    def bounded(session: requests.Session, *args: Any, **kwargs: Any) -> requests.Response:
        return send(session, *args, **{**kwargs, "timeout": kwargs.get("timeout") or timeouts})

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

    requests.Session.send = bounded  # type: ignore[method-assign, assignment]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                from kaggle.api.kaggle_api_extended import KaggleApi
            except (OSError, ImportError) as error:
                fix = f"Expected kaggle 2.2.4 or newer. Run:\n{INSTALL}"
                if isinstance(error, OSError):
                    fix = f"It makes the folder {config_folder()} then. Let it be written, or name"
                    fix += ' another:\nexport KAGGLE_CONFIG_DIR="$(mktemp -d)"'
                raise UsageError(
                    f"The Kaggle client cannot be imported: {error}.\n{fix}"
                ) from error
            api = KaggleApi()
            build, api.build_kaggle_client = api.build_kaggle_client, build_with_timeouts
            yield api
    finally:
        requests.Session.send = send  # type: ignore[method-assign]
        os.environ.update(hidden)
