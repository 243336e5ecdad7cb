"""What a network gives is computed once, and a linear model of it is the last layer."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from pipeline import artifact
from pipeline import config as configs
from pipeline.errors import CheckpointError, ConfigError
from pipeline.infer import inference
from pipeline.models import architectures, presets
from pipeline.train import frozen_features, training
from tests.pipeline.models.test_published import asked, custom, preset
from tests.small_competition import write_competition

__all__ = ["asked"]


@pytest.fixture
def linear(asked, tmp_path, hub):
    """A config with five folds, and a network of random weights."""
    options = {"dropout": 0.1}
    return replace(asked, pretrained=preset(tmp_path), fit="linear", folds=5, model_options=options)


def test_a_linear_model_goes_through_the_chain(linear, tmp_path):
    """The network keeps its bits and is stored once; a single model of all rows predicts."""
    folder, lines = write_competition(tmp_path / "competition", train=80), []

    config = replace(linear, class_weights="balanced")
    done = training.train(config, folder, tmp_path / "out", show=lines.append)

    assert any("epochs, optimizer, augmentation, keep and patience have" in line for line in lines)
    loaded = artifact.load(tmp_path / "out" / "artifact")
    (only,) = loaded.folds
    assert len(loaded.weights) == len(only)
    published_ones = presets.arrays(linear.pretrained)
    assert all(map(np.array_equal, [*only.values()][: len(published_ones)], published_ones))
    metrics = done.manifest["metrics"]
    assert 0 <= metrics["validation_accuracy"] <= 1 and len(done.manifest["folds"]) == 5
    inference.infer(loaded, folder, tmp_path / "inferred", show=lines.append)
    assert not any("folds, averaged" in line for line in lines)
    assert (tmp_path / "inferred" / "submission.csv").is_file()


def test_features_are_computed_once(linear, tmp_path, monkeypatch):
    """Also if the session ends between two of their files."""
    monkeypatch.setattr(frozen_features, "BLOCK", 32)
    monkeypatch.setattr(frozen_features, "SHOWN", 60)
    folder, out, lines = write_competition(tmp_path / "competition", train=80), tmp_path / "out", []
    whole = training.train(linear, folder, tmp_path / "whole", show=str)
    training.train(linear, folder, out, show=str)
    (place,) = (out / frozen_features.FOLDER).iterdir()
    kept = sorted(place.iterdir())
    assert len(kept) == 3
    kept[1].unlink()

    again = training.train(linear, folder, out, show=lines.append)

    (line,) = [line for line in lines if line.startswith("Features")]
    assert line.startswith("Features: 80 in total, 32 computed in") and line.endswith(
        "48 computed earlier"
    )
    assert again.manifest["metrics"] == whole.manifest["metrics"]
    other = replace(linear, model_options={"pool": "mean"})
    training.train(other, folder, out, show=str)
    assert len([*(out / frozen_features.FOLDER).iterdir()]) == 2


def test_features_that_take_long_show_how_far_they_are(linear, tmp_path, monkeypatch):
    monkeypatch.setattr(frozen_features, "SHOWN", 0)
    folder, lines = write_competition(tmp_path / "competition", train=80), []

    training.train(linear, folder, tmp_path / "out", show=lines.append)

    shown = [line for line in lines if line.startswith("Features: ")]
    assert re.fullmatch(r"Features: 16 of 80, 0:\d\d:\d\d left", shown[0])
    assert shown[-2] == "Features: 80 of 80, 0:00:00 left"


# A text is six tokens of eight, and one of two words in it says what it is.
TEXTS = """
import numpy as np
from keras import layers
from pipeline.config import Config, Data, Optimizer
from pipeline.data.custom_readers import Rows
from pipeline.models.published import backbone

def read_texts(folder, config):
    ids = [f"t{number}" for number in range(60)]
    return Rows(ids, texts(ids), [f"kind {int(name[1:]) % 2}" for name in ids])

def read_test(folder, config, ids, state):
    return texts(ids)

def texts(ids):
    draw = [np.random.default_rng(int(name[1:])) for name in ids]
    tokens = np.stack([each.integers(4, 20, 8) for each in draw]).astype(np.int32)
    tokens[:, 3] = [2 + int(name[1:]) % 2 for name in ids]
    tokens[:, 6:] = 1
    return {"tokens": tokens, "mask": (tokens != 1).astype(np.int32)}

