"""Settings for those parts of Kaggle's behavior that are uncertain or vary.

The defaults describe what a new user sees if nothing goes wrong. All other values reproduce
behavior that users have reported (see docs/facts.md).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from localkaggle.sessions.session import Session

SESSION_SECONDS = {"TPU": 9 * 3600.0, "GPU": 12 * 3600.0, "CPU": 12 * 3600.0}
# Fields of `Options` that a facts file can set in addition to the fields of `Facts`.
OPTIONS = ("layout", "own_output", "verified", "queue_seconds", "ready_seconds")


@dataclass(frozen=True)
class Facts:
    """The behavior of the local Kaggle.

    Attributes:
        refused_push: what a push creates if it is refused because the quota is used up. With
            "nothing", it creates nothing. With "shell", the first push of a kernel creates a kernel
            without versions, which causes errors until it is deleted. With "source", a version that
            contains the source is created, but it is never run.
        new_script_seconds: how long the status of a new version is NEW_SCRIPT.
        leading_digit: whether the slug of a new kernel can start with a digit.
        other_slug: suffix that Kaggle adds to the slug of a new kernel.
        prefixes: whether GetKernel returns sources as `datasets/owner/slug`, `code/owner/slug` and
            `competitions/slug`.
        listing_seconds: how long the output of a finished run is listed as empty.
        versions_seconds: how long a new version is missing from responses.
        reserves: whether a push reserves quota for its whole timeout.
        lower_timeouts: whether a push is refused if its timeout is not below the session limit.
            Otherwise, a timeout above the limit is reduced to the limit.
        pays: whether the account pays for usage beyond the weekly quota.
        killed_output: whether the output of a killed session is kept.
        late_sources: whether the first session after a source is attached mounts no sources.
        internet: whether sessions get internet access if they request it.
        missing: the HTTP status code, "404" or "403", of the response if one of the user's own
            kernels or datasets does not exist. For kernels and datasets of other users, the code is
            always 403.
        gate: the terms that the account has not accepted: "rules" for competition rules, "licence"
            for model licences, or "" if it has accepted all terms. Models whose licence has not
            been accepted are neither listed nor mounted.
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
    """The settings of a `LocalKaggle`, except for its folder, its port and its contents.

    Attributes:
        offline: whether to deny internet access to sessions that request it.
        layout: layout of /kaggle/input. "2026" uses paths such as `competitions/<slug>` and
            `datasets/<owner>/<slug>`, "flat" uses `<slug>`, and "both" uses both.
        verified: whether the account is verified. Otherwise, a TPU push silently runs on a CPU.
        session_seconds: time limits for sessions, as {"TPU", "GPU" or "CPU": seconds}.
        own_output: whether a notebook can mount the output of its own newest complete version.
        memory_bytes: memory limit of a session.
        queue_seconds: how long a push waits in the queue.
        ready_seconds: how long it takes to process a new dataset version.
        python: Python interpreters for rehearsals with different package versions, as {"TPU", "GPU"
            or "CPU": path}.
        variables: environment variables for all sessions.
        private: folders that are hidden from sessions, such as one with hidden labels.
        session: the class of sessions, which tests replace if they do not need to run a notebook.
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
    """Read a facts file, and return its contents as keyword arguments for `LocalKaggle`.

    The "facts" object in the JSON file maps names from `Facts` and `OPTIONS` to values.

    Raises:
        ValueError: if the file was not written by `invoke doctor --live`.
    """
    try:
        given = dict(json.loads(path.read_text(encoding="utf-8"))["facts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"{path} is not a file written by `invoke doctor --live`: {error}"
        raise ValueError(text) from error
    options = {name: given.pop(name) for name in OPTIONS if name in given}
    known = [item.name for item in fields(Facts)]
    if unknown := sorted(given.keys() - {*known}):
        expected = f"expected only {', '.join((*known, *OPTIONS))}"
        raise ValueError(f"Unknown fact {unknown[0]!r} in {path}: {expected}")
    return {**options, "facts": Facts(**given)}
