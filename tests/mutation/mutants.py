"""Changes a line of the product and runs the tests that reach it: what survives is a gap.

    pytest --cov=pipeline --cov=deploy --cov-context=test --cov-report= --junitxml=tests.xml
    python tests/mutation/mutants.py sample --seed 1 --each 9 >mutants.jsonl
    python tests/mutation/mutants.py run mutants.jsonl --tree COPY --times tests.xml >results.jsonl

The first line runs in COPY, a clone in which nobody works. The sample is drawn per subject, from
the files of the current folder, the project's. `run` edits files of COPY. Of the tests that reach a
line (by COPY/.coverage), it runs the quick ones first, and stops at the first that fails. A mutant
survives if all of them pass. Needs pytest-cov.
"""

import argparse
import ast
import json
import os
import random
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Per subject: the files that are changed, and the tests that reach them through processes of their
# own, where coverage does not know which test it was.
REACH_KAGGLE = ["tests/deploy/ordinary", "tests/faults", "tests/commands", "tests/doors"]
SUBJECTS: dict[str, tuple[list[str], list[str]]] = {
    "checkpoint and resume": (
        [
            *("pipeline/train/checkpoint.py", "formats/checkpoint_folder.py"),
            *("pipeline/train/loop.py", "pipeline/train/state.py"),
        ],
        ["tests/pipeline/train", "tests/crash", "tests/doors"],
    ),
    "artifact": (
        [
            *("pipeline/artifact.py", "formats/checksums.py"),
            *("formats/atomic_file.py", "formats/sealed_folder.py", "pipeline/infer/check.py"),
        ],
        ["tests/pipeline/test_artifact.py", "tests/crash", "tests/hostile", "tests/doors"],
    ),
    "submission": (
        [
            *("pipeline/infer/submission.py", "pipeline/infer/inference.py"),
            *("pipeline/infer/forward_pass.py", "pipeline/infer/views.py"),
        ],
        ["tests/pipeline/infer", "tests/doors"],
    ),
    "step": (
        [
            "pipeline/train/step.py",
            *("pipeline/train/learning_rate.py", "pipeline/train/optimizer.py"),
            *("pipeline/evaluate/losses.py", "pipeline/models/group_layers.py"),
        ],
        ["tests/pipeline/train", "tests/numerics", "tests/doors"],
    ),
    "feed": (
        [
            *("pipeline/train/feed.py", "pipeline/data/dataset.py"),
            *("pipeline/data/image_arrays.py", "pipeline/data/row_gathering.py"),
            "pipeline/augment/augmentation.py",
        ],
        ["tests/pipeline/data", "tests/pipeline/train", "tests/numerics"],
    ),
    "Kaggle: push": (
        [
            "deploy/chain.py",
            "deploy/push.py",
            "deploy/preview.py",
        ],
        REACH_KAGGLE,
    ),
    "Kaggle: journal": (
        [
            "deploy/journal.py",
            "deploy/records.py",
            "deploy/sessions.py",
        ],
        REACH_KAGGLE,
    ),
    "Kaggle: datasets": (
        [
            "deploy/datasets.py",
        ],
        REACH_KAGGLE,
    ),
    "Kaggle: competition": (
        [
            "deploy/competition.py",
            "deploy/watch.py",
        ],
        REACH_KAGGLE,
    ),
    "Kaggle: calls": (
        [
            "deploy/client.py",
            "deploy/connection.py",
            "deploy/transfer.py",
            "deploy/failures.py",
        ],
        REACH_KAGGLE,
    ),
    "Kaggle: bundle": (
        [
            "deploy/bundle.py",
            "deploy/gate.py",
            "deploy/secrets.py",
        ],
        ["tests/deploy/bundle", "tests/localkaggle/sessions", "tests/doors"],
    ),
    "Kaggle: output": (
        [
            "deploy/output.py",
            "deploy/runs.py",
        ],
        REACH_KAGGLE,
    ),
    "Kaggle: local": (
        [
            "localkaggle/services/kernels.py",
            "localkaggle/services/datasets.py",
            "localkaggle/services/submissions.py",
        ],
        ["tests/localkaggle", "tests/contract", "tests/faults"],
    ),
}
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
CALCULATED: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
}


def _changed(node: ast.AST) -> str | None:
    """Give the source that stands in the node's place in the mutant, or None."""
    text = ast.unparse
    match node:
        case ast.Compare(ops=[op]):
            return f"({text(node.left)} {COMPARED[type(op)]} {text(node.comparators[0])})"
        case ast.BinOp(op=op) if type(op) in CALCULATED:
            return f"({text(node.left)} {CALCULATED[type(op)]} {text(node.right)})"
        case ast.BoolOp(op=op):
            word = " or " if isinstance(op, ast.And) else " and "
            return f"({word.join(f'({text(value)})' for value in node.values)})"
        case ast.UnaryOp(op=ast.Not()):
            return f"({text(node.operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() | float() as number):
            return f"({number} + 1)"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return "return None"
        case ast.IfExp():
            return f"({text(node.orelse)} if {text(node.test)} else {text(node.body)})"
        case ast.Raise() | ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Continue():
            return "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return "pass"
    return None


