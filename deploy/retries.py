"""How Kaggle is asked, whatever the call is.

A question is retried with full jitter for at most `pace.patience` seconds, where that can help; a
transfer for as long after its last byte. A call that changes something is sent once. If its answer
is lost it raises `Ambiguous`, and the caller looks what is there before it concludes. An error of
our own code is neither: it is raised as it is.
"""

import email.utils
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import requests

from deploy import failure_messages, file_transfer, file_upload
from deploy.errors import (
    UNTOLD,
    Ambiguous,
    BadAnswer,
    Denied,
    Expired,
    Limited,
    NotFound,
    Refused,
    Unreachable,
)
from deploy.file_transfer import Progress
from deploy.responses import MALFORMED, Malformed, split

T = TypeVar("T")
Handles = Iterable[str]

PAGES_AT_MOST = 1000
# What is raised without an answer, or for one that cannot be read: a page in place of JSON, or JSON
# that is not what it should be.
UNREADABLE = (requests.RequestException, json.JSONDecodeError, Malformed)
# Seconds to retry until Kaggle has answered once: a machine without a network is told soon.
FIRST_PATIENCE = 10.0
ODD_AT_MOST = 3  # answers in a row that are not what they should be


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
        answered: whether Kaggle has answered at all.
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
        self.answered = False
        self._http, self._timeouts, self._show, self._renew = http, timeouts, show, renew
        self._anonymous = file_transfer.anonymous(timeouts)
        http._response_processor = self._note_time
        http.call = _decoding(http.call)

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
        self,
        what: str,
        request: Any,
        size: int,
        ask: Callable[[Any], Any],
        patience: float | None = None,
    ) -> Iterator[Any]:
        request.page_size, seen = size, {""}
        for _ in range(PAGES_AT_MOST):
            page = self._read(what, lambda: ask(request), patience)
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

    def _mine(
        self, kind: str, handle: str, what: str, ask: Callable[[], T], ours: Callable[[], Handles]
    ) -> T | None:
        """Ask for a thing of ours; None if it does not exist.

        Args:
            kind: as `failure_messages.unknown` takes it.
            ours: lists what is ours of that kind.

        Raises:
            Unknown: if Kaggle answers 403, and the list has it or is not shown, either.
        """
        try:
            return self._read(what, ask)
        except NotFound:
            return None
        except Denied as error:
            self._require_absent(kind, handle, error, ours)
            return None

    def _require_absent(
        self, kind: str, handle: str, denied: Denied, ours: Callable[[], Handles]
    ) -> None:
        """Raise unless the list of what is ours lacks it: Kaggle answers 403, even to the owner,
        for what does not exist, and for what these credentials may not see.

        Raises:
            Unknown: if it may be there.
            Denied: if it is somebody else's, or if Kaggle names what a person has to do first.
        """
        if split(handle)[0].lower() != self.username.lower() or denied.gate:
            raise denied
        listed: bool | None = None
        with suppress(*UNTOLD):  # such a list shows nothing
            listed = any(one.lower() == handle.lower() for one in ours())
        if listed is not False:
            raise failure_messages.unknown(kind, handle, denied, listed) from denied

    def _read(
        self,
        what: str,
        ask: Callable[[], T],
        patience: float | None = None,
        progress: Progress | None = None,
    ) -> T:
        """Ask, and retry failures that pass. Full jitter keeps many watchers apart.

        Args:
            progress: of a transfer. Patience begins again with each byte that it gets further.

        Raises:
            BadAnswer: if Kaggle's answers, several in a row, are not what they should be.
            Limited: if Kaggle still answers 429.
            Unreachable: if there is none, or no retry can help.
        """
        most = self.pace.patience if patience is None else patience
        began, ceiling, silent, odd = time.monotonic(), self.pace.first / 5, True, 0
        while True:
            try:
                return self._signed(ask)
            except UNREADABLE as error:
                known = failure_messages.error_for(what, error)
                if known is not None and not failure_messages.is_busy(error):
                    raise known from error
                odd = odd + 1 if isinstance(error, Malformed) else 0
                if odd == ODD_AT_MOST:
                    raise BadAnswer(failure_messages.not_understood(what, error)) from error
                patience = most
                if not self.answered and not (progress is not None and progress.furthest):
                    here = failure_messages.nothing_listens_here(error)
                    patience = 0.0 if here else min(patience, FIRST_PATIENCE)
                pause = failure_messages.retry_after(error)
                if pause is None:
                    pause = random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards nothing
                if progress is not None and progress.at > began:
                    began, ceiling = progress.at, self.pace.first / 5
                left = began + patience - time.monotonic()
                if left <= 0 and known is not None:
                    raise Limited(str(known)) from error
                if left <= 0:
                    raise Unreachable(failure_messages.unanswered(what, error)) from error
                if silent:
                    silent = False
                    why = failure_messages.unanswered(what, error).splitlines()[0]
                    how = "Going on" if progress is not None and progress.furthest else "Retrying"
                    self._show(f"{why} {how} for up to {patience:.0f} s.")
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

    def _download(
        self,
        what: str,
        path: Path,
        ask: file_transfer.Ask,
        renew: Callable[[], bool] = lambda: True,
        *,
        note: Path | None = None,
    ) -> None:
        """Download to `path`, and go on where a connection broke.

        Args:
            ask: for the file, with more headers; a signed address is asked for each time.
            renew: gets another address if the storage refuses this one; returns whether it did.
            note: as in `file_transfer.Download`. With it, what came is kept where this fails, or is
                killed.

        Raises:
            Expired: if the storage refuses a new address, too.
            Unreachable: if no byte came for as long as the pace is patient.
        """
        download, progress = (
            file_transfer.Download(path, note),
            Progress(path.name, self._show),
        )
        refused = -1
        try:
            while True:
                try:
                    return self._read(
                        what,
                        lambda: file_transfer.fetch(ask, download, progress),
                        progress=progress,
                    )
                except Expired:
                    if progress.furthest <= refused or not renew():
                        raise
                    refused = progress.furthest
        finally:
            if note is None:
                download.forget()

    def _with_headers(self, call: Callable[[], Any]) -> file_transfer.Ask:
        """Return a call of the client as one that sends more headers; they follow redirects."""

        def ask(headers: Mapping[str, str]) -> Any:
            session = self._http._session
            before = session.headers
            session.headers = type(before)({**before, **headers})
            try:
                return call()
            finally:
                session.headers = before

        return ask

    def _upload(self, path: Path, announce: Callable[[], Any], note: Path | None = None) -> str:
        """Upload a file and return its token. It goes on where a connection broke.

        Args:
            announce: asks for the token and the address of an upload.
            note: where token and address are kept, for this user alone, in case that this process
                is killed. Its name has to be that of these bytes, on this Kaggle.
        """
        size, progress = path.stat().st_size, Progress(path.name, self._show)
        upload, refused = file_upload.noted(note), -1

        def send() -> str:
            nonlocal upload
            start = 0
            if upload is not None:
                have = file_upload.received(self._anonymous, upload.url, size)
                upload, start = (upload, have) if have is not None else (None, 0)
            if upload is None:
                answer = announce()
                if not answer.token or not answer.create_url:
                    raise BadAnswer(
                        f"Kaggle gave no address to upload {path.name} to; expected token and"
                        " createUrl.\nTry again."
                    )
                upload = file_upload.Upload(str(answer.token), str(answer.create_url))
                file_upload.note(note, upload)
            elif start == size:
                return upload.token
            file_upload.put(self._anonymous, upload.url, path, progress, start)
            return upload.token

        while True:
            try:
                return self._read(f"upload {path.name}", send, progress=progress)
            except Expired:
                if progress.furthest <= refused:
                    raise
                refused, upload = progress.furthest, None
            except Refused:
                if note is not None:
                    note.unlink(missing_ok=True)  # the next command begins anew
                raise

    def _signed(self, call: Callable[[], T]) -> T:
        """Call, and once more with a new access token if the old one has ended.

        A call that is answered by 401 has done nothing, so an order can be sent again, too.
        """
        try:
            answer = call()
        except requests.HTTPError as error:
            self.answered = True
            if self._renew is None or not failure_messages.answered(401, error):
                raise
        except AttributeError as error:
            if not type(error.obj).__module__.startswith("kagglesdk."):
                raise
            raise Malformed(f"{error}") from error  # another kagglesdk has another name for it
        else:
            self.answered = True
            return answer
        self._read("renew the login", self._renew)
        return call()


def _decoding(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the client's call, which raises `Malformed` for JSON that it cannot read."""

    def decode(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except (requests.RequestException, json.JSONDecodeError):
            raise
        except MALFORMED as error:
            raise Malformed(f"{type(error).__name__}: {error}") from error

    return decode
