"""A config checks itself, and survives JSON."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import pipeline.configs
from pipeline.config import Baseline, Config, Data, Optimizer, config_files, from_json, load
from pipeline.config.config_files import CONFIGS
from pipeline.errors import ConfigError
from tests.shipped import DIGITS as DIGITS_FILE
from tests.shipped import shipped

pytestmark = pytest.mark.quick
DIGITS = shipped("digits")
NAMES = sorted(path.stem for path in CONFIGS.glob("[a-z]*.py"))

UNUSUAL = replace(
    DIGITS,
    baseline=Baseline(model="ß\u2028", metric="accuracy", score=-0.1, error=1e-9, rows=7),
    class_weights={"é": 0.1},
    model_options={"width": 3, "x": True, "of": "text"},
    pretrained=("keras/vit/keras/vit_base_patch16_224_imagenet/4", "owner/slug/a.weights.h5"),
    optimizer=replace(DIGITS.optimizer, name="sgd", base_rate=1 / 3, clip_norm=0.1),
)
# JSON has no tuples, which several columns and folders are.
SEVERAL = replace(
    DIGITS,
    data=Data(
        kind="table",
        id_column="an id",
        label_column=("a", "b"),
        train_images=("one", "two"),
        numeric_columns=("c", "d"),
    ),
    target="regression",
    num_classes=0,
    model="mlp",
)


def again(config: Config) -> Config:
    """Return what JSON makes of a config."""
    return from_json(json.loads(json.dumps(config.to_json())))


@pytest.mark.parametrize("config", [UNUSUAL, SEVERAL], ids=["unusual", "several"])
def test_a_config_survives_json(config):
    """The manifest contains the whole config."""
    assert again(config) == config
    assert again(config).outputs == (2 if config == SEVERAL else 10)
    # For ordinal labels an output means "more than this one".
    assert replace(UNUSUAL, target="ordinal").outputs == 9


@pytest.mark.parametrize("name", NAMES)
def test_every_config_is_named_as_its_file_and_survives_json(name):
    """The name in a manifest leads to the file."""
    config = load(name)

    assert config.name == name and again(config) == config


DATA = DIGITS.data
TWO = replace(DATA, label_column=("a", "b"))
GROUPED = replace(DATA, group_column="patient")
RECORDS = replace(DATA, kind="tfrecords", image_feature="picture")
TABLE = Data(kind="table", numeric_columns=("age",))
OWN = Data(kind="custom", custom_inputs={"numbers": ("float32", 4)})
TAGS = replace(DIGITS, data=TWO, target="multilabel", num_classes=0)
LION = replace(DIGITS.optimizer, name="Lion", base_batch=DIGITS.batch)
BAD = [
    (
        DIGITS,
        {
            "name": ("Digits",),
            "competition": ("My Competition",),
            "batch": (0, 12.5, True, 2**40),
            "data": ({"height": 8}, None),
            "model_options": (3, None, {"width": None}),
            "pretrained": ((), None, 5, ("a/b", None)),
            "precision": ("float16",),
            "batchnorm_momentum": (1.0,),
            "target": ("ranking",),
            "metric": (None,),
            "loss": (3,),
            "class_weights": (2.0, {}, "even"),
            "thresholds": ("yes", 1),
            "postprocess": ("a b",),
            "folds": (1, 101),
            "progressive": (0.5, (1.0,), (0.75, 0.5), (0.5, 0.5), ("0.5",)),
        },
    ),
    (
        DATA,
        {
            "height": (0, 200_000, 8.0),
            "channels": (2,),
            "flip": ("no", 1, None),
            "label_column": ((), ("label", "label"), 3, "id"),
            "group_column": ("", "id", "label"),
            "weight_column": ("label",),
            "kind": ("video",),
            "train_csv": ("n" * 300, "../train.csv"),
            "train_images": ((), "/etc", ("a", "../b"), "a\0b"),
            "test_records": (("a*", "../b*"),),
            "sample_submission": ("sample.parquet",),
            "numeric_columns": (("age",),),
            "date_columns": (("sold",),),
            "crop_padding": (10**6,),
            "validation_fraction": (0.0,),
        },
    ),
    (
        DIGITS.optimizer,
        {
            "name": ("AdamW(0.1)",),
            "arguments": ({"beta_1": 0.5},),
            "scaling": ("sqrt",),
            "layer_rates": ({"head": -1},),
            "base_rate": (float("nan"), -1.0),
            "weight_decay": (0.1,),
            "clip_norm": (0,),
            "schedule": ("saw tooth",),
            "decay_share": (0.1,),
            "swa_start": (0, 1.0),
        },
    ),
    # Fields that would be ignored are refused.
    (replace(DIGITS.optimizer, ema_momentum=0.9), {"swa_start": (0.5,)}),
    (LION, {"momentum": (0.5,), "epsilon": (1e-3,), "weight_decay": (0.1,)}),
    (replace(DIGITS, optimizer=LION), {"batch": (8,)}),
    (TABLE, {"height": (8,), "flip": (True,), "crop_padding": (2,), "group_duplicates": (True,)}),
    (TABLE, {"mixup": (1,), "rand_augment": (1,), "numeric_columns": ((),)}),
    (TABLE, {"date_columns": (("age",),)}),
    (OWN, {"height": (4,), "flip": (True,)}),
    (RECORDS, {"image_feature": ("id",), "label_column": ("picture",), "train_csv": (None,)}),
    (GROUPED, {"train_csv": (None,), "validation_fraction": (0.6,)}),
    (TWO, {"train_csv": (None,)}),
    (replace(DATA, width=9), {"rotate": (True,)}),
    (TAGS, {"target": ("ordinal",), "num_classes": (3,)}),
    (replace(TAGS, target="classes"), {"num_classes": (3,)}),
    (replace(TAGS, target="regression"), {"num_classes": (10,), "thresholds": (True,)}),
    (replace(DIGITS, target="ordinal"), {"label_smoothing": (0.1,)}),
    (replace(DIGITS, loss="focal"), {"label_smoothing": (0.1,)}),
    (replace(TAGS, data=DATA, num_classes=3), {"class_weights": ("balanced",)}),
    (replace(DIGITS, data=TABLE, model="mlp", views=1), {"feed": ("files",)}),
    (replace(DIGITS, data=TABLE, model="mlp", views=1), {"progressive": ((0.5,),)}),
    (replace(DIGITS, epochs=2, warmup_epochs=1), {"progressive": ((0.25, 0.5),)}),
    (replace(DIGITS, progressive=(0.5,)), {"fit": ("linear",)}),
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
    """With the edit, and the exit code for usage."""
    part = {Data: "data.", Optimizer: "optimizer."}.get(type(made), "")

    with pytest.raises(ConfigError) as caught:
        replace(made, **{field: value})

    message, shown = str(caught.value), "" if isinstance(value, tuple | dict) else repr(value)[:60]
    shown = f"={shown}" if shown else ""  # a message names the part of a dict that is wrong
    assert f"{part}{field}{shown}" in message and "expected" in message
    assert len(message.splitlines()) == 2 and caught.value.exit_code == 2


@pytest.mark.parametrize("change", [{"batch": None}, {"epoch": 3}])
def test_a_missing_or_misspelt_field_is_refused(change):
    value = {name: kept for name, kept in (DIGITS.to_json() | change).items() if kept is not None}

    with pytest.raises(ConfigError, match=next(iter(change))):
        from_json(value)


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        DIGITS.batch = 7  # type: ignore[misc]
    with pytest.raises(TypeError):
        DIGITS.model_options["width"] = 7  # type: ignore[index]


SHIPPED = DIGITS_FILE.read_text()


def test_a_config_is_loaded_from_a_path(tmp_path: Path):
    """From any folder, but with the name of its file, by which notebooks find it."""
    path = tmp_path / "mine.py"
    path.write_text(SHIPPED.replace('name="digits"', 'name="mine"'))
    assert load(str(path)).name == "mine"

    path.write_text(SHIPPED)
    with pytest.raises(ConfigError, match=r"has name='digits'; expected .* name='mine'"):
        load(str(path))


def test_a_config_that_was_just_edited_is_read_again(tmp_path: Path, monkeypatch):
    """Python's bytecode cache misses an edit within a second that keeps the size."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "digits.py"
    for seed in (1, 2, 3):
        changed = f"from dataclasses import replace\nCONFIG = replace(CONFIG, seed={seed})"
        path.write_text(f"{SHIPPED}\n{changed}")
        assert load(str(path)).seed == seed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CONFIG = 3", "CONFIG is 3"),
        ("\nimport sys\nsys.exit(0)", "line 3.*SystemExit"),
        ("def f(): f()\nf()", "RecursionError"),
        ("\0", "could not be loaded"),
        (SHIPPED.replace('"adam"', '"the adam"'), r"digits\.py \(line \d+\)"),
        (SHIPPED.replace('"adam"', '"lion"'), r"(?s)no function.* such as 'Lion'"),
    ],
)
def test_a_file_without_a_config_is_refused(tmp_path: Path, text, said):
    """With its path and the cause, without a traceback."""
    path = tmp_path / "digits.py"
    path.write_text(text)

    with pytest.raises(ConfigError, match=said) as caught:
        load(str(path))

    assert "digits.py" in str(caught.value)