def mean(inputs, num_classes, batchnorm_momentum):
    x = backbone({"token_ids": inputs["tokens"], "padding_mask": inputs["mask"]})
    x = layers.GlobalAveragePooling1D()(x, mask=inputs["tokens"] != 1)
    return layers.Dense(num_classes)(x)

CONFIG = Config(
    name="texts", competition="texts", num_classes=2, batch=8, epochs=1, warmup_epochs=0,
    folds=3, fit="linear",
    data=Data(
        kind="custom", custom_inputs={"tokens": ("int32", 8), "mask": ("int32", 8)},
        label_column="label",
    ),
    read_training="read_texts", read_test="read_test", model="mean",
    optimizer=Optimizer(name="adam", base_rate=1e-3, base_batch=8),
)
"""


def test_texts_from_a_custom_reader_become_features(tmp_path, hub):
    """Unseen rows, from several integer inputs to the submission."""
    path = tmp_path / "texts.py"
    path.write_text(TEXTS)
    ids = [f"t{number}" for number in range(60, 100)]
    sample = "".join(f"{name},kind 0\n" for name in ids)
    (tmp_path / "sample_submission.csv").write_text(f"id,label\n{sample}")
    config = replace(configs.load(str(path)), pretrained=preset(tmp_path, "RobertaBackbone"))

    training.train(config, tmp_path, tmp_path / "out", show=str)
    loaded = artifact.load(tmp_path / "out" / "artifact")
    inference.infer(loaded, tmp_path, tmp_path / "inferred", show=str)

    given = (tmp_path / "inferred" / "submission.csv").read_text().splitlines()[1:]
    right = [
        line == f"{name},kind {int(name[1:]) % 2}" for name, line in zip(ids, given, strict=True)
    ]
    assert sum(right) >= 36


def columns(target, outputs, rows, seed):
    """Return features, labels and the labels' true linear outputs."""
    random = np.random.default_rng(seed)
    features = (3 * random.normal(size=(rows, 6)) + 5).astype(np.float32)
    truth = (features - 5) @ random.normal(size=(6, outputs))
    if target == "classes":
        return features, truth.argmax(1).astype(np.int32)
    if target == "ordinal":
        return features, np.digitize(truth[:, 0], (-3, 3)).astype(np.int32)
    return features, (truth if target == "regression" else truth > 0).astype(np.float32)


@pytest.mark.parametrize(
    ("target", "fields", "outputs"),
    [
        ("classes", {"num_classes": 4}, 4),
        ("classes", {"num_classes": 2}, 2),
        ("ordinal", {"num_classes": 3}, 2),
        ("multilabel", {"num_classes": 3}, 3),
    ],
)
def test_each_target_is_learned(tiny, target, fields, outputs, seed):
    """On unseen rows, with labels that follow from the features."""
    config = replace(tiny, target=target, **fields)
    features, labels = columns(target, outputs, 3000, seed)

    found = frozen_features.fit(config, features[:2000], labels[:2000], None, None)

    outputs = found.outputs(features[2000:])
    if target == "classes":
        right = outputs.argmax(1) == labels[2000:]
    elif target == "ordinal":
        right = (outputs > 0).sum(1) == labels[2000:]
    else:
        right = (outputs > 0) == labels[2000:]
    assert right.mean() > 0.95
    assert found.kernel.dtype == found.bias.dtype == np.float32


def test_numbers_are_learned(tiny, seed):
    data = replace(tiny.data, label_column=("a", "b"))
    config = replace(tiny, target="regression", num_classes=0, data=data)
    features, labels = columns("regression", 2, 300, seed)

    found = frozen_features.fit(config, features[:200], labels[:200], None, None)
    first = frozen_features.fit(config, features[:200], labels[:200, 0], None, None)

    assert np.abs(found.outputs(features[200:]) - labels[200:]).max() < 0.05
    assert first.kernel.shape == (6, 1)
    assert np.allclose(first.outputs(features)[:, 0], found.outputs(features)[:, 0], atol=0.05)


