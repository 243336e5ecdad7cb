"""What an exception of the Kaggle client means for us: one of our errors, with its message.

The client's own texts do not help: it calls an expired login "a wrong kernel slug".
"""

import email.utils
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from deploy import auth, errors
from deploy.auth import HOW, INSTALL
from deploy.secrets import redact
from deploy.transfer import is_loopback

RETRY_AFTER_AT_MOST = 120.0  # seconds
LOOK = (
    "It may or may not have happened. Nothing was retried. Look on kaggle.com, or run:\n"
    "invoke status"
)
IN_USE = re.compile(r"title .{0,200}already in use", re.IGNORECASE)  # of a dataset or a notebook
OTHER_ADDRESS = (
    "let the addresses of this competition's notebooks begin with another name. Write into"
    ' relay.toml:\n[slugs]\nCOMPETITION = "ANOTHER-NAME"'
)
SETTINGS = "https://www.kaggle.com/settings"
RULES = (
    "This account has not joined the competition, or its token may not take part. Accept the rules"
    f" on the competition's page; for another token: {SETTINGS}"
)
DENIED = (
    "It does not exist, or it is somebody else's, or the competition's rules are not accepted, or"
    " the token is limited, or the key is refused since there is a token.\n"
    "Check the name, the owner, and the rules on kaggle.com. To see who is logged in:\n"
    "invoke doctor"
)
SLOTS = (
    "A slot is free again once a run ends, and no call can end one. To see all that runs, also in a"
    ' browser, and to stop it: "View Active Events" at the bottom left of https://www.kaggle.com\n'
    "Then run the same command again."
)
# Why Kaggle may answer 403 about what is there, and is ours.
CAUSES = (
    "Once an account has an OAuth token (`kaggle auth login`), Kaggle may refuse its key: remove"
    " kaggle.json, KAGGLE_USERNAME and KAGGLE_KEY, so that the token is used. A token may also be"
    f" limited: make one without limits at {SETTINGS}. To see which one is used:\ninvoke doctor"
)

# How the storage answers about an address that has expired: files are got or put, and every call to
# Kaggle is posted. 400 may also be about the file that is put.
STORAGE = {"GET": (400, 401, 403, 404, 410), "PUT": (401, 403, 404, 410)}


def _near(verb: str, thing: str) -> str:
    """Return the pattern of both in one sentence: one alone may be a competition's title."""
    return rf"\b(?:{verb})\b[^.]{{0,40}}\b(?:{thing})\b|\b(?:{thing})\b[^.]{{0,40}}\b(?:{verb})\b"


@dataclass(frozen=True)
class Refusal:
    """A way in which Kaggle refuses.

    Attributes:
        code: by which it is known; None: any.
        words: by which it is known: a pattern of what Kaggle says.
        kind: of the error.
        todo: what to do.
    """

    code: int | None
    words: str
    kind: type[errors.RelayError]
    todo: str


@dataclass(frozen=True)
class Reason:
    """Why no answer came.

    Attributes:
        words: by which it is known: a pattern of where was asked, as "local kaggle" or "site
            storage", and of the names and texts of the errors.
        why: what happened.
        expected: what should have come, and what to do.
    """

    words: str
    why: str
    expected: str


