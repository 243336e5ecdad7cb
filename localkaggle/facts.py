"""Facts: how Kaggle behaves where that is not known for sure, or where it is not always the same.

The defaults are what a first use meets if all goes well. Each other value was reported of the site
(docs/facts.md).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from localkaggle.sessions.session import Session

SESSION_SECONDS = {"TPU": 9 * 3600.0, "GPU": 12 * 3600.0, "CPU": 12 * 3600.0}
# What a file of facts may have beside `Facts`: fields of `Options`.
OPTIONS = ("layout", "own_output", "verified", "queue_seconds", "ready_seconds")


@dataclass(frozen=True)
class Facts:
    """How this Kaggle behaves.

    Attributes:
        refused_push: what a push leaves that is refused for its quota: "nothing"; "shell", of a
            first push: a kernel without a version, of which calls fail until it is deleted;
            "source": a version that holds the source and never runs.
        new_script_seconds: how long a version that was just pushed says NEW_SCRIPT.
        leading_digit: whether the address of a new kernel may begin with a digit.
        other_slug: what is put behind the address of a new kernel; "": nothing.
        prefixes: whether GetKernel names sources as `datasets/owner/slug`, `code/owner/slug` and
            `competitions/slug`.
        listing_seconds: how long the output of a run that has just ended is listed as empty.
        versions_seconds: how long calls do not know of a version that was just pushed.
        reserves: whether a push asks for as much of the quota as its timeout says.
        lower_timeouts: whether a push is refused whose timeout is not lower than a session's cap;
            otherwise the lower of both counts.
        pays: whether the account pays for what it uses beyond the quota of a week.
        killed_output: whether an output is kept of a session that was killed.
        late_sources: whether the first session after a source was attached finds nothing mounted.
        internet: whether a session that asks for the internet gets it.
        missing: how a call is answered about a kernel or a dataset of one's own that does not
            exist: "404" or "403". One of somebody else's is always 403.
        gate: "rules" if GetCompetition says that the account has not accepted them; "licence" if no
            model's licence is accepted, so that none is shown or mounted; "": all are.
    """

    refused_push: str = "nothing"
    new_script_seconds: float = 0.0
    leading_digit: bool = True
    other_slug: str = ""
    prefixes: bool = False
    listing_seconds: float = 0.0
    versions_seconds: float = 0.0
    reserves: bool = False
    lower_timeouts: bool = False
    pays: bool = False
    killed_output: bool = True
    late_sources: bool = False
    internet: bool = True
    missing: str = "404"
    gate: str = ""


@dataclass(frozen=True)
class Options:
    """What a `LocalKaggle` takes beside its folder, its port and what it holds.

    Attributes:
        offline: give no session the internet, not even one that asks for it.
        layout: of /kaggle/input: "2026" (`competitions/<slug>`, `datasets/<owner>/<slug>` …),
            "flat" (`<slug>`), or "both" at once.
        verified: whether the account is verified; otherwise a TPU push silently gets a CPU.
        session_seconds: after how long a session is killed, by "TPU", "GPU", "CPU".
        own_output: whether a notebook may list its own output as a source; a version then sees
            the output of the newest complete version before it.
        memory_bytes: limit of a session's memory.
        queue_seconds: how long a push queues.
        ready_seconds: how long a dataset version is processed.
        python: interpreters by machine ("TPU", "GPU", "CPU"), to rehearse with other versions than
            this one's.
        variables: environment variables for all sessions.
        private: folders that no session sees, as one that holds hidden labels.
        session: makes a session; another class than `Session` where no notebook has to run.
        facts: how it behaves where Kaggle's own behaviour is not known, or changes.
    """

    offline: bool = False
    layout: str = "2026"
    verified: bool = True
    session_seconds: dict[str, float] = field(default_factory=SESSION_SECONDS.copy)
    own_output: bool = True
    memory_bytes: int = 30 * 10**9
    queue_seconds: float = 0.3
    ready_seconds: float = 1.0
    python: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    private: Sequence[Path] = ()
    session: Callable[..., Session] = Session
    facts: Facts = field(default_factory=Facts)


def read(path: Path) -> dict[str, Any]:
    """Return what a file of `invoke doctor --live` says, as arguments of `LocalKaggle`.

    Args:
        path: of a JSON object whose "facts" are {name: value}, with names of `Facts` and
            `OPTIONS`.

    Raises:
        ValueError: if it is none; says what was found and what was expected.
    """
    try:
        given = dict(json.loads(path.read_text(encoding="utf-8"))["facts"])
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        said = 'is not what `invoke doctor --live` writes: expected an object with "facts"'
        raise ValueError(f"{path} {said}") from error
    options = {name: given.pop(name) for name in OPTIONS if name in given}
    known = [item.name for item in fields(Facts)]
    if unknown := sorted(given.keys() - {*known}):
        expected = f"expected some of: {', '.join((*known, *OPTIONS))}"
        raise ValueError(f"{path} has the unknown fact {unknown[0]!r}; {expected}")
    return {**options, "facts": Facts(**given)}
