"""OAuth: how somebody logs in to the official client, and the tokens that it then uses.

A login gives a refresh token, which lasts. With that the client asks for access tokens, which end.
"""

import base64
import hashlib
import math
import secrets
import time
from dataclasses import dataclass
from typing import Any

import kagglesdk.security.types.oauth_service as types
from kagglesdk.users.types.account_service import GenerateAccessTokenResponse

from localkaggle.services.protocol import ApiError, make

ACCESS_SECONDS = 12 * 3600.0  # if the client does not say how long
# These calls take or give credentials. They need no login, and are recorded without a word of them.
CALLS = ("IntrospectToken", "ExchangeOAuthToken", "GenerateAccessToken", "ExpireApiToken")


@dataclass(frozen=True)
class Access:
    """What an access token stands on: the refresh token, and its end by `time.time`."""

    refresh: str
    ends: float


class OAuth:
    """`users.AccountService`, and the login of `security.OAuthService`, for one account.

    Args:
        user: the account.
        token_seconds: life of an access token at most; 0: as long as the client asks for.
    """

    KEPT = ("_refresh", "_access")

    def __init__(self, user: str, token_seconds: float) -> None:
        self._user, self._token_seconds = user, token_seconds
        self._challenges: dict[str, str] = {}  # by the code that the browser shows
        self._refresh: set[str] = set()
        self._access: dict[str, Access] = {}

    def authorize(self, challenge: str) -> str:
        """Return the code that a browser shows to somebody who has logged in there.

        Args:
            challenge: the client's `code_challenge` (RFC 7636, S256).
        """
        code = secrets.token_hex(16)
        self._challenges[code] = challenge
        return code

    def sign_in(self) -> str:
        """Return a new refresh token."""
        token = f"KGRT_{secrets.token_hex(16)}"
        self._refresh.add(token)
        return token

    def accepts(self, token: str) -> bool:
        """Return whether this is an access token that has not ended."""
        access = self._access.get(token)
        return access is not None and time.time() < access.ends

    def end_access(self) -> None:
        """End all access tokens. The refresh tokens stay."""
        self._access.clear()

    # The calls of the protocol

    def ExchangeOAuthToken(self, request: Any, user: str | None) -> Any:
        """Turn the code of a login into tokens, once."""
        challenge = self._challenges.pop(request.code, None)
        digest = hashlib.sha256(request.code_verifier.encode()).digest()
        given = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if challenge is None or not secrets.compare_digest(challenge.rstrip("="), given):
            raise ApiError(400, "invalid_grant")
        refresh = self.sign_in()
        access, seconds = self._grant(refresh, ACCESS_SECONDS)
        return make(
            types.ExchangeOAuthTokenResponse,
            access_token=access,
            refresh_token=refresh,
            token_type="Bearer",  # noqa: S106 - the kind of the token
            expires_in=seconds,
            username=self._user,
            user_id=1,
        )

    def GenerateAccessToken(self, request: Any, user: str | None) -> Any:
        """Make another access token."""
        if request.refresh_token not in self._refresh:
            raise ApiError(401, "Unauthenticated")
        asked = request.expiration_duration
        access, seconds = self._grant(
            request.refresh_token, asked.total_seconds() if asked else ACCESS_SECONDS
        )
        return make(
            GenerateAccessTokenResponse,
            token=access,
            expires_in=seconds,
            user_name=self._user,
            user_id=1,
        )

    def ExpireApiToken(self, request: Any, user: str | None) -> Any:
        """End a refresh token and its access tokens, or one access token."""
        token = request.token
        if token not in self._refresh and token not in self._access:
            raise ApiError(404, "Token not found")
        self.revoke(token)
        return {}

    def revoke(self, token: str) -> None:
        """End a refresh token and its access tokens, or one access token."""
        self._refresh.discard(token)
        self._access = {
            name: access
            for name, access in self._access.items()
            if token not in (name, access.refresh)
        }

    def _grant(self, refresh: str, asked: float) -> tuple[str, int]:
        """Return a new access token and the seconds until its end, as the client is told them."""
        seconds = min(asked, self._token_seconds or asked)
        token = f"KGAT_{secrets.token_hex(16)}"
        self._access[token] = Access(refresh, time.time() + seconds)
        return token, math.ceil(seconds)
