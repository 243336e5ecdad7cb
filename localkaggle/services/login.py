"""The login service, which stores the credentials of the account and issues access tokens.

After the user logs in with a browser, the client uses a refresh token to request short-lived access
tokens.
"""

import math
import secrets
import time
from typing import Any

from werkzeug.datastructures import Authorization
from werkzeug.exceptions import NotFound, Unauthorized

from localkaggle.services.protocol import Json

USER = "rehearsal"
ACCESS_SECONDS = 12 * 3600.0  # unless the client requests a different duration
CALLS = ("IntrospectToken", "GenerateAccessToken")  # these require no login


class Login:
    """`users.AccountService` and `security.OAuthService` for a single account.

    `key` and `token` never expire. `refresh_token` can be exchanged for access tokens until it is
    revoked.
    """

    KEPT = ("key", "token", "refresh_token", "is_revoked", "_ends")

    def __init__(self) -> None:
        self.key = secrets.token_hex(16)
        self.token, self.refresh_token = self._new_token(), f"KGRT_{secrets.token_hex(16)}"
        self.is_revoked = False
        self._ends: dict[str, float] = {}  # {access token: expiration time}

    def user(self, given: Authorization | None) -> str | None:
        if given is None:
            return None
        if given.type == "bearer":
            return USER if self._accepts(given.token or "") else None
        said = f"{given.username}:{given.password}".encode()
        return USER if secrets.compare_digest(said, f"{USER}:{self.key}".encode()) else None

    def end_access(self) -> None:
        """Expire all access tokens. The refresh token stays valid."""
        self._ends.clear()

    def revoke(self) -> None:
        self.is_revoked = True
        self.end_access()

    # API calls

    def IntrospectToken(self, request: Any, user: str | None) -> Json:
        if not self._accepts(request.token or ""):
            raise NotFound("Token not found")
        return {"active": True, "username": USER, "userId": 1, "scope": "resources.admin:*"}

    def GenerateAccessToken(self, request: Any, user: str | None) -> Json:
        given = (request.refresh_token or "").encode()
        if self.is_revoked or not secrets.compare_digest(given, self.refresh_token.encode()):
            raise Unauthorized("Unauthenticated")
        asked = request.expiration_duration
        seconds = asked.total_seconds() if asked else ACCESS_SECONDS
        token = self._new_token()
        self._ends[token] = time.time() + seconds
        return {"token": token, "expiresIn": math.ceil(seconds), "userName": USER, "userId": 1}

    def _accepts(self, token: str) -> bool:
        is_lasting = secrets.compare_digest(token.encode(), self.token.encode())
        return is_lasting or time.time() < self._ends.get(token, 0.0)

    @staticmethod
    def _new_token() -> str:
        return f"KGAT_{secrets.token_hex(16)}"
