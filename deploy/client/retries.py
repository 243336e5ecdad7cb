"""Exchange: how Kaggle is asked and told, whatever the call is.

Questions are repeated through blips, with full jitter, for at most `pace.patience` seconds. A call
that changes something is sent once: where its answer is lost it raises `Ambiguous`, and the caller
looks before it concludes.
"""

import email.utils
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import requests

from deploy.client import failure_messages
from deploy.client.responses import MALFORMED, split
from deploy.errors import Ambiguous, BadAnswer, Denied, NotFound, Unreachable

T = TypeVar("T")

PAGES_AT_MOST = 1000
# What the client raises where no answer came, or one that it cannot read.
UNREADABLE = (requests.RequestException, *MALFORMED)


@dataclass(frozen=True)
class Pace:
    """How patiently Kaggle is asked, in seconds.

    Attributes:
        first, most: between two polls, at the start and in the long run.
        patience: how long one unanswered question is repeated.
    """

    first: float
    most: float
    patience: float


REMOTE = Pace(first=5, most=60, patience=300)
LOOPBACK = Pace(first=0.5, most=2, patience=15)


class Exchange:
    """What every call goes through.

    Args:
        username: whose things are ours.
        pace: how patiently Kaggle is asked.

    Attributes:
        signed_by: "key" or "token", by what each call is signed.
        ahead_seconds: of this machine's clock before Kaggle's, by the last answer; None until one
            came.
    """

    def __init__(self, username: str, pace: Pace) -> None:
        self.username = username
        self.pace = pace
        self.signed_by = ""
        self.ahead_seconds: float | None = None

    def _attend(self, http: Any) -> None:
        """Learn from the client's connection by what it signs, and from each answer what time it is
        at Kaggle's end.
        """
        self.signed_by = "key" if isinstance(http._session.auth, tuple) else "token"
        http._response_processor = self._note_time

    def _note_time(self, response: requests.Response) -> None:
        try:
            moment = email.utils.parsedate_to_datetime(response.headers.get("Date", ""))
            self.ahead_seconds = time.time() - moment.timestamp()
        except (ValueError, TypeError, OverflowError):
            return  # a date that cannot be read tells nothing

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
        """Ask for a thing of ours; None where it is not there, which Kaggle tells by 404 or, to the
        owner too, by 403.
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
        """Ask, and ask again through blips; full jitter, so that many watchers do not come back
        together.
        """
        end = time.monotonic() + (self.pace.patience if patience is None else patience)
        ceiling = self.pace.first / 5
        while True:
            try:
                return ask()
            except UNREADABLE as error:
                verdict = failure_messages.judge(what, error)
                if verdict is not None and not failure_messages.is_busy(error):
                    raise verdict from error
                pause = failure_messages.retry_after(error)
                if pause is None:
                    pause = random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards nothing
                left = end - time.monotonic()
                if left <= 0:
                    raise Unreachable(failure_messages.unanswered(what, error)) from error
                time.sleep(min(pause, left))
                ceiling = min(ceiling * 2, self.pace.most)

    def _write(self, what: str, order: Callable[[], T]) -> T:
        """Send once. Raises `Ambiguous` where no answer, or no readable one, came: it may have
        happened.
        """
        try:
            return order()
        except UNREADABLE as error:
            verdict = failure_messages.judge(what, error)
            raise verdict or Ambiguous(
                f"{failure_messages.unanswered(what, error)}\n{failure_messages.LOOK}"
            ) from error
