"""Names and addresses from the server are material to judge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.client import failure_messages
from deploy.errors import BadAnswer, UsageError
from deploy.kernel import output, push_and_watch

TRICKS = ["../x", "/etc/passwd", "a\\..\\x", "C:/x", "", "a//b", "x\n", "a/.", "\x1b[m"]
PLAIN = ["submission.csv", "artifact/weights.npz", "a b.png", "größe.csv", ".hidden/x"]


def test_known_tricks_are_refused_and_plain_names_pass():
    """Names that have escaped somewhere, and what notebooks really write."""
    for name in TRICKS:
        with pytest.raises(BadAnswer):
            output.safe(name)
    assert [str(output.safe(name)) for name in PLAIN] == PLAIN


@pytest.mark.parametrize("text", ["ann/x", "ann/x/0", "ann/x/v", "ann/x/1/2", "../x/1"])
def test_a_run_is_named_by_owner_slug_and_version(text):
    """Without a version Kaggle answers for the latest, whoever made it."""
    with pytest.raises(UsageError, match="owner/slug/version"):
        push_and_watch.parse(text)


@given(st.text())
def test_what_is_shown_cannot_steer_the_terminal(text):
    """A log comes from the network; only newlines and tabs are kept of what is not printable ASCII
    control.
    """
    shown = failure_messages.plain(text)

    kept = set(shown) - {"\n", "\t"}
    assert not any(each < " " or "\x7f" <= each <= "\x9f" for each in kept)
