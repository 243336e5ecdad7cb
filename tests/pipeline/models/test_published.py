"""KerasHub networks start from their preset, and inference builds them without it.

If KerasHub is not installed, tests/standin replaces it.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

from pipeline import artifact
from pipeline import config as configs
from pipeline.config import Data
from pipeline.errors import ArtifactError, CheckpointError, ConfigError, DeviceError
from pipeline.infer import inference
from pipeline.models import architectures, presets, published, weight_files, weight_names
from pipeline.models.families import AROUND_ZERO, IMAGENET, KNOWN
from pipeline.models.layer_tree import descendants
from pipeline.train import layer_rates, training
from tests.doors.given import pipeline
from tests.small_competition import write_competition

pytestmark = pytest.mark.usefixtures("hub")
DINOV3 = "keras/dinov3/keras/dinov3_vit_small_lvd1689m/1"
PATCHES = {
    "patch_size": 8, "num_layers": 1, "num_heads": 2, "hidden_dim": 16, "image_shape": [32, 32, 3],
}  # fmt: skip
SIZES = {
    "DINOV3Backbone": {**PATCHES, "intermediate_dim": 16},
    "ViTBackbone": {**PATCHES, "mlp_dim": 16},
    "SigLIPVisionEncoder": {**PATCHES, "intermediate_dim": 16},
    "EfficientNetBackbone": {
        **{
            name: values[:2] if isinstance(values, list) else values
            for name, values in KNOWN[
                "keras/efficientnet/keras/efficientnet2_rw_s_ra2_imagenet"
            ].numbers.items()
        },
        "stackwise_num_repeats": [1, 1],
        "stackwise_input_filters": [8, 8],
        "stackwise_output_filters": [8, 16],
        "num_features": 32,
    },
    "RobertaBackbone": {
        "vocabulary_size": 20, "num_layers": 1, "num_heads": 2, "hidden_dim": 16,
        "intermediate_dim": 16, "max_sequence_length": 8,
    },
}  # fmt: skip


def preset(folder, kind="DINOV3Backbone", numbers=None):
    """Write a preset with random weights as if it were published; return its path."""
    source = folder / "numbers"
    source.mkdir(parents=True)
    config = {
        "module": "keras_hub.src.models.some.file",
        "class_name": kind,
        "config": {**(numbers or SIZES[kind]), "name": "x", "dtype": {"class_name": "DTypePolicy"}},
        "registered_name": f"keras_hub>{kind}",
    }
    (source / presets.CONFIG).write_text(json.dumps(config))
    presets.write(str(source), folder / "preset")
    (folder / "preset" / presets.RANDOM).unlink()
    return str(folder / "preset")


@pytest.fixture
def asked(tiny):
    """A config for images of 32 x 32 with the model "published"."""
    data = replace(tiny.data, height=32, width=32, resize="stretch", crop_padding=0)
    return replace(tiny, model="published", model_options={}, data=data, epochs=1, warmup_epochs=0)


def custom(tmp_path, asked, body, **fields):
    """Return a config with a custom model."""
    path = tmp_path / "leaves.py"
    path.write_text(
        "from keras import layers\nfrom pipeline.config import *\n"
        "from pipeline.models.published import backbone\n"
        f"def made(images, num_classes, batchnorm_momentum):\n    {body}\n"
        "CONFIG = Config(name='leaves', competition='leaves',"
        " data=Data(height=32, width=32, channels=3),"
        " model='made', num_classes=4, batch=8, epochs=1, warmup_epochs=0,"
        " optimizer=Optimizer(name='adam', base_rate=1e-3, base_batch=8))\n"
    )
    return replace(configs.load(str(path)), data=asked.data, **fields)


def begun(config, show=str):
    """Return the model that a training starts from, and its origins."""
    given = published.networks(config)
    model = architectures.build(config, networks=given)
    return model, published.load(model, config, given, show)


def networks(model):
    return [layer for layer in descendants(model) if hasattr(layer, "relay_source")]


def equal(network, source):
    return all(map(np.array_equal, network.get_weights(), presets.arrays(source)))


def test_a_run_starts_from_a_preset_and_infers_without_it(asked, tmp_path):
    """A frozen one is in the artifact bit for bit."""
    folder = write_competition(tmp_path / "competition", train=40)
    source, lines = preset(tmp_path / "a"), []
    config = replace(asked, pretrained=source, model_options={"backbone_rate": 0.0})

    run = training.train(config, folder, tmp_path / "out", show=lines.append)
    wanted = presets.arrays(source)
    Path(source).rename(tmp_path / "away")

    assert any("Starting from" in line and "DINOv3 License" in line for line in lines)
    assert run.manifest["pretrained"][0]["source"] == source
    loaded = artifact.load(tmp_path / "out" / "artifact")
    assert all(map(np.array_equal, list(loaded.weights.values())[: len(wanted)], wanted))
    inference.infer(loaded, folder, tmp_path / "inferred", show=str)
    assert (tmp_path / "inferred" / "submission.csv").is_file()


@pytest.mark.parametrize("kind", [kind for kind in SIZES if kind != "RobertaBackbone"])
def test_each_family_starts_from_its_preset(asked, tmp_path, kind):
    model, _ = begun(replace(asked, pretrained=(source := preset(tmp_path, kind))))

    (network,) = networks(model)
    assert equal(network, source) and type(network).__name__ == kind
    assert model.output_shape == (None, 4)
    frozen = [one for one in descendants(model) if isinstance(one, keras.layers.BatchNormalization)]
    assert bool(frozen) == (kind == "EfficientNetBackbone")
    assert not any(layer.trainable for layer in frozen)


def test_a_model_of_two_networks_starts_from_both(asked, tmp_path):
    one, other = preset(tmp_path / "a"), preset(tmp_path / "b", "ViTBackbone")
    body = f"""a, b = backbone(images)[:, 0], backbone(images, {other!r}, trainable=False)[:, 0]
    return layers.Dense(num_classes)(layers.Concatenate()([a, b]))"""

    model, origins = begun(custom(tmp_path, asked, body, pretrained=(one, other)))

    first, second = networks(model)
    assert equal(first, one) and equal(second, other)
    assert first.trainable_weights and not second.trainable_weights
    assert [each["source"] for each in origins] == [one, other]


def test_a_text_network_starts_from_its_preset(asked, tmp_path):
    source = preset(tmp_path, "RobertaBackbone")
    body = """flat = layers.Flatten()(images)[:, :8]
    tokens = {"token_ids": flat * 0, "padding_mask": flat * 0 + 1}
    return layers.Dense(num_classes)(backbone(tokens)[:, 0])"""

    model, _ = begun(custom(tmp_path, asked, body, pretrained=source))

    assert equal(networks(model)[0], source)


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_prepared_by_the_preset_or_else_by_its_family(asked, tmp_path, channels):
    source, data = preset(tmp_path), replace(asked.data, channels=channels)
    file = Path(source) / "image_converter.json"
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, channels), np.uint8)
    config = replace(asked, pretrained=source, data=data)
    for pixels in (IMAGENET, AROUND_ZERO):
        file.write_text(json.dumps({"config": pixels._asdict()}))
        body = "return layers.Dense(num_classes)(backbone(images)[:, 0])"
        for each in (config, custom(tmp_path, config, body, pretrained=source)):
            model, _ = begun(each)

            found = keras.Model(model.input, model.get_layer("backbone_prepared").output)(images)

            wanted = images * np.float32(pixels.scale) + np.float32(pixels.offset)
            assert np.allclose(found, wanted, atol=1e-5) and found.shape[-1] == 3
    file.unlink()
    assert presets.find(source).pixels == IMAGENET
    theirs = {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}  # of transformers
    (file.parent / "preprocessor_config.json").write_text(json.dumps(theirs))
    assert presets.find(source).pixels == ((4 / 255,) * 3, (-2.0,) * 3)


def test_a_preset_is_found_where_it_is_mounted_and_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCALKAGGLE_ROOT", str(tmp_path / "kaggle"))
    monkeypatch.setenv("KAGGLEHUB_CACHE", str(tmp_path / "cache"))
    made = Path(preset(tmp_path))
    inputs = tmp_path / "kaggle" / "input"
    places = {
        inputs / "models" / DINOV3: DINOV3,
        tmp_path / "cache" / "models" / DINOV3: DINOV3,
        inputs / "datasets" / "someone" / "weights": "someone/weights",
        inputs / "datasets" / "someone" / "more" / "dinov3": "someone/more/dinov3",
    }
    for place, source in places.items():
        place.parent.mkdir(parents=True)
        made.rename(place)

        assert presets.place(source) == place and presets.arrays(source)

        place.rename(made)
    assert presets.place(DINOV3) is None


def test_a_well_known_network_is_built_without_its_preset_but_not_trained(asked, tmp_path):
    """`plan` and `check` build it; the message has the commands."""
    known = replace(asked, pretrained=DINOV3)
    assert presets.find(DINOV3).numbers["hidden_dim"] == 384

    with pytest.raises(ConfigError) as error:
        training.train(known, tmp_path / "nothing", tmp_path / "out", show=str)

    assert f"python -m pipeline preset {DINOV3} --output" in str(error.value)
    assert f"invoke dry-run --model {DINOV3}=" in str(error.value)
    assert f"kagglehub.model_download('{DINOV3}')" in str(error.value)


def test_random_weights_are_marked_and_reproducible(asked, tmp_path):
    source, lines = preset(tmp_path), []
    for name in ("one", "two"):
        presets.write(source, tmp_path / name)

    _, origins = begun(replace(asked, pretrained=str(tmp_path / "one")), lines.append)

    assert origins[0]["random"] and any("random weights" in line for line in lines)
    one, two = (presets.arrays(str(tmp_path / name)) for name in ("one", "two"))
    assert all(map(np.array_equal, one, two))
    with pytest.raises(ConfigError, match="already contains a preset"):
        presets.write(source, Path(source))


def test_random_weights_may_have_fewer_blocks(tmp_path):
    presets.write(DINOV3, tmp_path / "few", blocks=1)

    found = presets.find(str(tmp_path / "few"))
    assert found.numbers == {**presets.find(DINOV3).numbers, "num_layers": 1}


def save_file(arrays, path):
    """Write a .safetensors file, by its specification."""
    header, content = {"__metadata__": {"format": "pt"}}, b""
    for name, each in arrays.items():
        place = [len(content), len(content) + each.nbytes]
        header[name] = {"dtype": "F32", "shape": each.shape, "data_offsets": place}
        content += each.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)


BODY = """network = keras.Sequential([layers.Flatten(), layers.Dense(8), layers.Dense(8)])
    network.build((None, 32, 32, 3))
    begin(network{})
    return layers.Dense(num_classes)(network(images))"""


def test_a_custom_network_starts_from_a_file(asked, tmp_path):
    """From Keras, with the same names, or with PyTorch's names and order of axes."""
    head = "import keras\n    from pipeline.models.published import begin\n    "
    network = keras.Sequential(
        [keras.layers.Flatten(), keras.layers.Dense(8), keras.layers.Dense(8)]
    )
    network.build((None, 32, 32, 3))
    wanted = network.get_weights()
    network.save_weights(tmp_path / "a.weights.h5")
    parts = ("dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias")
    save_file(dict(zip(parts, wanted, strict=True)), tmp_path / "b.safetensors")
    turned = {
        name.replace("/", "."): each.T.copy() for name, each in zip(parts, wanted, strict=True)
    }
    save_file(turned, tmp_path / "c.safetensors")
    ways = {
        "a.weights.h5": "",
        "b.safetensors": "",
        "c.safetensors": ", names=lambda name: name.replace('/', '.'), torch=True",
    }
    for name, options in ways.items():
        body, path = head + BODY.format(options), str(tmp_path / name)

        model, origins = begun(custom(tmp_path, asked, body, pretrained=path))

        assert all(map(np.array_equal, networks(model)[0].get_weights(), wanted))
        assert origins[0]["source"] == path
    with pytest.raises(ConfigError, match=r"'dense/kernel' .*is missing"):
        begun(custom(tmp_path, asked, head + BODY.format(""), pretrained=path))


