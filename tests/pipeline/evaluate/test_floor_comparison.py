"""A run that ends says how it compares with its floor, and one below it says so."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from pipeline import artifact
from pipeline import config as configs
from pipeline.__main__ import main
from pipeline.config import Floor
from pipeline.data.dataset import Examples
from pipeline.data.labels import Target
from pipeline.evaluate import floor_comparison, metrics
from pipeline.train import training
from workbench.report import report

FLOOR = Floor(model="a forest", metric="accuracy", score=0.8, error=0.02, rows=400)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_RESAMPLES", 100)


def compared(right, floor=FLOOR, rows=100, metric="accuracy") -> tuple[dict | None, str]:
    """Return the manifest's part and the line of a run with so many right rows."""
    labels = np.arange(rows, dtype=np.int32) % 2
    found = np.eye(2, dtype=np.float32)[np.where(np.arange(rows) < right, labels, 1 - labels)]
    ids, target = tuple(map(str, range(rows))), Target("classes", ("a", "b"))
    examples = Examples(ids, np.zeros((rows, 1)), labels, target)
    config = replace(configs.load("digits"), num_classes=2, floor=floor, metric=metric)
    lines: list[str] = []
    part = floor_comparison.compare(config, examples, np.arange(rows), found, lines.append)
    return part, "\n".join(lines)


@pytest.mark.parametrize(
    ("right", "said"),
    [
        (99, "Above the floor by "),
        (81, "which may be chance"),
        (80, "Equal to the floor: "),
        (60, "Warning: below the floor"),
    ],
)
def test_a_run_says_on_which_side_of_the_floor_it_is(right, said):
    part, line = compared(right)

    assert said in line and "a forest has 0.8 ± 0.02" in line
    assert part is not None and part["below"] == ("below" in said)
    assert part["network"] == right / 100
    assert part["network_error"] == pytest.approx((right * (100 - right) / 1e6) ** 0.5, rel=0.15)


def test_a_metric_that_falls_is_better_below():
    part, line = compared(100, replace(FLOOR, metric="log_loss", score=0.5), metric="log_loss")

    assert part is not None and not part["below"] and "Above the floor" in line


def test_a_floor_that_cannot_be_compared_loses_no_training():
    """One in another metric, or without a value on the held-out rows."""
    auc = replace(FLOOR, metric="auc")

    assert compared(80, auc)[0] is None
    assert "The floor is in auc and the config's metric is accuracy" in compared(80, auc)[1]
    part, line = compared(1, auc, rows=1, metric="auc")
    assert part is None and "cannot be compared with its floor" in line


def assert_it_has_the_numbers_of(manifest, page):
    """As a training wrote them; the other tests of reports make theirs by hand."""
    assert f'<div class="value">{manifest["metrics"]["validation_accuracy"]:.4f}</div>' in page
    losses = re.findall(r"<dt>log loss</dt><dd>([^<]+)</dd>", page)
    assert float(losses[0]) == pytest.approx(manifest["metrics"]["validation_loss"], abs=1e-3)
    assert manifest["run_id"] in page and manifest["weights_sha256"] in page
    assert all(f'<th scope="row"><bdi>{name}</bdi></th>' in page for name in manifest["classes"])
    assert page.count('class="chart"') == 5
    assert "What this page lacks" not in page


def test_the_last_line_the_manifest_the_report_and_describe_show_the_floor(
    competition, tiny, written_config, tmp_path, capsys
):
    """A floor that nothing can reach, which came while the run rested."""
    lines: list[str] = []
    training.train(tiny, competition, tmp_path / "out", max_steps=2, show=lines.append)
    config = replace(tiny, floor=replace(FLOOR, score=2.0))

    training.train(config, competition, tmp_path / "out", show=lines.append)

    made = artifact.load(tmp_path / "out" / "artifact")
    page = report.write(tmp_path / "out").read_text()
    words = ["--config", str(written_config(config)), "--artifact", str(tmp_path / "out/artifact")]
    assert main(["describe", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert any(line.startswith("Resuming from step 2") for line in lines)
    assert lines[-1].startswith("Warning: below the floor")
    assert made.config.floor == config.floor and made.manifest["floor"]["below"]
    assert "This run is below its floor" in page and "a forest, out of fold" in page
    assert told["floor"]["score"] == 2.0
    assert told["trained"] == made.manifest["floor"]
    assert_it_has_the_numbers_of(made.manifest, page)