# What an account has not done, by Kaggle's words for it, and where a person does it. No call can.
GATES = {
    _near(r"verif\w*", "phone"): f"This account's phone is not verified. Verify it at {SETTINGS}",
    _near(r"verif\w*", "identity|persona"): "This account's identity is not verified. Verify it at"
    f" {SETTINGS}",
    _near("solved?|completed?|pass(?:ed)?", "(?:re)?captcha"): "Kaggle asks for a CAPTCHA. Log in"
    " at https://www.kaggle.com with a browser, and solve it there.",
    r"accept .{0,40}\brules\b|competitions\.participate": RULES,
}
# What requests raises for an address that is none.
ADDRESS = r"Invalid(?:Proxy)?URL|InvalidSchema|MissingSchema|InvalidHeader|TooManyRedirects"
# What no retry can help: a setting of this machine is wrong.
SETTING = f"{ADDRESS}|CERTIFICATE_VERIFY_FAILED|Tunnel connection failed: 4"
PASSED_ON = "a network that lets {host} through, or a proxy. {proxies}"
IN_TIME = "one within the time allowed. Check {place}"
DETAIL = r"certificate verify failed: [^(\]]+|Tunnel connection failed: [^'\")]+"
SLOT = r"maximum .{0,60}session|session count"
QUOTA = r"quota|submission allowance|submissions? being processed"
# The first that fits counts.
REFUSALS = (
    Refusal(401, "", errors.CredentialError, f"The credentials have expired or are wrong.\n{HOW}"),
    Refusal(
        404, "", errors.NotFound, "Expected it to exist. Check name and version on kaggle.com."
    ),
    *(Refusal(None, words, errors.Denied, todo) for words, todo in GATES.items()),
    Refusal(403, "", errors.Denied, DENIED),
    Refusal(None, SLOT, errors.NoSlot, SLOTS),
    Refusal(None, QUOTA, errors.NoQuota, "Try again later. To see the hours left:\ninvoke status"),
    Refusal(429, "", errors.NoQuota, "Kaggle limits how often it is asked. Try again later."),
    Refusal(
        None, "", errors.Refused, "Expected Kaggle to accept it. Correct what it says; try again."
    ),
)
# The first that fits counts.
REASONS = (
    Reason(
        r"^local kaggle .*ConnectionRefusedError",
        "nothing answers at {address}: the local Kaggle, where http_proxy and"
        " KAGGLE_API_ENVIRONMENT=LOCALHOST lead, is not running{misled}",
        "one that runs. Start it with the --folder that it had, and paste what it prints into this"
        " shell, with a folder of yours or the embedded competitions:\n"
        "invoke serve --input DIR --folder DIR\npython -m localkaggle serve --folder DIR\n"
        "For kaggle.com, open a new shell: in this one the local Kaggle's key is set, too",
    ),
    Reason(
        "CERTIFICATE_VERIFY_FAILED",
        "this machine does not trust the certificate that came{detail}",
        "that of Kaggle. If a company's proxy opens connections, save the certificate of its"
        " authority as a PEM file, and name that file:\n"
        "export REQUESTS_CA_BUNDLE=/path/to/authority.pem\n"
        "It is {authorities} now. If this machine's clock is wrong, set it",
    ),
    Reason(
        r"^local kaggle .*ProxyError", "the local Kaggle at {address} broke the connection", IN_TIME
    ),
    Reason(
        "ProxyError",
        "the proxy of this machine did not pass it on{detail}",
        "a proxy that leads to {host}. {proxies}. Correct https_proxy, or name {host} in no_proxy,"
        " if no proxy is needed",
    ),
    Reason(
        ADDRESS,
        "the connection cannot be made as it is set up ({words})",
        "valid addresses. {proxies}. Correct them",
    ),
    Reason(
        "^.{0,6}kaggle .*gaierror",
        "the name of the server cannot be looked up: this machine seems to be offline",
        "a network that knows kaggle.com, or a proxy. {proxies}",
    ),
    Reason("gaierror", "{host} cannot be looked up; Kaggle itself answered before", PASSED_ON),
    Reason(
        "^.{0,6}storage",
        "{host} gave no usable answer ({how}); Kaggle itself answered before",
        PASSED_ON,
    ),
    Reason(
        "Malformed",
        "Kaggle's answer is not what {versions} and this project expect ({words})",
        "an answer as before; Kaggle or its client may have changed. Install what was tested:\n"
        f"{INSTALL}\nIf it stays so, ask the project for a newer version",
    ),
    Reason(
        "JSONDecodeError",
        "something that is not JSON came in place of Kaggle's answer, as the page of a proxy",
        IN_TIME,
    ),
    Reason("", "Kaggle gave no usable answer ({how})", IN_TIME),
)
# Sequences that a terminal obeys (an endless one is cut after 200 characters), control characters,
# and those that change the direction of writing.
CONTROL = re.compile(
    r"\x1b\[[0-?]{0,200}[ -/]{0,200}[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def plain(text: str) -> str:
    """Return the text without terminal controls and secrets; newlines and tabs stay.

    >>> plain("\\x1b[31mred\\x1b[0m")
    'red'
    """
    # Callers cut it afterwards: a part of a key would not be recognized.
    return redact(CONTROL.sub("", text))


def refusal(heading: str, said: str, code: int | None = None) -> errors.RelayError:
    """Return the error for a refusal, by `REFUSALS`.

    Args:
        heading: the first lines of the message.
        said: Kaggle's words.
        code: Kaggle's code.
    """
    found = next(
        row
        for row in REFUSALS
        if row.code in (None, code) and re.search(row.words, said, re.IGNORECASE)
    )
    if found.todo in GATES.values():
        todo = f"{heading}\n{found.todo}\nThen run the same command again."
        return errors.Denied(todo, found.todo)
    return found.kind(f"{heading}\n{found.todo}")


def error_for(what: str, error: Exception) -> errors.RelayError | None:
    """Return the error to raise for Kaggle's answer, or for a setting of this machine that keeps it
    from coming; None if it is unknown what happened.

    Args:
        what: the call in words, after "Could not".
        error: the client's exception, with the answer that it carries.
    """
    number, said = code(error), _said(error)
    if number is None:
        wrong = re.search(SETTING, _chain_text(error))
        return errors.Unreachable(unanswered(what, error)) if wrong else None
    if number >= 500 or number == 408:
        return None  # a request that took too long may have happened
    answer = f"{number or ''} {said}".strip()
    request = getattr(getattr(error, "response", None), "request", None)
    if number in STORAGE.get(getattr(request, "method", ""), ()):
        return errors.Expired(
            f"Could not {what}: the storage refused the signed address ({answer}).\n"
            "Expected it to pass the file on. Such an address expires within minutes, and a new one"
            " was refused, too.\n"
            "Run the same command again. If it fails again, a proxy may block"
            " storage.googleapis.com. To check:\ninvoke doctor"
        )
    return refusal(f"Kaggle refused to {what}: {answer}.", said, number)


def unknown(kind: str, handle: str, denied: errors.Denied, listed: bool | None) -> errors.Unknown:
    """Return the error for a 403 about something of ours that may be there.

    Args:
        kind: "notebook" or "dataset".
        listed: as `Unknown` has it.
    """
    among = f"the list of your {kind}s"
    why = f"{among} is not shown, either" if listed is None else f"{among} has it"
    page = f"https://www.kaggle.com/{'code' if kind == 'notebook' else 'datasets'}/{handle}"
    return errors.Unknown(
        f"{str(denied).splitlines()[0]}\n{handle} is yours, and {why}: this 403 does not say that"
        f" it was deleted, nor how it stands.\n{CAUSES}\nTo see it with your own eyes: {page}",
        page,
        listed,
    )


def lost_push_advice(lost: Exception, datasets: Sequence[str], first: str) -> str:
    """Return what helps if Kaggle answers 500 to each push; "" for another answer, or none.

    Kaggle does so for ever if a dataset was deleted and made again under its name (kaggle-cli,
    issue 187), and may do so if the first push of a kernel was refused.

    Args:
        datasets: that the push mounts.
        first: the kernel, if it has no version; else "".
    """
    if code(lost.__cause__ or lost) != 500:
        return ""
    advice = ""
    if datasets:
        advice = (
            "If it is 500 each time: Kaggle refuses each push that mounts a dataset which was"
            f" deleted and made again under its name ({', '.join(datasets)}).\nMount the training's"
            ' own output instead: write handoff="kernel" into the config and push again.\n'
        )
    if first:
        heading = f"If it is 500 each time: {first} may be a notebook without a version."
        advice += f"{without_version(first, heading)}\n"
    return advice


def without_version(handle: str, heading: str = "") -> str:
    """Return the message about a kernel of which Kaggle keeps the address and no version.

    Args:
        heading: its first line; by default that of a kernel that is known to be one.
    """
    heading = heading or (
        f"Kaggle has a notebook {handle} without a version, and answers each call about it with an"
        " error: its first push was refused."
    )
    return (
        f"{heading}\nExpected a version, or no such notebook. Delete it by hand, and push again:"
        f" https://www.kaggle.com/code/{handle}\n"
        f"Or {OTHER_ADDRESS}"
    )


def retry_after(error: Exception) -> float | None:
    """Return the seconds that Kaggle asks to wait, 0 to 120; None if it gives no valid time."""
    response = getattr(error, "response", None)
    text = response.headers.get("Retry-After", "").strip() if response is not None else ""
    try:
        if re.fullmatch(r"[+-]?\d{1,12}(\.\d{1,9})?", text):
            seconds = float(text)
        else:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_AT_MOST)


