"""Translates exceptions of the Kaggle client into our errors, with their messages.

The client's own texts do not help: it calls an expired login "a wrong kernel slug".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from deploy import auth, errors
from deploy.secrets import redact
from deploy.transfer import is_loopback

RETRY_AFTER_AT_MOST = 120.0  # seconds
LOOK = (
    "It may or may not have happened, and was not retried. Look on kaggle.com, or run:\n"
    "invoke status"
)
IN_USE = re.compile(r"title .{0,200}already in use", re.IGNORECASE)  # of a dataset or a notebook
OTHER_ADDRESS = (
    "start the addresses with another name, by these lines in relay.toml:\n"
    '[slugs]\nCOMPETITION = "ANOTHER-NAME"'
)
SETTINGS = "https://www.kaggle.com/settings"
RULES = (
    "This account has not joined the competition, or its token may not take part. Accept the rules"
    f" on the competition's page; for another token: {SETTINGS}"
)
DENIED = (
    "It does not exist, is somebody else's, or needs a key or token with more rights, or accepted"
    " rules.\nCheck name, owner and rules on kaggle.com, and who is logged in:\ninvoke doctor"
)
SLOTS = (
    "A slot is free when a run ends, and no call can stop one. To stop one by hand:"
    ' "View Active Events" at the bottom left of https://www.kaggle.com\n'
    "Then run the same command again."
)
LICENCE = (
    "This account has not accepted the licence of a model that the notebook mounts. Accept it on"
    " the model's page."
)
# Why Kaggle may answer 403 about something of ours.
CAUSES = (
    "Once an account has an OAuth token, Kaggle may refuse its key: remove kaggle.json,"
    " KAGGLE_USERNAME and KAGGLE_KEY. A token may be limited: make one without limits at"
    f" {SETTINGS}. To see which one is used:\ninvoke doctor"
)

# The storage's codes for an expired address, by method; calls to Kaggle are POST. A PUT may get a
# 400 about its file.
STORAGE = {"GET": (400, 401, 403, 404, 410), "PUT": (401, 403, 404, 410)}


# What only a person can do on kaggle.com, by Kaggle's words for it. Both words have to be near each
# other: one alone may be in a competition's title.
DONE, THING = r"verif\w*|solved?|completed?", r"phone|identity|persona|(?:re)?captcha"
GATES = {
    rf"\b(?:{DONE})\b[^.]{{0,40}}\b(?:{THING})\b|\b(?:{THING})\b[^.]{{0,40}}\b(?:{DONE})\b": (
        "This account's phone is not verified, or its identity, or Kaggle asks for a CAPTCHA."
        f" Verify them at {SETTINGS}, and solve it at https://www.kaggle.com with a browser."
    ),
    r"accept .{0,40}\brules\b|competitions\.participate": RULES,
    r"\bnot consented\b": LICENCE,
}
SLOT = r"maximum .{0,60}session|session count"
QUOTA = r"quota|submission allowance|submissions? being processed"
# Kaggle's refusals: code (None for any), a pattern of the message, the error, and what to do. The
# first match counts.
REFUSALS: tuple[tuple[int | None, str, type[errors.RelayError], str], ...] = (
    (401, "", errors.CredentialError, f"The credentials expired or are wrong.\n{auth.HOW}"),
    (404, "", errors.NotFound, "Expected it to exist. Check its name on kaggle.com."),
    *((None, words, errors.Denied, todo) for words, todo in GATES.items()),
    (403, "", errors.Denied, DENIED),
    (None, SLOT, errors.NoSlot, SLOTS),
    (None, QUOTA, errors.NoQuota, "Try again later. To see the hours left:\ninvoke status"),
    (429, "", errors.NoQuota, "Kaggle limits how often it is asked. Try again later."),
    (None, "", errors.Refused, "Correct it, and try again."),
)
# Errors without a connection, by their names and texts.
UNMADE = "NewConnectionError|NameResolutionError|ConnectTimeout|CERTIFICATE_VERIFY_FAILED"
# Why no answer came: a pattern of "site" or "local" followed by the names and texts of the errors;
# what happened; what was expected, and what to do. The first match counts.
REASONS = (
    (
        "^local .*ConnectionRefusedError",
        "nothing answers at {host}, the local Kaggle in http_proxy and KAGGLE_API_ENVIRONMENT",
        "a running local Kaggle. Start it with the same --folder:\n"
        "invoke serve --input DIR --folder DIR\npython -m localkaggle serve --folder DIR\n"
        "Paste what it prints into this shell; for kaggle.com, open a new one",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "this machine does not trust the server's certificate ({detail})",
        "Kaggle's. If your company's proxy decrypts connections, name a PEM file with its"
        " certificate:\nexport REQUESTS_CA_BUNDLE=/path/to/authority.pem\n"
        "If this machine's clock is wrong, set it",
    ),
    (
        "^(?!.*ProxyError).*gaierror",
        "{host} cannot be looked up: this machine is offline, or its network blocks that name",
        "a network that allows {host}, or a proxy. {proxies}",
    ),
    (
        "Malformed",
        "Kaggle's answer does not have the expected form ({detail})",
        "an answer as before. If this stays so, get a newer version of this project",
    ),
    (
        "",
        "{host} gave no usable answer ({how})",
        "one in time. Check whether it can be reached, or a proxy answers in its place."
        " {proxies}. Correct https_proxy or REQUESTS_CA_BUNDLE, or name {host} in no_proxy",
    ),
)
# Terminal sequences (200 characters at most), control characters, and those that change the
# direction of writing.
CONTROL = re.compile(
    r"\x1b\[[0-?]{0,200}[ -/]{0,200}[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def plain(text: str) -> str:
    """Return the text without terminal controls and secrets; newlines and tabs are kept.

    >>> plain("\\x1b[31mred\\x1b[0m")
    'red'
    """
    # Callers cut it afterwards, since a part of a secret would not be recognized.
    return redact(CONTROL.sub("", text))


def refusal(heading: str, said: str, code: int | None = None) -> errors.RelayError:
    """Return the error for a refusal, by `REFUSALS`.

    Args:
        heading: the first lines of the message.
        said: Kaggle's words.
        code: Kaggle's code.
    """
    kind, todo = next(
        (kind, todo)
        for number, words, kind, todo in REFUSALS
        if number in (None, code) and re.search(words, said, re.IGNORECASE)
    )
    if todo in GATES.values():
        return errors.Denied(f"{heading}\n{todo}\nThen run the same command again.", todo)
    return kind(f"{heading}\n{todo}")


def error_for(what: str, error: Exception) -> errors.RelayError | None:
    """Return the error to raise for Kaggle's answer; None if it is unknown what happened.

    Args:
        what: the call in words, after "Could not".
        error: the client's exception, with the answer.
    """
    number, said = code(error), _said(error)
    if number is None or number >= 500 or number == 408:
        return None  # the request may have happened
    answer = f"{number or ''} {said}".strip()
    request = getattr(getattr(error, "response", None), "request", None)
    if number in STORAGE.get(getattr(request, "method", ""), ()):
        return errors.Expired(
            f"Could not {what}: the storage refused the signed address ({answer}), and a new one,"
            " too.\nRun the same command again. If it fails again, a proxy may block"
            " storage.googleapis.com. To check:\ninvoke doctor"
        )
    return refusal(f"Kaggle refused to {what}: {answer}.", said, number)


def unknown(kind: str, handle: str, denied: errors.Denied, listed: bool | None) -> errors.Unknown:
    """Return the error for a 403 about something of ours that may exist.

    Args:
        kind: "notebook" or "dataset".
        listed: whether the list of our notebooks or datasets has it; None if it is not available.
    """
    why = "is not available either" if listed is None else "has it"
    page = f"https://www.kaggle.com/{'code' if kind == 'notebook' else 'datasets'}/{handle}"
    return errors.Unknown(
        f"{str(denied).splitlines()[0]}\n{handle} is yours, and the list of your {kind}s {why}, so"
        f" this 403 does not mean that it is gone.\n{CAUSES}\nIts page: {page}",
        page,
    )


def lost_push_advice(lost: Exception, datasets: Sequence[str], first: str) -> str:
    """Return what helps if Kaggle answers each push with 500; "" for any other error.

    Kaggle does so for ever if a dataset was deleted and made again under its name (kaggle-cli,
    issue 187), and may do so if the first push of a kernel was refused.

    Args:
        datasets: that the push mounts.
        first: the kernel if it has no version; otherwise "".
    """
    if code(lost.__cause__ or lost) != 500:
        return ""
    advice = ""
    if datasets:
        advice = (
            "If it is 500 each time: Kaggle refuses a dataset that was deleted and made again"
            f" ({', '.join(datasets)}).\nTo mount the training's own output instead, write"
            ' handoff="kernel" into the config and push again.\n'
        )
    if first:
        heading = f"If it is 500 each time: {first} may be a notebook without a version."
        advice += f"{without_version(first, heading)}\n"
    return advice


def without_version(handle: str, heading: str = "") -> str:
    """Return the message about a kernel that has an address on Kaggle but no version.

    Args:
        heading: its first line; by default for a kernel that is known to be in that state.
    """
    heading = heading or f"Kaggle has {handle} without a version: its first push was refused."
    return (
        f"{heading}\nDelete it by hand, and push again: https://www.kaggle.com/code/{handle}\n"
        f"Or {OTHER_ADDRESS}"
    )


def retry_after(error: Exception) -> float | None:
    """Return the seconds that Kaggle asks us to wait, 120 at most; None if it names none."""
    response = getattr(error, "response", None)
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(text), RETRY_AFTER_AT_MOST) if text.isdecimal() else None


def code(error: BaseException) -> int | None:
    """Return the HTTP code of Kaggle's answer, or that of an error in a 200, 0 if it has none; None
    without an answer, or without an error in it.
    """
    status = getattr(getattr(error, "response", None), "status_code", 0)
    inside = _body(error).get("code", 0 if _words(error) else None)
    number = status if status >= 400 else inside
    return number if isinstance(number, int) and (number == 0 or number >= 400) else None


def _body(error: BaseException) -> dict[str, Any]:
    """Return the JSON of an error answer, or {}."""
    try:
        body = error.response.json()  # type: ignore[attr-defined]  # what has none is caught
        return dict(body["error"] if isinstance(body.get("error"), dict) else body)
    except (AttributeError, ValueError, RuntimeError, TypeError, OSError):
        return {}  # no answer, not JSON, no object, or read already


def _words(error: BaseException) -> str:
    body = _body(error)
    text = body.get("message") or body.get("error") or body.get("errorMessage")
    return text if isinstance(text, str) else ""


def _said(error: BaseException) -> str:
    """Return Kaggle's words in one line, safe for a terminal."""
    text = _words(error) or getattr(getattr(error, "response", None), "reason", "") or ""
    return " ".join(plain(text).split())[:500].rstrip(".")


