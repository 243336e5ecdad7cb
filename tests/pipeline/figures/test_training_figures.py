"""A picture shows what the files say, and never ends a run."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config import Data
from pipeline.data import dataset
from pipeline.data.labels import Target
from pipeline.data.test_set import TestSet
from pipeline.figures import prediction_figures, training_figures
from pipeline.inference.predictions import Predictions
from pipeline.report import report
from pipeline.storage import checksums

AWKWARD = ("$x_$", "$", "a $b$ \\$", "_^{")


@pytest.fixture
def output(trained, tmp_path: Path) -> Path:
    """Return a copy of what a run left, without its checkpoints."""
    return Path(
        shutil.copytree(trained[1], tmp_path / "out", ignore=shutil.ignore_patterns("checkpoints"))
    )


def relabelled(output: Path) -> None:
    """Give the four classes names that matplotlib could take for mathematics."""
    manifest = json.loads((output / "artifact" / "manifest.json").read_text())
    names = dict(zip(manifest["classes"], AWKWARD, strict=True))
    (output / "artifact" / "manifest.json").write_text(json.dumps({**manifest, "classes": AWKWARD}))
    lines = (output / "validation.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    (output / "validation.csv").write_text(
        "\n".join(
            [lines[0], *(f"{row[0]},{names[row[1]]},{names[row[2]]},{row[3]}" for row in rows)]
        )
        + "\n"
    )


def test_a_label_may_be_any_text(output):
    """Dollars are dollars."""
    relabelled(output)
    said: list[str] = []

    paths = training_figures.of_training(output, show=said.append)

    assert [path.name for path in paths] == ["curves.png", "confusion.png", "time.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert not said


def sample(
    values: np.ndarray, labels: tuple[str, ...], pixels: np.ndarray, *, images: bool = True
) -> Predictions:
    """Return these predictions for these inputs."""

    def blocks(
        size: int, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[int, np.ndarray, dict[int, str]]]:
        yield first, pixels[first:last], {}

    test = TestSet(tuple(map(str, range(len(pixels)))), blocks, images)
    return Predictions(test, values, labels, {}, 0)


def test_images_with_such_labels_are_drawn(tiny, tmp_path):
    """In the notebooks of both sides."""
    pixels = np.zeros((4, 8, 8, 1), np.uint8)
    images = dataset.Examples(
        tuple("abcd"), pixels, np.arange(4, dtype=np.int32), Target("classes", AWKWARD)
    )
    said: list[str] = []

    drawn = training_figures.training_sample(images, tiny, tmp_path, show=said.append)
    drawn += prediction_figures.least_sure(
        sample(np.full((4, 4), 0.25), AWKWARD, pixels), tmp_path, show=said.append
    )

    assert [path.name for path in drawn] == ["images.png", "predictions.png"]
    assert not said


@pytest.mark.parametrize(
    ("values", "images"),
    [(np.full((4, 1), 7.0), True), (np.full((4, 4), 0.9), True), (np.full((4, 4), 0.25), False)],
)
def test_where_nothing_can_be_shown_there_is_no_picture(tmp_path, values, images):
    """Numbers and independent labels have no confidence, and a row of a table is no image."""
    predictions = sample(values, AWKWARD, np.zeros((4, 8, 8, 1), np.uint8), images=images)

    assert prediction_figures.least_sure(predictions, tmp_path) == []


def test_the_rows_of_a_table_are_no_picture(tiny, tmp_path):
    """Whatever their labels are."""
    config = replace(
        tiny, data=Data(kind="table", numeric_columns=("age",)), model="mlp", model_options={}
    )
    rows = dataset.Examples(
        ("a", "b"), np.zeros((2, 2), np.float32), np.arange(2), Target("classes", ("x", "y"))
    )

    assert training_figures.training_sample(rows, config, tmp_path) == []


@pytest.mark.parametrize("names", [("price",), ("$x_$", "y")])
def test_numbers_are_drawn_as_predicted_against_true(output, names):
    """In place of the confusion, a field for each of several numbers."""
    manifest = json.loads((output / "artifact" / "manifest.json").read_text())
    changed = {**manifest, "classes": names, "target": {**manifest["target"], "kind": "regression"}}
    (output / "artifact" / "manifest.json").write_text(json.dumps(changed))
    ends = [f"_{name}" if len(names) > 1 else "" for name in names]
    header = ["id", *(f"{part}{end}" for end in ends for part in ("label", "prediction"))]
    rows = [["007", *("1.5" for _ in header[1:])], ["008", *("2" for _ in header[1:])]]
    (output / "validation.csv").write_text("".join(",".join(row) + "\n" for row in [header, *rows]))
    said: list[str] = []

    paths = training_figures.of_training(output, show=said.append)

    assert [path.name for path in paths] == ["curves.png", "predicted.png", "time.png"]
    assert not said


def test_the_bars_of_the_time_are_together_the_time(output):
    """What no phase names is a bar too."""
    manifest = json.loads((output / "artifact" / "manifest.json").read_text())

    assert sum(training_figures.phases(manifest["seconds"]).values()) == pytest.approx(
        manifest["seconds"]["total"], abs=0.3
    )


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        ("history.csv", ["confusion.png", "time.png"]),
        ("validation.csv", ["curves.png", "time.png"]),
        ("artifact/manifest.json", ["curves.png"]),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_reported_and_left_out(output, missing, left):
    """The run is done, and its results are in the files."""
    (output / missing).unlink()
    said: list[str] = []

    paths = training_figures.of_training(output, show=said.append)

    assert [path.name for path in paths] == left
    assert len(said) == 3 - len(left)
    assert all("was not drawn: FileNotFoundError" in line for line in said)


def test_a_picture_that_cannot_be_written_is_reported_too(tiny, tmp_path):
    """The disk is full, or the folder is not ours."""
    said: list[str] = []

    paths = prediction_figures.least_sure(
        sample(np.array([[1.0, 0.0]]), ("a",), np.zeros((1, 8, 8, 1), np.uint8)),
        tmp_path / "nowhere",
        show=said.append,
    )

    assert paths == []
    assert "predictions.png was not drawn" in said[0]


def test_the_report_of_a_real_run_has_its_numbers(output):
    """Training wrote its files; the other tests of reports make theirs by hand."""
    manifest = checksums.opened((output / "artifact" / "manifest.json").read_bytes())

    page = report.write(output).read_text(encoding="utf-8")

    assert f'<div class="value">{manifest["metrics"]["validation_accuracy"]:.4f}</div>' in page
    losses = re.findall(r"<dt>log loss</dt><dd>([^<]+)</dd>", page)
    assert float(losses[0]) == pytest.approx(manifest["metrics"]["validation_loss"], abs=1e-3)
    assert manifest["run_id"] in page and manifest["weights_sha256"] in page
    assert all(f'<th scope="row"><bdi>{name}</bdi></th>' in page for name in manifest["classes"])
    assert page.count('class="chart"') == 5
    assert "What this page lacks" not in page
