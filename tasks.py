"""The commands. Each parses, calls and prints; the work is in deploy/, pipeline/ and localkaggle/.

First run, without an account:  invoke dry-run
Exit codes: docs/dev/design.md. With --json the last line of stdout is one JSON object, even after
an error.
"""

import sys

from commands.benchmark import bench, bench_report, push_bench
from commands.console import refuse_unknown
from commands.doctor import doctor
from commands.kaggle import (
    build,
    publish,
    pull,
    push_infer,
    push_train,
    relay_chain,
    submit,
)
from commands.local import check, inspect, plan, report, scale_check
from commands.preparation import push_prepare
from commands.rehearsal import dry_run, serve
from commands.setup import init_project
from commands.watch import status, watch

__all__ = [
    "bench",
    "bench_report",
    "build",
    "check",
    "doctor",
    "dry_run",
    "init_project",
    "inspect",
    "plan",
    "publish",
    "pull",
    "push_bench",
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

refuse_unknown(sys.modules[__name__])
