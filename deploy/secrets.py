"""Detect secrets in text (`find`) and redact them (`redact`).

Nothing that we send or write may contain a secret. A secret is recognized by its format, or by its
value if the value is in an environment variable or was passed to `know`. `redact` is applied to
every printed line. It covers Kaggle's secrets and some others that often end up in logs, and only
uses the standard library. `find` checks text that is about to be sent, and also uses
detect-secrets.
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

# Lines with this detect-secrets comment pass `find`, unless their secret is in use.
ALLOWED = "pragma: allowlist secret"

# detect-secrets plugins that mistake IDs, checksums, classes such as APEvaluator, IP addresses or
# placeholders for secrets.
UNUSED = (
    *("Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector"),
    *("ArtifactoryDetector", "BasicAuthDetector", "IPPublicDetector"),
)
# Matches all lines in which the other plugins can find a secret.
_LONG = re.compile(r"[A-Za-z][\w/+-]{15}|PRIVATE KEY")

# Kaggle's key, and other services' keys, which have at least three digits and do not start a path.
_HEX32 = r"(?<![\w/@+-])(?P<secret>[0-9a-f]{32})(?![\w/+-])"
_LONG_KEY = (
    r"(?P<secret>(?=(?:[A-Za-z/+_-]*[0-9]){3})(?:[A-Za-z0-9]{32,}|[A-Za-z0-9/+]{40}))"
    r"(?![\w/+(\[-]|\.\w)"
)
# Requires a digit, because "Bearer authentication-something" is prose.
_CODE = r"(?P<secret>(?=[A-Za-z%+/=_.~-]*[0-9])[A-Za-z0-9%+/=_.~-]{16,})"
# Start of a word. In JSON, a newline is written as \n, whose n does not belong to the word.
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
# Characters between a word and its secret in Python, JSON, YAML, shell scripts or headers.
_IS = r"""[\\"'`\])]{0,4}\s{0,4}(?:=>|[:=,])\s{0,4}b?[\\"'`]{0,4}"""

# Description and pattern of each kind of secret. `redact` only removes the group `secret`.
SHAPES = (
    ("a Kaggle token", r"KGAT_(?P<secret>[A-Za-z0-9_-]{8,})"),
    ("a Kaggle key", rf"(?i:kaggle[ _-]?(?:api[ _-]?)?(?:key|token))\b[\s\S]{{0,20}}?{_HEX32}"),
    # As in kaggle.json: a username next to a key in JSON, Python or YAML.
    ("a Kaggle key", rf"(?i:username)\W[\s\S]{{0,80}}?{_LEFT}(?i:key)\W{{1,8}}{_HEX32}"),
    ("a Kaggle key", rf"{_LEFT}(?i:key)\W{{1,8}}{_HEX32}[\s\S]{{1,20}}?(?i:username)"),
    (
        "an Authorization header",
        rf"(?:{_LEFT}(?:Basic|Bearer)\s+|(?i:authorization){_IS}(?:\w{{1,10}}\s{{1,4}})?){_CODE}",
    ),
    (
        "a URL with a password",
        r"""://[^\s/:@"'\\<>{}]{0,80}:(?P<secret>(?![<{$\[%*…]|(?i:your|my|the)?[_-]?"""
        r"""(?i:password|passwd|secret|token|api_?key|key|pass)@)[^\s/@"'\\<>{}…]{6,200})@""",
    ),
    (
        "a signed URL",
        r"(?i:X-(?:Goog|Amz)-(?:Signature|Security-Token)"
        r"|(?:[?&;]|%26|%3F|\\u0026)(?:signature|(?:access_|auth_|id_)?token|api_?key))"
        rf"(?:=|%3D){_CODE}",
    ),
    (
        "an API key",  # following one of these names
        r"(?i:api_?key|(?:auth|access|refresh)_?token|secret(?:_access_key)?|passw(?:or)?d"
        rf"|wandb\.login\(key){_IS}{_LONG_KEY}",
    ),
    # Keys of Hugging Face, GitHub, Google, OpenAI and Anthropic, which libraries may print.
    (
        "an API key",
        rf"{_LEFT}(?:hf_|gh[pousr]_|github_pat_|AIza|sk-)"
        r"(?P<secret>(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{30,})",
    ),
)
# Variables that contain secrets. For other services, the value must look like a secret, too.
_OURS = re.compile(r"KAGGLE_(?:\w+_)?(?:KEY|TOKEN)")
_OTHERS = re.compile(r"(?:\w+_)?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)")
_OTHERS_LIKE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])\S{12,}", re.DOTALL)

