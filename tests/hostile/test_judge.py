"""The judge of a command, and the guard around it, see what is wrong."""

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest

from pipeline import config
from pipeline.errors import PipelineError
from tests.hostile import judge, payloads
from tests.hostile.guard import Guard, Harm
from tests.hostile.judge import Said

SAMPLE = b"id,p\na,0\nb,0\n"


@pytest.mark.parametrize(
    ("submission", "wrong"),
    [
        (b"id,p\na,0.5\nb,1\n", ""),
        (b"id,p\nb,0.5\na,1\n", "ids are ['b', 'a']"),
        (b"id,p\na,0.5\n", "1 ids"),
        (b"id,q\na,0.5\nb,1\n", "its columns are"),
        (b"id,p\na,0.5\nb,nan\n", "it says 'nan'"),
        (b"id,p\na,0.5\nb,1.5\n", "it says '1.5'"),
        (b"id,p\na,0.5\nb,1_0\n", "it says '1_0'"),
        (b"id,p\na,0.5\nb", "cannot be compared"),
        (b"id,p\na,0.5\nb,\xff\n", "cannot be compared"),
    ],
)
def test_the_judge_reads_a_submission(submission, wrong):
    found = judge.invalid(submission, SAMPLE, judge.share)

    assert wrong in found and bool(wrong) == bool(found)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("test.csv is empty.\nComplete the download.", ""),
        ("it is empty.\nComplete the download.", "it names none of"),
        ("test.csv is odd; set of ids differs", "no line says"),
        ("test.csv is odd.\nSet of ids differs.", "no line says"),
        ("test.csv is odd.\nIts ids differ. Correct.", "no line says"),
        (f"test.csv is {'very ' * 1000} long.\nComplete the download.", "more than a paragraph"),
        ("test.csv is empty.\nComplete it.\nError: again.", "exit code"),
    ],
)
def test_a_refusal_names_the_file_and_says_what_to_do(text, wrong):
    found = judge.mute(Said(1, f"Error: {text}\n"), [["test.csv"]])

    assert wrong in found and bool(wrong) == bool(found)
    for said in (Said(0, f"Error: {text}"), Said(77, f"Error: {text}"), Said(1, text)):
        assert judge.mute(said, [["test.csv"]])
    traceback = "Traceback (most recent call last):\nKeyError: 'test.csv'\n"
    assert "a traceback" in judge.mute(Said(1, f"{traceback}Error: {text}"), [["test.csv"]])


@pytest.mark.parametrize("name", payloads.pickles(Path("x")))
def test_a_payload_is_alive(tmp_path, name):
    """Else it would prove nothing that its mark is never seen."""
    pickle.loads(payloads.pickles(tmp_path / "marker")[name])  # noqa: S301 - made for this

    assert (tmp_path / "marker").exists()


def through_a_link(given: Path, guard: Guard) -> None:
    (given / "link").symlink_to(guard.top / "evil")
    (given / "link").write_text("evil")


def far_away(given: Path, guard: Guard) -> None:
    """Write a file that is gone afterwards."""
    with tempfile.NamedTemporaryFile(dir=guard.top.parent):
        pass


def unpickled(given: Path, guard: Guard) -> None:
    (given / "x.npy").write_bytes(
        payloads.objects(next(iter(payloads.pickles(guard.marker).values())))
    )
    np.load(given / "x.npy", allow_pickle=True)


def a_config(given: Path, guard: Guard) -> None:
    """Load a config: it is a program of the user's own, which may do anything."""
    (given / "evil.py").write_text(f"from pathlib import Path\nPath({str(guard.marker)!r}).touch()")
    with pytest.raises(PipelineError):
        config.load(str(given / "evil.py"))


CARELESS = {
    "a name that climbs": lambda given, guard: (given / "../../evil").write_text("evil"),
    "a file that goes": lambda given, guard: (guard.top / "home/x").unlink(),
    "moved out": lambda given, guard: (given / "../given").rename(guard.top / "y"),
    **{work.__name__: work for work in (through_a_link, far_away, unpickled, a_config)},
}


@pytest.mark.parametrize("name", CARELESS)
def test_the_guard_sees_what_happens_outside_of_the_folder(tmp_path, name):
    guard = Guard(tmp_path / "top")

    with pytest.raises(Harm), guard.watching() as given:
        CARELESS[name](given, guard)
    with guard.watching() as given:  # the tree is as it was
        (given / "x").write_text("x")
