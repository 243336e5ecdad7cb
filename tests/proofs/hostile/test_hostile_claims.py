"""The proof of hostile names, archives, arrays and weights holds in its short form, and its guard
sees what it must.
"""

import pickle
from pathlib import Path

import pytest

from proofs.hostile import claims, payloads
from proofs.hostile.attack import HARMLESS, Broken, Case
from proofs.hostile.guard import Guard
from proofs.spoiled_inputs import judgement

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", payloads.pickles(Path("x")))
def test_a_payload_is_alive(tmp_path, name):
    """Else it would prove nothing that its mark is never seen."""
    pickle.loads(payloads.pickles(tmp_path / "marker")[name])  # noqa: S301 - that is what it is made for

    assert (tmp_path / "marker").exists()


def careless(path: Path, text: str = "x") -> Case:
    """Return a case that writes to a path relative to the given folder."""
    return Case("x", "x", lambda given: (given / path).write_text(text) and HARMLESS)


@pytest.mark.parametrize(
    "path", ["../x", "../../../evil", "../../../marker", "../../../home/.bashrc"]
)
def test_the_guard_sees_a_write_outside_and_puts_the_tree_back(tmp_path, path):
    """Each case begins with the same tree."""
    guard, shown = Guard(tmp_path), []

    (first,) = claims.fend(guard, [careless(Path(path))], shown.append)
    (second,) = claims.fend(guard, [careless(Path("x"))], shown.append)

    assert first.wrong and len(shown) == 1
    assert (second.how, second.wrong) == (HARMLESS, "")


@pytest.mark.parametrize(
    ("error", "wrong"),
    [(KeyError("x"), "a traceback: KeyError"), (Broken("it was taken"), "it was taken")],
)
def test_a_case_that_ends_in_neither_is_wrong(tmp_path, error, wrong):
    """A refusal is an error of ours, in words."""

    def act(given: Path) -> str:
        raise error

    (found,) = claims.fend(Guard(tmp_path), [Case("x", "x", act)], lambda line: None)

    assert wrong in found.wrong


@pytest.mark.parametrize("text", payloads.HTML)
def test_markup_that_is_not_escaped_is_seen(text):
    """Of those texts that are markup; the others are harmless as they are."""
    harmless = ("javascript:alert(1)", "<!--", "&lt;script&gt;", "\u202e<b>", "{{7*7}}", "${7*7}")

    assert bool(judgement.active(f"<body><p>{text}</p>")) == (text not in harmless)
