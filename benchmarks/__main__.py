"""Measures, and writes docs/benchmarks.md.

    python -m benchmarks              # feed, jpeg, inference, loop, starts: 16 minutes
    python -m benchmarks plan gpu     # those named

Each subject runs in a process of its own and replaces its own section as a whole, so a figure
cannot be edited or measured alone (`benchmarks.folders NAME` and `benchmarks.finetuning --only
NAME` keep other rows, and say so). Run it on a machine that does nothing else.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

SUBJECTS = ("feed", "jpeg", "inference", "loop", "starts")
# 20 minutes; half an hour and keras-hub; two hours, and an hour, with packages that they name;
# an NVIDIA GPU
LONGER = ("plan", "published", "folders", "finetuning", "gpu")


def named(words: Sequence[str]) -> Sequence[str]:
    """Return the subjects that a command line names, or those of a plain run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # With choices, Python 3.11 refuses the empty list, too.
    parser.add_argument("subjects", nargs="*", default=SUBJECTS, help=", ".join(SUBJECTS + LONGER))
    given: Sequence[str] = parser.parse_args(words).subjects
    for name in [name for name in given if name not in SUBJECTS + LONGER]:
        parser.error(f"no subject {name!r}; expected some of {', '.join(SUBJECTS + LONGER)}")
    return given


def main() -> int:
    """Run the subjects that were named, one after the other; return the number that failed."""
    failed = 0
    for name in named(sys.argv[1:]):
        print(f"benchmarks.{name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
