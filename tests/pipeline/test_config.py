"""A config checks itself, and survives JSON."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config as configs
from pipeline.config import Config, Data, Optimizer
from pipeline.errors import ConfigError

DIGITS = configs.load("digits")

made = st.builds(
    Config,
    name=st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True),
    competition=st.from_regex(r"[a-z0-9][a-z0-9-]{2,20}", fullmatch=True),
    num_classes=st.integers(2, 1000),
    data=st.builds(
        Data,
        height=st.integers(1, 512),
        width=st.integers(1, 512),
        channels=st.sampled_from([1, 3]),
        crop_padding=st.integers(0, 8),
        flip=st.booleans(),
        validation_fraction=st.floats(0.01, 0.99),
    ),
    model=st.just("small_cnn"),
    optimizer=st.builds(
        Optimizer,
        name=st.sampled_from(configs.OPTIMIZERS),
        base_rate=st.floats(1e-6, 10),
        base_batch=st.integers(1, 4096),
        ema_momentum=st.none() | st.floats(0.5, 0.999),
    ),
    batch=st.integers(1, 65536),
    epochs=st.integers(5, 1000),
    model_options=st.dictionaries(
        st.sampled_from(["width", "dropout", "x"]), st.integers() | st.booleans() | st.text(max_size=5)
    ),
)


@given(made)
def test_a_config_survives_json(config):
    """What is written into the manifest is the config, whole."""
    text = json.dumps(config.to_json())

    assert configs.from_json(json.loads(text)) == config


@pytest.mark.parametrize("name", ["digits", "cifar100_wrn"])
def test_every_config_is_named_as_its_file(name):
    """The name in a manifest leads to the file."""
    assert configs.load(name).name == name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "Digits"),
        ("competition", "My Competition"),
        ("num_classes", 1),
        ("batch", 0),
        ("batch", 12.5),
        ("batch", True),
        ("epochs", -1),
        ("seed", -1),
        ("warmup_epochs", 41),
        ("precision", "float16"),
        ("handoff", "email"),
        ("batchnorm_momentum", 1.0),
        ("model", "no such"),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(field, value):
    """The message has the field, the value, the expectation and an edit, and the exit code is that of usage."""
    with pytest.raises(ConfigError) as caught:
        replace(DIGITS, **{field: value})

    message = str(caught.value)
    assert f"{field}={value!r}" in message
    assert "expected" in message
    assert len(message.splitlines()) == 2
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("data", "height", 0),
        ("data", "channels", 2),
        ("data", "suffix", "png"),
        ("data", "train_csv", "../train.csv"),
        ("data", "train_images", "/etc"),
        ("data", "validation_fraction", 0.0),
        ("optimizer", "name", "lion"),
        ("optimizer", "base_rate", float("nan")),
        ("optimizer", "base_rate", -1.0),
        ("optimizer", "beta_2", 1.0),
        ("optimizer", "ema_momentum", 1.0),
    ],
)
def test_a_bad_value_of_a_part_is_named_with_its_part(part, field, value):
    """`data.height`, not `height`: a reader finds the line."""
    with pytest.raises(ConfigError, match=rf"{part}\.{field}="):
        replace(getattr(DIGITS, part), **{field: value})


def test_an_unknown_field_is_refused():
    """A misspelt field would otherwise be ignored in silence."""
    with pytest.raises(ConfigError, match="epoch"):
        configs.from_json({**DIGITS.to_json(), "epoch": 3})


def test_a_missing_field_is_refused():
    """Nothing is guessed."""
    value = DIGITS.to_json()
    del value["batch"]

    with pytest.raises(ConfigError, match="missing fields: batch"):
        configs.from_json(value)


def test_a_config_cannot_be_changed():
    """What was checked stays as it was."""
    with pytest.raises(AttributeError):
        DIGITS.batch = 7  # type: ignore[misc]
    with pytest.raises(TypeError):
        DIGITS.model_options["width"] = 7  # type: ignore[index]


def test_a_config_is_loaded_from_a_path(tmp_path: Path):
    """A file of the same form, anywhere."""
    text = (configs.CONFIGS / "digits.py").read_text().replace('name="digits"', 'name="mine"')
    (tmp_path / "mine.py").write_text(text)

    assert configs.load(str(tmp_path / "mine.py")).name == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CONFIG = 3", "CONFIG is 3"),
        ("", "CONFIG is None"),
        ("import nowhere_to_be_found", "nowhere_to_be_found"),
        ("CONFIG = (", "SyntaxError"),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(tmp_path: Path, text, said):
    """The path and the cause, without a traceback."""
    path = tmp_path / "broken.py"
    path.write_text(text)

    with pytest.raises(ConfigError, match=said) as caught:
        configs.load(str(path))

    assert "broken.py" in str(caught.value)


def test_a_wrong_name_is_answered_with_the_right_ones():
    """The names that exist are in the message."""
    with pytest.raises(ConfigError, match="cifar100_wrn, digits"):
        configs.load("digit")
