"""Convert exceptions from the official Kaggle client to our own errors.

The client's messages can be misleading: it reports an expired login as "a wrong kernel slug".
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
    "The request may have been processed, so it was not retried. Check on kaggle.com, or run:\n"
    "invoke status"
)
IN_USE = re.compile(r"title .{0,200}already in use", re.IGNORECASE)  # by a dataset or notebook
OTHER_ADDRESS = (
    "use another name in the URLs by adding these lines to relay.toml:\n"
    '[slugs]\nCOMPETITION = "ANOTHER-NAME"'
)
SETTINGS = "https://www.kaggle.com/settings"
RULES = (
    "This account has not joined the competition, or its token does not allow access to it. Accept"
    f" the rules on the competition's page, or create another token at {SETTINGS}"
)
DENIED = (
    "It does not exist, it belongs to somebody else, you have not accepted its rules, or your key"
    " or token needs more permissions.\nCheck the name, owner and rules on kaggle.com, and which"
    " account is logged in:\ninvoke doctor"
)
SLOTS = (
    "A slot becomes free when a run ends. The API cannot stop runs. To stop one by hand, open"
    ' "View Active Events" at the bottom left of https://www.kaggle.com\n'
    "Then run the same command again."
)
LICENCE = (
    "This account has not accepted the licence of a model used by the notebook. Accept it on the"
    " model's page."
)
# Possible reasons for a 403 about one of our own notebooks or datasets.
CAUSES = (
    "Kaggle may reject an account's key once the account has an OAuth token. In that case, remove"
    " kaggle.json, KAGGLE_USERNAME and KAGGLE_KEY. Tokens can be restricted. Create one without"
    f" restrictions at {SETTINGS}. To see which credentials are used:\ninvoke doctor"
)

# Status codes with which the storage rejects an expired URL, by method. Calls to Kaggle use POST. A
# PUT may also get a 400 because of its file.
STORAGE = {"GET": (400, 401, 403, 404, 410), "PUT": (401, 403, 404, 410)}


# Actions that only the user can take on kaggle.com, keyed by a pattern of Kaggle's message. In the
# first pattern, the two words must be close to each other, because a competition's title may
# contain one of them.
DONE, THING = r"verif\w*|solved?|completed?", r"phone|identity|persona|(?:re)?captcha"
GATES = {
    rf"\b(?:{DONE})\b[^.]{{0,40}}\b(?:{THING})\b|\b(?:{THING})\b[^.]{{0,40}}\b(?:{DONE})\b": (
        "You must verify this account's phone number or identity, or solve a CAPTCHA. Verify the"
        f" account at {SETTINGS}, and solve the CAPTCHA at https://www.kaggle.com in a browser."
    ),
    r"accept .{0,40}\brules\b|competitions\.participate": RULES,
    r"\bnot consented\b": LICENCE,
}
SLOT = r"maximum .{0,60}session|session count"
QUOTA = r"quota|submission allowance|submissions? being processed"
# Kaggle's refusals. Each entry has a status code (or None for any), a pattern of the message, an
# error class and advice. The first match is used.
REFUSALS: tuple[tuple[int | None, str, type[errors.RelayError], str], ...] = (
    (401, "", errors.CredentialError, f"The credentials are invalid or have expired.\n{auth.HOW}"),
    (404, "", errors.NotFound, "Check that it exists on kaggle.com and that the name is correct."),
    *((None, words, errors.Denied, todo) for words, todo in GATES.items()),
    (403, "", errors.Denied, DENIED),
    (None, SLOT, errors.NoSlot, SLOTS),
    (None, QUOTA, errors.NoQuota, "Try again later. To see the remaining hours:\ninvoke status"),
    (429, "", errors.NoQuota, "Kaggle received too many requests. Try again later."),
    (None, "", errors.Refused, "Fix the problem, and try again."),
)
# Names and messages of errors that occur before a connection is made.
UNMADE = "NewConnectionError|NameResolutionError|ConnectTimeout|CERTIFICATE_VERIFY_FAILED"
# Reasons for a missing response. Each entry has a pattern, a description of what happened, and a
# description of what was expected and how to fix it. Patterns are matched against a text that
# starts with "site" or "local" and contains the errors' names and messages. The first match is
# used.
REASONS = (
    (
        "^local .*ConnectionRefusedError",
        "nothing is listening at {host}, which http_proxy sets as the local Kaggle",
        "a running local Kaggle. Start it with the same --folder:\n"
        "invoke serve --input DIR --folder DIR\npython -m localkaggle serve --folder DIR\n"
        "Paste its output into this shell. To use kaggle.com instead, open a new shell",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "this machine does not trust the server's certificate ({detail})",
        "Kaggle's certificate. If your company's proxy decrypts connections, set a PEM file that"
        " contains its certificate:\nexport REQUESTS_CA_BUNDLE=/path/to/authority.pem\n"
        "If this machine's clock is wrong, correct it",
    ),
    (
        "^(?!.*ProxyError).*gaierror",
        "{host} cannot be resolved: this machine is offline, or its network blocks that name",
        "a network with access to {host}, or a proxy. {proxies}",
    ),
    (
        "Malformed",
        "Kaggle's response has an unexpected format ({detail})",
        "the usual format. If this error persists, update this project to a newer version",
    ),
    (
        "",
        "{host} did not send a usable response ({how})",
        "a timely response. Check that the host is reachable, and that no proxy responds instead."
        " {proxies}. Correct https_proxy or REQUESTS_CA_BUNDLE, or add {host} to no_proxy",
    ),
)
# Terminal sequences (up to 200 characters), control characters, and characters that change the text
# direction.
CONTROL = re.compile(
    r"\x1b\[[0-?]{0,200}[ -/]{0,200}[@-~]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)


def plain(text: str) -> str:
    """Remove terminal control sequences and secrets from text, but keep newlines and tabs.

    >>> plain("\\x1b[31mred\\x1b[0m")
    'red'
    """
    # Callers must truncate the result, not the input, because partial secrets are not recognized.
    return redact(CONTROL.sub("", text))


def refusal(heading: str, said: str, code: int | None = None) -> errors.RelayError:
    kind, todo = next(
        (kind, todo)
        for number, words, kind, todo in REFUSALS
        if number in (None, code) and re.search(words, said, re.IGNORECASE)
    )
    if todo in GATES.values():
        return errors.Denied(f"{heading}\n{todo}\nThen run the same command again.", todo)
    return kind(f"{heading}\n{todo}")


def error_for(what: str, error: Exception) -> errors.RelayError | None:
    """Return the error for Kaggle's response, or None if the outcome is unknown.

    `what` describes the call for error messages, in which it follows "Could not".
    """
    number, said = code(error), _said(error)
    if number is None or number >= 500 or number == 408:
        return None  # the request may have been processed
    answer = f"{number or ''} {said}".strip()
    request = getattr(getattr(error, "response", None), "request", None)
    if number in STORAGE.get(getattr(request, "method", ""), ()):
        return errors.Expired(
            f"Could not {what}: the storage server rejected the signed URL, and also rejected a new"
            f" one ({answer}).\nRun the same command again. If it keeps failing, a proxy may be"
            " blocking storage.googleapis.com. To check:\ninvoke doctor"
        )
    return refusal(f"Kaggle refused to {what}: {answer}.", said, number)


def unknown(kind: str, handle: str, denied: errors.Denied, listed: bool | None) -> errors.Unknown:
    """Return the error for a 403 about one of our notebooks or datasets, which may exist.

    `listed` is true if our list of such items contains it, false if it does not, and None if the
    list is not available.
    """
    why = "is not available either" if listed is None else "contains it"
    page = f"https://www.kaggle.com/{'code' if kind == 'notebook' else 'datasets'}/{handle}"
    return errors.Unknown(
        f"{str(denied).splitlines()[0]}\n{handle} is yours, and the list of your {kind}s {why}, so"
        f" this 403 does not prove that it was deleted.\n{CAUSES}\nIts page: {page}",
        page,
    )


def lost_push_advice(lost: Exception, datasets: Sequence[str], first: str) -> str:
    """Return advice for a push that always gets a 500, or "" for any other error.

    Every push fails like this if a mounted dataset was deleted and recreated with the same name
    (kaggle-cli issue 187). Pushes may also fail like this if a kernel's first push was refused.
    `first` is the kernel's handle if it has no versions, otherwise "".
    """
    if code(lost.__cause__ or lost) != 500:
        return ""
    advice = ""
    if datasets:
        advice = (
            "If every push gets a 500, Kaggle may be rejecting a dataset that was deleted and"
            f" recreated ({', '.join(datasets)}).\nTo mount the training run's own output instead,"
            ' set handoff="kernel" in the config and push again.\n'
        )
    if first:
        heading = f"If every push gets a 500, {first} may be a notebook without any versions."
        advice += f"{without_version(first, heading)}\n"
    return advice


def without_version(handle: str, heading: str = "") -> str:
    heading = heading or f"{handle} has no versions on Kaggle because its first push was refused."
    return (
        f"{heading}\nDelete it by hand, and push again: https://www.kaggle.com/code/{handle}\n"
        f"Or {OTHER_ADDRESS}"
    )


def retry_after(error: Exception) -> float | None:
    """Return how long to wait before a retry, in seconds, or None if Kaggle does not specify it.

    The maximum is 120 seconds.
    """
    response = getattr(error, "response", None)
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(text), RETRY_AFTER_AT_MOST) if text.isdecimal() else None


def code(error: BaseException) -> int | None:
    """Return the HTTP status code of an error response, or None if there was no response.

    If the status is 200 but the body contains an error, return the code in the body, or 0 if it
    does not contain a code.
    """
    status = getattr(getattr(error, "response", None), "status_code", 0)
    inside = _body(error).get("code", 0 if _words(error) else None)
    number = status if status >= 400 else inside
    return number if isinstance(number, int) and (number == 0 or number >= 400) else None


def _body(error: BaseException) -> dict[str, Any]:
    try:
        body = error.response.json()  # type: ignore[attr-defined]  # handled below
        return dict(body["error"] if isinstance(body.get("error"), dict) else body)
    except (AttributeError, ValueError, RuntimeError, TypeError, OSError):
        return {}  # no response, not JSON, not an object, or already consumed


def _words(error: BaseException) -> str:
    body = _body(error)
    text = body.get("message") or body.get("error") or body.get("errorMessage")
    return text if isinstance(text, str) else ""


def _said(error: BaseException) -> str:
    text = _words(error) or getattr(getattr(error, "response", None), "reason", "") or ""
    return " ".join(plain(text).split())[:500].rstrip(".")


def _chain(error: object) -> Iterator[BaseException]:
    # requests wraps the original error.
    while isinstance(error, BaseException):
        yield error
        inner = (getattr(error, "reason", None), *error.args, error.__cause__)
        error = next((one for one in inner if isinstance(one, BaseException)), None)


def was_sent(error: Exception) -> bool:
    return not re.search(UNMADE, " ".join(f"{type(one).__name__}: {one}" for one in _chain(error)))


def unanswered(what: str, error: Exception) -> str:
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
        "host": address if ours else host,  # after a redirect, the storage's host
        "how": how.rstrip(),
        "proxies": f"Proxies: {auth.proxies()}; no_proxy {getproxies().get('no', 'none')}",
    }
    return (
        f"Could not {what}: {why.format(**facts)}.\n"
        f"Expected {expected.format(**facts)}. Then run the same command again."
    )
