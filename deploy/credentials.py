"""Log in: find credentials by the official client's own lookup, and put them on a session.

`import kaggle` itself logs in, prints a page of help where it finds nothing, and waits for ever
where the server hangs. All three stay in this module.
"""

import contextlib
import importlib.metadata
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import requests
from packaging.requirements import Requirement

from deploy import credential_lookup, file_transfer, secrets
from deploy.credential_lookup import Found
from deploy.errors import CredentialError, UsageError
from formats.errors import writing

OLDEST = (2, 2, 4)
INSTALL = "pip install 'kaggle>=2.2.4,<2.3' 'kagglesdk>=0.1.37,<0.1.39' six"
# What is used of the client though it is private: another version may lack it.
OF_HTTP = ("call", "_session", "_endpoint", "_verbose", "_response_processor", "_init_session")
OF_LOGIN = ("refresh_access_token", "_access_token", "_access_token_expiration")
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
    found = credential_lookup.look()  # before the client removes a login that Kaggle refuses
    renew = None
    with contextlib.redirect_stdout(io.StringIO()), _bounded_requests(timeouts):
        api = _api(timeouts)
        try:
            with _login_ends([source.kind for source in found.sources[:1]] == ["login"]):
                api.authenticate()
        except SystemExit as error:
            raise _unusable(found) from error
        except (IsADirectoryError, PermissionError, TypeError, ValueError, AttributeError) as error:
            if found.sources:
                raise
            raise _unusable(found) from error  # the client took a broken file for credentials
        client = api.build_kaggle_client()
        if api.config_values.get(api.CONFIG_NAME_AUTH_METHOD) == "OAUTH":
            renew = _renewal(api, client)
    name = api.config_values.get(api.CONFIG_NAME_USER)
    if not name:
        raise CredentialError(f"The Kaggle credentials that were found name no user.\n{HOW}")
    http = client.http_client()
    if file_transfer.is_loopback(http._endpoint) != (place == "LOCALHOST"):
        raise UsageError(
            f"The Kaggle client talks to {http._endpoint} although"
            f" KAGGLE_API_ENVIRONMENT={place}.\n"
            "It reads that variable when it is imported. Set it before Python starts."
        )
    if api.config_values.get(api.CONFIG_NAME_AUTH_METHOD) == "LEGACY_API_KEY":
        if str(api.config_values[api.CONFIG_NAME_KEY]).startswith(credential_lookup.TOKEN):
            raise _unusable(replace(found, sources=()))
        # Otherwise the client sends an expired token in place of the valid key.
        http._session.auth = (name, api.config_values[api.CONFIG_NAME_KEY])
    return client, str(name), renew


def require() -> None:
    """Refuse to begin what needs a login where nobody is logged in; Kaggle is not asked.

    Raises:
        UsageError: if the client cannot be imported.
        CredentialError: if there are no credentials on this machine, or none that can be read.
    """
    require_client()
    found = credential_lookup.look()
    if not found.sources:
        raise _unusable(found)


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
            f"{without(token)}, and make a new one at https://www.kaggle.com/settings/api"
        )
    if found.problems:
        broken = "; ".join(what for what, _ in found.problems)
        fixes = "\n".join(dict.fromkeys(fix for _, fix in found.problems))
        return CredentialError(f"The Kaggle credentials cannot be used: {broken}.\n{fixes}\n{HOW}")
    return CredentialError(f"No Kaggle credentials were found.\n{HOW}")


def without(source: credential_lookup.Source) -> str:
    """Return the edit that removes a token."""
    return f"unset {source.name}" if source.name.startswith("KAGGLE_") else f"Remove {source.path}"


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


