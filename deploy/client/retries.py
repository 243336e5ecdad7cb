"""How Kaggle is asked, whatever the call is.

A question is retried with full jitter for at most `pace.patience` seconds. A call that changes
something is sent once. If its answer is lost it raises `Ambiguous`, and the caller looks what is
there before it concludes.
"""

import email.utils
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import requests

from deploy.client import failure_messages, file_transfer
from deploy.client.responses import MALFORMED, split
from deploy.errors import Ambiguous, BadAnswer, Denied, NotFound, Unreachable

T = TypeVar("T")

PAGES_AT_MOST = 1000
# What the client raises without an answer, or with one that it cannot read.
UNREADABLE = (requests.RequestException, *MALFORMED)


@dataclass(frozen=True)
class Pace:
    """How patiently Kaggle is asked, in seconds.

    Attributes:
        first: between two polls, at the start.
        most: between two polls, in the long run.
        patience: how long an unanswered question is retried.
        listed: how long Kaggle may take to list what a finished run wrote.
        settled: how long a pulled run waits for its submission: Kaggle may store the output later
            than it lists it.
        hidden: how long a submission may be complete and show no score.
    """

    first: float
    most: float
    patience: float
    listed: float = 0.0
    settled: float = 0.0
    hidden: float = 1800.0

    @property
    def stable(self) -> float:
        """How long an answer has to stay the same where Kaggle may not mean it at once."""
        return self.most / 2

    @property
    def unseen(self) -> float:
        """How long calls may not know of a version that was just pushed: two minutes."""
        return 2 * self.most

    @property
    def unstarted(self) -> float:
        """How long a version that was just pushed may be called saved only: ten minutes."""
        return 2 * self.patience


REMOTE = Pace(first=5, most=60, patience=300, listed=600, settled=300)
LOOPBACK = Pace(first=0.5, most=2, patience=15, listed=30, hidden=10)


class Exchange:
    """What every call goes through.

    Args:
        http: the HTTP client of kagglesdk, logged in.
        username: the owner of what is ours.
        pace: how patiently Kaggle is asked.
        timeouts: seconds to connect, and between two bytes.
        show: is given a line before a question is retried: that may take minutes.
        renew: gives `http` a new access token; None: it has a key, or a token that cannot be
            renewed.

    Attributes:
        signed_by: "key" or "token": what each call is signed with.
        ahead_seconds: this machine's clock minus Kaggle's, by the last answer; None before one.
    """

    def __init__(
        self,
        http: Any,
        username: str,
        pace: Pace,
        timeouts: tuple[float, float],
        show: Callable[[str], None],
        renew: Callable[[], None] | None,
    ) -> None:
        self.username = username
        self.pace = pace
        self.signed_by = "key" if isinstance(http._session.auth, tuple) else "token"
        self.ahead_seconds: float | None = None
        self._http, self._timeouts, self._show, self._renew = http, timeouts, show, renew
        self._anonymous = file_transfer.anonymous(timeouts)
        http._response_processor = self._note_time

    def listen(self, listener: file_transfer.Listener) -> None:
        """Give each answer, to a call or a transfer, to `listener`; a log that is followed not."""
        for session in (self._http._session, self._anonymous):
            file_transfer.listen(session, listener)

    def _note_time(self, response: requests.Response) -> None:
        try:
            moment = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
            self.ahead_seconds = time.time() - moment.timestamp()
        except (ValueError, TypeError, OverflowError):
            return  # an unreadable date says nothing

    def _pages(
        self, what: str, request: Any, size: int, ask: Callable[[Any], Any]
    ) -> Iterator[Any]:
        request.page_size, seen = size, {""}
        for _ in range(PAGES_AT_MOST):
            page = self._read(what, lambda: ask(request))
            yield page
            token = page.next_page_token or ""
            if not token:
                return
            if token in seen:
                raise BadAnswer(
                    f"Could not {what}: Kaggle repeats the page {token!r}.\nTry again in a minute."
                )
            seen.add(token)
            request.page_token = token
        raise BadAnswer(
            f"Could not {what}: there are more than {PAGES_AT_MOST} pages.\nWrite fewer files."
        )

    def _mine(self, handle: str, what: str, ask: Callable[[], T]) -> T | None:
        """Ask for a thing of ours; None if it does not exist.

        Kaggle answers 404 then, or 403, even to the owner.
        """
        try:
            return self._read(what, ask)
        except NotFound:
            return None
        except Denied:
            if split(handle)[0] == self.username:
                return None
            raise

    def _read(self, what: str, ask: Callable[[], T], patience: float | None = None) -> T:
        """Ask, and retry failures that pass. Full jitter keeps many watchers apart."""
        patience = self.pace.patience if patience is None else patience
        end, ceiling, silent = time.monotonic() + patience, self.pace.first / 5, True
        while True:
            try:
                return self._signed(ask)
            except UNREADABLE as error:
                known = failure_messages.error_for(what, error)
                if known is not None and not failure_messages.is_busy(error):
                    raise known from error
                pause = failure_messages.retry_after(error)
                if pause is None:
                    pause = random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards nothing
                left = end - time.monotonic()
                if left <= 0:
                    raise Unreachable(failure_messages.unanswered(what, error)) from error
                if silent:
                    silent = False
                    why = failure_messages.unanswered(what, error).splitlines()[0]
                    self._show(f"{why} Retrying for up to {patience:.0f} s.")
                time.sleep(min(pause, left))
                ceiling = min(ceiling * 2, self.pace.most)

    def _write(self, what: str, order: Callable[[], T]) -> T:
        """Send once. Raises `Ambiguous` if no readable answer came: it may have happened."""
        try:
            return self._signed(order)
        except UNREADABLE as error:
            raise failure_messages.error_for(what, error) or Ambiguous(
                f"{failure_messages.unanswered(what, error)}\n{failure_messages.LOOK}"
            ) from error

    def _upload(self, path: Path, announce: Callable[[], Any]) -> str:
        """Upload a file and return its token. It is retried: nothing refers to it yet.

        Args:
            announce: asks for the token and the address of an upload.
        """

        def send() -> str:
            answer = announce()
            if not answer.token or not answer.create_url:
                raise BadAnswer(
                    f"Kaggle gave no address to upload {path.name} to; expected token and"
                    " createUrl.\nTry again."
                )
            file_transfer.put(self._anonymous, answer.create_url, path)
            return str(answer.token)

        return self._read(f"upload {path.name}", send)

    def _signed(self, call: Callable[[], T]) -> T:
        """Call, and once more with a new access token if the old one has ended.

        A call that is answered by 401 has done nothing, so an order can be sent again, too.
        """
        try:
            return call()
        except requests.HTTPError as error:
            if self._renew is None or not failure_messages.answered(401, error):
                raise
        self._read("renew the login", self._renew)
        return call()
