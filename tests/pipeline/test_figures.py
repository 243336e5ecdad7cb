"""A picture shows what the files say, and never ends a run."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipeline import data, figures

AWKWARD = ("$x_$", "$", "a $b$ \\$", "_^{")


@pytest.fixture
def output(trained, tmp_path: Path) -> Path:
    """Return a copy of what a run left, without its checkpoints."""
    return Path(shutil.copytree(trained[1], tmp_path / "out", ignore=shutil.ignore_patterns("checkpoints")))


def relabelled(output: Path) -> None:
    """Give the four classes names that matplotlib could take for mathematics."""
    manifest = json.loads((output / "artifact" / "manifest.json").read_text())
    names = dict(zip(manifest["classes"], AWKWARD, strict=True))
    (output / "artifact" / "manifest.json").write_text(json.dumps({**manifest, "classes": AWKWARD}))
    lines = (output / "validation.csv").read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    (output / "validation.csv").write_text(
        "\n".join([lines[0], *(f"{row[0]},{names[row[1]]},{names[row[2]]},{row[3]}" for row in rows)]) + "\n"
    )


def test_a_label_may_be_any_text(output):
    """Dollars are dollars."""
    relabelled(output)
    said: list[str] = []

    paths = figures.of_training(output, show=said.append)

    assert [path.name for path in paths] == ["curves.png", "confusion.png", "time.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert not said


def test_images_with_such_labels_are_drawn(tiny, tmp_path):
    """In the notebooks of both sides."""
    pixels = np.zeros((4, 8, 8, 1), np.uint8)
    images = data.Images(tuple("abcd"), pixels, np.arange(4, dtype=np.int32), AWKWARD)
    said: list[str] = []

    drawn = figures.training_sample(images, tiny, tmp_path, show=said.append)
    drawn += figures.test_sample(pixels, AWKWARD, np.full((4, 4), 0.25), tmp_path, show=said.append)

    assert [path.name for path in drawn] == ["images.png", "predictions.png"]
    assert not said


def test_the_bars_of_the_time_are_together_the_time(output):
    """What no phase names is a bar too."""
    manifest = json.loads((output / "artifact" / "manifest.json").read_text())

    assert sum(figures._phases(manifest["seconds"]).values()) == pytest.approx(manifest["seconds"]["total"], abs=0.3)


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        ("history.csv", ["confusion.png", "time.png"]),
        ("validation.csv", ["curves.png", "time.png"]),
        ("artifact/manifest.json", ["curves.png"]),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_told_and_left_out(output, missing, left):
    """The run is done, and its results are in the files."""
    (output / missing).unlink()
    said: list[str] = []

    paths = figures.of_training(output, show=said.append)

    assert [path.name for path in paths] == left
    assert len(said) == 3 - len(left)
    assert all("was not drawn: FileNotFoundError" in line for line in said)


def test_a_picture_that_cannot_be_written_is_told_too(tiny, tmp_path):
    """The disk is full, or the folder is not ours."""
    said: list[str] = []

    paths = figures.test_sample(
        np.zeros((1, 8, 8, 1), np.uint8), ["a"], np.ones((1, 1)), tmp_path / "nowhere", show=said.append
    )

    assert paths == []
    assert "predictions.png was not drawn" in said[0]