def versions(timeouts: tuple[float, float]) -> dict[str, str]:
    """Return the versions of the client and of what it needs, after importing it.

    Raises:
        UsageError: if it is missing, too old, or cannot be imported.
    """
    environment()  # the import logs in
    with contextlib.redirect_stdout(io.StringIO()), _bounded_requests(timeouts):
        _api(timeouts)
    found = {}
    for name in ("kaggle", "kagglesdk", "six"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def require_client() -> None:
    """Refuse a client that is missing, or that the pins of another package have broken.

    The installed versions tell. Nothing is imported, so nobody is logged in.

    Raises:
        UsageError: if it cannot be imported.
    """
    wrong = []
    try:
        needs = importlib.metadata.requires("kaggle") or []
        for need in map(Requirement, [*needs, "six"]):  # it imports six and does not declare it
            if need.marker is not None and not need.marker.evaluate():
                continue
            try:
                version = importlib.metadata.version(need.name)
            except importlib.metadata.PackageNotFoundError:
                wrong.append(f"{need.name} is not installed")
                continue
            # Another version of any other package may well do.
            if need.name == "kagglesdk" and version not in need.specifier:
                pinned = "".join(f", as {name} pins it" for name in _pinning(need.name))
                wrong.append(f"it needs {need}, and {version} is installed{pinned}")
    except importlib.metadata.PackageNotFoundError:
        wrong = ["it is not installed"]
    if wrong:
        raise UsageError(
            f"The Kaggle client cannot be imported: {'; '.join(wrong)}.\n"
            f"Expected kaggle 2.2.4 or newer, and what it needs. Run:\n{INSTALL}"
        )


def require_parts(owner: object, names: Sequence[str]) -> None:
    """Refuse a client whose object lacks what is used of it. Raises `UsageError`."""
    lacking = [name for name in names if not hasattr(owner, name)]
    if lacking:
        raise UsageError(
            f"kagglesdk {importlib.metadata.version('kagglesdk')} cannot be used:"
            f" {type(owner).__name__} has no {', '.join(lacking)}; expected a version that was"
            f" tested. Run:\n{INSTALL}"
        )


def _pinning(package: str) -> list[str]:
    """Return the installed packages that allow one version of a package, with their versions."""
    return [
        f"{found.name} {found.version}"
        for found in importlib.metadata.distributions()
        for text in found.requires or ()
        if re.match(rf"{package}\s*\(?==", text)
    ]


def _api(timeouts: tuple[float, float]) -> Any:
    """Return a `KaggleApi` whose clients have timeouts and print nothing."""
    require_client()
    try:
        version = importlib.metadata.version("kaggle")
        with _hidden_verbose():
            from kaggle.api.kaggle_api_extended import KaggleApi
    except OSError as error:
        folder = credential_lookup.config_folder()
        raise UsageError(
            f"The Kaggle client cannot be imported: {error}.\n"
            f"It makes the folder {folder} when it is imported; expected a place that can be"
            " written. Make it so, or name another folder:\n"
            'export KAGGLE_CONFIG_DIR="$(mktemp -d)"'
        ) from error
    except ImportError as error:
        raise UsageError(
            f"The Kaggle client cannot be imported: {error}.\n"
            f"Expected kaggle 2.2.4 or newer. Run:\n{INSTALL}"
        ) from error
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < OLDEST:
        raise UsageError(f"kaggle {version} is too old; expected 2.2.4 or newer. Run:\n{INSTALL}")

    class Api(KaggleApi):  # type: ignore[misc]  # the client ships no types
        """The official lookup, on sessions with timeouts."""

        def build_kaggle_client(self) -> Any:
            """Build as the base class does, add timeouts, and silence what would print the key."""
            client = super().build_kaggle_client()
            _remember(self.config_values)  # before the first use of a credential
            http = client.http_client()
            require_parts(http, OF_HTTP)
            http._verbose = False
            http._response_processor = None
            http._init_session()
            file_transfer.guarded(http._session, timeouts)
            return client

    return Api()


def _remember(values: dict[str, Any]) -> None:
    """Hide what the client is about to send from all texts."""
    from kagglesdk.kaggle_env import get_access_token_from_env

    credential_lookup.look()  # hides all that it finds
    user = str(values.get("username", ""))
    for secret in (values.get("key"), values.get("token"), get_access_token_from_env()[0]):
        secrets.know(secret, user)


@contextlib.contextmanager
def _hidden_verbose() -> Iterator[None]:
    """Hide VERBOSE while the client is imported: it would log every address, signed ones too."""
    names = ("VERBOSE", "VERBOSE_OUTPUT")
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextlib.contextmanager
def _bounded_requests(timeouts: tuple[float, float]) -> Iterator[None]:
    """Give timeouts to the sessions that `import kaggle` opens by itself."""
    send = requests.Session.send

    def bounded(
        self: requests.Session, request: requests.PreparedRequest, **kwargs: Any
    ) -> requests.Response:
        if kwargs.get("timeout") is None:
            kwargs["timeout"] = timeouts
        return send(self, request, **kwargs)

    requests.Session.send = bounded  # type: ignore[method-assign]
    try:
        yield
    finally:
        requests.Session.send = send  # type: ignore[method-assign]
