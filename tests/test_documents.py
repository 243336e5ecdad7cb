"""The commands in the documents exist, and their links lead to files."""

import contextlib
import io
import re
from functools import cache
from pathlib import Path

import invoke

import tasks
from localkaggle.__main__ import main as local_main
from pipeline.__main__ import main as pipeline_main
from workbench.__main__ import main as workbench_main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TASKS = {each.name: each.flags for each in invoke.Collection.from_module(tasks).to_contexts()}
TYPED = re.compile(
    r"\b(invoke|python -m (?:pipeline|workbench|localkaggle)) ([a-z][a-z-]*)([^|;&#]*)"
)
MAINS = {"pipeline": pipeline_main, "workbench": workbench_main, "localkaggle": local_main}
OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*")


def code(page: Path) -> list[str]:
    """Return the lines of a page's shell blocks, and its inline code."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return "".join(blocks).splitlines() + re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


@cache
def options(program: str, command: str) -> set[str] | None:
    """Return the options of a command, or None if there is no such command."""
    if program == "invoke":
        return set(TASKS[command]) if command in TASKS else None
    said, main = io.StringIO(), MAINS[program.split()[-1]]
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([command, "--help"])
    return set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", said.getvalue())) or None


def test_every_command_of_a_document_exists_with_its_options():
    typed = [
        (page, found[0], options(found[1], found[2]), set(OPTION.findall(found[3])))
        for page in PAGES
        for line in code(page)
        for found in TYPED.finditer(line)
    ]

    assert len(typed) > 50
    assert [each for each in typed if each[2] is None or not each[3] <= each[2]] == []


def anchors(page: Path) -> set[str]:
    """Return the names by which GitHub links to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_link_of_a_document_leads_to_a_file_and_to_a_heading_of_it():
    links = [
        (page, (page.parent / name) if name else page, heading)
        for page in PAGES
        for name, heading in re.findall(
            r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")
        )
    ]

    assert [(page, target) for page, target, _ in links if not target.exists()] == []
    assert [each for each in links if each[2] and each[2] not in anchors(each[1])] == []
