"""The commands. Each parses, calls and prints; the work is in deploy/, pipeline/ and localkaggle/.

First run, without an account:  invoke dry-run
Exit codes: docs/dev/design.md. With --json the last line of stdout is one JSON object, even after
an error. The word behind a task may be its config: invoke push-train leaves
"""

import sys

from commands.console import read_words
from commands.doctor import doctor, init_project
from commands.kaggle import (
    build,
    publish,
    pull,
    push_infer,
    push_prepare,
    push_train,
    relay_chain,
    status,
    submit,
    watch,
)
from commands.local import inspect, plan, report, scale_check
from commands.rehearsal import dry_run, serve

__all__ = [
    "build",
    "doctor",
    "dry_run",
    "init_project",
    "inspect",
    "plan",
    "publish",
    "pull",
    "push_infer",
    "push_prepare",
    "push_train",
    "relay_chain",
    "report",
    "scale_check",
    "serve",
    "status",
    "submit",
    "watch",
]

read_words(sys.modules[__name__])
