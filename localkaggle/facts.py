"""Facts: how Kaggle behaves where that is not known for sure, or not always the same.

The defaults are what a first user meets if all goes well. Each other value was reported by somebody
(docs/facts.md).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from localkaggle.sessions.session import Session

SESSION_SECONDS = {"TPU": 9 * 3600.0, "GPU": 12 * 3600.0, "CPU": 12 * 3600.0}
# The fields of `Options` that a file of facts may set beside those of `Facts`.
OPTIONS = ("layout", "own_output", "verified", "queue_seconds", "ready_seconds")


@dataclass(frozen=True)
class Facts:
    """How this Kaggle behaves.

    Attributes:
        refused_push: what remains of a push that is refused for its quota: "nothing"; "shell", of
            a first push: a kernel without versions, whose calls fail until it is deleted; "source":
            a version that has the source and never runs.
        new_script_seconds: how long the status of a new version is NEW_SCRIPT.
        leading_digit: whether the slug of a new kernel may start with a digit.
        other_slug: what Kaggle appends to the slug of a new kernel; "": nothing.
        prefixes: whether GetKernel names sources as `datasets/owner/slug`, `code/owner/slug` and
            `competitions/slug`.
        listing_seconds: how long the output of an ended run is listed as empty.
        versions_seconds: how long calls do not know of a new version.
        reserves: whether a push reserves quota for its whole timeout.
        lower_timeouts: whether a push is refused unless its timeout is below the session's cap;
            otherwise the cap replaces a higher timeout.
        pays: whether the account pays for use beyond the weekly quota.
        killed_output: whether the output of a killed session is kept.
        late_sources: whether the first session after a source was attached mounts nothing.
        internet: whether a session that asks for the internet gets it.
        missing: the status for the user's own kernel or dataset that does not exist: "404" or
            "403". For another user's it is always 403.
        gate: what the account has not accepted: "rules" of the competition; "licence" of the
            models, which are then neither listed nor mounted; "": nothing.
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
    """The settings of a `LocalKaggle` beside its folder, its port and its contents.

    Attributes:
        offline: give no session the internet, even if it asks for it.
        layout: the layout of /kaggle/input: "2026" (`competitions/<slug>`,
            `datasets/<owner>/<slug>` …), "flat" (`<slug>`), or "both".
        verified: whether the account is verified; if not, a TPU push silently gets a CPU.
        session_seconds: {"TPU", "GPU" or "CPU": seconds} after which a session is killed.
        own_output: whether a notebook may mount its own output, which is that of its newest
            complete version.
        memory_bytes: the memory limit of a session.
        queue_seconds: how long a push waits in the queue.
        ready_seconds: how long Kaggle processes a dataset version.
        python: {"TPU", "GPU" or "CPU": interpreter}, to rehearse with different versions.
        variables: environment variables for all sessions.
        private: folders that no session sees, such as one with hidden labels.
        session: the class of a session; a test replaces it where no notebook has to run.
        facts: how it behaves where Kaggle's behaviour is not known, or changes.
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
    """Return the contents of a file of `invoke doctor --live` as arguments of `LocalKaggle`.

    Args:
        path: a JSON file whose "facts" are {name: value}, with the names of `Facts` and `OPTIONS`.

    Raises:
        ValueError: if the file is not one.
    """
    try:
        given = dict(json.loads(path.read_text(encoding="utf-8"))["facts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"{path} is not a file of `invoke doctor --live` ({error}); expected one of those"
        raise ValueError(text) from error
    options = {name: given.pop(name) for name in OPTIONS if name in given}
    known = [item.name for item in fields(Facts)]
    if unknown := sorted(given.keys() - {*known}):
        expected = f"expected some of: {', '.join((*known, *OPTIONS))}"
        raise ValueError(f"{path} has the unknown fact {unknown[0]!r}; {expected}")
    return {**options, "facts": Facts(**given)}
