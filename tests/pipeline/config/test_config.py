"""A config checks itself, and survives JSON."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Config, Data, Floor, Optimizer, config_files, from_json, load
from pipeline.config.config_files import CONFIGS
from pipeline.config.optimizer import OPTIMIZERS, SCHEDULES
from pipeline.errors import ConfigError

DIGITS = load("digits")
NAMES = sorted(path.stem for path in CONFIGS.glob("[a-z]*.py"))

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
        weight_column=st.none() | st.just("sure"),
    ),
    model=st.just("small_cnn"),
    optimizer=st.builds(
        Optimizer,
        name=st.sampled_from(OPTIMIZERS),
        base_rate=st.floats(1e-6, 10),
        base_batch=st.integers(1, 4096),
        ema_momentum=st.none() | st.floats(0.5, 0.999),
        clip_norm=st.none() | st.floats(0.1, 10),
        layer_decay=st.floats(0.1, 1),
        schedule=st.sampled_from(SCHEDULES),
    ),
    class_weights=st.sampled_from(["", "balanced"])
    | st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 9), min_size=1),
    batch=st.integers(1, 65536),
    epochs=st.integers(5, 1000),
    floor=st.none()
    | st.builds(
        Floor,
        model=st.text(min_size=1),
        metric=st.just("accuracy"),
        score=st.floats(-10, 10),
        error=st.floats(0, 1),
        rows=st.integers(1, 10**6),
    ),
    model_options=st.dictionaries(
        st.sampled_from(["width", "dropout", "x"]),
        st.integers() | st.booleans() | st.text(max_size=5),
    ),
)


@given(made)
def test_a_config_survives_json(config):
    """What is written into the manifest is the config, whole."""
    text = json.dumps(config.to_json())

    assert from_json(json.loads(text)) == config


columns = st.lists(
    st.text("abcxyz", min_size=1, max_size=3), min_size=3, max_size=6, unique=True
).map(tuple)


@given(columns, st.booleans(), st.integers(1, 2))
def test_a_config_of_a_table_survives_json(names, known, labels):
    """JSON has no tuples; several columns and folders come back as what they were."""
    data = Data(
        kind="table",
        id_column="an id",
        label_column=names[:labels],
        numeric_columns=names[labels:] if known else (),
        categorical_columns=() if known else names[labels:],
        train_images=("one", "two"),
    )
    config = replace(
        DIGITS, data=data, target="regression", metric="rmsle", num_classes=0, model="mlp"
    )

    again = from_json(json.loads(json.dumps(config.to_json())))

    assert again == config
    assert (again.data.labels, again.outputs) == (names[:labels], labels)


@pytest.mark.parametrize("field", ["id_column", "label_column", "group_column"])
def test_each_feature_of_tfrecords_is_one_thing(field):
    """An image is neither an id nor a label."""
    records = replace(
        DIGITS.data, kind="tfrecords", train_records=["a/*", "b/*"], image_feature="picture"
    )

    assert records.train_records == ("a/*", "b/*")
    with pytest.raises(ConfigError, match="picture"):
        replace(records, **{field: "picture"})


@pytest.mark.parametrize(
    ("field", "value"),
    [("height", 8), ("channels", 1), ("flip", True), ("crop_padding", 2), ("numeric_columns", ())],
)
def test_a_table_has_columns_and_no_pixels(field, value):
    """What would be ignored is refused."""
    table = Data(kind="table", numeric_columns=("age",))

    assert table.shape == (2,)
    with pytest.raises(ConfigError, match=rf"data\.{field}="):
        replace(table, **{field: value})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"target": "classes"}, "target='classes'"),
        ({"target": "ordinal"}, "target='ordinal'"),
        ({"target": "multilabel", "num_classes": 3}, "num_classes=3"),
        ({"target": "regression", "num_classes": 10}, "num_classes=10"),
    ],
)
def test_several_label_columns_are_several_labels_or_numbers(values, said):
    """And their number is that of the columns."""
    two = replace(DIGITS.data, label_column=("a", "b"))

    with pytest.raises(ConfigError, match=said):
        replace(DIGITS, data=two, **values)


@pytest.mark.parametrize(
    ("target", "outputs"), [("classes", 10), ("multilabel", 10), ("ordinal", 9)]
)
def test_a_model_has_an_output_a_label_or_one_between_two_steps(target, outputs):
    """Of labels in rising order it answers "more than this one"."""
    assert replace(DIGITS, target=target).outputs == outputs


@pytest.mark.parametrize("name", NAMES)
def test_every_config_is_named_as_its_file(name):
    """The name in a manifest leads to the file."""
    assert load(name).name == name


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
        ("seed", 2**32),
        ("batch", 2**40),
        ("epochs", 10**12),
        ("data", {"height": 8}),
        ("data", None),
        ("optimizer", None),
        ("optimizer", "adam"),
        ("model_options", None),
        ("model_options", [1]),
        ("warmup_epochs", 41),
        ("precision", "float16"),
        ("handoff", "email"),
        ("batchnorm_momentum", 1.0),
        ("model", "no such"),
        ("target", "ranking"),
        ("metric", None),
        ("label_smoothing", 1.0),
        ("class_weights", 2.0),
        ("drop_path", 1),
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(field, value):
    """The message has the field, the value, the expectation and an edit, and the exit code is that
    of usage.
    """
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
        ("data", "height", 200_000),
        ("data", "width", 8.0),
        ("data", "channels", 2),
        ("data", "channels", 1.0),
        ("data", "channels", True),
        ("data", "flip", "no"),
        ("data", "flip", 1),
        ("data", "flip", None),
        ("data", "id_column", None),
        ("data", "id_column", ""),
        ("data", "label_column", ()),
        ("data", "label_column", ["label", "label"]),
        ("data", "label_column", 3),
        ("data", "kind", "video"),
        ("data", "resize", "bicubic"),
        ("data", "decode", "half"),
        ("data", "train_records", ()),
        ("data", "test_records", ("a*", "../b*")),
        ("data", "image_feature", ""),
        ("data", "train_images", ()),
        ("data", "train_images", ("a", "../b")),
        ("data", "numeric_columns", ("age",)),
        ("data", "most_categories", 1),
        ("data", "label_column", "id"),
        ("data", "crop_padding", 10**6),
        ("data", "train_csv", "n" * 300),
        ("data", "test_images", "a\0b"),
        ("data", "suffix", "png"),
        ("data", "train_csv", "../train.csv"),
        ("data", "train_images", "/etc"),
        ("data", "validation_fraction", 0.0),
        ("optimizer", "name", "lion"),
        ("optimizer", "base_rate", float("nan")),
        ("optimizer", "base_rate", -1.0),
        ("optimizer", "beta_2", 1.0),
        ("optimizer", "ema_momentum", 1.0),
        ("optimizer", "base_batch", 2**40),
        ("optimizer", "weight_decay", 0.1),
        ("optimizer", "decay_biases", 1),
        ("optimizer", "clip_norm", 0),
        ("optimizer", "layer_decay", 1.1),
        ("optimizer", "schedule", "linear"),
        ("optimizer", "decay_share", 0.1),
        ("data", "crop_scale", 1.1),
        ("data", "rotate", "yes"),
        ("data", "weight_column", "label"),
    ],
)
def test_a_bad_value_of_a_part_is_named_with_its_part(part, field, value):
    """`data.height`, not `height`: a reader finds the line."""
    with pytest.raises(ConfigError, match=rf"{part}\.{field}="):
        replace(getattr(DIGITS, part), **{field: value})


def test_an_unknown_field_is_refused():
    """A misspelt field would otherwise be ignored in silence."""
    with pytest.raises(ConfigError, match="epoch"):
        from_json({**DIGITS.to_json(), "epoch": 3})


def test_a_missing_field_is_refused():
    """Nothing is guessed."""
    value = DIGITS.to_json()
    del value["batch"]

    with pytest.raises(ConfigError, match="missing fields: batch"):
        from_json(value)


def test_a_config_cannot_be_changed():
    """What was checked stays as it was."""
    with pytest.raises(AttributeError):
        DIGITS.batch = 7  # type: ignore[misc]
    with pytest.raises(TypeError):
        DIGITS.model_options["width"] = 7  # type: ignore[index]


def test_a_config_is_loaded_from_a_path(tmp_path: Path):
    """A file of the same form, anywhere."""
    text = (CONFIGS / "digits.py").read_text().replace('name="digits"', 'name="mine"')
    (tmp_path / "mine.py").write_text(text)

    assert load(str(tmp_path / "mine.py")).name == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CONFIG = 3", "CONFIG is 3"),
        ("", "CONFIG is None"),
        ("import nowhere_to_be_found", "nowhere_to_be_found"),
        ("CONFIG = (", "line 1.*SyntaxError"),
        ("\nimport sys\nsys.exit(0)", "line 3.*SystemExit"),
        ("def f(): f()\nf()", "RecursionError"),
        ("\0", "could not be read"),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(tmp_path: Path, text, said):
    """The path and the cause, without a traceback."""
    path = tmp_path / "broken.py"
    path.write_text(text)

    with pytest.raises(ConfigError, match=said) as caught:
        load(str(path))

    assert "broken.py" in str(caught.value)


@pytest.mark.parametrize(
    "old, new", [("epochs=40", "epoch=40"), ("data=Data(", "data=dict("), ('"adam"', '"lion"')]
)
def test_a_slip_in_a_config_is_named_with_its_line(tmp_path: Path, old, new):
    """Whether the config notices it or Python does."""
    text = (CONFIGS / "digits.py").read_text()
    path = tmp_path / "digits.py"
    path.write_text(text.replace(old, new))
    assert path.read_text() != text

    with pytest.raises(ConfigError, match=rf"{path} \(line \d+\)"):
        load(str(path))


def test_a_slip_in_a_named_config_is_no_traceback(tmp_path: Path, monkeypatch):
    """The same holds for the files of this project, which everybody edits first."""
    broken = tmp_path / "broken.py"
    broken.write_text("from pipeline.config import Config\n\nCONFIG = Config(epoch=40)\n")
    monkeypatch.setattr(config_files, "CONFIGS", tmp_path)
    import pipeline.configs

    monkeypatch.setattr(pipeline.configs, "__path__", [str(tmp_path)])

    with pytest.raises(
        ConfigError,
        match=r"broken\.py \(line 3\) could not be read: .* Did you mean epochs\?",
    ):
        load("broken")


def test_a_config_under_another_name_than_its_file_s_is_refused(tmp_path: Path):
    """The notebook looks for the file by the name."""
    path = tmp_path / "mine.py"
    path.write_text((CONFIGS / "digits.py").read_text())

    with pytest.raises(ConfigError, match=r"says name='digits'; expected 'mine'"):
        load(str(path))


@pytest.mark.parametrize("path", ["n" * 300 + ".py", "", ".py", "/", "no/such.py", "digits.pyc"])
def test_a_path_that_leads_nowhere_is_answered_with_the_names(path):
    """Also one that no file can have."""
    with pytest.raises(ConfigError, match=", ".join(NAMES)):
        load(path)


def test_a_config_that_may_not_be_read_is_named(tmp_path: Path, unreadable):
    """Neither missing nor wrong."""
    path = tmp_path / "mine.py"
    path.write_text("CONFIG = 3")

    with (
        unreadable(path),
        pytest.raises(ConfigError, match=r"mine\.py could not be read: PermissionError"),
    ):
        load(str(path))


def test_a_wrong_name_is_answered_with_the_right_ones():
    """The names that exist are in the message."""
    with pytest.raises(ConfigError, match=", ".join(NAMES)):
        load("digit")