def changed(source, change):
    """Change the config.json of a preset."""
    path = Path(source) / presets.CONFIG
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


LAMBDA = {"class_name": "Lambda", "module": "keras.layers", "config": {"function": "x"}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda config: config.update(class_name="NoSuchBackbone"), "does not include the network"),
        (
            lambda config: config["config"].update(extra=LAMBDA),
            "contains 'Lambda'; expected only plain values",
        ),
        (lambda config: config["config"].update(extra=[LAMBDA]), "contains 'Lambda'"),
        (lambda config: config.pop("config"), "Expected a preset written by KerasHub's"),
    ],
)
def test_a_preset_with_anything_but_numbers_is_refused(asked, tmp_path, change, said):
    changed(source := preset(tmp_path), change)

    with pytest.raises(ConfigError, match=said):
        architectures.build(replace(asked, pretrained=source))


def test_weights_of_different_sizes_are_refused(asked, tmp_path):
    changed(source := preset(tmp_path), lambda config: config["config"].update(hidden_dim=24))

    with pytest.raises(ConfigError, match="weights of the preset in"):
        published.require(replace(asked, pretrained=source))


class Blocks(keras.layers.Layer):
    """A layer with lists of layers within a list."""

    def __init__(self, **more):
        super().__init__(**more)
        self.blocks = [[keras.layers.Dense(2)], [keras.layers.Dense(2)]]

    def build(self, shape):
        """Build both."""
        for (block,) in self.blocks:
            block.build(shape)

    def call(self, x):
        """Apply both."""
        return self.blocks[1][0](self.blocks[0][0](x))


