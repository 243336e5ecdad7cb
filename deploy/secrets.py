"""Find secrets in a text (`find`), or take them out of it (`redact`).

No secret may be in anything that we send or write. A secret is recognized by its shape, or because
it is in use: in a variable of the environment, or given to `know`. Only the standard library is
imported, so that a task which only prints stays quick.
"""

import base64
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import TracebackType
from typing import Any
from urllib.parse import quote

AT_LEAST = 8  # characters; redacting shorter values would destroy texts
PASSES = 100  # at most: redacting one secret may move the next one close to its word

# A line that ends with this comment of detect-secrets passes `find`, unless its secret is in use.
ALLOWED = "pragma: allowlist secret"

# What may stand between a word and its secret: quotes, even escaped ones, and brackets.
_QUOTES = r"""(?:\\{0,3}["'`]|[\])(]){0,5}"""
_QUOTE = r"""\\{0,3}["']"""
# JSON writes a newline as \n: its n is no letter of the word after it.
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_HEX32 = rf"{_LEFT}(?<![/@+-])(?P<secret>[0-9a-f]{{32}})(?![A-Za-z0-9]|[./-][A-Za-z0-9])"
_NAME = r"(?:KAGGLE|kaggle)_[A-Za-z0-9_]{0,40}(?:KEY|TOKEN|key|token)"
_THREE_DIGITS = r"(?=(?:[A-Za-z_-]*[0-9]){3})"
_A_DIGIT = r"(?=[A-Za-z%+/=_.~-]*[0-9])"
_ENDS = r"(?![\w(\[-]|[./]\w)"  # not the start of a longer word, a call or a path
_IS = r"\s{0,4}(?:=>|[:=,])\s{0,4}"
_KEY = rf"(?P<secret>{_THREE_DIGITS}[A-Za-z0-9_-]{{16,}}){_ENDS}"
_PARAMETER = rf"(?P<secret>{_A_DIGIT}[A-Za-z0-9%+/=_.~-]{{16,}})"
# Of kaggle.json: one after the other, in JSON, in a dict, as arguments or in YAML.
_MAYBE = rf"(?:{_QUOTE})?"
_USER = rf"\b(?i:username){_MAYBE}\s?[:=]\s?{_MAYBE}[\w.@+-]{{1,60}}{_MAYBE}"
_ITS_KEY = rf"\b(?i:key){_MAYBE}\s?[:=]\s?{_MAYBE}{_KEY}{_MAYBE}"
_NEXT = rf"[ \t]{{0,3}}(?:,|\n|\\n)(?:\s|\\n){{0,20}}{_MAYBE}"


@dataclass(frozen=True)
class Found:
    """A possible secret. `kind`: in words, with an article; `line`: from 1."""

    kind: str
    line: int