def nothing_listens_here(error: Exception) -> bool:
    """Return whether a local Kaggle was asked that is not running."""
    local = auth.address() != auth.SITE
    return local and any(isinstance(one, ConnectionRefusedError) for one in _chain(error))


def code(error: BaseException) -> int | None:
    """Return the HTTP code of Kaggle's answer, or that of an error inside a success, 0 if it has
    none; None: there is no answer, or no error in it.
    """
    status = getattr(getattr(error, "response", None), "status_code", 0)
    inside = _body(error).get("code", 0 if _words(error) else None)
    number = status if status >= 400 else inside
    return number if isinstance(number, int) and (number == 0 or number >= 400) else None


def _body(error: BaseException) -> dict[str, Any]:
    """Return what Kaggle says of an error, as JSON; {} if it says nothing."""
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
    """Return Kaggle's own words: one line, safe for a terminal."""
    text = _words(error) or getattr(getattr(error, "response", None), "reason", "") or ""
    return " ".join(plain(text).split())[:500].rstrip(".")


def _chain(error: object) -> Iterator[BaseException]:
    """Yield an error and those that it was made of: requests hides what happened in them."""
    while isinstance(error, BaseException):
        yield error
        inner = (getattr(error, "reason", None), *error.args, error.__cause__)
        error = next((one for one in inner if isinstance(one, BaseException)), None)


