"""Depth counts within each network, whatever holds its blocks."""

from dataclasses import replace

import keras
import pytest

from pipeline.models import architectures, weight_names
from pipeline.train import layer_rates
from tests.pipeline.models.test_published import PATCHES, SIZES, asked, custom, preset

__all__ = ["asked"]
DECAY = 0.5


def by_name(config):
    """Return the factor of each weight that trains, by name, in the model's order."""
    optimizer = replace(config.optimizer, layer_decay=DECAY)
    model = architectures.build(replace(config, optimizer=optimizer))
    keys = weight_names.keys(model)
    found = layer_rates.factors(model, replace(config, optimizer=optimizer))
    names = [weight_names.name(keys[id(one)]) for one in model.trainable_variables]
    return list(zip(names, found, strict=True))


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize("kind", ["DINOV3Backbone", "ViTBackbone", "SigLIPVisionEncoder"])
def test_each_block_of_a_transformer_is_a_part(asked, tmp_path, kind):
    """The embedding lies below the first block; a norm above the last block belongs to it."""
    source = preset(tmp_path, kind, {**SIZES[kind], "num_layers": 4})
    found = by_name(replace(asked, pretrained=source))

    assert [factor for _, factor in found] == sorted(factor for _, factor in found)
    sizes = [[factor for _, factor in found].count(DECAY**depth) for depth in range(6)]
    head, last, *blocks, embedding = sizes
    assert head == 2 and set(blocks) == {blocks[0]} and 0 < embedding < blocks[0]
    assert last >= blocks[0]  # with what follows it: a norm, and SigLIP's own pooling
    assert sum(sizes) == len(found)


@pytest.mark.usefixtures("hub")
def test_two_towers_of_one_encoder_are_as_deep(asked, tmp_path):
    numbers = {**PATCHES, "intermediate_dim": 16, "num_layers": 3}
    one, other = (preset(tmp_path / name, numbers=numbers) for name in "ab")
    body = f"""a, b = backbone(images)[:, 0], backbone(images, {other!r})[:, 0]
    return layers.Dense(num_classes)(layers.Concatenate()([a, b]))"""

    found = by_name(custom(tmp_path, asked, body, pretrained=(one, other)))

    number = (len(found) - 2) // 2
    first, second = found[:number], found[number:-2]
    assert [factor for _, factor in first] == [factor for _, factor in second]
    assert {factor for _, factor in first} == {DECAY**depth for depth in range(1, 5)}
    assert [factor for _, factor in found[-2:]] == [1.0, 1.0]


@pytest.mark.usefixtures("hub")
def test_a_network_of_unequal_blocks_has_twelve_parts_at_most(asked, tmp_path):
    numbers = {**SIZES["EfficientNetBackbone"], "stackwise_num_repeats": [4, 4]}
    config = replace(asked, pretrained=preset(tmp_path, "EfficientNetBackbone", numbers))
    config = replace(config, model_options={"batchnorm": "groups"})

    found = [factor for _, factor in by_name(config)]

    assert found == sorted(found) and found[-1] == 1.0 and found[-3] == DECAY
    assert min(found) >= DECAY**12


def test_the_blocks_of_a_convnext_have_twelve_parts_at_most(tiny):
    """The head keeps its learning rate, and the stem has the lowest one."""
    data = replace(tiny.data, height=32, width=32, channels=3, flip=False)
    config = replace(tiny, model="convnext_tiny", model_options={}, data=data)
    with architectures.without_numbers():
        found = by_name(config)

    factors = [factor for _, factor in found]
    assert factors == sorted(factors) and [factor for factor in factors if factor == 1] == [
        1.0,
        1.0,
    ]
    assert {DECAY**depth for depth in range(13)} == set(factors)
    assert {factor for name, factor in found if "stem" in name} == {min(factors)}


@pytest.mark.parametrize("depth", [2, 13])
def test_layer_decay_falls_by_twelfths_from_the_head_to_the_input(tiny, depth):
    """The head keeps its learning rate; two layers are two parts."""
    optimizer = replace(tiny.optimizer, layer_decay=0.5)
    config = replace(tiny, model_options={"width": 2, "depth": depth}, optimizer=optimizer)
    with architectures.without_numbers():
        model = architectures.build(config)

    factors = layer_rates.factors(model, config)

    layers = [variable.path.rpartition("/")[0] for variable in model.trainable_variables]
    found = list(dict(zip(layers, factors, strict=True)).values())
    parts = min(2 * depth, 12)
    assert len(found) == 2 * depth + 1 and found == sorted(found) and found[-1] == 1
    sizes = [found.count(0.5**part) for part in range(parts, 0, -1)]
    assert sum(sizes) == len(found) - 1 and max(sizes) - min(sizes) <= 1
    assert layer_rates.factors(model, replace(config, optimizer=tiny.optimizer)) is None


def test_layer_decay_takes_the_parts_of_a_layer_as_one_and_looks_into_a_model_within(tiny):
    inner = keras.Input((4, 6))
    with architectures.without_numbers():
        x = keras.layers.MultiHeadAttention(2, 3, name="attention")(inner, inner)
        x = keras.Model(inner, keras.layers.Dense(5, name="inside")(x), name="within")(inner)
        model = keras.Model(inner, keras.layers.Dense(2, name="head")(x))
    config = replace(tiny, optimizer=replace(tiny.optimizer, layer_decay=0.5))

    factors = layer_rates.factors(model, config)

    assert factors == [0.25] * 8 + [0.5] * 2 + [1.0] * 2