def test_weights_that_a_file_lacks_are_refused(tmp_path):
    """For lists within a list some versions of Keras only warn."""
    start = keras.Input((2,))
    network, path = keras.Model(start, Blocks()(start)), tmp_path / "a.weights.h5"
    network.save_weights(path)
    with h5py.File(path, "a") as file:
        groups = []
        file.visit(lambda name: groups.append(name) if name.endswith("/container") else None)
        for name in groups:  # some versions of Keras write none
            del file[name]

    with pytest.raises(ValueError, match=r"is missing from .* others|could not be loaded"):
        weight_files.read_keras(network, path)


class Twice(keras.Model):
    """A model with a second name for a part of a layer, like RoBERTa's."""

    def __init__(self):
        start, self.blocks = keras.Input((2,)), Blocks()
        self.first = self.blocks.blocks[0][0]
        self.head = keras.layers.Dense(2)
        super().__init__(start, self.head(self.blocks(start)))


def test_a_layer_with_two_names_has_one_place():
    """Some versions of Keras count it twice."""
    places = [key.split(" ")[0] for key in weight_names.keys(Twice()).values()]

    assert places == ["0.0.0", "0.0.1", "0.1.0", "0.1.1", "1.0", "1.1"]


@pytest.mark.parametrize("kind", ["ViTBackbone", "SigLIPVisionEncoder"])
def test_positions_are_interpolated_for_images_of_a_different_size(tmp_path, kind):
    """A ramp over positions stays a ramp between their centres; the class token keeps its own."""
    source = preset(tmp_path, kind)
    given, published_ones = presets.find(source), presets.arrays(source)
    paths = [one.path for one in presets.network(given, None, "backbone").weights]
    where = next(place for place, path in enumerate(paths) if "position_embedding" in path)
    rows, columns = np.meshgrid(*[np.arange(4.0)] * 2, indexing="ij")
    ramp = np.stack([rows.ravel(), columns.ravel(), *[np.ones(16)] * 14], axis=1)
    first = len(published_ones[where]) - 16
    published_ones[where] = np.concatenate([np.full((first, 16), 7.0), ramp]).astype(np.float32)

    network = presets.network(given, (64, 64, 3), "backbone")
    fitted = presets.resized(given, published_ones, network)

    assert [each.shape for each in fitted] == [tuple(one.shape) for one in network.weights]
    grid = fitted[where][first:].reshape(8, 8, 16)
    centres = (np.arange(8) + 0.5) / 2 - 0.5
    assert np.allclose(grid[2:-2, 2:-2, 0], centres[2:-2, None], atol=0.05)
    assert np.allclose(grid[2:-2, 2:-2, 1], centres[None, 2:-2], atol=0.05)
    assert (fitted[where][:first] == 7).all()
    others = [place for place in range(len(fitted)) if place != where]
    assert all(
        np.array_equal(fitted[place], published_ones[place])
        for place in others
        if "position_ids" not in paths[place]
    )


