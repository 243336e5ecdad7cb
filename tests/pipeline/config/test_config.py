"""A config checks itself, and survives JSON."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.configs
from pipeline.config import Config, Data, Floor, Optimizer, config_files, from_json, load
from pipeline.config.config_files import CONFIGS
from pipeline.config.optimizer import OPTIMIZERS
from pipeline.errors import ConfigError

pytestmark = pytest.mark.quick
DIGITS = load("digits")
NAMES = sorted(path.stem for path in CONFIGS.glob("[a-z]*.py"))

floors = st.builds(
    Floor,
    model=st.text(min_size=1),
    metric=st.just("accuracy"),
    score=st.floats(-10, 10),
    error=st.floats(0, 1),
    rows=st.integers(1, 10**6),
)
weights = st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 9), min_size=1)
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
        clip_norm=st.none() | st.floats(0.1, 10),
    ),
    class_weights=st.sampled_from(["", "balanced"]) | weights,
    batch=st.integers(1, 65536),
    epochs=st.integers(5, 1000),
    floor=st.none() | floors,
    model_options=st.dictionaries(
        st.sampled_from(["width", "x"]), st.integers() | st.booleans() | st.text(max_size=5)
    ),
)


@settings(max_examples=40)
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
    inputs = {("numeric" if known else "categorical") + "_columns": names[labels:]}
    places = {"id_column": "an id", "label_column": names[:labels], "train_images": ("one", "two")}
    data = Data(kind="table", **places, **inputs)
    given_ = {"target": "regression", "metric": "rmsle", "num_classes": 0, "model": "mlp"}
    config = replace(DIGITS, data=data, **given_)

    again = from_json(json.loads(json.dumps(config.to_json())))

    assert again == config
    assert (again.data.labels, again.outputs) == (names[:labels], labels)


@pytest.mark.parametrize(("target", "outputs"), [("multilabel", 10), ("ordinal", 9)])
def test_a_model_has_an_output_a_label_or_one_between_two_steps(target, outputs):
    """Of labels in rising order it answers "more than this one"."""
    assert replace(DIGITS, target=target).outputs == outputs


@pytest.mark.parametrize("name", NAMES)
def test_every_config_is_named_as_its_file(name):
    """The name in a manifest leads to the file."""
    assert load(name).name == name


DATA = DIGITS.data
TWO = replace(DATA, label_column=("a", "b"))
GROUPED = replace(DATA, group_column="patient")
RECORDS = replace(DATA, kind="tfrecords", image_feature="picture")
TABLE = Data(kind="table", numeric_columns=("age",))
OWN = Data(kind="own", own_inputs={"numbers": ("float32", 4)})
TAGS = replace(DIGITS, data=TWO, target="multilabel", num_classes=0)
BAD = [
    (
        DIGITS,
        {
            "name": ("Digits",),
            "competition": ("My Competition",),
            "num_classes": (1,),
            "batch": (0, 12.5, True, 2**40),
            "epochs": (-1, 10**12),
            "seed": (-1, 2**32),
            "data": ({"height": 8}, None),
            "optimizer": ("adam", None),
            "model_options": ([1], None),
            "code": (None, 3),
            "warmup_epochs": (41,),
            "precision": ("float16",),
            "handoff": ("email",),
            "batchnorm_momentum": (1.0,),
            "model": ("no such",),
            "target": ("ranking",),
            "metric": (None,),
            "label_smoothing": (1.0,),
            "class_weights": (2.0,),
            "drop_path": (1,),
            "folds": (0, 1, 101, 2.5, True, "3"),
            "limit_predictions": (False,),
        },
    ),
    (
        DATA,
        {
            "height": (0, 200_000),
            "width": (8.0,),
            "channels": (2, 1.0, True),
            "flip": ("no", 1, None),
            "rotate": ("yes",),
            "id_column": (None, ""),
            "label_column": ((), ("label", "label"), 3, "id"),
            "group_column": ("", 3, "id", "label"),
            "weight_column": ("label",),
            "kind": ("video",),
            "resize": ("bicubic",),
            "decode": ("half",),
            "suffix": ("png",),
            "train_csv": ("n" * 300, "../train.csv"),
            "train_images": ((), "/etc", ("a", "../b")),
            "test_images": ("a\0b",),
            "train_records": ((),),
            "test_records": (("a*", "../b*"),),
            "sample_submission": ("sample.parquet",),
            "image_feature": ("",),
            "numeric_columns": (("age",),),
            "most_categories": (1,),
            "crop_padding": (10**6,),
            "crop_scale": (1.1,),
            "mixup": (11.0,),
            "cutmix": ("1",),
            "rand_augment": (2.5,),
            "rand_magnitude": (1.5,),
            "validation_fraction": (0.0,),
        },
    ),
    (
        DIGITS.optimizer,
        {
            "name": ("lion",),
            "base_rate": (float("nan"), -1.0),
            "beta_2": (1.0,),
            "ema_momentum": (1.0,),
            "base_batch": (2**40,),
            "weight_decay": (0.1,),
            "decay_biases": (1,),
            "clip_norm": (0,),
            "layer_decay": (1.1,),
            "schedule": ("linear",),
            "decay_share": (0.1,),
        },
    ),
    # What would be ignored is refused.
    (TABLE, {"height": (8,), "channels": (1,), "flip": (True,), "crop_padding": (2,)}),
    (TABLE, {"mixup": (1,), "cutmix": (1,), "rand_augment": (1,), "group_duplicates": (True,)}),
    (TABLE, {"numeric_columns": ((),)}),
    (OWN, {"height": (4,), "flip": (True,)}),
    (RECORDS, {"image_feature": ("id",), "label_column": ("picture",)}),
    (RECORDS, {"group_column": ("picture",), "train_csv": (None,)}),
    (GROUPED, {"train_csv": (None,), "validation_fraction": (0.6,)}),
    (TWO, {"train_csv": (None,)}),
    (replace(DATA, width=9), {"rotate": (True,)}),
    (TAGS, {"target": ("classes", "ordinal"), "num_classes": (3,)}),
    (replace(TAGS, target="regression"), {"num_classes": (10,)}),
    (replace(DIGITS, data=TABLE, model="mlp", views=1), {"feed": ("files",)}),
]


@pytest.mark.parametrize(
    ("made", "field", "value"),
    [
        (made, field, bad)
        for made, fields in BAD
        for field, values in fields.items()
        for bad in values
    ],
)
def test_a_bad_value_is_named_with_what_was_expected(made, field, value):
    """The message has the field, the value, the expectation and an edit, and the exit code is that
    of usage.
    """
    part = {Data: "data.", Optimizer: "optimizer."}.get(type(made), "")

    with pytest.raises(ConfigError) as caught:
        replace(made, **{field: value})

    message, shown = str(caught.value), "" if isinstance(value, tuple) else repr(value)[:60]
    assert f"{part}{field}={shown}" in message and "expected" in message
    assert len(message.splitlines()) == 2 and caught.value.exit_code == 2


@pytest.mark.parametrize("change", [{"batch": None}, {"epoch": 3}])
def test_a_missing_or_misspelt_field_is_refused(change):
    """Nothing is guessed, and nothing ignored in silence."""
    value = {name: kept for name, kept in (DIGITS.to_json() | change).items() if kept is not None}

    with pytest.raises(ConfigError, match=next(iter(change))):
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
    ("old", "new"), [("epochs=40", "epoch=40"), ("data=Data(", "data=dict("), ('"adam"', '"lion"')]
)
def test_a_slip_in_a_config_is_named_with_its_line(tmp_path: Path, old, new):
    """Whether the config notices it or Python does."""
    text = (CONFIGS / "digits.py").read_text()
    path = tmp_path / "digits.py"
    path.write_text(text.replace(old, new))

    with pytest.raises(ConfigError, match=rf"{path} \(line \d+\)"):
        load(str(path))


def test_a_slip_in_a_named_config_is_no_traceback(tmp_path: Path, monkeypatch):
    """The same holds for the files of this project, which everybody edits first."""
    broken = "from pipeline.config import Config\n\nCONFIG = Config(epoch=40)\n"
    (tmp_path / "broken.py").write_text(broken)
    monkeypatch.setattr(config_files, "CONFIGS", tmp_path)
    monkeypatch.setattr(pipeline.configs, "__path__", [str(tmp_path)])

    with pytest.raises(ConfigError, match=r"broken\.py \(line 3\) .* Did you mean epochs\?"):
        load("broken")


def test_a_config_under_another_name_than_its_file_s_is_refused(tmp_path: Path):
    """The notebook looks for the file by the name."""
    path = tmp_path / "mine.py"
    path.write_text((CONFIGS / "digits.py").read_text())

    with pytest.raises(ConfigError, match=r"says name='digits'; expected 'mine'"):
        load(str(path))


@pytest.mark.parametrize(
    "path", ["n" * 300 + ".py", "", ".py", "/", "no/such.py", "digits.pyc", "digit"]
)
def test_a_name_or_path_that_leads_nowhere_is_answered_with_the_names(path):
    """Also one that no file can have."""
    with pytest.raises(ConfigError, match=", ".join(NAMES)):
        load(path)


def test_a_config_that_may_not_be_read_is_named(tmp_path: Path, unreadable):
    """Neither missing nor wrong."""
    path = tmp_path / "mine.py"
    path.write_text("CONFIG = 3")

    with unreadable(path), pytest.raises(ConfigError, match=r"mine\.py .*PermissionError"):
        load(str(path))