@dataclass(frozen=True)
class Shape:
    """What one kind of secret looks like.

    Attributes:
        kind: in words, with an article.
        hints: a text without any of these, in lower case, cannot hold one.
        pattern: its group `secret` is redacted; the rest shows the kind.
        holds: a further condition on the secret.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    holds: Callable[[str], bool] = lambda secret: True


def _shape(kind: str, hints: str, pattern: str, **more: Any) -> Shape:
    return Shape(kind, tuple(hints.split()), re.compile(pattern), **more)


SHAPES = (
    _shape("a Kaggle token", "kgat_", r"KGAT_(?P<secret>[A-Za-z0-9_-]{8,})"),
    _shape("a Kaggle key", "username", rf"{_USER}{_NEXT}{_ITS_KEY}"),
    _shape("a Kaggle key", "username", rf"{_ITS_KEY}{_NEXT}{_USER}"),
    _shape(
        "a Kaggle key",
        "set_config_value",
        rf"\bset_config_value\(\s{{0,20}}(?:name\s?=\s?)?{_QUOTE}key{_QUOTE}\s?,\s{{0,20}}"
        rf"(?:value\s?=\s?)?{_QUOTE}{_KEY}",
    ),
    _shape(
        "a kaggle.json in Base64",  # {"username": and what follows
        "eyj1c2vybmftzsi6",
        r"eyJ1c2VybmFtZSI6(?P<secret>[A-Za-z0-9+/]{40,}={0,2})",
        holds=lambda rest: b'"key"' in base64.b64decode(rest[: len(rest) // 4 * 4]),
    ),
    _shape(
        "a Kaggle key",
        "kaggle",
        rf"(?i:kaggle[ _-]?(?:api[ _-]?)?(?:key|token))(?![A-Za-z])[^\n]{{0,20}}?{_HEX32}",
    ),
    _shape(
        "an API key",
        "key token secret passw",
        rf"(?i:api_?key|(?:auth|access|refresh)_?token|secret|passw(?:or)?d){_QUOTES}{_IS}"
        rf"{_QUOTES}{_HEX32}",
    ),
    _shape(
        "a Kaggle credential",  # in shell, Python, YAML, JSON, .env, Docker
        "kaggle_",
        rf"{_NAME}{_QUOTES}(?:{_IS}|\s{{1,20}}value\W{{1,6}}|[ \t])"
        rf"{_QUOTES}(?!KAGGLE_|KGAT_|[A-Z0-9_]+(?![A-Za-z0-9_-])){_KEY}",
    ),
    # At least one digit: "Bearer authentication-something" is prose.
    _shape(
        "an Authorization header",
        "basic bearer",
        r"\b(?:Basic|Bearer)\s+(?P<secret>(?=[A-Za-z+/_=.~-]*[0-9])[A-Za-z0-9+/_=.~-]{16,})",
    ),
    _shape(
        "an Authorization header",
        "authorization",
        rf"(?i:authorization){_QUOTES}{_IS}b?{_QUOTES}"
        rf"(?:(?i:basic|bearer|token)\s{{1,4}}(?=[a-z_.~-]*[A-Z0-9+/=])|{_A_DIGIT})"
        r"(?P<secret>[A-Za-z0-9+/_=.~-]{16,})",
    ),
    _shape(
        "a name with its password",
        "-u --user",
        rf"\b(?:curl|wget)\b[^\n]{{0,200}}?(?:\s-u|--user)[=\s]\s{{0,4}}{_QUOTES}[\w.@+-]{{1,60}}:"
        rf"(?P<secret>{_A_DIGIT}[A-Za-z0-9_-]{{12,}})",
    ),
    _shape(
        "a name with its password",
        "auth",
        rf"\bauth\s?=\s?(?:\w{{0,20}}Auth)?\(\s{{0,20}}{_QUOTE}[^\s\"'(),]{{1,60}}{_QUOTE}"
        rf"\s{{0,4}},\s{{0,20}}{_QUOTE}{_KEY}",
    ),
    _shape(
        "an address with a password",
        "://",
        r"""://[^\s/:@"'\\<>{}]{0,80}:(?P<secret>(?![<{$\[%*…]|(?i:your|my|the)?[_-]?"""
        r"""(?i:password|passwd|secret|token|api_?key|key|pass)@)[^\s/@"'\\<>{}…]{6,200})@""",
    ),
    _shape(
        "a signed address",
        "signature -token",
        r"(?i:X-(?:Goog|Amz)-(?:Signature|Security-Token))"
        rf"(?:=|%3D|{_QUOTES}\s{{0,4}}[:,]\s{{0,4}}{_QUOTES}){_PARAMETER}",
    ),
    _shape(
        "a signed address",
        "signature token= api_key= apikey= token%3d",
        r"(?:[?&;]|%26|%3F|\\u0026)"
        r"(?i:signature|(?:access_|auth_|id_)?token|api_?key)(?:=|%3D)"
        rf"{_PARAMETER}",
    ),
    _shape(
        "a JSON web token",
        "eyj",
        rf"{_LEFT}eyJ(?P<secret>[A-Za-z0-9_-]{{8,}}\.[A-Za-z0-9_-]{{3,}}"
        r"(?:\.[A-Za-z0-9_-]{0,8192}){0,3})",
    ),
    _shape("a Hugging Face token", "hf_", rf"{_LEFT}hf_(?P<secret>[A-Za-z0-9]{{30,}})"),
    _shape(
        "a GitHub token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        rf"{_LEFT}(?:gh[pousr]|github_pat)_(?P<secret>[A-Za-z0-9_]{{30,}})",
    ),
    _shape(
        "an AWS key", "akia asia", rf"{_LEFT}(?:AKIA|ASIA)(?P<secret>[A-Z0-9]{{16}})(?![A-Za-z0-9])"
    ),
    _shape(
        "an AWS secret",
        "secret akia",
        rf"(?:(?i:secret_?access_?key){_QUOTES}{_IS}{_QUOTES}"
        r"|(?:AKIA|ASIA)(?:[A-Z0-9]{16}|…)[\s\S]{0,100}?)(?:(?<![A-Za-z0-9/+])|(?<=\\[nrt]))"
        r"(?P<secret>(?=[a-z0-9/+]*[A-Z])(?=[A-Za-z/+]*[0-9])[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
    ),
    _shape(
        "an API key",
        "sk-",
        rf"{_LEFT}(?<![-_])sk-(?P<secret>(?:ant|proj|svcacct|admin|or|lf)-{_A_DIGIT}"
        r"[A-Za-z0-9_-]{16,}|(?=[A-Za-z]*[0-9])[A-Za-z0-9]{32,})",
    ),
    _shape("a Google key", "aiza", rf"{_LEFT}AIza(?P<secret>[A-Za-z0-9_-]{{35}})(?![A-Za-z0-9_-])"),
    _shape(
        "a Weights & Biases key",
        "wandb",
        rf"(?i:wandb[._]?(?:api_?)?(?:key|login))[^\n]{{0,20}}?{_LEFT}(?P<secret>[0-9a-f]{{40}})"
        r"(?![A-Za-z0-9])",
    ),
    _shape(
        "a private key",
        "private",
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?!…)"
        r"(?P<secret>(?:(?!-----)[\s\S]){0,20000}?(?=-----END)"
        r"|(?:\s|\\{1,3}[nr])*[A-Za-z0-9+/=]{16,}(?:(?:\s|\\{1,3}[nr])+[A-Za-z0-9+/=]{16,})*)",
        holds=lambda body: re.search(r"[A-Za-z0-9+/=]{16}", body) is not None,
    ),
)
_HINTS = re.compile("|".join({re.escape(hint) for shape in SHAPES for hint in shape.hints}))
# Names of variables whose values are secrets; of services but Kaggle, only if they look like one.
_OURS = re.compile(r"KAGGLE_(?:\w+_)?(?:KEY|TOKEN)")
_OTHERS = re.compile(r"(?:\w+_)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)")
_OTHERS_LIKE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{12,}", re.DOTALL)

