"""Send calls to Kaggle, and retry the calls that are safe to repeat.

Failed reads are retried with full jitter for up to `pace.patience` seconds. During a file transfer,
this time limit restarts whenever a byte is transferred. Calls that make changes are sent only once.
If the response is lost, they raise `Ambiguous`, and the caller checks which changes were made.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import requests
from requests.structures import CaseInsensitiveDict

from deploy import auth, errors, failures, transfer
from deploy.calls import Call, Page
from deploy.decoding import MALFORMED, Malformed, decoded
from deploy.transfer import Place, Transfer, Upload
from formats.errors import DiskError

T = TypeVar("T")
Values = Mapping[str, Any]  # request values keyed by kagglesdk's names; None values are omitted

# Errors for missing or unreadable responses, such as an HTML page or unexpected JSON.
UNREADABLE = (requests.RequestException, json.JSONDecodeError, Malformed)
# Retry time in seconds before Kaggle's first response, so that offline machines fail quickly.
FIRST_PATIENCE = 10.0
ODD_AT_MOST = 3  # consecutive malformed responses before a call fails


@dataclass(frozen=True)
class Pace:
    """Waiting times, in seconds.

    Attributes:
        first: initial interval between polls.
        most: maximum interval between polls.
        patience: how long to retry a read that gets no response.
        listed: how long Kaggle may take to list the output of a finished run.
        settled: how long to wait after pulling a run before submitting it, because Kaggle may list
            the output before it is stored.
        hidden: how long a submission may be complete without having a score.
    """

    first: float
    most: float
    patience: float
    listed: float = 0.0
    settled: float = 0.0
    hidden: float = 1800.0

    @property
    def stable(self) -> float:
        """How long a status must remain unchanged before it is trusted.

        Kaggle may report a status too early.
        """
        return self.most / 2

    @property
    def unseen(self) -> float:
        """Maximum time until Kaggle finds a newly pushed version: two minutes on kaggle.com."""
        return 2 * self.most

    @property
    def unstarted(self) -> float:
        """How long a newly pushed version may be listed as a draft: ten minutes on kaggle.com."""
        return 2 * self.patience


REMOTE = Pace(first=5, most=60, patience=300, listed=600, settled=300)
LOOPBACK = Pace(first=0.5, most=2, patience=15, listed=30, hidden=10)


class Polls:
    """Polls at intervals that grow while the response stays the same.

    `count` is the number of pauses so far. `changed_at` is the time at which the response last
    changed, and `end` is the deadline. Both are values of `time.monotonic`.
    """

    def __init__(self, pace: Pace, end: float) -> None:
        self.pause, self.count = pace.first, 0
        self.changed_at = time.monotonic()
        self._pace, self._end, self._state = pace, end, ""

    def changed(self, state: str) -> bool:
        if state == self._state:
            return False
        self._state, self.pause, self.changed_at = state, self._pace.first, time.monotonic()
        return True

    def wait(self, late: str) -> None:
        if time.monotonic() + self.pause > self._end:
            raise errors.DeadlinePassed(late)
        time.sleep(self.pause)
        self.pause = min(self.pause * 1.5, self._pace.most)
        self.count += 1


class Connection:
    """A logged-in connection. See `connect` for the arguments.

    Attributes:
        signed_by: whether calls are authenticated with a "key" or a "token".
        answered: whether Kaggle has responded at least once.
    """

    def __init__(
        self, pace: Pace | None, timeouts: tuple[float, float], show: Callable[[str], None]
    ) -> None:
        show(f"Logging in to {auth.address()}")
        try:
            self._http, self.username, self._renew = auth.log_in(timeouts)
        except (requests.RequestException, *MALFORMED) as error:
            known = failures.error_for("log in", error)
            raise known or errors.Unreachable(failures.unanswered("log in", error)) from error
        is_local = transfer.is_loopback(self._http._endpoint)
        self.pace, self._show = pace or (LOOPBACK if is_local else REMOTE), show
        # kagglesdk has no public API to set a download's headers or to follow a log.
        self._session: requests.Session = self._http._session
        self._anonymous = transfer.guarded(requests.Session(), timeouts)  # for signed URLs
        self._anonymous.auth = lambda request: request  # prevents requests from using ~/.netrc
        self.signed_by = "key" if isinstance(self._session.auth, tuple) else "token"
        self.answered = False

    @classmethod
    def connect(
        cls,
        *,
        pace: Pace | None = None,
        timeouts: tuple[float, float] = (10, 60),
        show: Callable[[str], None] = lambda line: None,
    ) -> Self:
        """Connect with the credentials that the official client would use.

        Args:
            pace: waiting times, by default `REMOTE`, or `LOOPBACK` for a local Kaggle.
            timeouts: connect and read timeouts in seconds.
            show: function that prints a line before each wait that may take minutes.
        """
        return cls(pace, timeouts, show)

    def _read(self, what: str, call: Call[T], values: Values, patience: float | None = None) -> T:
        """Send a read call, and retry temporary failures for up to `patience` seconds.

        `what` describes the call. Error messages insert it after "Could not".

        Raises:
            BadAnswer: after several consecutive malformed responses.
            Limited: if Kaggle keeps responding with a 429.
            Unreachable: if Kaggle does not respond.
        """
        return self._retried(what, partial(self._send, call, values), patience)

    def _write(self, what: str, call: Call[T], values: Values) -> T:
        """Send a call that makes changes. It is never retried.

        Raises:
            Ambiguous: if there was no readable response, so the change may have been made.
            Unreachable: if no connection could be made.
        """
        try:
            return self._send(call, values)
        except UNREADABLE as error:
            if known := failures.error_for(what, error):
                raise known from error
            why = failures.unanswered(what, error)
            if failures.was_sent(error):
                raise errors.Ambiguous(f"{why}\n{failures.LOOK}") from error
            raise errors.Unreachable(why) from error

    def _pages(
        self, what: str, call: Call[Page], values: Values, patience: float | None = None
    ) -> Iterator[Page]:
        before: str | None = None
        token = ""
        while token != before:
            about = {"page_size": 100, **values, "page_token": token or None}
            page = self._read(what, call, about, patience)
            yield page
            if not page.next_page_token:
                return
            before, token = token, page.next_page_token
        raise errors.BadAnswer(
            f"Could not {what}: Kaggle returned the same page twice.\nTry again in a minute."
        )

    def _retried(
        self,
        what: str,
        attempt: Callable[[], T],
        patience: float | None = None,
        moved: Transfer | None = None,
    ) -> T:
        """Call `attempt` until it succeeds. Temporary failures are retried with full jitter.

        The time limit for retries restarts whenever the transfer `moved` receives or sends a byte.
        See `_read` for the errors.
        """
        began, ceiling, odd, shown = time.monotonic(), self.pace.first / 5, 0, False
        while True:
            try:
                return attempt()
            except UNREADABLE as error:
                known = failures.error_for(what, error)
                if known is not None and failures.code(error) != 429:
                    raise known from error
                why = failures.unanswered(what, error)
                odd = odd + 1 if isinstance(error, Malformed) else 0
                if odd == ODD_AT_MOST:
                    raise errors.BadAnswer(why) from error
                longest = self.pace.patience if patience is None else patience
                if moved is not None and moved.at > began:
                    began, ceiling = moved.at, self.pace.first / 5
                if not self.answered:
                    longest = min(longest, FIRST_PATIENCE)
                left = began + longest - time.monotonic()
                if left <= 0:
                    limited = known and errors.Limited(str(known))
                    raise limited or errors.Unreachable(why) from error
                if not shown:
                    self._show(f"{why.splitlines()[0]} Retrying for up to {longest:.0f} s.")
                shown = True
                pause = failures.retry_after(error)
                if pause is None:
                    pause = random.uniform(0, ceiling)  # noqa: S311 - not used for security
                time.sleep(min(pause, left))
                ceiling = min(ceiling * 2, self.pace.most)

    def _send(
        self,
        call: Call[T],
        values: Values,
        headers: Mapping[str, str] | None = None,
        *,
        renew: bool = True,
    ) -> T:
        """Send a call once, and return its response.

        After a 401, the call is sent again with a new access token if the old one has expired. This
        is safe because a call that gets a 401 has no effect. `headers` are added to the session's
        own headers, even after redirects.
        """
        from kagglesdk.common.types.http_redirect import HttpRedirect

        is_file, before = call.answer is requests.Response, self._session.headers
        request, reader = call.request(values), HttpRedirect if is_file else call
        self._session.headers = CaseInsensitiveDict({**before, **(headers or {})})
        try:
            found = self._http.call(call.service, call.method, request, reader)
        except requests.HTTPError as error:
            self.answered = True
            ended = failures.code(error) == 401 and error.request.method == "POST"
            if not ended or not renew or self._renew is None:
                raise
            self._retried("renew the login", self._renew)
            return self._send(call, values, headers, renew=False)
        except requests.RequestException:
            raise
        except MALFORMED as error:
            raise Malformed(f"{type(error).__name__}: {error}") from error
        finally:
            self._session.headers = before
        self.answered = True
        return cast(T, found if is_file else decoded(call.answer, found))

    def _upload(
        self, path: Path, call: Call[Place], values: Values, note: Path | None = None
    ) -> str:
        """Upload a file, resuming after broken connections, and return its token.

        `call` returns the token and URL for an upload. `note` is a private file that stores both in
        case this process is killed. Its name must identify the file's content and the server.
        """
        size, changed = path.stat().st_size, int(path.stat().st_mtime)
        about = {**values, "content_length": size, "last_modified_epoch_seconds": changed}
        announce = partial(self._send, call, about)
        upload = Upload(path, self._show, note, self._anonymous, announce)
        return self._transferred(f"upload {path.name}", upload)

    def _transferred(self, what: str, file: Transfer) -> str:
        """Transfer a file, resuming after broken connections. For an upload, return its token.

        Raises:
            Expired: if the storage server also rejects a new URL.
            Unreachable: if there was no progress for `pace.patience` seconds.
        """
        try:
            with suppress(errors.Expired):
                return self._retried(what, file.attempt, moved=file)
            return self._retried(what, file.attempt, moved=file)
        except (errors.Refused, DiskError):
            file.forget()
            raise