def test_a_class_without_rows_is_as_likely_as_one_row(tiny):
    config = replace(tiny, num_classes=4)
    features, labels = columns("classes", 3, 400, 0)

    found = frozen_features.fit(config, features, labels, None, None)

    likely = special.softmax(found.outputs(features), axis=1)[:, 3]
    assert 1e-5 < likely.mean() < 0.05


def test_rows_that_count_more_are_fitted_better(tiny):
    config = replace(tiny, num_classes=2)
    features = np.zeros((100, 1), np.float32)
    labels = np.arange(100, dtype=np.int32) % 2
    weights = np.where(labels == 1, 3.0, 1.0).astype(np.float32)

    found = frozen_features.fit(config, features, labels, weights, None, strength=1.0)

    assert special.softmax(found.outputs(features[:1]))[0, 1] == pytest.approx(0.75, abs=1e-3)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return layers.Dense(num_classes, 'tanh')(backbone(images)[:, 0])", "and no activ"),
        ("return layers.Dense(num_classes)(backbone(images))[:, 0]", "last layer, GetItem"),
    ],
)
def test_a_model_that_does_not_end_with_a_linear_layer_is_refused(asked, hub, tmp_path, body, said):
    folder = write_competition(tmp_path / "competition", train=40)
    config = custom(tmp_path, asked, body, pretrained=preset(tmp_path), fit="linear")
    code = frozen_features.key(config, "float32", [], "data")
    assert code != frozen_features.key(replace(config, model="published"), "float32", [], "data")
    with pytest.raises(ConfigError, match=said):
        training.train(config, folder, tmp_path / "out", show=str)


def test_new_layers_and_options_of_steps_are_refused(linear, tiny, tmp_path):
    """Before anything is read."""
    with pytest.raises(ConfigError, match=r"layer1_dense.* has no published"):
        training.train(replace(tiny, fit="linear"), tmp_path, tmp_path / "out", show=str)
    new = replace(linear, model_options={"pool": "attention"})
    with pytest.raises(ConfigError, match=r"head_attention.* has no published weights"):
        training.train(new, tmp_path, tmp_path / "out", show=str)
    with pytest.raises(
        ConfigError, match="'' with sampler, label_smoothing, because fit does not run training"
    ):
        replace(tiny, fit="linear", sampler="balanced", label_smoothing=0.1)


def test_a_linear_run_is_not_mixed_with_another_one(linear, tmp_path):
    folder, out = write_competition(tmp_path / "competition", train=80), tmp_path / "out"
    training.train(replace(linear, fit=""), folder, out, max_steps=1, show=str)

    with pytest.raises(CheckpointError, match="contains a different run"):
        training.train(linear, folder, out, show=str)
    training.train(linear, folder, out, fresh=True, show=str)


def test_a_file_of_features_that_is_damaged_is_computed_again(linear, tmp_path):
    folder, out, lines = write_competition(tmp_path / "competition", train=80), tmp_path / "out", []
    first = training.train(linear, folder, out, show=str)
    ((kept,),) = (list(place.iterdir()) for place in (out / frozen_features.FOLDER).iterdir())
    kept.write_bytes(kept.read_bytes()[:-100])

    again = training.train(linear, folder, out, show=lines.append)

    assert any("cannot read" in line and "computing it again" in line for line in lines)
    assert again.manifest["metrics"] == first.manifest["metrics"]


def test_rows_of_one_group_are_split_by_row(tiny):
    config = replace(tiny, num_classes=2)
    features, labels = columns("classes", 2, 300, 0)

    found = frozen_features.fit(config, features, labels, None, np.zeros(300, int))

    assert (found.outputs(features).argmax(1) == labels).mean() > 0.9


def test_features_belong_to_one_network_and_one_size(linear):
    one = frozen_features.key(linear, "float32", [], "data")
    assert one != frozen_features.key(linear, "mixed_bfloat16", [], "data")
    assert one != frozen_features.key(linear, "float32", [{"source": "a"}], "data")
    assert one != frozen_features.key(replace(linear, seed=7), "float32", [], "data")
    assert one == frozen_features.key(replace(linear, folds=3), "float32", [], "data")
    assert architectures.build(linear).layers[-1].name == "logits"