def _chain(error: object) -> Iterator[BaseException]:
    """Yield an error and the errors inside it, where requests hides what happened."""
    while isinstance(error, BaseException):
        yield error
        inner = (getattr(error, "reason", None), *error.args, error.__cause__)
        error = next((one for one in inner if isinstance(one, BaseException)), None)


def was_sent(error: Exception) -> bool:
    """Return whether a call without an answer may have reached Kaggle, by a connection."""
    return not re.search(UNMADE, " ".join(f"{type(one).__name__}: {one}" for one in _chain(error)))


def unanswered(what: str, error: Exception) -> str:
    """Return the message about a call without a readable answer: why, and what to do."""
    number, address, chain = code(error), auth.address(), list(_chain(error))
    asked = "site" if address == auth.SITE else "local"
    text = " ".join([asked, *(f"{type(one).__name__}: {one}" for one in chain)])
    why, expected = next(rest for words, *rest in REASONS if re.search(words, text, re.DOTALL))
    host = urlsplit(getattr(getattr(error, "request", None), "url", None) or "").hostname or ""
    ours = not host or is_loopback(f"http://{host}") or f".{host}".endswith(".kaggle.com")
    detail = plain(str(chain[-1]))[:300]
    how = f"{type(error).__name__}: {detail}" if number is None else f"{number} {_said(error)}"
    facts = {
        "detail": detail,
        "host": address if ours else host,  # of the storage, to which an answer has led
        "how": how.rstrip(),
        "proxies": f"Proxies: {auth.proxies()}; no_proxy {getproxies().get('no', 'none')}",
    }
    return (
        f"Could not {what}: {why.format(**facts)}.\n"
        f"Expected {expected.format(**facts)}. Then run the same command again."
    )
