"""Progress is appended to, and what a kill cut off is neither kept nor in the way."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.train.progress_log import WORDS, Progress, in_words
from tests.shipped import shipped


def going_on(folder: Path, step: int) -> Progress:
    """Return the progress of a run that starts or resumes at a step."""
    return Progress(folder, shipped("digits"), step, 100, str, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the output of a run with three epochs of ten steps, and a line for each epoch."""
    progress = going_on(tmp_path, 0)
    for epoch in (1, 2, 3):
        progress.epoch({"epoch": epoch, "step": 10 * epoch, "loss": 0.5})
        progress.line(10 * epoch, {"loss": 0.5})
    return tmp_path


def steps(folder: Path) -> tuple[list[int], list[int]]:
    """Return the steps of history.csv and of progress.jsonl."""
    with (folder / "history.csv").open(newline="") as file:
        rows = [int(row["step"]) for row in csv.DictReader(file)]
    return rows, [
        json.loads(line)["step"] for line in (folder / "progress.jsonl").read_text().splitlines()
    ]


@pytest.mark.parametrize(
    ("name", "torn"),
    [
        *(("history.csv", torn) for torn in ("4,", "\0\r\n", "\xff")),
        ("history.csv", "4,x,1\r\n"),
        *(("progress.jsonl", torn) for torn in ('{"step": 40}', "[]\n", "{}\n", "\xff\n")),
        ("progress.jsonl", '{"step": null}\n'),
    ],
)
def test_lines_that_a_kill_interrupted_are_dropped(folder, name, torn):
    """At any place; and any other line that is not ours."""
    with (folder / name).open("a", newline="", encoding="latin-1") as file:
        file.write(torn)

    going_on(folder, 50)

    assert steps(folder) == ([10, 20, 30], [10, 20, 30])
    going_on(folder, 20)  # what is past the checkpoint comes again
    assert steps(folder) == ([10, 20], [10, 20])


JSON = st.integers() | st.floats() | st.text() | st.booleans() | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from([*WORDS, "eta_seconds", "other"]), JSON))
def test_any_line_of_a_log_reads_as_one_line_of_text(line):
    """A log may contain anything."""
    words = in_words(line)

    assert words.isprintable() and len(words) < 300