_known: set[str] = set()
_seen: tuple[tuple[set[str], dict[Any, Any]], set[str]] | None = None  # (read, values) of `_in_use`


def know(value: object, user: str = "") -> None:
    """Redact this value from now on, whatever its shape, in headers and addresses too.

    Args:
        value: of a credential; not a text, or shorter than `AT_LEAST`: ignored.
        user: the owner of the key: Basic authorization encodes both together.
    """
    if isinstance(value, str):
        _known.update(_forms(value, user))


def forget() -> None:
    """Forget the values given to `know`, whose server is gone. A scan takes longer for each."""
    _known.clear()


def find(text: str) -> Iterator[Found]:
    """Yield where secrets seem to be, in order; never the secret itself.

    A line that says so (`ALLOWED`) passes, but for what is in use.

    >>> list(find("import os\\nKAGGLE_KEY=" + "0123456789abcdef" * 2))
    [Found(kind='a Kaggle key', line=2)]
    """
    end, spans = 0, [*_used(text), *(span for span in _shaped(text) if not _allowed(text, span))]
    for start, stop, kind, _ in sorted(spans, key=lambda span: (span[0], -span[1])):
        if start >= end:
            yield Found(kind, text.count("\n", 0, start) + 1)
        end = max(end, stop)


def redact(text: str) -> str:
    """Return the text with an ellipsis in place of each secret; what shows its kind stays.

    >>> redact("export KAGGLE_API_TOKEN=KGAT_" + "0123456789abcdef")
    'export KAGGLE_API_TOKEN=KGAT_…'
    """
    for _ in range(PASSES):
        found = [*_used(text), *_matches(text)]
        spans = sorted((start, -stop, word) for start, stop, _, word in found)
        if not spans:
            break
        parts, end = [], 0
        for start, negative, word in spans:
            stop = -negative
            if start >= end:
                parts += [text[end:start], word, "…"]
            end = max(end, stop)
        text = "".join([*parts, text[end:]])
    return text


