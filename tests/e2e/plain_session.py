"""A session that runs a notebook's code in one Python process, fast and without isolation.

It replaces `localkaggle.sessions.session.Session`.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localkaggle.sessions.machine_shapes import Machine
from localkaggle.sessions.session import Outcome
from localkaggle.sessions.session_log import Log


class Plain:
    """One session, whose inputs are links."""

    def __init__(
        self,
        folder: Path,
        notebook: str,
        *,
        inputs: Mapping[str, Path],
        machine: Machine,
        log: Log,
        **rest: Any,
    ) -> None:
        self.working, self._root = folder / "working", folder / "kaggle"
        self._seconds, self._log = machine.seconds, log
        self._process: subprocess.Popen[str] | None = None
        self.working.mkdir(parents=True)
        (self._root / "input").mkdir(parents=True)
        for place, path in inputs.items():
            link = self._root / "input" / place
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
        cells = json.loads(notebook)["cells"]
        code = [plain_python(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        (folder / "notebook.py").write_text("\n".join(code))

    def run(self) -> Outcome:
        """Run the code to its end or its timeout."""
        self._log.start()
        began, reason = time.monotonic(), ""
        self._process = subprocess.Popen(
            [sys.executable, "../notebook.py"],
            cwd=self.working,
            env={**os.environ, "LOCALKAGGLE_ROOT": str(self._root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = self._process.communicate(timeout=self._seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            said, _ = self._process.communicate()
            reason = "time"
        for text in said.splitlines(keepends=True):
            self._log.add("stdout", text)
        reason = reason or ("exception" if self._process.returncode else "")
        return Outcome(reason, reason, time.monotonic() - began)

    def cancel(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()


def plain_python(source: str) -> str:
    """Return a cell as plain Python: %%writefile is IPython's."""
    head, _, text = source.partition("\n")
    if not head.startswith("%%writefile "):
        return source
    name = head.removeprefix("%%writefile ")
    return f"open({name!r}, 'w', encoding='utf-8').write({text!r} + '\\n')"