def test_a_network_with_learned_positions_starts_at_a_different_size(asked, tmp_path):
    data = replace(asked.data, height=48, width=64)

    model, _ = begun(replace(asked, pretrained=preset(tmp_path, "ViTBackbone"), data=data))

    assert np.isfinite(architectures.outputs(model, np.zeros((2, 48, 64, 1), np.uint8), 2)).all()


@pytest.mark.parametrize("pool", ["token", "mean", "gem", "attention"])
def test_each_pooling_trains_at_the_full_rate(asked, tmp_path, pool):
    """And infers."""
    folder = write_competition(tmp_path / "competition", train=40)
    numbers = {**SIZES["DINOV3Backbone"], "num_register_tokens": 2}
    source = preset(tmp_path, numbers=numbers)
    config = replace(asked, pretrained=source, model_options={"pool": pool, "backbone_rate": 0.5})
    model = architectures.build(config)

    factors = layer_rates.factors(model, config)
    training.train(config, folder, tmp_path / "out", show=str)

    (inside,) = networks(model)
    below = {id(one) for one in inside.trainable_variables}
    pairs = zip(model.trainable_variables, factors, strict=True)
    assert all(factor == (0.5 if id(one) in below else 1.0) for one, factor in pairs)
    loaded = artifact.load(tmp_path / "out" / "artifact")
    inference.infer(loaded, folder, tmp_path / "inferred", show=str)


