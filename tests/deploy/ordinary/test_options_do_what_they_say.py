"""Options do what they say, or nothing runs; and a command in a message can be pasted, and uses the
right config.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from invoke.collection import Collection
from invoke.parser import Parser

import tasks
from commands import console
from deploy import auth
from deploy.journal import PUSH, Journal, Request, State
from tests.deploy import invoked
from tests.faults.world import competition
from tests.shipped import DIGITS, copied, there

# relay.toml names another config, or none, and then it is digits.
CONFIG, RUN = "diabetes", "rehearsal/diabetes-infer-gpu/3"
FORMS = ("-c diabetes", "-cdiabetes", "--config=pipeline/configs/diabetes.py")
REFUSED = {
    "push-train --yse": "push-train does not accept '--yse'. Did you mean --yes?",
    "push-train --config": "--config requires a value.",
    "push-train -f digits": "push-train does not accept '-f'.",
    "push-train digts": "push-train does not accept 'digts'",
    "--config digits push-train": "--config digits must come after the name",
    "psh-train": "There is no task 'psh-train'. Did you mean push-train?",
    "submit -c diabets": "Did you mean diabetes?",
    "submit -c digits.py": "--config 'digits.py': config not found. Did you mean digits?",
}
# What a push or a submission needs is asked for before a call, and before any computing.
PUSHES = [
    *("push-train", "push-train --until-done", "push-train --for gpu-t4x2", "push-infer"),
    *("push-prepare -c {large}", "relay -c {large}", "submit"),
]
# Each of them ends with a command to give.
LACKING = [
    *("watch", "publish", "submit --yes", f"submit --yes --run {RUN}", "push-infer --yes"),
    *("build --kernel infer-gpu", f"watch --run {RUN}", f"pull --run {RUN}", "push-train --yes"),
]
TASKS = {context.name: context for context in Collection.from_module(tasks).to_contexts()}
PARSER = Parser(contexts=list(TASKS.values()))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project, which has no journal."""
    there(f"pipeline/configs/{CONFIG}.py")
    return copied(tmp_path_factory.mktemp("options") / "copy")


@pytest.fixture(scope="module")
def prompt(copy: Path) -> Iterator[invoked.Prompt]:
    """Return a process that runs commands there."""
    with invoked.Prompt(copy) as prompt:
        yield prompt


@pytest.fixture
def local(host):
    """A Kaggle with the competition of that config, at which no time of a TPU is left."""
    local = host(competitions=[replace(competition(), slug=CONFIG)])
    local.kernels.used_seconds["TPU"] = 20 * 3600.0
    return local


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_c_sets_the_config(prompt, form):
    code, shown, _ = prompt("build", *form.split(), "--owner", "owner", "--json")

    assert (code, json.loads(shown.splitlines()[-1])["handle"]) == (0, "owner/diabetes-train-tpu")


@pytest.mark.parametrize("words", REFUSED)
def test_an_unknown_option_is_refused_with_a_suggestion(prompt, words):
    """invoke took its own options there, and another config was built or pushed."""
    code, shown, said = prompt(*words.split())

    assert (code, shown) == (2, "")
    assert REFUSED[words] in said and "Traceback" not in said


def test_a_push_needs_credentials_and_yes_before_anything_else(prompt, tmp_path, host):
    """A script needs --yes, and learns it before the first call. One config has images to prepare,
    and a custom function, which is checked before a push.
    """
    large, mine = tmp_path / "large.py", "def mine(labels, outputs):\n    return outputs.sum(1)\n"
    text = DIGITS.read_text()
    text = text.replace('"digits"', '"large"').replace("height=8, width=8", "height=96, width=96")
    large.write_text(text.replace("    epochs=", '    loss="mine",\n    epochs=') + f"\n\n{mine}")
    pushes = [words.format(large=large) for words in PUSHES]

    for words in pushes:
        code, shown, said = prompt(*words.split())
        assert said.startswith("No Kaggle credentials were found"), words
        assert (code, shown) == (3, ""), words
    local = host()
    for words in pushes:
        code, shown, said = prompt(*words.split())
        assert said.startswith("Cannot ask for confirmation") and "add --yes." in said, words
        assert (code, shown) == (2, ""), words
    assert local.journal == []


# The commands in a message


def hints(message: str) -> list[str]:
    """Return the commands that a message names at the ends of its lines."""
    return [found[0] for found in console.COMMAND.finditer(message)]


def about(hint: str) -> str | None:
    """Return the config that a command is about; None if it takes none. It has to parse."""
    (found,) = PARSER.parse_argv(shlex.split(hint)[1:])
    return found.args["config"].value if "config" in found.args else None


def test_each_command_in_an_error_is_about_the_config_that_was_given(prompt, local):
    """It named the default config, so that one was pushed or submitted."""
    named = set()
    for words in LACKING:
        code, _, said = prompt(*words.split(), "--config", CONFIG)
        assert code, words
        for hint in hints(said):
            assert about(hint) in (CONFIG, None), (words, hint)
            named.add(hint.split()[1])
        # An option by itself is one of the command that was given.
        alone = re.sub("`.*?`", "", console.COMMAND.sub("", said))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", alone):
            assert option in TASKS[words.split()[0]].flags, (words, option)

    assert named >= {"push-train", "push-infer", "pull", "status"}
    # Nobody has to have a folder, nor a config, for a rehearsal of an embedded competition.
    assert hints(console.about(CONFIG, auth.HOW)) == ["invoke dry-run"]


@pytest.fixture
def journal(copy: Path, local) -> Iterator[Journal]:
    """Return the journal of that copy, in which the inference RUN was pushed."""
    journal, (handle, _, version) = Journal(copy / "runs" / "journal.sqlite"), RUN.rpartition("/")
    pushed = journal.intend(Request(PUSH, CONFIG, handle, kernel="infer-gpu"))
    journal.record(pushed, State.VERSION, number=int(version))
    yield journal
    shutil.rmtree(copy / "runs")


def test_a_named_run_uses_the_config_that_pushed_it(prompt, journal):
    """Without --config, it was treated as a run of the default config."""
    code, _, said = prompt("submit", "--yes", "--run", RUN)

    assert code and [about(hint) for hint in hints(said)] == [CONFIG], said
