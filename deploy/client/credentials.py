"""Credentials: found by the official client's own lookup, and put on one session with timeouts.

Reads  what `kaggle` reads: KAGGLE_API_TOKEN, ~/.kaggle/access_token, kaggle.json or KAGGLE_USERNAME
and KAGGLE_KEY,
       and what `kaggle auth login` left
Gives  a kagglesdk client that is signed in, and the user's name

`import kaggle` signs in, prints a page of help where it finds nothing, and waits for ever where the
server hangs; all three stay in this module.
"""

import contextlib
import importlib.metadata
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

from deploy.client import credential_lookup, file_transfer, secrets
from deploy.errors import CredentialError, UsageError

OLDEST = (2, 2, 4)
HOW = (
    "Expected one of these:\n"
    "  - a token from https://www.kaggle.com/settings/api, in the file ~/.kaggle/access_token or in KAGGLE_API_TOKEN\n"
    "  - the older key: the file ~/.kaggle/kaggle.json, or KAGGLE_USERNAME and KAGGLE_KEY\n"
    "  - a login in the browser:  kaggle auth login\n"
    "No account is needed for: invoke dry-run"
)


def sign_in(timeouts: tuple[float, float]) -> tuple[Any, str]:
    """Return a kagglesdk client whose session has credentials and timeouts, and the user's name.

    Raises:
        CredentialError: if there are no credentials, if they cannot be read, or if Kaggle does not
            know them.
        UsageError: if the client is missing or too old, or KAGGLE_API_ENVIRONMENT is one that it
            would ignore.
        requests.RequestException: if Kaggle had to be asked, and did not answer.
    """
    place = environment()
    heard = io.StringIO()
    with contextlib.redirect_stdout(heard), _in_a_hurry(timeouts):
        api = _api(timeouts)
        try:
            api.authenticate()
        except SystemExit as error:
            raise _unusable() from error
        except (TypeError, ValueError, AttributeError) as error:
            if credential_lookup.look().sources:
                raise
            raise _unusable() from error  # the client took a broken file for credentials
        client = api.build_kaggle_client()
    name = api.config_values.get(api.CONFIG_NAME_USER)
    if not name:
        raise CredentialError(f"The Kaggle credentials that were found name no user.\n{HOW}")
    http = client.http_client()
    if file_transfer.is_loopback(http._endpoint) != (place == "LOCALHOST"):
        raise UsageError(
            f"The Kaggle client talks to {http._endpoint} although KAGGLE_API_ENVIRONMENT={place}.\n"
            "It reads that variable when it is imported. Set it before Python starts."
        )
    if api.config_values.get(api.CONFIG_NAME_AUTH_METHOD) == "LEGACY_API_KEY":
        # A token that Kaggle does not know any more would otherwise be sent in place of the good
        # key.
        http._session.auth = (name, api.config_values[api.CONFIG_NAME_KEY])
    return client, str(name)


def _unusable() -> CredentialError:
    """Return what to say where the client found nothing that it can use: a broken file is not the
    same as none.
    """
    found = credential_lookup.look()
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
    """Return the edit that takes a token away."""
    return f"unset {source.name}" if source.name.startswith("KAGGLE_") else f"Remove {source.path}"


def environment() -> str:
    """Return PROD or LOCALHOST. Raises `UsageError` for a KAGGLE_API_ENVIRONMENT that the client
    would ignore.
    """
    value = os.environ.get("KAGGLE_API_ENVIRONMENT", "PROD")
    if value not in ("PROD", "LOCALHOST"):
        # The client takes every other value for PROD in silence: a test would talk to the real
        # site.
        raise UsageError(
            f"KAGGLE_API_ENVIRONMENT={value!r} cannot work: expected LOCALHOST, PROD, or nothing.\nUnset it."
        )
    return value


def versions(timeouts: tuple[float, float]) -> dict[str, str]:
    """Return the versions of the client and of what it needs, after it was imported.

    Raises:
        UsageError: if it is missing, too old, or cannot be imported.
    """
    environment()  # the import signs in
    with contextlib.redirect_stdout(io.StringIO()), _in_a_hurry(timeouts):
        _api(timeouts)
    found = {}
    for name in ("kaggle", "kagglesdk", "six"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _api(timeouts: tuple[float, float]) -> Any:
    """Return a `KaggleApi` that builds its clients with timeouts, without a voice, and with nothing
    of our command line.
    """
    try:
        version = importlib.metadata.version("kaggle")
        with _without_a_voice():
            from kaggle.api.kaggle_api_extended import KaggleApi
    except (ImportError, OSError) as error:
        raise UsageError(
            f"The Kaggle client cannot be imported: {error}.\n"
            "Expected kaggle 2.2.4 or newer, and a home folder that can be written.\nRun: pip install 'kaggle>=2.2.4,<2.3' six"
        ) from error
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < OLDEST:
        raise UsageError(
            f"kaggle {version} is too old; expected 2.2.4 or newer.\nRun: pip install 'kaggle>=2.2.4,<2.3' six"
        )

    class Api(KaggleApi):  # type: ignore[misc]  # the client ships no types
        """The official lookup, on sessions with timeouts."""

        def build_kaggle_client(self) -> Any:
            """Build as the base class does, then add timeouts and take away what prints, which
            would show the key.
            """
            client = super().build_kaggle_client()
            _remember(self.config_values)  # this comes before each first use of a credential
            http = client.http_client()
            http._verbose = False
            http._response_processor = None
            http._init_session()
            file_transfer.guarded(http._session, timeouts)
            return client

    return Api()


def _remember(values: dict[str, Any]) -> None:
    """Keep what the client is about to send out of every text from now on."""
    from kagglesdk.kaggle_env import get_access_token_from_env

    user = str(values.get("username", ""))
    for secret in (values.get("key"), values.get("token"), get_access_token_from_env()[0]):
        secrets.know(secret, user)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        held = json.loads(
            Path("~/.kaggle/credentials.json").expanduser().read_text(encoding="utf-8")
        )
        for name in ("refresh_token", "access_token"):
            secrets.know(held.get(name))


@contextlib.contextmanager
def _without_a_voice() -> Iterator[None]:
    """Hide VERBOSE from the client while it is imported: it would log every address from then on,
    those that are signed too.
    """
    names = ("VERBOSE", "VERBOSE_OUTPUT")
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextlib.contextmanager
def _in_a_hurry(timeouts: tuple[float, float]) -> Iterator[None]:
    """Give timeouts to the sessions that `import kaggle` opens by itself, before anyone can mount
    an adapter.
    """
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
