"""The client: a logged-in connection to Kaggle, over the official kagglesdk.

Comes in: handles, versions, files. Goes out: plain values (deploy/responses.py). A missing
or unknown answer never looks like success. How calls are retried is in deploy/retries.py.
"""

import time
from collections.abc import Callable
from typing import Any, Self

import requests

from deploy import credentials, failure_messages, file_transfer, responses, server_address
from deploy.competition_calls import CompetitionCalls
from deploy.dataset_calls import DatasetCalls
from deploy.errors import CredentialError, Unreachable
from deploy.kernel_calls import KernelCalls
from deploy.responses import MALFORMED
from deploy.retries import LOOPBACK, REMOTE, Pace


class Kaggle(KernelCalls, DatasetCalls, CompetitionCalls):
    """A logged-in connection. Use `Kaggle.connect()`."""

    def __init__(
        self,
        client: Any,
        username: str,
        pace: Pace,
        timeouts: tuple[float, float],
        show: Callable[[str], None],
        renew: credentials.Renew | None,
    ) -> None:
        super().__init__(client.http_client(), username, pace, timeouts, show, renew)
        # Imported late: a task that does not connect starts without the client.
        from kagglesdk.blobs.types import blob_api_service as blobs_types
        from kagglesdk.competitions.types import competition_api_service as competitions_types
        from kagglesdk.datasets.types import dataset_api_service as datasets_types
        from kagglesdk.kernels.types import kernels_api_service as kernels_types

        self._kernels_types, self._kernels = kernels_types, client.kernels.kernels_api_client
        self._datasets_types, self._datasets = datasets_types, client.datasets.dataset_api_client
        self._blobs_types, self._blobs = blobs_types, client.blobs.blob_api_client
        self._competitions_types = competitions_types
        self._competitions = client.competitions.competition_api_client

    @classmethod
    def connect(
        cls,
        *,
        pace: Pace | None = None,
        timeouts: tuple[float, float] = (10, 60),
        show: Callable[[str], None] = lambda line: None,
    ) -> Self:
        """Return a connection with the credentials that the official client would use.

        Args:
            pace: by default that of the address, Kaggle's or this machine's.
            timeouts: seconds to connect, and between two bytes.
            show: is given a line before this machine waits for Kaggle.

        Raises:
            CredentialError: without credentials, or with ones that Kaggle does not know.
            Unreachable: if Kaggle had to be asked and did not answer.
        """
        show(f"Logging in to {server_address.address()}")
        try:
            client, username, renew = credentials.log_in(timeouts)
        except requests.RequestException as error:
            known = failure_messages.error_for("log in", error)
            raise known or Unreachable(failure_messages.unanswered("log in", error)) from error
        except (OSError, *MALFORMED) as error:
            if str(getattr(error, "doc", "")).lstrip().startswith("<"):  # an HTML page, not JSON
                raise Unreachable(failure_messages.unanswered("log in", error)) from error
            # The error's own text may quote the file, and so the key.
            raise CredentialError(
                f"The Kaggle credentials that were found cannot be read ({type(error).__name__}).\n"
                f"{credentials.HOW}"
            ) from error
        here = file_transfer.is_loopback(client.http_client()._endpoint)
        pace = pace or (LOOPBACK if here else REMOTE)
        return cls(client, username, pace, timeouts, show, renew)

    def token_seconds(self) -> float | None:
        """Return how long our access token is still valid; None: Kaggle does not say, or no token.

        Raises:
            Refused: if Kaggle does not know it.
        """
        from kagglesdk.security.types.oauth_service import IntrospectTokenRequest

        token = getattr(self._http._session.auth, "token", None)
        if token is None:
            return None
        request = IntrospectTokenRequest()
        request.token = token
        service, call = "security.OAuthService", "IntrospectToken"
        answer = self._read(
            "ask about the token",
            lambda: self._http.call(service, call, request, responses.Plain),
        )
        ends = responses.number(answer.get("exp"))
        return ends - time.time() if ends else None
