"""Measures, and writes docs/benchmarks.md.

    python -m benchmarks              # feed, jpeg, inference, loop, starts: half an hour
    python -m benchmarks plan gpu     # those named

Each subject runs in a process of its own and replaces its own section as a whole, so a figure
cannot be edited or measured alone. Run it on a machine that does nothing else.
"""

import argparse
import subprocess
import sys

SUBJECTS = ("feed", "jpeg", "inference", "loop", "starts")
LONGER = ("plan", "gpu")  # an hour; an NVIDIA GPU


def main() -> int:
    """Run the subjects that were named, one after the other; return the number that failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subjects", nargs="*", choices=SUBJECTS + LONGER)
    given = parser.parse_args().subjects or SUBJECTS
    failed = 0
    for name in given:
        print(f"benchmarks.{name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
