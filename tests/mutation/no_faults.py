"""Turns each fault of the local Kaggle into a no-op, in a copy, and sees its tests fail.

    python -m tests.mutation.no_faults

A fault is still noted as one that struck, and the answer is the true one. A test that passes sees
no effect of a fault.
"""

import re
import tempfile
from pathlib import Path

from tests.mutation import faults

FILE, TESTS = "localkaggle/faults.py", "tests/localkaggle/test_faults.py"
STRIKES = "        ended = self._ended\n"  # where a request begins to fail
NOTHING = """        self.struck.append((index, planned, operation))
        return self.app(environ, start_response)
"""


def main() -> None:
    """Print how many tests failed, and which did not."""
    with tempfile.TemporaryDirectory(prefix="no-faults-") as folder:
        faults.copy(Path(folder))
        path = Path(folder) / FILE
        before, _, after = path.read_text("utf-8").partition(STRIKES)
        assert after, f"{FILE} has no longer the line that this replaces"
        path.write_text(before + NOTHING + after, "utf-8")
        _, said = faults.tried(Path(folder), TESTS, "-rA", "--tb=no")
    failed = len(re.findall(rf"^FAILED {TESTS}", said, re.MULTILINE))
    passed = re.findall(rf"^PASSED {TESTS}::(.+)", said, re.MULTILINE)
    print(f"{failed} of {failed + len(passed)} tests failed. Not:", *passed, sep="\n")


if __name__ == "__main__":
    main()
