"""Every answer of Kaggle during a smoke test, in one file, without names, addresses and secrets.

An answer that repeats the one before, to the same question, is written once, with how often and
until when it came. The file is complete after each answer: a test that was killed goes on with it.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deploy import secrets
from deploy.errors import UsageError
from deploy.file_transfer import Heard
from formats.errors import writing

Record = Mapping[str, Any]

OWNER = "owner"  # stands for the name of the account
PAGE_AT_MOST = 2000  # characters of an answer that is not JSON
# Fields that name a person, and fields that hold what opens something.
PERSONAL = re.compile(
    r"(author|creator|owner|host|organization)(Name|Url|Id|ImageUrl)?|teamName|submittedBy"
    r"|userId|thumbnailImageUrl|(\w*[tT]oken)s?|createUrl|key"
)
KEPT = ("ownerSlug", "ownerRef", "nextPageToken", "pageToken")
# The notebook's text, which is in this project: its sha256 shows whether it came back unchanged.
TEXTS = ("text", "source")
ADDRESS = re.compile(r"https?://(?!www\.kaggle\.com/)([^\s\"'\\<>/?#]*)[^\s\"'\\<>]*")
MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
# A log is JSON within JSON: the n of its \n is no letter of the word behind it.
LEFT = r"(?:(?<![A-Za-z0-9.])|(?<=\\[nrt]))"
# A version of four numbers begins with a smaller one.
NUMBERS = re.compile(rf"{LEFT}(?:[1-9]\d|\d{{3}})(?:\.\d{{1,3}}){{3}}(?![\w.])")


class RawAnswers:
    """The answers of one smoke test.

    Args:
        path: of the file; one that is there is continued.
        began: when the test began, in seconds of `time.time`; answers count from it.
        user: the name of the account, which the file shows as `OWNER`.
        suffix: of all names that the test gives; submissions without it are not kept.

    Attributes:
        step: that the next answers belong to.
        records: {"step", "call", "asked", "code", "answer", "at", "until", "times"} of each answer.
    """

    def __init__(self, path: Path, began: float, user: str, suffix: str) -> None:
        self.path, self.step = path, ""
        self._began, self._suffix = began, suffix
        self._user = re.compile(rf"{LEFT}{re.escape(user)}(?![A-Za-z0-9])", re.IGNORECASE)
        self._about: dict[str, Any] = {}
        self.records: list[dict[str, Any]] = []
        if path.is_file():
            self._about = read(path)
            self.records = self._about.pop("answers")

    def hear(self, heard: Heard) -> None:
        """Record an answer."""
        if "/v1/" not in heard.path:
            call = {"GET": "download", "PUT": "upload"}.get(heard.method, "other")
            return self._add(call, None, heard.code, None)
        call = heard.path.rpartition("/")[2]
        # What asks about a token holds it.
        asked = None if "Token" in call else _parsed(heard.asked)
        said = _parsed(heard.said)
        if call == "ListSubmissions" and heard.code == 200:
            said = self._ours(said)
        return self._add(call, asked, heard.code, said)

    def note(self, call: str, asked: Any = None, **answer: Any) -> None:
        """Record what the test itself found out, as an answer to `asked`."""
        self._add(call, asked, 0, answer)

    def save(self, **about: Any) -> None:
        """Write the file with these values before the answers."""
        self._about |= about
        lines = ",\n".join(json.dumps(record) for record in self.records)
        head = secrets.to_json(self._clean(self._about)).removesuffix("}")
        comma = ", " if self._about else ""
        text = f'{head}{comma}"answers": [\n{lines}\n]}}\n'
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_suffix(".part")
            part.write_text(text, encoding="utf-8")
            part.replace(self.path)

    def _ours(self, said: Any) -> dict[str, Any]:
        """Return a list of the account's submissions with those of this test alone."""
        rows = said.get("submissions") if isinstance(said, Mapping) else None
        ours = [
            row
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, Mapping) and self._suffix in str(row.get("description"))
        ]
        return {"submissions": ours}

    def _add(self, call: str, asked: Any, code: int, answer: Any) -> None:
        now = round(time.time() - self._began, 2)
        new = {"step": self.step, "call": call, "asked": asked, "code": code, "answer": answer}
        # As one text, too: what stands before a value may show that it is a secret.
        new = json.loads(secrets.to_json(self._clean(new)))
        if isinstance(new["answer"], str):
            new["answer"] = new["answer"][:PAGE_AT_MOST]  # a part of a key is not recognized
        before = [old for old in self.records if _question(old) == _question(new)]
        if before and all(before[-1][name] == value for name, value in new.items()):
            before[-1].update(until=now, times=before[-1]["times"] + 1)
            return  # written with the next new answer
        self.records.append({**new, "at": now, "until": now, "times": 1})
        self.save()

    def _clean(self, value: Any, name: str = "") -> Any:
        """Return a value of the field `name` without names and addresses; secrets stay in it."""
        if isinstance(value, Mapping):
            return {key: self._clean(held, key) for key, held in value.items()}
        if PERSONAL.fullmatch(name) and name not in KEPT:
            return 0 if isinstance(value, int) else "…" if value else value
        if isinstance(value, (list, tuple)):
            return [self._clean(held, name) for held in value]
        if not isinstance(value, str):
            return value
        if name in TEXTS and len(value) > PAGE_AT_MOST:
            digest = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()
            return f"{len(value)} characters, sha256 {digest}"
        text = ADDRESS.sub(lambda found: f"https://{found[1].rpartition('@')[2]}/…", value)
        return self._user.sub(OWNER, NUMBERS.sub("…", MAIL.sub("…@…", text)))


def read(path: Path) -> dict[str, Any]:
    """Return what such a file holds, with its `answers`.

    Raises:
        UsageError: if it is not such a file.
    """
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(held["answers"], list):
            return dict(held)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UsageError(
        f"{path} cannot be read; expected the answers of a smoke test.\n"
        "Move it away, and give the same command again."
    )


def calls(records: Iterable[Record], *names: str) -> list[Record]:
    """Return the records of these calls, in order."""
    return [record for record in records if record["call"] in names]


def _question(record: Record) -> tuple[Any, ...]:
    return record["step"], record["call"], record["asked"]


def _parsed(text: str | None) -> Any:
    """Return the JSON of a text, or the text if it is none."""
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return text
