"""The commands. Each parses, calls and prints; the work is in deploy/, pipeline/ and localkaggle/.

First run, without an account:  invoke start
Exit codes: docs/dev/design.md. With --json the last line of stdout is one JSON object, even after
an error. The word behind a task may be its config: invoke push-train leaves
"""

from invoke.collection import Collection

from commands import doctor, kaggle, local, rehearsal, runs, start
from commands.console import read_words

namespace = Collection()
for module in (doctor, kaggle, local, rehearsal, runs, start):
    for task in Collection.from_module(module).tasks.values():
        namespace.add_task(task)
read_words(namespace)