def test_attention_in_float16_on_a_cpu_is_refused(asked, tmp_path):
    folder = write_competition(tmp_path / "competition", train=40)
    config = replace(asked, pretrained=preset(tmp_path), precision="mixed_float16")
    with pytest.raises(DeviceError, match="does not support attention on a CPU; expected"):
        training.train(config, folder, tmp_path / "out", show=str)


def test_the_mean_leaves_out_tokens_without_a_position(asked, tmp_path):
    numbers = {**SIZES["DINOV3Backbone"], "num_register_tokens": 2}
    config = replace(asked, pretrained=preset(tmp_path, numbers=numbers))
    model = architectures.build(replace(config, model_options={"pool": "mean"}))
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 1)).astype(np.uint8)

    pool = model.get_layer("head_pool")
    tokens, mean = keras.Model(model.input, [pool.input, pool.output])(images)

    assert tokens.shape[1] == 16
    assert np.allclose(mean, np.asarray(tokens).mean(1), atol=1e-6)


def test_an_impossible_pooling_is_refused(asked, tmp_path):
    config = replace(asked, pretrained=preset(tmp_path, "EfficientNetBackbone"))
    with pytest.raises(
        ConfigError, match=r"pool='token' does not support outputs .*; expected 'auto', 'mean'"
    ):
        architectures.build(replace(config, model_options={"pool": "token"}))


def test_images_that_patches_do_not_cover_are_refused(asked, tmp_path):
    config = replace(asked, pretrained=preset(tmp_path))
    with pytest.raises(ConfigError, match=r"not support 60x32 images.*8x8.\nSet data.height=64"):
        architectures.build(replace(config, data=replace(config.data, height=60)))


@pytest.mark.parametrize("options", [{"pool": "max"}, {"droput": 0.1}, {"dropout": 1.5}])
def test_an_invalid_option_is_named_with_the_valid_ones(asked, tmp_path, options):
    config = replace(asked, pretrained=preset(tmp_path), model_options=options)
    with pytest.raises(ConfigError) as caught:
        architectures.build(config)

    first, edit = str(caught.value).splitlines()
    takes = "batchnorm, dropout, backbone_rate, pool"
    assert first.startswith("model='published' cannot be built") and "line" not in first
    told = f"The options are {options}; the model accepts {takes}."
    assert edit == f"Correct model_options in the config. {told}"


def test_random_weights_do_not_amplify_rounding(tmp_path):
    """Golden outputs would differ too much on another machine. Forty residual blocks."""
    numbers = {**SIZES["EfficientNetBackbone"], "stackwise_num_repeats": [20, 20]}
    source = preset(tmp_path, "EfficientNetBackbone", numbers)
    network = presets.network(presets.find(source), None, "backbone")
    network.set_weights(presets.arrays(source))
    images = np.random.default_rng(0).normal(size=(4, 32, 32, 3)).astype(np.float32)

    one, other = (np.asarray(network(images * scale)) for scale in (1.0, 1.0 + 1e-6))

    assert np.abs(one - other).max() < 1e-4 * np.abs(one).max()


