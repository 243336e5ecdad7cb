"""Pictures get a published network by the budget; on a CPU, a linear model on its features if its
weights are on this machine.
"""

import json
import sys
from dataclasses import replace

import pytest

from pipeline.config import Config, Data
from pipeline.models import presets
from pipeline.train import training
from tests.small_competition import write_competition
from workbench.inspect import published_networks, recipes
from workbench.inspect.recipes import CPU, TPU, Plan, Speed, Task

LARGE, BASE, SMALL = (published_networks.DINOV3.format(name) for name in ("large", "base", "small"))
GIVEN = {
    "name": "leaves", "competition": "leaves", "num_classes": 4, "target": "classes", "metric": "",
}  # fmt: skip
NUMBERS = {
    "patch_size": 16, "num_layers": 2, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 16,
    "image_shape": [96, 96, 3],
}  # fmt: skip


def photographs(rows: int, side: int = 500) -> Task:
    return Task(GIVEN, Data(height=64, width=64, channels=3), rows, rows // 4, (side, side))


def arrays(rows: int, side: int) -> Task:
    return Task(GIVEN, Data(height=side, width=side, channels=3), rows, rows // 4)


@pytest.fixture
def cached(hub, tmp_path, monkeypatch):
    """Return a function that puts a small network into kagglehub's cache, with a published name."""
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path / "cache"))

    def put(name: str) -> None:
        numbers = tmp_path / name / "numbers"
        numbers.mkdir(parents=True)
        named = {"class_name": "DINOV3Backbone", "registered_name": "keras_hub>DINOV3Backbone"}
        (numbers / presets.CONFIG).write_text(json.dumps({**named, "config": NUMBERS}))
        presets.write(str(numbers), tmp_path / "cache" / "models" / name)

    return put


@pytest.mark.parametrize(
    ("given", "hours", "pretrained"),
    [
        (photographs(5_000), 9, LARGE),
        (photographs(30_000), 1, BASE),
        (photographs(60_000), 1, "imagenet"),
        (photographs(5_000, side=90), 9, "imagenet"),  # too small for a transformer
        (arrays(5_000, 100), 9, "imagenet"),  # 16 does not divide it
        (arrays(5_000, 128), 9, LARGE),
    ],
)
def test_a_tpu_gets_the_largest_published_network_that_the_budget_allows(
    hub, given, hours, pretrained
):
    made = recipes.recipe(given, Plan(TPU, hours * 3600))

    config = made.config
    assert config.pretrained == pretrained
    assert (config.model, config.optimizer.layer_decay) == (
        "published" if pretrained != "imagenet" else "convnext_base",
        0.75,
    )
    assert config.batch == recipes.batch_of(given.split(1)[0], 256)
    assert config.frozen_epochs == 1 < config.epochs
    assert {"model", "weights", "frozen_epochs", "resolution"} <= {*made.reasons}


def test_the_batch_that_fills_a_core_is_proposed_and_its_memory_shown(hub):
    made = recipes.recipe(photographs(30_000), Plan(TPU, 3600))

    assert made.config.batch == 256
    assert "3.8 GB of a TPU core's 16.9 GB at 224 pixels" in made.reasons["batch"]
    assert "kaggle.com/models/keras/dinov3" in made.reasons["weights"]


def test_without_kerashub_a_keras_network_is_proposed_and_dinov3_mentioned(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)  # as if it were not installed

    made = recipes.recipe(photographs(5_000), Plan(TPU, 9 * 3600))

    assert (made.config.model, made.config.batch) == ("convnext_base", 128)
    assert "If you install KerasHub, inspect proposes DINOv3" in made.reasons["weights"]


def image_takes(seconds: dict[str, float]):
    """Return a function that measures a network: seconds per image, by its weights."""

    def measure(config: Config) -> Speed:
        return Speed(seconds[str(config.pretrained)], setup=5.0, start=0.0)

    return measure


@pytest.mark.parametrize(("rows", "pretrained"), [(2_000, BASE), (20_000, SMALL), (40_000, "")])
def test_a_cpu_gets_the_largest_network_whose_features_fit_the_budget(cached, rows, pretrained):
    """Otherwise it gets one from scratch, whose steps are timed."""
    for name in (SMALL, BASE):
        cached(name)
    measured = image_takes({SMALL: 0.01, BASE: 0.04, "": 0.001})

    made = recipes.recipe(photographs(rows), Plan(CPU, 600), measured)

    config = made.config
    assert (config.pretrained, config.fit) == (pretrained, "linear" if pretrained else "")
    assert made.seconds <= 600
    if pretrained:
        assert "because its weights are on this machine" in made.reasons["model"]
        assert config.views == 1 and not {"rate", "augmentation", "batch"} & {*made.reasons}
        replace(config, fit="")  # can be fine-tuned


def test_weights_in_the_cache_of_keras_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path))
    assert published_networks.at_hand() == []
    (tmp_path / "models").mkdir()
    for name in ("convnext_base_notop.h5", "efficientnetv2-b0_notop.h5"):
        (tmp_path / "models" / name).touch()

    assert [one.model for one in published_networks.at_hand()] == [
        "efficientnetv2b0",
        "convnext_base",
    ]


def test_small_pictures_get_a_network_from_scratch(cached):
    cached(SMALL)

    config = recipes.recipe(photographs(600, side=80), Plan(CPU, 480), lambda _: Speed(1e-3, 1.0))

    assert (config.config.fit, config.config.pretrained) == ("", "")


def test_a_proposal_with_features_is_timed_and_trains_unedited(cached, tiny, tmp_path):
    """From the proposal to an artifact, with a small network and random weights."""
    cached(SMALL)
    folder = write_competition(tmp_path / "competition", train=40)
    data = replace(tiny.data, height=96, width=96, resize="stretch", crop_padding=0)

    made = recipes.recipe(
        Task(GIVEN, data, 40, 10), Plan(CPU, 480), lambda one: recipes.on_this_cpu(one, 0.0)
    )

    assert made.config.fit == "linear" and 0 < made.seconds <= 480
    run = training.train(made.config, folder, tmp_path / "out", show=str)
    assert run.status == "complete" and run.manifest["pretrained"][0]["source"] == SMALL


def test_names_of_weight_files_match_the_installed_keras():
    """They are read in its source: the application's name, and a suffix."""
    import inspect

    from keras.src.applications import convnext, efficientnet_v2

    for module in (convnext, efficientnet_v2):
        text = inspect.getsource(module)
        ours = [
            one for one in published_networks.NETWORKS
            if one.file and one.model[:5] == module.__name__.rpartition(".")[2][:5]
        ]  # fmt: skip
        assert ours and '"_notop.h5"' in text
        for one in ours:
            assert f'"{one.file.removesuffix("_notop.h5")}"' in text