def _sites(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield what can be changed: no annotation, no text of a message, no default of a field."""
    changed = _changed(node)
    if changed is not None:
        yield node, changed
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.JoinedStr):
            continue
        if isinstance(node, ast.Raise):  # removed as a whole
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _sites(child)


def sample(seed: int, each: int, of: str) -> Iterator[dict[str, Any]]:
    """Draw that many mutants of the files of each subject whose name begins so, as they are in the
    current folder.
    """
    for subject, (files, _) in SUBJECTS.items():
        if not subject.startswith(of):
            continue
        found = []
        for file in files:
            source = Path(file).read_text()
            lines = source.splitlines()
            for node, changed in _sites(ast.parse(source)):
                where = {key: getattr(node, key) for key in ("lineno", "end_lineno")}
                where |= {key: getattr(node, key) for key in ("col_offset", "end_col_offset")}
                block = lines[where["lineno"] - 1 : where["end_lineno"]]
                found.append({"file": file, **where, "lines": block, "changed": changed})
        draw = random.Random(f"{seed} {subject}")  # noqa: S311 - no secret
        for mutant in draw.sample(found, each):
            yield {"subject": subject, **mutant}


def mutated(source: str, mutant: dict[str, Any]) -> str:
    """Put the mutant into the file, where its lines stand now: others may have moved them."""
    lines, block = source.splitlines(), mutant["lines"]
    places = [n for n in range(len(lines)) if lines[n : n + len(block)] == block]
    if not places:
        raise LookupError("these lines are not in the file any more")
    first = min(places, key=lambda n: abs(n + 1 - mutant["lineno"]))
    # The offsets of ast count bytes.
    before = lines[first].encode()[: mutant["col_offset"]].decode()
    after = lines[first + len(block) - 1].encode()[mutant["end_col_offset"] :].decode()
    lines[first : first + len(block)] = [before + mutant["changed"] + after]
    return "\n".join([*lines, ""])


def _reaching(tree: Path, mutant: dict[str, Any], seconds: dict[str, float]) -> list[str]:
    """List the tests that run a line of the mutant: the file's own and the quick ones first, then
    the subject's folders.
    """
    import coverage

    data = coverage.CoverageData(str(tree / ".coverage"))
    data.read()
    lines = (tree / mutant["file"]).read_text().splitlines()
    block = mutant["lines"]
    first = min(
        (n for n in range(len(lines)) if lines[n : n + len(block)] == block),
        key=lambda n: abs(n + 1 - mutant["lineno"]),
        default=-1,
    )
    contexts = {
        context.rpartition("|")[0]  # the id, which may hold one too, and setup, run or teardown
        for name in data.measured_files()
        if name.endswith("/" + mutant["file"])
        for line, found in data.contexts_by_lineno(name).items()
        if first < line <= first + len(block)
        for context in found
    }
    own = f"/test_{Path(mutant['file']).stem}.py::"
    tests = sorted(filter(None, contexts), key=lambda test: (own not in test, seconds.get(test, 0)))
    folders = [name for name in SUBJECTS[mutant["subject"]][1] if (tree / name).exists()]
    return tests + (folders if "" in contexts or not contexts else [])


def run(tree: Path, mutants: list[dict[str, Any]], times: Path) -> Iterator[dict[str, Any]]:
    """Yield each mutant with what became of it: killed and by which test, or survived."""
    seconds: dict[str, float] = {}
    for case in ET.parse(times).iter("testcase"):  # noqa: S314 - pytest wrote it
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        seconds[name] = float(case.get("time", 0))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    for mutant in mutants:
        path, start = tree / mutant["file"], time.monotonic()
        source = path.read_text()
        chosen = tree / ".chosen-tests"
        fate: dict[str, Any] = {"fate": "survived"}
        try:
            tests = _reaching(tree, mutant, seconds)
            path.write_text(mutated(source, mutant))
            for name in path.parent.glob(f"__pycache__/{path.stem}.*"):
                name.unlink()
            chosen.write_text("\n".join(tests))
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-n", "0", f"@{chosen}"],
                cwd=tree,
                env=environment,
                capture_output=True,
                text=True,
                timeout=1200,
                check=False,
            )
            if done.returncode in (1, 2):
                failed = [n for n in done.stdout.splitlines() if n.startswith(("FAILED", "ERROR"))]
                fate = {"fate": "killed", "by": failed[:1]}
            elif done.returncode:
                fate = {"fate": f"pytest ended with {done.returncode}", "tail": done.stdout[-600:]}
            fate["tests"] = len(tests)
        except subprocess.TimeoutExpired:
            fate = {"fate": "killed", "by": ["no end within 1,200 seconds"]}
        except LookupError as error:
            fate = {"fate": str(error)}
        finally:
            path.write_text(source)
        yield {**mutant, **fate, "seconds": round(time.monotonic() - start)}


def main() -> None:
    """Write JSON lines to standard output."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawn = commands.add_parser("sample")
    drawn.add_argument("--seed", type=int, required=True)
    drawn.add_argument("--each", type=int, default=8)
    drawn.add_argument("--of", default="", help='as "Kaggle": subjects whose name begins so')
    tried = commands.add_parser("run")
    tried.add_argument("mutants", type=Path)
    tried.add_argument("--tree", type=Path, required=True)
    tried.add_argument("--times", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "sample":
        results = sample(given.seed, given.each, given.of)
    else:
        listed = [json.loads(line) for line in given.mutants.read_text().splitlines()]
        results = run(given.tree.resolve(), listed, given.times)
    for result in results:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
