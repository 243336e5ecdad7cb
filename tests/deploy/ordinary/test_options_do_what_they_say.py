"""What stands behind a task does what it says, or nothing runs."""

import json

import pytest

from tests.deploy import invoked
from tests.deploy.small import copied

CONFIGS = [
    f"build {words}"
    for words in (
        *("-c diabetes", "-cdiabetes", "--config=diabetes", "--config diabetes"),
        "-c pipeline/configs/diabetes.py",
    )
]
REFUSED = {
    "push-train digits": "Did you mean --config digits?",
    "push-train --yse": "push-train has no option --yse. Did you mean --yes?",
    "push-train --config": "--config has no value; expected one.",
    "push-train -e --yes": "push-train has no option -e.",
    "push-train -w --yes": "push-train has no option -w.",
    "push-train -f digits": "push-train has no option -f.",
    "push-train -r .": "push-train has no option -r.",
    "push-train -T 5": "push-train has no option -T.",
    "push-train --collection digits": "push-train has no option --collection.",
    "push-train --list": "push-train has no option --list.",
    "bench-report --config digits": "bench-report has no option --config.",
    "bench-report -c digits": "bench-report has no option -c.",
    "--config digits push-train": "--config digits stands before the task",
    "psh-train": "There is no task 'psh-train'. Did you mean push-train?",
    "submit -c no-such": "--config 'no-such': there is no such config.",
    "submit -c diabets": "Did you mean diabetes?",
    "submit -c digits.py": "--config 'digits.py': there is no such config. Did you mean digits?",
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory) -> dict[str, invoked.Ended]:
    """Return how each command ends, by one process for all, in a copy with no journal."""
    given = [*(f"{words} --owner owner --json" for words in CONFIGS), *REFUSED, "relay -h"]
    given = [words.split() for words in [*given, "push-train --yse --json"]]
    told = invoked.ended(given, copied(tmp_path_factory.mktemp("options")))
    return dict(zip([*CONFIGS, *REFUSED, "help", "json"], told, strict=True))


@pytest.mark.parametrize("words", CONFIGS)
def test_c_is_the_config_in_every_form(words, ended):
    code, shown, _ = ended[words]

    assert code == 0
    assert json.loads(shown.splitlines()[-1])["handle"] == "owner/diabetes-train-tpu"


@pytest.mark.parametrize("words", REFUSED)
def test_what_a_task_does_not_take_is_refused_with_what_was_meant(words, ended):
    """invoke swallowed its own options there: another config was built, or pushed."""
    code, shown, said = ended[words]

    assert (code, shown) == (2, "")
    assert REFUSED[words] in said and "Traceback" not in said


def test_help_behind_a_task_is_the_help_of_that_task(ended):
    code, shown, _ = ended["help"]

    assert (code, "Example: invoke relay --config digits" in shown) == (0, True)


def test_a_script_gets_the_same_as_json(ended):
    code, shown, said = ended["json"]

    assert json.loads(shown) == {"error": said.rstrip(), "exit_code": code}


# What a push or a submission needs is asked for before a call, and before any computing

PUSHES = [
    "push-train",
    "push-train --until-done",
    "push-train --for gpu-t4x2",
    "push-infer",
    "push-prepare -c {large}",
    "relay -c {large}",
    "submit",
]


@pytest.fixture
def pushes(tmp_path):
    """Return all these commands. One config has images that can be prepared, and a function of its
    own, which is checked before a push.
    """
    digits = invoked.ROOT / "pipeline" / "configs" / "digits.py"
    text = digits.read_text().replace('"digits"', '"large"')
    text = text.replace("height=8, width=8", "height=96, width=96")
    text = text.replace("    epochs=", '    loss="mine",\n    epochs=')
    mine = "def mine(labels, outputs):\n    return outputs.sum(1)\n"
    (tmp_path / "large.py").write_text(f"{text}\n\n{mine}")
    return [words.format(large=tmp_path / "large.py").split() for words in PUSHES]


def test_a_push_without_credentials_ends_with_3_before_all_else(pushes):
    for words, (code, shown, said) in zip(PUSHES, invoked.ended(pushes), strict=True):
        assert (code, shown) == (3, ""), words
        assert said.startswith("The Kaggle credentials cannot be used: KAGGLE_CONFIG_DIR"), words


def test_a_push_where_nobody_can_be_asked_ends_with_2_before_the_first_call(pushes, host):
    """A script has to say that it means it, and hears so at once."""
    local = host()
    for words, (code, shown, said) in zip(PUSHES, invoked.ended(pushes), strict=True):
        assert (code, shown) == (2, ""), words
        assert said.startswith("There is no terminal to ask") and "Add --yes." in said, words
    assert local.journal == []
