"""The tasks of this project. To see what one does and takes: invoke TASK --help

First run, without an account:  invoke start
With --json the last line of stdout is a JSON object, even after an error; exit codes are in
docs/dev/design.md. A word after a task may be its config: invoke push-train leaves
"""

from invoke.collection import Collection

from commands import doctor, kaggle, local, rehearsal, runs, start
from commands.console import read_words

namespace = Collection()
for module in (doctor, kaggle, local, rehearsal, runs, start):
    for task in Collection.from_module(module).tasks.values():
        namespace.add_task(task)
read_words(namespace)
