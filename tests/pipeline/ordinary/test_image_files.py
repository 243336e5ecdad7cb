"""Folders of image files as people have them: any format, any bits, with alpha or without."""

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import artifact as artifact_module
from pipeline import config as configs
from pipeline.artifact import Artifact
from pipeline.config import Config, Data
from pipeline.config.data_layout import PIXELS
from pipeline.data import image_decoding
from pipeline.errors import ArtifactError
from pipeline.inference import inference
from pipeline.training import training

LABELS = ("cat", "dog")


def settings(**data: object) -> Config:
    """Return a config for two classes of 8x8 images that trains in a few seconds."""
    digits = configs.load("digits")
    return replace(
        digits,
        name="files",
        num_classes=2,
        batch=8,
        epochs=1,
        warmup_epochs=0,
        model="mlp",
        model_options={"width": 8, "depth": 1, "dropout": 0.0},
        batchnorm_batch=None,
        views=1,
        progress_seconds=0,
        checkpoint_seconds=3600,
        data=Data(**{"height": 8, "width": 8, "channels": 1, **data}),
    )


def drawn_in_alpha(number: int) -> Image.Image:
    """Return a black picture that only its alpha channel shows: a bright half, left or right."""
    alpha = np.random.default_rng(number).integers(0, 60, (8, 8), dtype=np.uint8)
    alpha[:, 4 * (number % 2) :][:, :4] += 180
    return Image.merge("LA", (Image.new("L", (8, 8)), Image.fromarray(alpha)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Config, Artifact]]:
    """Return a competition of pictures drawn in alpha, a config that lays them on white, and the
    artifact of its training.
    """
    folder = tmp_path_factory.mktemp("alpha")
    (folder / "test").mkdir()
    for number in range(32):
        place = folder / "train" / LABELS[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        drawn_in_alpha(number).save(place / f"{number:02d}.png")
        drawn_in_alpha(100 + number).save(folder / "test" / f"{number}.png")
    rows = "".join(f"{number},cat\n" for number in range(32))
    (folder / "sample_submission.csv").write_text(f"id,label\n{rows}")
    config = settings(train_csv=None, alpha="white")
    training.train(config, folder, folder / "out", show=lambda line: None)
    yield folder, config, artifact_module.load(folder / "out" / "artifact")


def test_inference_lays_pictures_on_the_colour_that_training_did(trained, tmp_path):
    """Whatever the config file says by now: someone may have edited it for the next training."""
    folder, config, artifact = trained
    edited = replace(config, data=replace(config.data, alpha="drop"))

    found = [
        inference.infer(artifact, folder, tmp_path, config=each, show=lambda line: None).values
        for each in (config, edited)
    ]

    assert np.array_equal(*found) and np.ptp(found[0], axis=0).any()


def test_every_rule_that_decides_pixels_comes_from_the_artifact():
    """Whichever fields a decoder has."""
    assert {each.name for each in fields(image_decoding.Shape)} == set(PIXELS)
    trained, edited = settings(), settings(height=9, width=9, channels=3, resize="pad")

    placed = inference._placed(trained, edited)

    assert all(getattr(placed.data, name) == getattr(trained.data, name) for name in PIXELS)


def test_an_artifact_holds_a_file_that_must_decode_as_in_training(trained, tmp_path):
    """Golden inputs are pixels already, and say nothing of how files become pixels."""
    folder, config, artifact = trained
    assert artifact.golden_file == (folder / "train" / "cat" / "00.png").read_bytes()
    other = replace(artifact, config=replace(config, data=replace(config.data, alpha="drop")))

    with pytest.raises(ArtifactError, match="alpha: 'white' in training, 'drop' here"):
        inference.infer(other, folder, tmp_path, show=lambda line: None)