@pytest.mark.parametrize(
    ("model", "pretrained", "said"),
    [
        ("published", DINOV3.replace("lvd", "ldv"), f"Did you mean (.|\n)*pretrained='{DINOV3}'$"),
        ("published", DINOV3[:-2], f"Did you mean (.|\n)*pretrained='{DINOV3}'$"),
        ("published", DINOV3.split("/")[-2], f"Did you mean (.|\n)*pretrained='{DINOV3}'$"),
        ("published", "", f"pretrained has no preset; (.|\n)*pretrained='{DINOV3}'$"),
        ("published", (DINOV3, DINOV3[:-1] + "2"), "pretrained has 2 presets; expected one"),
        ("published", "imagenet", "it is only for keras.applications networks"),
        ("published", "no/such", "a folder with config.json"),
        ("convnext_tiny", DINOV3, "To use a preset, set model='published'"),
        ("mlp", DINOV3, "is not used by any layer; in the(.|\n)*call backbone"),
    ],
)
def test_weights_that_a_model_cannot_start_from_are_refused(asked, model, pretrained, said):
    with pytest.raises(ConfigError, match=said):
        architectures.build(replace(asked, model=model, pretrained=pretrained))


def test_folds_and_sessions_start_from_the_same_weights(asked, tmp_path):
    """A dataset may have a new version since."""
    folder, out = write_competition(tmp_path / "competition", train=40), tmp_path / "out"
    source = Path(preset(tmp_path / "a"))
    config = replace(asked, pretrained=str(source), folds=2)
    training.train(config, folder, out, max_steps=1)
    with h5py.File(source / presets.WEIGHTS[0], "r+") as file:
        file.visititems(
            lambda _, one: one.write_direct(one[...] + 1) if isinstance(one, h5py.Dataset) else None
        )
    text = (source / presets.CONFIG).read_text()
    (source / presets.CONFIG).write_text(f"{text} ")  # a new version would be a new folder

    with pytest.raises(CheckpointError, match="the published weights that were loaded"):
        training.train(config, folder, out)


def test_numbers_from_0_to_255_are_prepared_like_bytes(asked, tmp_path):
    source, data = preset(tmp_path / "a"), asked.data
    numbers = Data(kind="custom", custom_inputs={"image": ("float32", *data.shape)})
    custom_kind = {"data": numbers, "read_training": "read", "read_test": "read"}
    pixels = np.random.default_rng(0).integers(0, 256, (2, *data.shape)).astype(np.uint8)
    found = []
    for fields, given in (({}, pixels), (custom_kind, pixels.astype(np.float32))):
        model, _ = begun(replace(asked, pretrained=source, **fields))
        prepared = keras.Model(model.input, model.get_layer("backbone_prepared").output)
        found.append(np.asarray(prepared(given)))

    np.testing.assert_allclose(*found, atol=1e-5)


def test_a_model_s_name_may_have_kaggle_s_capitals():
    assert presets.find(DINOV3.replace("/keras/", "/Keras/")) == presets.find(DINOV3)


def test_inference_needs_no_jax():
    code = "import sys; sys.modules['jax'] = None; import pipeline.infer.inference"
    env = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=200, capture_output=True)

    assert done.returncode == 0, done.stderr.decode()


def test_the_class_of_a_source_is_known_without_kerashub(tmp_path):
    assert presets.kind(preset(tmp_path, "ViTBackbone")) == "ViTBackbone"
    assert presets.kind(DINOV3) == "DINOV3Backbone"
    with pytest.raises(ConfigError, match="was not found"):
        presets.kind("keras/dinov3/keras/another/1")


@pytest.mark.parametrize("given", [True, {"a": {"kind": "X", "numbers": 1}}])
def test_an_artifact_with_invalid_networks_is_refused(given):
    with pytest.raises(ArtifactError, match="contains invalid networks"):
        published.carried({"networks": given})


def test_a_blueprint_is_drawn_again_from_its_own_networks(asked, tmp_path):
    """Inference builds the model without the preset too."""
    config = replace(asked, pretrained=preset(tmp_path))
    text = f"from pipeline.config import from_json\nCONFIG = from_json({config.to_json()!r})\n"
    (path := tmp_path / f"{config.name}.py").write_text(text)
    first, again = tmp_path / "first.json", tmp_path / "again.json"
    assert pipeline("blueprint", "--config", path, "--output", first)[0] == 0
    (tmp_path / "preset").rename(tmp_path / "away")

    code, _, said = pipeline("blueprint", "--config", path, "--output", again, "--networks", first)

    assert code == 0, said
    assert first.read_bytes() == again.read_bytes()