def _storage(error: Exception) -> str:
    """Return the host that was asked, if it is one to which Kaggle's answer leads; else ""."""
    for one in _chain(error):
        url = getattr(getattr(one, "request", None), "url", None) or ""
        host = urlsplit(url).hostname or getattr(getattr(one, "pool", None), "host", None)
        if host:
            ours = is_loopback(f"http://{host}") or f".{host}".endswith(".kaggle.com")
            return "" if ours else str(host)
    return ""


def _chain_text(error: Exception) -> str:
    """Return the names and texts of an error and of those that it was made of, without secrets."""
    return plain(" ".join(f"{type(one).__name__}: {one}" for one in _chain(error)))


def unanswered(what: str, error: Exception) -> str:
    """Return the message about a call without a readable answer: why none came, and what to do."""
    number, storage, chain = code(error), _storage(error), _chain_text(error)
    address, local = auth.address(), auth.address() != auth.SITE
    proxies, _ = auth.proxies(local=False)
    _, misled = auth.proxies(local=True)
    detail = re.search(DETAIL, chain)
    facts = {
        "address": address,
        "authorities": os.environ.get("REQUESTS_CA_BUNDLE") or "not set",
        "detail": f" ({detail[0].strip()})" if detail else "",
        "host": storage or auth.SITE,
        "how": type(error).__name__ if number is None else f"{number} {_said(error)}".rstrip(),
        "place": "what the local Kaggle printed" if local else "the network and www.kaggle.com",
        "misled": "".join(f", or {what}" for what, _ in misled),
        "proxies": f"Set now: {proxies}; no_proxy {getproxies().get('no') or 'none'}",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("kaggle", "kagglesdk")),
        "words": plain(str(error))[:300],
    }
    where = f"{'local' if local else 'site'} {'storage' if storage else 'kaggle'}"
    found = f"{where} {'' if number is not None else chain}"
    reason = next(one for one in REASONS if re.search(one.words, found, re.DOTALL))
    return (
        f"Could not {what}: {reason.why.format(**facts)}.\n"
        f"Expected {reason.expected.format(**facts)}. Then run the same command again."
    )