def to_json(value: Any) -> str:
    """Return the value as one line of valid JSON without secrets."""
    plain = json.dumps(_without(value))
    shown = redact(plain).replace("…", "\\u2026")
    try:
        json.loads(shown)
    except ValueError:
        return plain  # redacting across texts broke the JSON; each text is redacted already
    return shown


def guard_tracebacks() -> None:
    """Redact all tracebacks of this process, in every thread."""
    sys.excepthook = _show
    threading.excepthook = lambda args: _show(args.exc_type, args.exc_value, args.exc_traceback)
    sys.unraisablehook = lambda args: _show(args.exc_type, args.exc_value, args.exc_traceback)


def _show(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    try:
        text = redact("".join(traceback.format_exception(kind, error, trace)))
    except Exception as second:  # if it were raised, Python would show the first one unredacted
        text = (
            f"{kind.__name__}; its message cannot be shown without secrets"
            f" ({type(second).__name__}).\n"
        )
    sys.stderr.write(text)
    sys.stderr.flush()


def _without(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(str(name)): _without(held) for name, held in value.items()}
    return [_without(held) for held in value] if isinstance(value, (list, tuple)) else value


def _used(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield start, end, kind and word of each credential in use."""
    for value in _in_use():
        start = text.find(value)
        while start >= 0:
            yield start, start + len(value), "a credential in use", "credential"
            start = text.find(value, start + len(value))


@lru_cache(maxsize=1024)  # a relay builds several bundles of almost the same files
def _shaped(text: str) -> tuple[tuple[int, int, str, str], ...]:
    return tuple(_matches(text))


def _allowed(text: str, span: tuple[int, int, str, str]) -> bool:
    """Return whether a line of what looks like a secret says that it is none."""
    start, stop, *_ = span
    return ALLOWED in text[text.rfind("\n", 0, start) + 1 : f"{text}\n".index("\n", stop)]


def _matches(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield start, end, kind and word of each text with the shape of a secret; they may overlap."""
    if len(text) < AT_LEAST:  # no shape is that short
        return
    low = text.lower()
    hinted = _HINTS.search(low) is not None  # most texts have none
    for shape in SHAPES:
        if not (hinted and any(hint in low for hint in shape.hints)):
            continue
        for match in shape.pattern.finditer(text):
            if match["secret"] and shape.holds(match["secret"]):
                yield *match.span("secret"), shape.kind, ""


def _in_use() -> set[str]:
    """Return every form of the values given to `know`, and of those in the environment now."""
    global _seen
    # Called for each line written; reading the environment by name takes 0.2 ms.
    now = (set(_known), dict(os.environ._data))  # type: ignore[attr-defined]
    if _seen is None or _seen[0] != now:
        _seen = now, _gathered(now[0], os.environ.copy())
    return _seen[1]


def _gathered(known: set[str], environment: dict[str, str]) -> set[str]:
    values = set(known)
    for name, value in environment.items():
        ours = _OURS.fullmatch(name)
        if not ours and not _OTHERS.fullmatch(name):
            continue
        if (ours or _OTHERS_LIKE.fullmatch(value)) and not _is_file(value):
            values |= _forms(value, environment.get("KAGGLE_USERNAME", "") if ours else "")
    return values


def _forms(value: str, user: str) -> set[str]:
    value = value.strip()
    if len(value) < AT_LEAST:
        return set()
    forms = {value, quote(value, safe=""), json.dumps(value)[1:-1]}
    for whole in (value, f"{user}:{value}" if user else value):
        forms.add(base64.b64encode(whole.encode("utf-8", "replace")).decode().rstrip("="))
    return forms


def _is_file(value: str) -> bool:
    # Path.exists raises for a long name, as a token may be.
    return os.path.exists(value)  # noqa: PTH110
