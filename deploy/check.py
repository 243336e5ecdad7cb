"""One row of what `doctor` finds, and the exit code of all rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deploy.credential_lookup import Problem

PASS, WARN, FAIL, SKIP = "PASS", "WARN", "FAIL", "SKIP"


@dataclass(frozen=True)
class Check:
    """One row.

    Attributes:
        verdict: PASS, WARN, FAIL, or SKIP if it could not be checked.
        found: what there is.
        fix: the edit; "" if none is needed.
        exit_code: of a FAIL, as in docs/dev/design.md; 0 for all others.
    """

    name: str
    verdict: str
    found: str
    fix: str = ""
    exit_code: int = 0

    def __str__(self) -> str:
        fix = "".join(f"\n{'':19}{line}" for line in self.fix.splitlines())
        return f"{self.verdict}  {self.name:13}{self.found}{fix}"

    def to_json(self) -> dict[str, Any]:
        """Return it as what `json.dumps` takes."""
        return asdict(self)


def passed(found: str) -> Check:
    """Return a PASS; the examination gives a row its name."""
    return Check("", PASS, found)


def warned(found: str, fix: str) -> Check:
    """Return a WARN."""
    return Check("", WARN, found, fix)


def failed(found: str, fix: str, exit_code: int) -> Check:
    """Return a FAIL."""
    return Check("", FAIL, found, fix, exit_code)


def skipped(why: str) -> Check:
    """Return a SKIP."""
    return Check("", SKIP, why)


def warned_of(found: str, problems: Sequence[Problem]) -> Check:
    """Return a PASS, or a WARN that names every problem."""
    if not problems:
        return passed(found)
    listed = "; ".join(what for what, _ in problems)
    return warned(f"{found}; {listed}", "\n".join(dict.fromkeys(fix for _, fix in problems)))


def exit_code(rows: Sequence[Check]) -> int:
    """Return the exit code of all rows.

    It is 0 without a FAIL; else 3 for credentials or permission, 6 for no answer, 2 for the rest.

    >>> exit_code([Check("disk", FAIL, "full", "", 8), Check("rules", FAIL, "not accepted", "", 3)])
    3
    """
    codes = {row.exit_code for row in rows if row.verdict == FAIL}
    return next((code for code in (3, 6) if code in codes), 2 if codes else 0)
