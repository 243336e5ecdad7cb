"""Verdicts: what an exception of the Kaggle client means for us.

Reads  an exception, and the answer that it carries
Gives  one of our errors, or None where nothing is known: no answer, or none that can be read

The client's own texts are no help: it calls an expired login "a wrong kernel slug".
"""

import email.utils
import re
import time
from collections.abc import Sequence
from typing import Any

from deploy.client.credentials import HOW
from deploy.client.secrets import redact
from deploy.errors import (
    Ambiguous,
    CredentialError,
    Denied,
    Expired,
    NoQuota,
    NotFound,
    Refused,
    RelayError,
)

RETRY_AFTER_AT_MOST = 120.0  # seconds
LOOK = "It may or may not have happened; nothing was repeated. Look on kaggle.com, or at: invoke status"
QUOTA = re.compile(r"maximum .{0,60}(session|quota)|session count|quota", re.IGNORECASE)
# Sequences that a terminal obeys (those that never end are cut after 200 characters), control
# characters, and those that turn the direction of writing around.
CONTROL = re.compile(
    r"\x1b\[[0-?]{0,200}[ -/]{0,200}[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


# What the end of a failed run's log says, and what usually helps. The first that fits counts.
AGAIN = "in the config and push again."
CRASHES = (
    (
        r"Asked for \w+|Unable to initialize backend 'tpu'",
        "Kaggle gave another machine. Verify the account at kaggle.com/settings, remove any docker pin, and push again.",
    ),
    (
        r"RESOURCE_EXHAUSTED|[Oo]ut of memory|MemoryError",
        f"Memory ran out. Take a smaller model, batchnorm_batch or image size {AGAIN}",
    ),
    (
        r"exit code 137|DeadKernelError",
        "The session was killed: its memory ran out, or its time (session_hours has to be less than Kaggle allows). A push goes on from its "
        "last whole checkpoint: invoke push-train",
    ),
    (
        r"No space left|Disk quota exceeded|\[Errno 28\]",
        "/kaggle/working is full. Keep fewer checkpoints, write scratch to /kaggle/tmp, and push again.",
    ),
    (
        r"[Nn]etwork is unreachable|Name or service not known|Temporary failure in name resolution|NameResolutionError",
        "The notebook reached for the internet, which is off in infer-gpu. Mount what it needs as a dataset, and push again.",
    ),
    (
        r"ModuleNotFoundError|ImportError",
        "Kaggle's image lacks that module, or has another version. Use what it has (constraints/), and push again.",
    ),
    (
        r"exceeded [\d.]+ seconds|maximum allowed execution time",
        f"The session's time ended. Lower epochs, or raise batch, {AGAIN}",
    ),
    (
        r"this is the artifact of another run",
        "Kaggle mounted an older version. Publish the artifact again, wait for it, and push infer again.",
    ),
    (
        r"No kernel name found",
        "The notebook has no kernelspec. Make it with invoke build, and push that.",
    ),
)


def crash(log: str) -> str:
    """Return what usually helps against what the end of a log says; "" where nothing is known.

    >>> crash("OSError: [Errno 28] No space left on device").split(".")[0]
    '/kaggle/working is full'
    """
    return next((fix for shape, fix in CRASHES if re.search(shape, log)), "")


def judge(what: str, error: Exception) -> RelayError | None:
    """Return the error to raise for what Kaggle answered; None where it is unknown what happened."""
    code, said = _code(error), _said(error)
    if code is None or code >= 500 or code < 400 or code == 408:
        return None  # a request that took too long may have happened all the same
    if _of_storage(error) and code in (400, 401, 403, 410):
        return Expired(
            f"Could not {what}: the storage does not take the address that Kaggle gave ({f'{code} {said}'.rstrip()}).\n"
            "Expected the file; such an address is good for some minutes. Nothing of it was kept. Give the command again.\n"
            "If it stays so, a proxy on the way may refuse storage.googleapis.com: invoke doctor"
        )
    heading = f"Kaggle refused to {what}: {code} {said}".rstrip()
    if code == 401:
        return CredentialError(f"{heading}.\nThe credentials have expired or are wrong.\n{HOW}")
    if code == 403:
        return Denied(
            f"{heading}.\nThat may mean that it does not exist, that it belongs to somebody else, or that these credentials"
            " may not do it\n(a competition's rules not accepted, a token without the right).\n"
            "Check the name, the owner, and the rules on kaggle.com."
        )
    if code == 404:
        return NotFound(
            f"{heading}.\nExpected it to exist. Check the name and the version on kaggle.com."
        )
    if code == 429 or QUOTA.search(said):
        return NoQuota(f"{heading}.\nTry again later.")
    return Refused(f"{heading}.\nCorrect what it says and try again.")


def poisoned(lost: Exception, datasets: Sequence[str]) -> str:
    """Return what helps where a push with these datasets is answered by 500 again and again; "" for
    any other answer, or none.

    Kaggle does so, for ever, for a dataset that was deleted and made again under its name
    (kaggle-cli, issue 187).
    """
    if not datasets or _code(lost.__cause__ or lost) != 500:
        return ""
    return (
        f"\nIf it is 500 each time: Kaggle takes no push that mounts a dataset which was deleted and made again under its name"
        f' ({", ".join(datasets)}).\nMount the training\'s own output instead: write handoff="kernel" into the config and push again.'
    )


def is_busy(error: Exception) -> bool:
    """Return whether Kaggle asked to come back later: a question may be repeated then."""
    return _code(error) == 429


def retry_after(error: Exception) -> float | None:
    """Return the seconds that Kaggle asks to wait, between 0 and 120; None where it does not say,
    or says nonsense.
    """
    response = getattr(error, "response", None)
    text = response.headers.get("Retry-After", "").strip() if response is not None else ""
    if re.fullmatch(r"[+-]?\d{1,12}(\.\d{1,9})?", text):
        seconds = float(text)
    else:
        moment = email.utils.parsedate_tz(text) if text else None
        if moment is None:
            return None
        try:
            seconds = email.utils.mktime_tz(moment) - time.time()
        except (OverflowError, ValueError):
            return None
    return min(max(seconds, 0.0), RETRY_AFTER_AT_MOST)


def unanswered(what: str, error: Exception) -> str:
    """Return the first lines of the message for a call that got no readable answer."""
    code = _code(error)
    how = f"{code} {_said(error)}".rstrip() if code is not None else type(error).__name__
    return (
        f"Could not {what}: Kaggle gave no usable answer ({how}).\n"
        "Expected one within the time allowed. Check the network and https://www.kaggle.com, then give the command again."
    )


def require_ok(what: str, answer: Any) -> None:
    """Raise `Refused` if Kaggle's answer holds an error, which also comes with HTTP 200;
    `Ambiguous` if it says neither that nor `ok`.
    """
    error = plain(told(what, answer.error))
    if error:
        kind = NoQuota if QUOTA.search(error) else Refused
        raise kind(
            f"Kaggle refused to {what}: {error}.\nExpected status 'ok'. Correct what it says and try again."
        )
    if not isinstance(answer.status, str) or answer.status.lower() != "ok":
        raise Ambiguous(
            f"Kaggle took the call to {what} and answered status {answer.status!r}; expected 'ok'.\n{LOOK}"
        )


def told(what: str, error: Any) -> str:
    """Return the error inside an answer that came with HTTP 200: a text, or an object with a code,
    which is raised.
    """
    if isinstance(error, dict):
        said = " ".join(plain(str(error.get("message", ""))).split())[:500]
        if error.get("code") == 429 or QUOTA.search(said):
            raise NoQuota(
                f"Kaggle refused to {what}: {error.get('code')} {said}.\nTry again later."
            )
        raise Refused(
            f"Kaggle refused to {what}: {error.get('code')} {said}.\nCorrect what it says and try again."
        )
    if error is not None and not isinstance(error, str):
        raise TypeError(f"{type(error).__name__} in place of an error's text")
    return error or ""


def plain(text: str) -> str:
    """Return the text without what a terminal would obey, and without secrets. Newlines and tabs
    stay.

    >>> plain("\\x1b[31mred\\x1b[0m")
    'red'
    """
    return redact(
        CONTROL.sub("", text)
    )  # before anybody cuts it: a part of a key has no shape any more


def _of_storage(error: Exception) -> bool:
    """Return whether the storage answered, and not Kaggle: files are got, and every call of
    Kaggle's is posted.
    """
    request = getattr(getattr(error, "response", None), "request", None)
    return getattr(request, "method", "") == "GET"


def _body(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    if response is None:
        return {}
    try:
        body = response.json()
    except (ValueError, RuntimeError, TypeError, OSError):  # not JSON, or a body that is used up
        return {}
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    return body if isinstance(body, dict) else {}


def _code(error: BaseException) -> int | None:
    """Return the HTTP code that counts: the client raises for an error inside a 200 too."""
    response = getattr(error, "response", None)
    if response is None:
        return None
    if response.status_code >= 400:
        return int(response.status_code)
    code = _body(error).get("code")
    return code if isinstance(code, int) and code >= 400 else None


def _said(error: Exception) -> str:
    """Return Kaggle's own words, one line, safe for a terminal."""
    message = _body(error).get("message")
    text = message if isinstance(message, str) else ""
    if not text:
        text = getattr(getattr(error, "response", None), "reason", "") or ""
    return " ".join(plain(text).split())[:500].rstrip(".")
