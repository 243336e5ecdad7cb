"""What a push or a submission needs is asked for before a call, and before any computing."""

import pytest

from tests.deploy.invoked import ROOT, ended

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
    text = (ROOT / "pipeline" / "configs" / "digits.py").read_text().replace('"digits"', '"large"')
    text = text.replace("height=8, width=8", "height=96, width=96")
    text = text.replace("    epochs=", '    loss="mine",\n    epochs=')
    mine = "def mine(labels, outputs):\n    return outputs.sum(1)\n"
    (tmp_path / "large.py").write_text(f"{text}\n\n{mine}")
    return [words.format(large=tmp_path / "large.py").split() for words in PUSHES]


def test_a_push_without_credentials_ends_with_3_before_all_else(pushes):
    for words, (code, shown, said) in zip(PUSHES, ended(pushes), strict=True):
        assert (code, shown) == (3, ""), words
        assert said.startswith("The Kaggle credentials cannot be used: KAGGLE_CONFIG_DIR"), words


def test_a_push_where_nobody_can_be_asked_ends_with_2_before_the_first_call(pushes, host):
    """A script has to say that it means it, and hears so at once."""
    local = host()
    for words, (code, shown, said) in zip(PUSHES, ended(pushes), strict=True):
        assert (code, shown) == (2, ""), words
        assert said.startswith("There is no terminal to ask") and "Add --yes." in said, words
    assert local.journal == []
