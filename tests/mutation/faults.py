"""Puts each fault of docs/dev/faults.md into a copy of the code, and checks that its test fails.

    python tests/mutation/faults.py check
    python tests/mutation/faults.py run --only 3,17

`check` takes a second: it checks that each fault fits the code and each test exists, and lists the
numbers. `run` copies the files that git does not ignore into a temporary folder, runs the tests
without a fault, and then each test with its fault.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = "docs/dev/faults.md"
FAULT = re.compile(
    r"^### (?P<title>.+)\n"
    r"Found by `(?P<test>[^`\n]+)`\n"
    r"```diff\n--- (?P<file>.+)\n(?P<diff>(?:[-+ ].*\n)+)```$",
    re.MULTILINE,
)
PYTEST = (sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider")
FAILED = 1  # pytest's exit code if tests failed; with others it ran none, or was stopped


@dataclass(frozen=True)
class Fault:
    """A fault: `old` occurs once in `file`, and `new` in its place is the fault.

    Attributes:
        number: its place in the list, from 1.
        title: what a competitor suffers.
        test: the id of the test that finds it.
    """

    number: int
    title: str
    test: str
    file: str
    old: str
    new: str


def listed(root: Path = ROOT) -> list[Fault]:
    """Return the faults of the list, in its order."""
    faults = []
    for number, found in enumerate(FAULT.finditer((root / LIST).read_text("utf-8")), start=1):
        lines = found["diff"].splitlines(keepends=True)
        old, new = ("".join(x[1:] for x in lines if x[0] in signs) for signs in (" -", " +"))
        faults.append(Fault(number, found["title"], found["test"], found["file"], old, new))
    return faults


def problems(root: Path = ROOT) -> Iterator[str]:
    """Yield each fault that does not fit the code, and each missing test."""
    faults = listed(root)
    headings = (root / LIST).read_text("utf-8").count("\n### ")
    if headings != len(faults):
        yield f"{headings} headings, and {len(faults)} faults in the form of the introduction"
    for one in faults:
        path, (test, *names) = root / one.file, one.test.partition("[")[0].split("::")
        text = path.read_text("utf-8") if path.is_file() else ""
        if text.count(one.old) != 1 or one.old == one.new:
            yield f"{one.number}. {one.title}: its lines are {text.count(one.old)} times in {path}"
        else:
            ast.parse(text.replace(one.old, one.new))
        tests = (root / test).read_text("utf-8") if (root / test).is_file() else ""
        if not names or not re.search(rf"^\s*def {names[-1]}\(", tests, re.MULTILINE):
            yield f"{one.number}. {one.title}: there is no {one.test}"


def copy(target: Path) -> None:
    """Copy the files that git does not ignore, as they are now."""
    command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.check_output(command, cwd=ROOT, text=True)
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():  # git knows of files that were removed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def tried(tree: Path, *tests: str) -> tuple[int, str]:
    """Run tests in the copy; return pytest's exit code and what it printed."""
    done = subprocess.run(
        [*PYTEST, *dict.fromkeys(tests)],
        cwd=tree,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def run(faults: list[Fault]) -> int:
    """Try each fault, print the result, and return the number of faults that were not found."""
    lost = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        tree = Path(folder)
        copy(tree)
        print(f"The tests of {len(faults)} faults, without them first", flush=True)
        code, said = tried(tree, "-x", *(one.test for one in faults))
        if code:
            print(f"{said[-2000:]}\nThe tests do not pass without a fault, so nothing was tried.")
            return len(faults)
        for one in faults:
            path, start = tree / one.file, time.monotonic()
            text = path.read_text("utf-8")
            path.write_text(text.replace(one.old, one.new), "utf-8")
            code, said = tried(tree, "-x", one.test)
            path.write_text(text, "utf-8")
            word = "found" if code == FAILED else f"NOT FOUND (pytest ended with {code})"
            lost += code != FAILED
            seconds = time.monotonic() - start
            print(f"{one.number:>3}  {seconds:5.1f} s  {word:<6} {one.title}", flush=True)
            if code != FAILED:
                print(said[-2000:])
    print(f"{len(faults) - lost} of {len(faults)} faults were found.")
    return lost


def main() -> int:
    """Return 0 if the list is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("check", "run"))
    parser.add_argument("--only", metavar="N,N", help="numbers of faults, from 1; all if not given")
    given = parser.parse_args()
    faults, wrong = {str(one.number): one for one in listed()}, list(problems())
    if wrong or given.command == "check":
        print("\n".join(wrong or [f"{number:>2}  {one.title}" for number, one in faults.items()]))
        return bool(wrong)
    asked = given.only.replace(" ", "").split(",") if given.only else list(faults)
    if unknown := set(asked).difference(faults):
        parser.error(f"no faults {', '.join(sorted(unknown))}; expected 1 to {len(faults)}")
    return bool(run([faults[number] for number in asked]))


if __name__ == "__main__":
    sys.exit(main())
