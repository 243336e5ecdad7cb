"""Ordinary tables: long masks, numbers with gaps, categories, ids such as 007, parquet."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.kernel.push_and_watch import Run
from deploy.relay.relay import Result
from deploy.relay.submit import Submission
from localkaggle.competitions import EMBEDDED, ScoringError
from pipeline import config as configs
from pipeline.data import dataset
from pipeline.inspection import inspection
from pipeline.submission import submission_csv

MASK = " ".join(f"{start} 3" for start in range(1, 150_000, 7))  # as of a picture of 10^8 pixels


def put(folder: Path, **tables: str) -> Path:
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def the_limit_that_python_starts_with():
    """The limit belongs to the process: each test begins as a new one does."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


# -- a mask of a large picture


def test_a_long_mask_is_written_and_checked(tmp_path):
    put(tmp_path, sample=f"id,rle\na,1 1\nb,{MASK}\n")

    written = submission_csv.write(
        tmp_path / "submission.csv", tmp_path / "sample.csv", ["a", "b"], [MASK, "1 1"]
    )

    assert len(MASK) > 131_072
    assert (
        written == submission_csv.check(tmp_path / "submission.csv", tmp_path / "sample.csv") == 2
    )


def test_a_column_of_long_masks_beside_the_label_is_read_and_inspected(tmp_path):
    rows = "".join(f"{n},{n % 5}.5,{MASK},{'xy'[n % 2]}\n" for n in range(20))
    put(
        tmp_path,
        train=f"id,size,rle,label\n{rows}",
        test="id,size\n7,0.5\n8,1.5\n",
        sample_submission="id,label\n7,x\n8,x\n",
    )

    assert inspection.inspect(tmp_path).inputs.data.numeric_columns == ("size",)
    config = configs.load("breast_cancer")
    data = replace(config.data, label_column="label", numeric_columns=("size",))
    read = dataset.read_training(tmp_path, replace(config, data=data))
    assert read.classes == ("x", "y")


def test_a_long_mask_is_scored_by_the_local_kaggle(tmp_path):
    cells = EMBEDDED["cells"]()
    put(tmp_path, submission="id,rle\n" + "".join(f"{n},{MASK}\n" for n in cells.solution["rle"]))

    with pytest.raises(ScoringError, match="pixels outside of the picture"):  # which has 32 x 32
        cells.judge(tmp_path / "submission.csv")


def test_a_long_mask_is_counted_by_the_relay_that_submitted_it(tmp_path):
    put(tmp_path, submission=f"id,rle\na,{MASK}\nb,1 1\n")
    run = Run("ann/cells-infer-gpu", 1, "", "")

    result = Result(run, None, run, tmp_path, tmp_path, Submission(1, 0.5, "COMPLETE"), 9.0)

    assert result.values()["rows"] == 2
