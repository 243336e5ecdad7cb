"""Run benchmarks and write the results to docs/benchmarks.md.

    python -m benchmarks              # run feed, jpeg, inference, loop and starts (16 minutes)
    python -m benchmarks plan gpu     # only run the given subjects

Each subject runs in a separate process and replaces its whole section of the page, so results are
never edited. `benchmarks.folders NAME` and `benchmarks.finetuning --only NAME` keep the other rows,
and the page states which rows were kept. Run the benchmarks on a machine that is otherwise idle.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

SUBJECTS = ("feed", "jpeg", "inference", "loop", "starts")
# pseudo_labels takes ten minutes, averages half an hour, plan a quarter of an hour, folders and
# published 40 minutes, and finetuning over an hour. published requires keras-hub; the docstrings of
# folders and finetuning list the packages that they require. gpu requires an NVIDIA GPU.
LONGER = ("pseudo_labels", "averages", "plan", "published", "folders", "finetuning", "gpu")


def named(words: Sequence[str]) -> Sequence[str]:
    """Return the subjects on the command line, or the default subjects."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # Do not pass `choices`, because Python 3.11 would then reject an empty list.
    parser.add_argument("subjects", nargs="*", default=SUBJECTS, help=", ".join(SUBJECTS + LONGER))
    given: Sequence[str] = parser.parse_args(words).subjects
    for name in [name for name in given if name not in SUBJECTS + LONGER]:
        parser.error(f"unknown subject {name!r}; expected {', '.join(SUBJECTS + LONGER)}")
    return given


def main() -> int:
    failed = 0
    for name in named(sys.argv[1:]):
        print(f"benchmarks.{name}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
