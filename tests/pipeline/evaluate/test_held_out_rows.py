"""A run keeps the rows with the largest errors, and is compared with its baseline."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pipeline import artifact
from pipeline.__main__ import main
from pipeline.config import Baseline
from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.evaluate import held_out_rows
from pipeline.evaluate.held_out_rows import HeldOutRows
from pipeline.train import training
from tests.shipped import shipped
from workbench.report import report

BASELINE = Baseline(model="a forest", metric="accuracy", score=0.8, error=0.02, rows=400)


def kept(folder, pictures):
    held_out_rows.keep_examples(folder, np.arange(len(pictures)), pictures)
    with np.load(folder / "examples.npz") as arrays:
        assert arrays["indices"].tolist() == list(range(len(pictures)))
        return arrays["pixels"]


@pytest.mark.parametrize(
    ("shape", "small"),
    [
        ((600, 400, 3), (256, 171, 3)),
        ((10, 2000, 1), (1, 256, 1)),
        ((8, 6, 3), (8, 6, 3)),
    ],
)
def test_a_large_picture_is_made_smaller_and_keeps_its_form(tmp_path, shape, small):
    """So that a page with two dozen of them can be sent to somebody."""
    found = kept(tmp_path, np.full((2, *shape), 200, np.uint8))

    assert found.shape == (2, *small) and (found == 200).all()


def test_the_rows_with_the_largest_errors_are_kept_with_their_pictures(tmp_path):
    """As rows of validation.csv."""
    labels, pairs = np.array([0, 1, 0, 1, 0]), [(np.array([0]), np.array([1, 2, 3, 4]))]
    sure = np.array([0.5, 0.4, 0.8, 0.1, 0.6], np.float32)
    found = np.where(labels[:, None] == [0, 1], sure[:, None], 1 - sure[:, None])
    images = np.arange(5, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 6, 3), np.uint8)
    examples = Examples(tuple("abcde"), images, labels, Target("classes", ("x", "y")))
    config = shipped("digits")

    rows = HeldOutRows(config, examples, pairs, found)
    held_out_rows.write(rows, rows, tmp_path)

    with np.load(tmp_path / "examples.npz") as arrays:
        assert arrays["indices"].tolist() == [2, 0, 3, 1]
        assert arrays["pixels"][:, 0, 0, 0].tolist() == [3, 1, 4, 2]
    assert pd.read_csv(tmp_path / "validation.csv")["id"].tolist() == list("bcde")


# The baseline


def compared(right, baseline=BASELINE, rows=100, metric="accuracy") -> tuple[dict | None, str]:
    """Return the manifest's part and the line of a run with this many right rows."""
    labels = np.arange(rows, dtype=np.int32) % 2
    found = np.eye(2, dtype=np.float32)[np.where(np.arange(rows) < right, labels, 1 - labels)]
    ids, target = tuple(map(str, range(rows))), Target("classes", ("a", "b"))
    examples = Examples(ids, np.zeros((rows, 1)), labels, target)
    config = replace(shipped("digits"), num_classes=2, baseline=baseline, metric=metric)
    lines: list[str] = []
    held_out = HeldOutRows(config, examples, [(np.arange(0), np.arange(rows))], found)
    part = held_out_rows.compare(held_out, held_out_rows.standard_error(held_out), lines.append)
    return part, "\n".join(lines)


@pytest.mark.parametrize(
    ("right", "said"),
    [
        (99, "Above the baseline by "),
        (80, "Equal to the baseline: "),
        (60, "Warning: below the baseline by "),
    ],
)
def test_a_run_says_on_which_side_of_the_baseline_it_is(right, said):
    part, line = compared(right)

    assert said in line and "a forest has 0.8 ± 0.02" in line
    assert part is not None and part["below"] == ("below" in said)
    assert part["network"] == right / 100
    assert part["network_error"] == pytest.approx((right * (100 - right) / 1e6) ** 0.5, rel=0.15)


def test_a_baseline_that_cannot_be_compared_loses_no_training():
    """And less is better for a loss."""
    auc = replace(BASELINE, metric="auc")

    assert compared(80, auc)[0] is None
    assert "The baseline uses auc, but the config's metric is accuracy" in compared(80, auc)[1]
    part, line = compared(1, auc, rows=1, metric="auc")
    assert (part, line) == (None, "")
    part, line = compared(100, replace(BASELINE, metric="log_loss", score=0.5), metric="log_loss")
    assert part is not None and not part["below"] and "Above the baseline" in line


def assert_it_has_the_numbers_of(manifest, page):
    """The other tests of reports use handmade runs."""
    assert f'<div class="value">{manifest["metrics"]["validation_accuracy"]:.4f}</div>' in page
    losses = re.findall(r"<dt>log loss</dt><dd><bdi>([^<]+)</bdi></dd>", page)
    assert float(losses[0]) == pytest.approx(manifest["metrics"]["validation_loss"], abs=1e-3)
    assert manifest["run_id"] in page and manifest["weights_sha256"] in page
    assert all(f'<th scope="row"><bdi>{name}</bdi></th>' in page for name in manifest["classes"])
    assert page.count('class="chart"') == 5
    assert "Missing from this page" not in page


def test_the_last_line_the_manifest_the_report_and_describe_show_the_baseline(
    competition, tiny, written_config, tmp_path, capsys
):
    """An unreachable baseline, which was added while the run was stopped."""
    lines: list[str] = []
    training.train(tiny, competition, tmp_path / "out", max_steps=2, show=lines.append)
    config = replace(tiny, baseline=replace(BASELINE, score=2.0))

    training.train(config, competition, tmp_path / "out", show=lines.append)

    made = artifact.load(tmp_path / "out" / "artifact")
    page = report.write(tmp_path / "out").read_text()
    assert main(["describe", "--config", str(written_config(config)), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert any(line.startswith("Resuming from step 2") for line in lines)
    assert lines[-1].startswith("Warning: below the baseline")
    assert made.config.baseline == config.baseline and made.manifest["baseline"]["below"]
    assert "This run is below its baseline" in page and "a forest, out of fold" in page
    assert told["baseline"]["score"] == 2.0
    assert made.manifest["error"] == made.manifest["baseline"]["network_error"]
    assert made.manifest["earlier_seconds"] > 0  # those of the session before
    assert_it_has_the_numbers_of(made.manifest, page)
