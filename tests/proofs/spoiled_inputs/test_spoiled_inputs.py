"""The proof of mutated inputs holds in its short form, and its judge tells what is wrong from what
is right.
"""

from pathlib import Path

import pytest

from proofs.spoiled_inputs import claims, judgement, spoiled_outputs
from proofs.spoiled_inputs.judgement import Said

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = b"id,p\na,0\nb,0\n"


def test_there_are_many_mutants_each_by_its_own_name():
    """The same seed draws the same ones."""
    there = claims.everything(ROOT)
    drawn = claims.sample(there, claims.SEED, short=False)

    names = [(mutant.family, mutant.subject, mutant.name, mutant.train) for mutant in there]
    assert len(set(names)) == len(names) > 1000 and len(drawn) >= 300
    assert (
        {mutant.family for mutant in drawn}
        == set(claims.DRAWN)
        == {mutant.family for mutant in there}
    )
    assert drawn == claims.sample(there, claims.SEED, short=False)


@pytest.mark.parametrize(
    ("submission", "wrong"),
    [
        (b"id,p\na,0.5\nb,1\n", ""),
        (b"id,p\nb,0.5\na,1\n", "its ids are ['b', 'a']"),
        (b"id,p\na,0.5\n", "1 ids of 2"),
        (b"id,p\na,0.5\na,1\n", "its ids are ['a', 'a']"),
        (b"id,q\na,0.5\nb,1\n", "its columns are"),
        (b"id,p\na,0.5\nb,nan\n", "it says 'nan'"),
        (b"id,p\na,0.5\nb,1e999\n", "it says '1e999'"),
        (b"id,p\na,0.5\nb,1.5\n", "it says '1.5'"),
        (b"id,p\na,0.5\nb,\n", "it says ''"),
        (b"id,p\na,0.5\nb", "its rows differ in length"),
        (b"id,p\na,0.5\nb,\0\n", "it holds a NUL"),
        (b"id,p\na,0.5\nb,\xff\n", "cannot be compared"),
        (b"", "it is empty"),
    ],
)
def test_the_judge_reads_a_submission_by_itself(submission, wrong):
    """With Python's csv module, and nothing of what wrote it."""
    found = judgement.invalid(submission, SAMPLE, judgement.share)

    assert wrong in found and bool(wrong) == bool(found)


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (Said(1, "Error: x.csv is empty.\nComplete the download."), ""),
        (Said(1, "Traceback (most recent call last):\nKeyError: 'x.csv'"), "a traceback"),
        (Said(1, "Error: it is empty. Complete the download."), "it names none of"),
        (Said(1, "Error: x.csv is empty."), "it says no edit"),
        (Said(0, "Error: x.csv is empty.\nComplete the download."), "exit code 0"),
        (Said(99, "Error: x.csv is empty.\nComplete the download."), "exit code 99"),
        (Said(1, "x.csv is empty. Complete the download."), "exit code 1"),
        (
            Said(1, f"Error: x.csv is {'very ' * 1000} long. Complete the download."),
            "more than a paragraph",
        ),
    ],
)
def test_the_judge_reads_a_refusal(said, wrong):
    """An exit code, what is wrong, and what to edit."""
    found = judgement.mute(said, ["x.csv"])

    assert wrong in found and bool(wrong) == bool(found)


def test_the_judge_sees_an_output_that_was_taken_and_should_not_be(tmp_path):
    """As if the gate had let it through."""
    written = next(spoiled_outputs.predictions(tmp_path, 1))
    lie = spoiled_outputs.Written(
        "predictions", "x", Said(0, ""), True, b"id,label\n", written.asked
    )

    assert claims.fault(written) == "" and "0 ids of 24" in claims.fault(lie)
