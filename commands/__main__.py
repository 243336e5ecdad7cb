"""python -m commands bench|bench-report|push-bench|check: what the authors need."""

import sys

from invoke.collection import Collection
from invoke.program import Program

from commands.benchmark import bench, bench_report, push_bench
from commands.local import check

if __name__ == "__main__":
    sys.argv[0] = "python -m commands"
    Program(namespace=Collection(bench, bench_report, push_bench, check), binary=sys.argv[0]).run()
