"""What an exception of the Kaggle client means for us: one of our errors, with its message.

The client's own texts do not help: it calls an expired login "a wrong kernel slug".
"""

import email.utils
import importlib.metadata
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import requests

from deploy import credential_lookup, server_address
from deploy.credentials import HOW, INSTALL
from deploy.errors import (
    Ambiguous,
    CredentialError,
    Denied,
    Expired,
    NoQuota,
    NoSlot,
    NotFound,
    Refused,
    RelayError,
    Unknown,
    Unreachable,
)
from deploy.file_transfer import is_loopback
from deploy.responses import Malformed
from deploy.secrets import redact

RETRY_AFTER_AT_MOST = 120.0  # seconds
LOOK = (
    "It may or may not have happened. Nothing was retried. Look on kaggle.com, or run:\n"
    "invoke status"
)
QUOTA = re.compile(
    r"maximum .{0,60}(session|quota)|session count|quota"
    r"|submission allowance|submissions? being processed",
    re.IGNORECASE,
)
SLOT = re.compile(r"maximum .{0,60}session|session count", re.IGNORECASE)
SLOTS = (
    "A slot is free again once a run ends, and no call can end one. To see all that runs, also in a"
    ' browser, and to stop it: "View Active Events" at the bottom left of https://www.kaggle.com'
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


# What an account has not done, by Kaggle's words for it, and where a person does it. No call can.
GATES = {
    _near(r"verif\w*", "phone"): f"This account's phone is not verified. Verify it at {SETTINGS}",
    _near(r"verif\w*", "identity|persona"): "This account's identity is not verified. Verify it at"
    f" {SETTINGS}",
    _near("solved?|completed?|pass(?:ed)?", "(?:re)?captcha"): "Kaggle asks for a CAPTCHA. Log in"
    " at https://www.kaggle.com with a browser, and solve it there.",
    r"accept .{0,40}\brules\b|competitions\.participate": RULES,
}
# Sequences that a terminal obeys (an endless one is cut after 200 characters), control characters,
# and those that change the direction of writing.
CONTROL = re.compile(
    r"\x1b\[[0-?]{0,200}[ -/]{0,200}[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def gate(said: str) -> str:
    """Return what a person has to do on Kaggle's site, by Kaggle's words; "" if it is not that.

    >>> gate("You must verify your phone number").split(".")[0]
    "This account's phone is not verified"
    """
    found = (todo for words, todo in GATES.items() if re.search(words, said, re.IGNORECASE))
    return next(found, "")


def error_for(what: str, error: Exception) -> RelayError | None:
    """Return the error to raise for Kaggle's answer, or for a setting of this machine that keeps it
    from coming; None if it is unknown what happened.

    Args:
        what: the call in words, after "Could not".
        error: the client's exception, with the answer that it carries.
    """
    code, said = _code(error), _said(error)
    if code is None and _is_setting(error):
        return Unreachable(unanswered(what, error))
    if code is None or code >= 500 or code < 400 or code == 408:
        return None  # a request that took too long may have happened
    if code in STORAGE.get(_method(error), ()):
        return Expired(
            f"Could not {what}: the storage refused the signed address"
            f" ({f'{code} {said}'.rstrip()}).\n"
            "Expected it to pass the file on. Such an address expires within minutes, and a new one"
            " was refused, too.\n"
            "Run the same command again. If it fails again, a proxy may block"
            " storage.googleapis.com. To check:\ninvoke doctor"
        )
    heading = f"Kaggle refused to {what}: {code} {said}".rstrip()
    if code == 401:
        return CredentialError(f"{heading}.\nThe credentials have expired or are wrong.\n{HOW}")
    if code == 403 and not gate(said):
        return Denied(
            f"{heading}.\nIt does not exist, or it is somebody else's, or the competition's rules"
            " are not accepted, or the token is limited, or the key is refused since there is a"
            " token.\n"
            "Check the name, the owner, and the rules on kaggle.com. To see who is logged in:\n"
            "invoke doctor"
        )
    if code == 404:
        return NotFound(
            f"{heading}.\nExpected it to exist. Check the name and the version on kaggle.com."
        )
    return refusal(f"{heading}.", said, code)


def unknown(kind: str, handle: str, denied: Denied, listed: bool | None) -> Unknown:
    """Return the error for a 403 about something of ours that may be there.

    Args:
        kind: "notebook" or "dataset".
        listed: as `Unknown` has it.
    """
    among = f"the list of your {kind}s"
    why = f"{among} is not shown, either" if listed is None else f"{among} has it"
    page = f"https://www.kaggle.com/{'code' if kind == 'notebook' else 'datasets'}/{handle}"
    return Unknown(
        f"{str(denied).splitlines()[0]}\n{handle} is yours, and {why}: this 403 does not say that"
        f" it was deleted, nor how it stands.\n{CAUSES}\nTo see it with your own eyes: {page}",
        page,
        listed,
    )


def refusal(heading: str, said: str, code: object = None) -> NoQuota | Refused | Denied:
    """Return the error for a refusal: `NoSlot` if Kaggle's words are about sessions, `NoQuota` if
    they are about quota, and `Denied` if they are about what the account has not done.

    Args:
        heading: the first lines of the message.
        said: Kaggle's words.
        code: Kaggle's code.
    """
    todo = gate(said)
    if todo:
        return Denied(f"{heading}\n{todo}\nThen run the same command again.", todo)
    if SLOT.search(said):
        return NoSlot(f"{heading}\n{SLOTS}\nThen run the same command again.")
    if QUOTA.search(said):
        return NoQuota(
            f"{heading}\nTry again later. To see what runs, and the hours left:\ninvoke status"
        )
    if code == 429:
        again = "Run the same command again later."
        return NoQuota(f"{heading}\nKaggle limits how often it is asked. {again}")
    return Refused(
        f"{heading}\nExpected Kaggle to accept it. Correct what it names, and give the same command"
        " again."
    )


def lost_push_advice(lost: Exception, datasets: Sequence[str], first: str) -> str:
    """Return what helps if Kaggle answers 500 to each push; "" for another answer, or none.

    Kaggle does so for ever if a dataset was deleted and made again under its name (kaggle-cli,
    issue 187), and may do so if the first push of a kernel was refused.

    Args:
        datasets: that the push mounts.
        first: the kernel, if it has no version; else "".
    """
    if _code(lost.__cause__ or lost) != 500:
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


def answered(code: int, error: Exception) -> bool:
    """Return whether this is Kaggle's answer to a call, with that HTTP code."""
    return _code(error) == code and _method(error) not in STORAGE


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


def is_busy(error: Exception) -> bool:
    """Return whether Kaggle asked to come back later, so that a question may be retried."""
    return _code(error) == 429


def retry_after(error: Exception) -> float | None:
    """Return the seconds that Kaggle asks to wait, 0 to 120; None if it gives no valid time."""
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


def not_understood(what: str, error: Exception) -> str:
    """Return the message about answers that are not what they should be."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("kaggle", "kagglesdk")
    )
    return (
        f"Could not {what}: Kaggle's answer is not what {versions} and this project expect"
        f" ({plain(str(error))[:300]}).\n"
        "Kaggle or its client may have changed. Try again, with the versions that were tested:\n"
        f"{INSTALL}"
    )


def unanswered(what: str, error: Exception) -> str:
    """Return the first lines of the message for a call without a readable answer."""
    why, todo = _why(error)
    return f"Could not {what}: {why}.\n{todo}"


def nothing_listens_here(error: Exception) -> bool:
    """Return whether a local Kaggle was asked that is not running."""
    local = server_address.address() != server_address.SITE
    return local and any(isinstance(one, ConnectionRefusedError) for one in _chain(error))


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


def _is_setting(error: Exception) -> bool:
    """Return whether a setting of this machine is wrong, so that no retry can help."""
    wrong = ("InvalidURL", "InvalidSchema", "MissingSchema", "InvalidHeader", "TooManyRedirects")
    if isinstance(error, tuple(getattr(requests.exceptions, name) for name in wrong)):
        return True
    return bool(re.search(r"CERTIFICATE_VERIFY_FAILED|Tunnel connection failed: 4", str(error)))


def _why(error: Exception) -> tuple[str, str]:
    """Return why no usable answer came, and what to do."""
    code, words, storage = _code(error), plain(str(error)), _storage(error)
    local = server_address.address() != server_address.SITE
    again = "Then run the same command again."
    if code is not None:
        why = f"{storage or 'Kaggle'} gave no usable answer ({f'{code} {_said(error)}'.rstrip()})"
    elif nothing_listens_here(error):
        _, wrong = credential_lookup.proxies(local=True)
        return (
            f"nothing answers at {server_address.address()}: the local Kaggle, where http_proxy and"
            " KAGGLE_API_ENVIRONMENT=LOCALHOST lead, is not running"
            f"{''.join(f', or {what}' for what, _ in wrong)}",
            "Expected one that runs. Start it as before, with the --folder that it had, and paste"
            " what it prints into this shell. With a folder of your own:\n"
            "invoke serve --input DIR --folder DIR\n"
            "With the embedded competitions:\n"
            "python -m localkaggle serve --folder DIR\n"
            "For kaggle.com, open a new shell: in this one the local Kaggle's key is set, too.",
        )
    elif "CERTIFICATE_VERIFY_FAILED" in words:
        found = re.search(r"certificate verify failed: ([^(\]]+)", words)
        return (
            "this machine does not trust the certificate that came"
            f" ({found[1].strip() if found else 'CERTIFICATE_VERIFY_FAILED'})",
            "Expected that of Kaggle. If a company's proxy opens connections, save the certificate"
            " of its authority as a PEM file, and name that file:\n"
            "export REQUESTS_CA_BUNDLE=/path/to/authority.pem\n"
            f"It is {os.environ.get('REQUESTS_CA_BUNDLE') or 'not set'} now. If this machine's"
            f" clock is wrong, set it. {again}",
        )
    elif isinstance(error, requests.exceptions.ProxyError) and local and not storage:
        why = f"the local Kaggle at {server_address.address()} broke the connection"
    elif isinstance(error, requests.exceptions.ProxyError):
        tunnel = re.search(r"Tunnel connection failed: [^'\")]+", words)
        how = f" ({tunnel[0]})" if tunnel else ""
        return (
            f"the proxy of this machine did not pass it on{how}",
            f"Expected a proxy that leads to {storage or 'Kaggle'}. {_proxies()}. Correct"
            f" https_proxy, or name {storage or server_address.SITE} in no_proxy if no proxy is"
            f" needed. {again}",
        )
    elif _is_setting(error):
        return (
            f"the connection cannot be made as it is set up ({words[:300]})",
            f"Expected valid addresses. {_proxies()}. Correct them. {again}",
        )
    elif storage:
        lost = any(type(one).__name__ == "NameResolutionError" for one in _chain(error))
        how = "cannot be looked up" if lost else f"gave no usable answer ({type(error).__name__})"
        why = f"{storage} {how}; Kaggle itself answered before"
    elif any(type(one).__name__ == "NameResolutionError" for one in _chain(error)):
        return (
            "the name of the server cannot be looked up: this machine seems to be offline",
            f"Expected a network that knows kaggle.com, or a proxy. {_proxies()}. {again}",
        )
    elif isinstance(error, ValueError):
        why = "something that is not JSON came in place of Kaggle's answer, as the page of a proxy"
    else:
        why = f"Kaggle gave no usable answer ({type(error).__name__})"
    if storage:
        lets = f"Expected a network that lets {storage} through, or a proxy"
        return why, f"{lets}. {_proxies()}. {again}"
    look = "what the local Kaggle printed" if local else "the network and https://www.kaggle.com"
    return why, (
        f"Expected one within the time allowed. Check {look}, then run the same command again."
    )


def _proxies() -> str:
    """Return what this machine's proxies are set to, without passwords, as a sentence."""
    words, _ = credential_lookup.proxies(local=False)
    return f"Set now: {words}; no_proxy {getproxies().get('no') or 'none'}"


def require_ok(what: str, answer: Any) -> None:
    """Raise an error unless the status of Kaggle's answer is "ok": HTTP 200 may hold an error.

    Raises:
        Refused, NoQuota: if the answer holds an error.
        Ambiguous: if it holds neither an error nor "ok".
    """
    require_none(what, answer.error)
    if not isinstance(answer.status, str) or answer.status.lower() != "ok":
        raise Ambiguous(
            f"Kaggle accepted the call to {what} and answered status {answer.status!r};"
            f" expected 'ok'.\n{LOOK}"
        )


def require_none(what: str, error: Any) -> None:
    """Raise an error if an answer with HTTP 200 holds one.

    Raises:
        Refused, NoQuota: as Kaggle's words say.
    """
    said = plain(error_text(what, error)).rstrip(".")
    if said:
        raise refusal(f"Kaggle refused to {what}: {said}.", said)


def error_text(what: str, error: Any) -> str:
    """Return the error text inside an answer with HTTP 200; raise one that is an object."""
    if isinstance(error, dict):
        said = " ".join(plain(str(error.get("message", ""))).split())[:500]
        code = error.get("code")
        raise refusal(f"Kaggle refused to {what}: {code} {said}.", said, code)
    if error is not None and not isinstance(error, str):
        raise Malformed(f"{type(error).__name__} in place of an error's text")
    return error or ""


def plain(text: str) -> str:
    """Return the text without terminal controls and secrets; newlines and tabs stay.

    >>> plain("\\x1b[31mred\\x1b[0m")
    'red'
    """
    # Callers cut it afterwards: a part of a key would not be recognized.
    return redact(CONTROL.sub("", text))


def _method(error: Exception) -> str:
    """Return how what was answered had been sent; "" if that is unknown."""
    request = getattr(getattr(error, "response", None), "request", None)
    return getattr(request, "method", "")


def _body(error: BaseException) -> dict[str, Any]:
    response = getattr(error, "response", None)
    if response is None:
        return {}
    try:
        body = response.json()
    except (ValueError, RuntimeError, TypeError, OSError):  # not JSON, or read already
        return {}
    if not isinstance(body, dict):
        return {}
    return body["error"] if isinstance(body.get("error"), dict) else body


def _code(error: BaseException) -> int | None:
    """Return the HTTP code, or that of an error inside a 200."""
    response = getattr(error, "response", None)
    if response is None:
        return None
    if response.status_code >= 400:
        return int(response.status_code)
    code = _body(error).get("code")
    return code if isinstance(code, int) and code >= 400 else None


def _said(error: Exception) -> str:
    """Return Kaggle's own words: one line, safe for a terminal."""
    text = _body(error).get("message")
    if not text or not isinstance(text, str):
        text = getattr(getattr(error, "response", None), "reason", "") or ""
    return " ".join(plain(text).split())[:500].rstrip(".")
