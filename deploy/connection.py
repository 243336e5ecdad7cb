"""How calls to Kaggle are sent and retried.

A read is retried with full jitter for at most `pace.patience` seconds if a retry can help; a
transfer for that long after its last byte. A call that changes something is sent once. If its
answer is lost, it raises `Ambiguous`, and the caller checks what exists. Errors of our own code are
raised as they are.
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
Values = Mapping[str, Any]  # a request's values by kagglesdk's names; None is omitted

# Raised if no answer came, or one that cannot be read: a page in place of JSON, or unexpected JSON.
UNREADABLE = (requests.RequestException, json.JSONDecodeError, Malformed)
# Seconds to retry until Kaggle has answered once, so that a machine that is offline learns it soon.
FIRST_PATIENCE = 10.0
ODD_AT_MOST = 3  # malformed answers in a row


@dataclass(frozen=True)
class Pace:
    """Waiting times, in seconds.

    Attributes:
        first: between two polls, at the start.
        most: between two polls, in the long run.
        patience: how long a read without an answer is retried.
        listed: how long Kaggle may take to list the output of a finished run.
        settled: how long to wait between pulling a run and submitting it: Kaggle may store the
            output later than it lists it.
        hidden: how long a submission may be complete without a score.
    """

    first: float
    most: float
    patience: float
    listed: float = 0.0
    settled: float = 0.0
    hidden: float = 1800.0

    @property
    def stable(self) -> float:
        """How long a status has to stay the same before it counts, where Kaggle may be early."""
        return self.most / 2

    @property
    def unseen(self) -> float:
        """How long calls may not find a version that was just pushed: two minutes."""
        return 2 * self.most

    @property
    def unstarted(self) -> float:
        """How long a version that was just pushed may have the status of a draft: ten minutes."""
        return 2 * self.patience


REMOTE = Pace(first=5, most=60, patience=300, listed=600, settled=300)
LOOPBACK = Pace(first=0.5, most=2, patience=15, listed=30, hidden=10)


class Polls:
    """Polls with pauses that grow while the answers stay the same.

    Args:
        end: when to stop, by `time.monotonic`.

    Attributes:
        pause: seconds until the next poll.
        count: the number of pauses so far.
        changed_at: when the answer last changed, by the same clock.
    """

    def __init__(self, pace: Pace, end: float) -> None:
        self.pause, self.count = pace.first, 0
        self.changed_at = time.monotonic()
        self._pace, self._end, self._state = pace, end, ""

    def changed(self, state: str) -> bool:
        """Return whether this state is new. If so, the next poll comes soon."""
        if state == self._state:
            return False
        self._state, self.pause, self.changed_at = state, self._pace.first, time.monotonic()
        return True

    def wait(self, late: str) -> None:
        """Wait until the next poll.

        Raises:
            DeadlinePassed: with the message `late`, if the next poll would be after the end.
        """
        if time.monotonic() + self.pause > self._end:
            raise errors.DeadlinePassed(late)
        time.sleep(self.pause)
        self.pause = min(self.pause * 1.5, self._pace.most)
        self.count += 1


class Connection:
    """A logged-in connection. Its arguments are those of `connect`.

    Attributes:
        username: of the account that is logged in.
        signed_by: "key" or "token": what signs each call.
        answered: whether Kaggle has answered at all.
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
        # Private: kagglesdk has no other way to set the headers of a download, or to follow a log.
        self._session: requests.Session = self._http._session
        self._anonymous = transfer.guarded(requests.Session(), timeouts)  # for signed addresses
        self._anonymous.auth = lambda request: request  # else requests would read ~/.netrc
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
        """Return a connection with the credentials that the official client would use.

        Args:
            pace: by default `REMOTE`, or `LOOPBACK` for a local Kaggle.
            timeouts: seconds to connect, and between two bytes.
            show: called with a line before a wait for Kaggle that may take minutes.

        Raises:
            CredentialError: without credentials, or with invalid ones.
            Unreachable: if Kaggle has to check them and does not answer.
        """
        return cls(pace, timeouts, show)

    def _read(self, what: str, call: Call[T], values: Values, patience: float | None = None) -> T:
        """Read something, and retry temporary failures.

        Args:
            what: the call in words, after "Could not".
            values: of the request.
            patience: seconds to retry; by default the pace's.

        Raises:
            BadAnswer: after several malformed answers in a row.
            Limited: if Kaggle still answers 429.
            Unreachable: if no answer comes.
        """
        return self._retried(what, partial(self._send, call, values), patience)

    def _write(self, what: str, call: Call[T], values: Values) -> T:
        """Change something: send the call once.

        Raises:
            Ambiguous: if no readable answer came, so the change may have happened.
            Unreachable: if there was no connection.
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
            f"Could not {what}: Kaggle repeats the page before.\nTry again in a minute."
        )

    def _retried(
        self,
        what: str,
        attempt: Callable[[], T],
        patience: float | None = None,
        moved: Transfer | None = None,
    ) -> T:
        """Try, and retry temporary failures with full jitter.

        Args:
            moved: the file that is transferred. Patience starts again with each new byte.

        Raises:
            BadAnswer, Limited, Unreachable: as `_read`.
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
                    pause = random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards nothing
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
        """Send a call once, and return its answer.

        A 401 means that the call did nothing, so it is sent again with a new access token if the
        old one has expired.

        Args:
            headers: added to those of the session, also after a redirect.
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
        """Upload a file and return its token. A broken connection is resumed.

        Args:
            call: returns the token and the address of an upload.
            note: a file that keeps both, for this user alone, in case this process is killed. Its
                name must identify these bytes and this Kaggle.
        """
        size, changed = path.stat().st_size, int(path.stat().st_mtime)
        about = {**values, "content_length": size, "last_modified_epoch_seconds": changed}
        announce = partial(self._send, call, about)
        upload = Upload(path, self._show, note, self._anonymous, announce)
        return self._transferred(f"upload {path.name}", upload)

    def _transferred(self, what: str, file: Transfer) -> str:
        """Transfer a file, and resume where a connection broke. Return an upload's token.

        Raises:
            Expired: if the storage refuses a new address too.
            Unreachable: if no byte moved during the pace's patience. With a note, the next process
                resumes the transfer.
        """
        try:
            with suppress(errors.Expired):
                return self._retried(what, file.attempt, moved=file)
            return self._retried(what, file.attempt, moved=file)
        except (errors.Refused, DiskError):
            file.forget()
            raise
