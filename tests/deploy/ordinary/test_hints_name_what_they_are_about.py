"""A command that a message names can be pasted, and is about the config of the message."""

import re
import shlex
from dataclasses import replace

import pytest
from invoke.collection import Collection
from invoke.exceptions import ParseError
from invoke.parser import Parser

import tasks
from commands import console
from deploy.client import credentials
from deploy.journal import Journal
from tests.deploy.invoked import ended
from tests.deploy.small import copied
from tests.faults.world import competition

CONFIG = "diabetes"  # relay.toml names another one, or none, and then it is digits
RUN = "rehearsal/diabetes-infer-gpu/3"
COMMANDS = [
    "watch",
    "pull",
    "publish",
    "submit --yes",
    "submit --yes --run {run}",
    "push-infer --yes",
    "build --kernel infer-gpu",
    "watch --run {run}",
    "pull --run {run}",
    "status --of nowhere.csv",
    "report",
    "push-train --yes",
    "relay --yes",
]
TASKS = {context.name: context for context in Collection.from_module(tasks).to_contexts()}
PARSER = Parser(contexts=list(TASKS.values()))


@pytest.fixture
def copy(host, tmp_path):
    """Return a copy of the project, which has no journal; no time of a TPU is left."""
    local = host(competitions=[replace(competition(), slug=CONFIG)])
    local.kernels.used_seconds["TPU"] = 20 * 3600.0
    return copied(tmp_path)


def hints(message: str) -> list[str]:
    """Return the commands that a message names at the ends of its lines."""
    return [found[0] for found in console.COMMAND.finditer(message)]


def options(message: str) -> list[str]:
    """Return the options that a message names by themselves: those of the command that was given.

    An option in backticks stands there with its command.
    """
    return re.findall(
        r"(?<![\w-])--[a-z][a-z-]*", re.sub("`.*?`", "", console.COMMAND.sub("", message))
    )


def about(hint: str) -> str | None:
    """Return the config that a command is about; None if it takes none. It has to parse."""
    try:
        (found,) = PARSER.parse_argv(shlex.split(hint)[1:])
    except ParseError as error:
        pytest.fail(f"{hint}: {error}")
    return found.args["config"].value if "config" in found.args else None


def test_each_command_in_an_error_is_about_the_config_that_was_given(copy):
    """It was about the default config: who followed it pushed, or submitted, another one."""
    given = [f"{words.format(run=RUN)} --config {CONFIG}".split() for words in COMMANDS]
    named = set()

    for words, (code, _, said) in zip(COMMANDS, ended(given, copy), strict=True):
        assert code, words
        for hint in hints(said):
            assert about(hint) in (CONFIG, None), (words, hint)
            named.add(hint.split()[1])
        for option in options(said):
            assert option in TASKS[words.split()[0]].flags, (words, option)

    assert named >= {"push-train", "push-infer", "pull", "status"}


def test_a_run_that_is_named_is_of_the_config_that_pushed_it(copy):
    """Without --config it was taken for one of the default config, and so was what comes next."""
    handle, _, version = RUN.rpartition("/")
    with Journal(copy / "runs" / "journal.sqlite").recording("pushes", config=CONFIG) as made:
        made.update(kernel="infer-gpu", handle=handle, version=int(version))

    ((code, _, said),) = ended([["submit", "--yes", "--run", RUN]], copy)

    assert code and [about(hint) for hint in hints(said)] == [CONFIG], said


def test_a_rehearsal_that_is_named_without_a_folder_is_of_an_embedded_competition():
    """Nobody has to have a folder for it, nor a config."""
    assert hints(console.about(CONFIG, credentials.HOW)) == ["invoke dry-run"]
