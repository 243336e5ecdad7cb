"""Pictures show the data in a run's files, and never end a run."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.config import Data
from pipeline.data import dataset
from pipeline.data.dataset import TestSet
from pipeline.data.labels import Target
from pipeline.figures import drawing, prediction_figures, training_figures
from pipeline.infer.inference import Predictions
from tests.pipeline import handmade

AWKWARD = ("$x_$", "$", "a $b$ \\$", "_^{")  # which matplotlib could take for mathematics
PIXELS = np.zeros((4, 8, 8, 1), np.uint8)


@pytest.mark.parametrize(
    ("target", "names", "missing", "pictures"),
    [
        ("classes", AWKWARD, "", "curves confusion time"),
        ("classes", AWKWARD, "history.csv validation.csv", "time"),
        ("classes", AWKWARD, "history.csv artifact/manifest.json", ""),
        # In place of the confusion, a field for each of several numbers.
        ("regression", ("price",), "history.csv", "predicted time"),
        ("regression", AWKWARD[:2], "history.csv", "predicted time"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_reported(
    tiny, tmp_path, target, names, missing, pictures
):
    """It does not end the run. Dollars in a label stay dollars."""
    handmade.run(tmp_path, target, names)
    if target == "regression" and len(names) > 1:
        handmade.validation(tmp_path, "several numbers", names, 9)
    for name in missing.split():
        (tmp_path / name).unlink()
    said: list[str] = []

    paths = training_figures.of_training(tmp_path, tiny, show=said.append)

    assert [path.stem for path in paths] == pictures.split()
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert len(said) == 3 - len(paths)
    assert all("could not draw" in line and ": FileNotFoundError" in line for line in said)


def sample(values: np.ndarray, *, images: bool = True) -> Predictions:
    """Return these predictions for black images."""

    return Predictions(TestSet(tuple("0123"), PIXELS, images=images), values, AWKWARD, {}, 0, ())


def test_images_with_such_labels_are_drawn(tiny, tmp_path):
    """In both notebooks. A picture that cannot be written does not end the run."""
    images = dataset.Examples(
        tuple("abcd"), PIXELS, np.arange(4, dtype=np.int32), Target("classes", AWKWARD)
    )
    unsure, said = sample(np.full((4, 4), 0.25)), []

    drawn = training_figures.training_sample(images, tiny, tmp_path, show=said.append)
    drawn += prediction_figures.least_sure(unsure, tmp_path, show=said.append)

    assert [path.name for path in drawn] == ["images.png", "predictions.png"]
    assert not said
    assert prediction_figures.least_sure(unsure, tmp_path / "nowhere", show=said.append) == []
    assert "could not draw" in said[0] and "predictions.png" in said[0]


def test_a_mixture_is_shown_with_the_label_of_its_greater_share(tiny, tmp_path, monkeypatch):
    """Half of the images are black and of one label; a mixture is as bright as its
    share of white.
    """
    labels = np.arange(4, dtype=np.int32) % 2
    pixels = PIXELS + (255 * labels.astype(np.uint8))[:, None, None, None]
    images = dataset.Examples(tuple("abcd"), pixels, labels, Target("classes", ("black", "white")))
    config, drawn = replace(tiny, data=replace(tiny.data, mixup=1.0, crop_padding=0)), []
    monkeypatch.setattr(drawing, "grid", lambda *given: drawn.append(given))

    training_figures.training_sample(images, config, tmp_path)

    ((shown, captions, *_),) = drawn
    for image, caption in zip(shown, captions, strict=True):
        name, share = caption.split()
        white = image.mean() / 255  # 0 or 1 of a mixture of one label
        assert (
            white in (0, 1)
            or abs((white if name == "white" else 1 - white) - float(share[:-1]) / 100) < 0.02
        )
    assert len(set(captions)) > 2


def test_a_linear_model_of_features_sees_images_as_they_are(tiny, tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 1), np.uint8)
    labels = np.arange(4, dtype=np.int32)
    images = dataset.Examples(tuple("abcd"), pixels, labels, Target("classes", AWKWARD))
    data, drawn = replace(tiny.data, mixup=1.0, crop_padding=3), []
    monkeypatch.setattr(drawing, "grid", lambda *given: drawn.append(given))

    training_figures.training_sample(images, replace(tiny, data=data, fit="linear"), tmp_path)

    ((shown, captions, *_),) = drawn
    places = [AWKWARD.index(caption) for caption in captions]
    assert np.array_equal(shown, pixels[places])


@pytest.mark.parametrize(
    ("values", "images"),
    [(np.full((4, 1), 1.0), True), (np.full((4, 4), 0.9), True), (np.full((4, 4), 0.25), False)],
)
def test_without_images_or_confidence_there_is_no_picture(tiny, tmp_path, values, images):
    """Numbers and independent labels have no confidence, and a row of a table is no image."""
    table = Data(kind="table", numeric_columns=("age",))
    config = replace(tiny, data=table, model="mlp", model_options={})
    rows = dataset.Examples(
        ("a", "b"), np.zeros((2, 2), np.float32), np.arange(2), Target("classes", ("x", "y"))
    )

    assert prediction_figures.least_sure(sample(values, images=images), tmp_path) == []
    assert training_figures.training_sample(rows, config, tmp_path) == []