def test_a_mistake_in_a_named_config_gives_no_traceback(tmp_path: Path, monkeypatch):
    """In the files of this project, which everybody edits first."""
    broken = "from pipeline.config import Config\n\nCONFIG = Config(epoch=40)\n"
    (tmp_path / "broken.py").write_text(broken)
    monkeypatch.setattr(config_files, "CONFIGS", tmp_path)
    monkeypatch.setattr(pipeline.configs, "__path__", [str(tmp_path)])

    with pytest.raises(ConfigError, match=r"broken\.py \(line 3\) .* Did you mean epochs\?"):
        load("broken")


def test_a_field_of_another_part_is_named_with_its_part(tmp_path: Path):
    path = tmp_path / "digits.py"
    path.write_text(SHIPPED.replace("batchnorm_momentum=0.9,", "flip=True,"))

    with pytest.raises(ConfigError, match=r"unexpected .*'flip'.* flip is a field of Data\."):
        load(str(path))


@pytest.mark.parametrize(
    "path", ["n" * 300 + ".py", "", ".py", "/", "no/such.py", "digits.pyc", "digit"]
)
def test_an_unknown_name_or_path_lists_the_configs(path):
    with pytest.raises(ConfigError, match=", ".join(NAMES)):
        load(path)


def test_the_models_of_kaggle_are_known_by_their_names():
    sources = (vit := "keras/vit/keras/vit_base/4", "hf://a/b", "owner/slug/file.h5", "a/b/c/d/e")
    sources += ("./presets/keras/vit/1", "../../../../1")
    assert replace(DIGITS, pretrained=sources).kaggle_models == (vit,)
    assert replace(DIGITS, pretrained=vit).kaggle_models == (vit,)
    assert DIGITS.kaggle_models == ()
