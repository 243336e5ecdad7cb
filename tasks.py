"""This project's tasks. To see a task's description and options, run: invoke TASK --help

To try it without an account, run: invoke start

With --json, the last line of stdout is a JSON object, even after an error. The exit codes are
listed in docs/dev/design.md. You can also pass the config without a flag: invoke push-train leaves
"""

from invoke.collection import Collection

from commands import doctor, kaggle, local, rehearsal, runs, start
from commands.console import read_words

namespace = Collection()
for module in (doctor, kaggle, local, rehearsal, runs, start):
    for task in Collection.from_module(module).tasks.values():
        namespace.add_task(task)
read_words(namespace)
