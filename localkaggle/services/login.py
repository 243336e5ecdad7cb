"""Login: the credentials of the one account, and the tokens that the official client uses.

A login in the browser gives a refresh token, which lasts. With that the client asks for access
tokens, which end.
"""

import base64
import hashlib
import math
import secrets
import time
from dataclasses import dataclass
from typing import Any

from werkzeug.datastructures import Authorization
from werkzeug.exceptions import BadRequest, NotFound, Unauthorized

from localkaggle.services.protocol import Json

USER = "rehearsal"
ACCESS_SECONDS = 12 * 3600.0  # if the client does not say how long
# These calls take or give credentials. They need no login, and are recorded without a word of them.
CALLS = ("IntrospectToken", "ExchangeOAuthToken", "GenerateAccessToken", "ExpireApiToken")


@dataclass(frozen=True)
class Access:
    """What an access token stands on: the refresh token, and its end by `time.time`."""

    refresh: str
    ends: float


class Login:
    """`users.AccountService`, and the login of `security.OAuthService`, for one account.

    Args:
        token_seconds: life of an access token at most; 0: as long as the client asks for.

    Attributes:
        key, token: of the account; neither ends.
        refresh_token: what a login in the browser leaves.
    """

    KEPT = ("key", "token", "refresh_token", "_refresh", "_access")

    def __init__(self, token_seconds: float) -> None:
        self.key, self.token = secrets.token_hex(16), f"KGAT_{secrets.token_hex(16)}"
        self._token_seconds = token_seconds
        self._challenges: dict[str, str] = {}  # by the code that the browser shows
        self._refresh: list[str] = []
        self._access: dict[str, Access] = {}
        self.refresh_token = self._sign_in()

    def user(self, given: Authorization | None) -> str | None:
        """Return the user whose credentials a request holds, or None."""
        if given is None:
            return None
        if given.type == "bearer":
            return USER if self._accepts(given.token or "") else None
        said = f"{given.username}:{given.password}".encode()
        return USER if secrets.compare_digest(said, f"{USER}:{self.key}".encode()) else None

    def authorize(self, challenge: str) -> str:
        """Return the code that a browser shows to somebody who has logged in there.

        Args:
            challenge: the client's `code_challenge` (RFC 7636, S256).
        """
        code = secrets.token_hex(16)
        self._challenges[code] = challenge
        return code

    def end_access(self) -> None:
        """End all access tokens. The refresh tokens stay."""
        self._access.clear()

    def revoke(self, token: str) -> None:
        """End a refresh token and its access tokens, or one access token."""
        self._refresh = [refresh for refresh in self._refresh if refresh != token]
        self._access = {
            name: access
            for name, access in self._access.items()
            if token not in (name, access.refresh)
        }

    # The calls of the protocol

    def IntrospectToken(self, request: Any, user: str | None) -> Json:
        """Return the owner of a token."""
        if not self._accepts(request.token or ""):
            raise NotFound("Token not found")
        return {"active": True, "username": USER, "userId": 1, "scope": "resources.admin:*"}

    def ExchangeOAuthToken(self, request: Any, user: str | None) -> Json:
        """Turn the code of a login into tokens, once."""
        challenge = self._challenges.pop(request.code, "")
        digest = hashlib.sha256(request.code_verifier.encode()).digest()
        verified = base64.urlsafe_b64encode(digest).rstrip(b"=")
        if not secrets.compare_digest(challenge.rstrip("=").encode(), verified):
            raise BadRequest("invalid_grant")
        refresh = self._sign_in()
        access, seconds = self._new_access(refresh, ACCESS_SECONDS)
        return {
            "accessToken": access,
            "refreshToken": refresh,
            "tokenType": "Bearer",
            "expiresIn": seconds,
            "username": USER,
            "userId": 1,
        }

    def GenerateAccessToken(self, request: Any, user: str | None) -> Json:
        """Make another access token."""
        if request.refresh_token not in self._refresh:
            raise Unauthorized("Unauthenticated")
        asked = request.expiration_duration
        seconds = asked.total_seconds() if asked else ACCESS_SECONDS
        access, seconds = self._new_access(request.refresh_token, seconds)
        return {"token": access, "expiresIn": seconds, "userName": USER, "userId": 1}

    def ExpireApiToken(self, request: Any, user: str | None) -> Json:
        """End a refresh token and its access tokens, or one access token."""
        if request.token not in (*self._refresh, *self._access):
            raise NotFound("Token not found")
        self.revoke(request.token)
        return {}

    def _accepts(self, token: str) -> bool:
        """Return whether this is the account's token, or an access token that has not ended."""
        access = self._access.get(token)
        is_lasting = secrets.compare_digest(token.encode(), self.token.encode())
        return is_lasting or (access is not None and time.time() < access.ends)

    def _sign_in(self) -> str:
        """Return a new refresh token."""
        self._refresh.append(f"KGRT_{secrets.token_hex(16)}")
        return self._refresh[-1]

    def _new_access(self, refresh: str, asked: float) -> tuple[str, int]:
        """Return a new access token and the seconds until its end, as the client is told them."""
        seconds = min(asked, self._token_seconds or asked)
        token = f"KGAT_{secrets.token_hex(16)}"
        self._access[token] = Access(refresh, time.time() + seconds)
        return token, math.ceil(seconds)