_known: set[str] = set()


def know(value: object, user: str = "") -> None:
    """Redact a value from now on, including its forms in headers, URLs and JSON.

    Values that are not text or have fewer than 8 characters are ignored. `user` is the owner of a
    key, which Basic authentication encodes together with the key.
    """
    if isinstance(value, str):
        _known.update(_forms(value, user))


def find(text: str) -> dict[int, str]:
    """Return {line: kind} for everything that looks like a secret, sorted by line.

    Lines that contain `ALLOWED` are skipped, unless they also contain a credential in use.

    >>> find("import os\\nKAGGLE_KEY=" + "0123456789abcdef" * 2)
    {2: 'a Kaggle key'}
    """
    found = dict(_by_form(text))
    for value in _in_use():
        for match in re.finditer(re.escape(value), text):
            found[text.count("\n", 0, match.start()) + 1] = "a credential in use"
    return dict(sorted(found.items()))


def redact(text: str) -> str:
    """Return the text with each secret replaced by an ellipsis. Prefixes such as KGAT_ are kept.

    >>> redact("export KAGGLE_API_TOKEN=KGAT_" + "0123456789abcdef")
    'export KAGGLE_API_TOKEN=KGAT_…'
    """
    shown = text
    for value in sorted(_in_use(), key=len, reverse=True):
        shown = shown.replace(value, "…")
    for _, pattern in SHAPES:
        shown = re.sub(pattern, _shortened, shown)
    # Redacting a secret may bring the next one closer to its keyword.
    return shown if shown == text else redact(shown)


def to_json(value: object) -> str:
    shown = redact(json.dumps(value)).replace("…", "\\u2026")
    try:
        json.loads(shown)
    except ValueError:  # a credential in use ends with a quote character
        return json.dumps(redact(str(value)))
    return shown


def guard_tracebacks() -> None:
    """Redact secrets in all tracebacks of this process, including those from other threads."""
    sys.excepthook = lambda kind, error, trace: _show(error)
    threading.excepthook = lambda args: _show(args.exc_value)
    sys.unraisablehook = lambda args: _show(args.exc_value)


def _show(error: BaseException | None) -> None:
    try:
        text = redact("".join(traceback.format_exception(error)))
    except Exception:  # otherwise Python would print the original error unredacted
        text = f"{type(error).__name__} (message hidden because redacting its secrets failed).\n"
    print(text, end="", file=sys.stderr, flush=True)


def _shortened(match: re.Match[str]) -> str:
    start, stop = match.start("secret") - match.start(), match.end("secret") - match.start()
    return f"{match[0][:start]}…{match[0][stop:]}"


@lru_cache(maxsize=4096)  # a relay builds several bundles from almost the same files
def _by_form(text: str) -> Mapping[int, str]:
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
    values = set(_known)
    for name in filter(_OTHERS.fullmatch, os.environ):
        value, ours = os.environ[name], _OURS.fullmatch(name)
        # A token can be a file's path. Path.exists raises for long names, such as a token.
        if (ours or _OTHERS_LIKE.fullmatch(value)) and not os.path.exists(value):  # noqa: PTH110
            values |= _forms(value, os.environ.get("KAGGLE_USERNAME", "") if ours else "")
    return values


@lru_cache(maxsize=256)
def _forms(value: str, user: str) -> frozenset[str]:
    value = value.strip()
    if len(value) < 8:  # redacting short values would garble text
        return frozenset()
    header = base64.b64encode(f"{user}:{value}".encode("utf-8", "replace")).decode().rstrip("=")
    return frozenset([value, quote(value, safe=""), json.dumps(value)[1:-1], header])
