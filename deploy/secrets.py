"""Finds secrets in a text (`find`), or redacts them (`redact`).

No secret may be in anything that we send or write. A secret is recognized because it is in use, in
an environment variable or passed to `know`, or by its form. `redact`, which handles each printed
line, knows the forms of Kaggle's secrets and of a few others that get into logs, and imports only
the standard library. `find`, for what is about to be sent, also uses the library detect-secrets.
"""

import base64
import json
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from functools import lru_cache
from urllib.parse import quote

# A line with this comment of detect-secrets passes `find`, unless its secret is in use.
ALLOWED = "pragma: allowlist secret"

# Plugins of detect-secrets that mistake an id, a checksum, a class such as APEvaluator, an IP
# address or a placeholder for a secret.
UNUSED = (
    *("Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector"),
    *("ArtifactoryDetector", "BasicAuthDetector", "IPPublicDetector"),
)
_LONG = re.compile(r"[A-Za-z][\w/+-]{15}|PRIVATE KEY")  # in each line where the others find one

# Kaggle's key, and a key of other services: with three digits, and not the start of a path.
_HEX32 = r"(?<![\w/@+-])(?P<secret>[0-9a-f]{32})(?![\w/+-])"
_LONG_KEY = (
    r"(?P<secret>(?=(?:[A-Za-z/+_-]*[0-9]){3})(?:[A-Za-z0-9]{32,}|[A-Za-z0-9/+]{40}))"
    r"(?![\w/+(\[-]|\.\w)"
)
# At least one digit: "Bearer authentication-something" is prose.
_CODE = r"(?P<secret>(?=[A-Za-z%+/=_.~-]*[0-9])[A-Za-z0-9%+/=_.~-]{16,})"
# A word's start. JSON writes a newline as \n, whose n is not a letter of the word.
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
# The characters between a word and its secret in Python, JSON, YAML, a shell or a header.
_IS = r"""[\\"'`\])]{0,4}\s{0,4}(?:=>|[:=,])\s{0,4}b?[\\"'`]{0,4}"""

# Each kind in words, and its pattern. `redact` removes the group `secret`; the rest shows the kind.
SHAPES = (
    ("a Kaggle token", r"KGAT_(?P<secret>[A-Za-z0-9_-]{8,})"),
    ("a Kaggle key", rf"(?i:kaggle[ _-]?(?:api[ _-]?)?(?:key|token))\b[\s\S]{{0,20}}?{_HEX32}"),
    # As in kaggle.json: username and key near each other, in JSON, Python or YAML.
    ("a Kaggle key", rf"(?i:username)\W[\s\S]{{0,80}}?{_LEFT}(?i:key)\W{{1,8}}{_HEX32}"),
    ("a Kaggle key", rf"{_LEFT}(?i:key)\W{{1,8}}{_HEX32}[\s\S]{{1,20}}?(?i:username)"),
    (
        "an Authorization header",
        rf"(?:{_LEFT}(?:Basic|Bearer)\s+|(?i:authorization){_IS}(?:\w{{1,10}}\s{{1,4}})?){_CODE}",
    ),
    (
        "an address with a password",
        r"""://[^\s/:@"'\\<>{}]{0,80}:(?P<secret>(?![<{$\[%*…]|(?i:your|my|the)?[_-]?"""
        r"""(?i:password|passwd|secret|token|api_?key|key|pass)@)[^\s/@"'\\<>{}…]{6,200})@""",
    ),
    (
        "a signed address",
        r"(?i:X-(?:Goog|Amz)-(?:Signature|Security-Token)"
        r"|(?:[?&;]|%26|%3F|\\u0026)(?:signature|(?:access_|auth_|id_)?token|api_?key))"
        rf"(?:=|%3D){_CODE}",
    ),
    (
        "an API key",  # after such a name
        r"(?i:api_?key|(?:auth|access|refresh)_?token|secret(?:_access_key)?|passw(?:or)?d"
        rf"|wandb\.login\(key){_IS}{_LONG_KEY}",
    ),
    # Those of Hugging Face, GitHub, Google, OpenAI and Anthropic, which libraries print.
    (
        "an API key",
        rf"{_LEFT}(?:hf_|gh[pousr]_|github_pat_|AIza|sk-)"
        r"(?P<secret>(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{30,})",
    ),
)
# Names of variables with secrets; for other services only if the value looks like one.
_OURS = re.compile(r"KAGGLE_(?:\w+_)?(?:KEY|TOKEN)")
_OTHERS = re.compile(r"(?:\w+_)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)")
_OTHERS_LIKE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{12,}", re.DOTALL)

