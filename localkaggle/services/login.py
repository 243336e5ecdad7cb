"""Login: the credentials of the one account, and the tokens of the official client.

A login in the browser leaves a refresh token, with which the client asks for access tokens that
expire.
"""

import math
import secrets
import time
from typing import Any

from werkzeug.datastructures import Authorization
from werkzeug.exceptions import NotFound, Unauthorized

from localkaggle.services.protocol import Json

USER = "rehearsal"
ACCESS_SECONDS = 12 * 3600.0  # unless the client asks for another duration
CALLS = ("IntrospectToken", "GenerateAccessToken")  # they need no login


class Login:
    """`users.AccountService`, and `security.OAuthService` after a login, for one account.

    Attributes:
        key, token: never expire.
        refresh_token: gives access tokens until it is revoked.
        is_revoked: whether it is revoked.
    """

    KEPT = ("key", "token", "refresh_token", "is_revoked", "_ends")

    def __init__(self) -> None:
        self.key = secrets.token_hex(16)
        self.token, self.refresh_token = self._new_token(), f"KGRT_{secrets.token_hex(16)}"
        self.is_revoked = False
        self._ends: dict[str, float] = {}  # {access token: its end by `time.time`}

    def user(self, given: Authorization | None) -> str | None:
        """Return the user to whom a request's credentials belong, or None."""
        if given is None:
            return None
        if given.type == "bearer":
            return USER if self._accepts(given.token or "") else None
        said = f"{given.username}:{given.password}".encode()
        return USER if secrets.compare_digest(said, f"{USER}:{self.key}".encode()) else None

    def end_access(self) -> None:
        """Let all access tokens expire; the refresh token stays valid."""
        self._ends.clear()

    def revoke(self) -> None:
        """Revoke the refresh token and its access tokens."""
        self.is_revoked = True
        self.end_access()

    # The calls of the protocol

    def IntrospectToken(self, request: Any, user: str | None) -> Json:
        """Return the owner of a token."""
        if not self._accepts(request.token or ""):
            raise NotFound("Token not found")
        return {"active": True, "username": USER, "userId": 1, "scope": "resources.admin:*"}

    def GenerateAccessToken(self, request: Any, user: str | None) -> Json:
        """Create an access token."""
        given = (request.refresh_token or "").encode()
        if self.is_revoked or not secrets.compare_digest(given, self.refresh_token.encode()):
            raise Unauthorized("Unauthenticated")
        asked = request.expiration_duration
        seconds = asked.total_seconds() if asked else ACCESS_SECONDS
        token = self._new_token()
        self._ends[token] = time.time() + seconds
        return {"token": token, "expiresIn": math.ceil(seconds), "userName": USER, "userId": 1}

    def _accepts(self, token: str) -> bool:
        """Return whether this is the account's token, or an access token that has not expired."""
        is_lasting = secrets.compare_digest(token.encode(), self.token.encode())
        return is_lasting or time.time() < self._ends.get(token, 0.0)

    @staticmethod
    def _new_token() -> str:
        return f"KGAT_{secrets.token_hex(16)}"