_known: set[str] = set()


def know(value: object, user: str = "") -> None:
    """Redact this value from now on, whatever its form, in headers and addresses too.

    Args:
        value: of a credential; ignored if it is not a text, or shorter than 8 characters.
        user: the owner of the key, since Basic authorization encodes both together.
    """
    if isinstance(value, str):
        _known.update(_forms(value, user))


def find(text: str) -> dict[int, str]:
    """Return {line: kind} of what seems to be a secret, in order, without the secrets.

    A line with `ALLOWED` passes, except for credentials in use.

    >>> find("import os\\nKAGGLE_KEY=" + "0123456789abcdef" * 2)
    {2: 'a Kaggle key'}
    """
    found = dict(_by_form(text))
    for value in _in_use():
        for match in re.finditer(re.escape(value), text):
            found[text.count("\n", 0, match.start()) + 1] = "a credential in use"
    return dict(sorted(found.items()))


def redact(text: str) -> str:
    """Return the text with an ellipsis in place of each secret; what shows its kind is kept.

    >>> redact("export KAGGLE_API_TOKEN=KGAT_" + "0123456789abcdef")
    'export KAGGLE_API_TOKEN=KGAT_…'
    """
    shown = text
    for value in sorted(_in_use(), key=len, reverse=True):
        shown = shown.replace(value, "…")
    for _, pattern in SHAPES:
        shown = re.sub(pattern, _shortened, shown)
    # Redacting one secret may move the next one close to its word.
    return shown if shown == text else redact(shown)


def to_json(value: object) -> str:
    """Return the value as one line of valid JSON without secrets."""
    shown = redact(json.dumps(value)).replace("…", "\\u2026")
    try:
        json.loads(shown)
    except ValueError:  # a credential in use ends with a quote
        return json.dumps(redact(str(value)))
    return shown


def guard_tracebacks() -> None:
    """Redact all tracebacks of this process, in every thread."""
    sys.excepthook = lambda kind, error, trace: _show(error)
    threading.excepthook = lambda args: _show(args.exc_value)
    sys.unraisablehook = lambda args: _show(args.exc_value)


def _show(error: BaseException | None) -> None:
    try:
        text = redact("".join(traceback.format_exception(error)))
    except Exception:  # otherwise Python would show the first error unredacted
        text = f"{type(error).__name__}, whose message cannot be shown without secrets.\n"
    print(text, end="", file=sys.stderr, flush=True)


def _shortened(match: re.Match[str]) -> str:
    start, stop = match.start("secret") - match.start(), match.end("secret") - match.start()
    return f"{match[0][:start]}…{match[0][stop:]}"


@lru_cache(maxsize=4096)  # a relay builds several bundles of almost the same files
def _by_form(text: str) -> Mapping[int, str]:
    """Return {line: kind} of what looks like a secret, except on lines with `ALLOWED`."""
    found: dict[int, str] = {}
    for kind, pattern in SHAPES:
        for match in re.finditer(pattern, text):
            found.setdefault(text.count("\n", 0, match.start("secret")) + 1, kind)
    lines = dict(enumerate(text.split("\n"), start=1))
    rest = {line: words for line, words in lines.items() if _LONG.search(words)}
    found = {**dict(_by_library(rest) if rest else ()), **found}
    return {line: kind for line, kind in found.items() if ALLOWED not in lines[line]}


def _by_library(lines: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    with default_settings() as settings:
        settings.disable_plugins(*UNUSED)
        for line, words in lines.items():
            for secret in scan_line(words):
                yield line, f"a secret ({secret.type})"


def _in_use() -> set[str]:
    """Return every form of the values passed to `know`, and of those in the environment now."""
    values = set(_known)
    for name in filter(_OTHERS.fullmatch, os.environ):
        value, ours = os.environ[name], _OURS.fullmatch(name)
        # A token may be the path of a file. Path.exists raises for a long name, as a token may be.
        if (ours or _OTHERS_LIKE.fullmatch(value)) and not os.path.exists(value):  # noqa: PTH110
            values |= _forms(value, os.environ.get("KAGGLE_USERNAME", "") if ours else "")
    return values


@lru_cache(maxsize=256)
def _forms(value: str, user: str) -> frozenset[str]:
    """Return a value as it is, in an address, in JSON, and in a header after its user."""
    value = value.strip()
    if len(value) < 8:  # redacting it would destroy texts
        return frozenset()
    header = base64.b64encode(f"{user}:{value}".encode("utf-8", "replace")).decode().rstrip("=")
    return frozenset([value, quote(value, safe=""), json.dumps(value)[1:-1], header])
