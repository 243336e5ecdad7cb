"""What is wrong with a competitor's own functions is said before a run spends anything."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pipeline.configs
from localkaggle import competitions
from pipeline import config as configs
from pipeline.config import config_files, custom_code
from pipeline.data import dataset
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.evaluate import metrics
from pipeline.models import architectures
from pipeline.train import custom_check, training
from tests.shipped import DIGITS as DIGITS_FILE
from tests.shipped import shipped

ROOT = Path(__file__).resolve().parents[3]
ORDERS = ROOT / "pipeline/configs/orders.py"
# The example of docs/custom-code.md, with the rest of the config as in that of digits.
(EXAMPLE, *_) = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs/custom-code.md").read_text(), re.DOTALL
)
REST = "    # the rest as in pipeline/configs/digits.py\n"
FIELDS = ("competition", "num_classes", "data", "optimizer", "batch", "epochs")
DIGITS = DIGITS_FILE.read_text().splitlines()
WHOLE = EXAMPLE.replace(REST, "\n".join(x for x in DIGITS if x.strip().startswith(FIELDS)) + "\n")

LOGITS = 'layers.Dense(num_classes, dtype="float32")(x)'
LOSS = "(1 - keras.ops.exp(-losses)) ** 2 * losses"
RECALL = "sum((labels[truth == k] == k).mean() for k in set(truth)) / len(set(truth))"
ERASED = "jax.lax.dynamic_update_slice_in_dim(image, 0 * image[:4], row, 0)"
FLOATS = "to_numpy(np.float32)"
# Of a config with functions of its own, and of one with readers of its own: a text that is replaced
# by another one, and what the refusal says; DEF is the line of the function.
BROKEN = [
    (LOGITS, LOGITS.replace("num_classes", "7"), r"DEF\).*shape \(None, 10\), got \(None, 7"),
    (LOSS, f"keras.ops.mean({LOSS})", r"DEF\) returns float32 \(\) for 16 rows"),
    (RECALL, "float(len(truth))", r"DEF\) returned 20 for the truth and 20 for the worst"),
    (RECALL, f"{RECALL} / 'a'", r"DEF\) raised TypeError \(line \d+\)"),
    (ERASED, "image[1:]", r"DEF\) returned uint8 \(7, 8, 1\)"),
    (ERASED, "image + __import__('random').randint(0, 99)", r"DEF\) returns different results"),
]
READERS = [
    ("table.loc[list(ids)]", "table.iloc[: len(ids)]", r"DEF\) ignores the order of the ids"),
    (
        "ids=list(table.index)",
        "ids=['a', *table.index[1:-1], 'a']",
        r"DEF\) has 'a' in 'id' .*each id once",
    ),
    ("np.stack(pictures)[..., None]", "np.stack(pictures)", r"\(1197, 8, 8\); expected .*uint8"),
    (FLOATS, "to_numpy()", r"the input 'numbers' is float64 \(1197, 2\)"),
    (FLOATS, f"{FLOATS} * np.float32('nan')", "the input 'numbers' is .*, not finite in row 0"),
    ('labels=table["size"]', 'labels=table["size"][1:]', r"1197 ids, labels of shape \(1196"),
    ("state=state)", "state=table)", r"DEF\) returned a state that JSON cannot represent"),
    ("found = inputs(", "found = outputs(", r"DEF\) raised NameError \(line \d+\)"),
]


@pytest.fixture
def own(tmp_path):
    """Return a function that makes the config of the example, with texts replaced."""

    def made(*changes):
        text = WHOLE
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        (tmp_path / "leaves.py").write_text(text)
        return configs.load(str(tmp_path / "leaves.py"))

    return made


@pytest.mark.slow
def test_the_example_of_the_page_passes_and_is_shown_with_file_and_line(own):
    told = []

    custom_check.check(own(), told.append)

    assert [line.split(" (")[0] for line in told[:4]] == [
        "augment='erased'", "loss='focal'", "metric='macro_recall'", "model='squeeze_net'"
    ]  # fmt: skip
    assert "greater is better; receives classes" in told[2]
    assert "the same weights with whole batches and micro-batches of 4" in told[4]
    assert "TensorFlow computes the same outputs" in told[5]


@pytest.fixture(scope="module")
def orders_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("orders") / "orders"
    competitions.EMBEDDED["orders"]().write(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "text", "before", "after", "says"),
    [("leaves.py", WHOLE, *row) for row in BROKEN]
    + [
        (ORDERS.name, ORDERS.read_text(encoding="utf-8"), *row)
        for row in READERS
        if ORDERS.is_file()  # a competitor may have deleted it
    ],
)
def test_a_broken_custom_function_is_refused_with_file_line_and_edit(
    name, text, before, after, says, tmp_path, orders_folder
):
    assert text.count(before) == 1
    path = tmp_path / name
    path.write_text(text.replace(before, after), encoding="utf-8")
    line = text[: text.index(before)].rpartition("\ndef ")[0].count("\n") + 2

    with pytest.raises((ConfigError, DataError), match=says.replace("DEF", f"line {line}")) as said:
        config = configs.load(str(path))
        if name == ORDERS.name:
            dataset.read_training(orders_folder, config)
        custom_check.by_jax(config, str)

    assert name in str(said.value) and "\n" in str(said.value)


# A mean over no rows.
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
def test_a_metric_that_fails_without_a_class_is_refused_before_training(own):
    config = own((RECALL, RECALL.replace("set(truth)", "range(10)")))

    custom_check.check_metric_of(config, np.arange(20) % 10)
    with pytest.raises(DataError, match="macro_recall has no value for these 18 rows"):
        custom_check.check_metric_of(config, np.arange(18) % 9)


def test_valid_custom_functions_are_accepted(own):
    """With each way to write them that their signature or file allows."""
    kept = "import dataclasses\n@dataclasses.dataclass\nclass Kept:\n    b: int\n\n\ndef focal("
    config = own(
        ("(truth, labels)", "(truth, labels, beta: float = 2.0)"),
        ("*, width: int = 16", "width: int = 24, **more"),
        ("import keras\n", "from __future__ import annotations\nimport keras\n"),
        ("def focal(", kept),
    )

    assert metrics.of(config).greater_is_better
    with architectures.without_numbers():
        assert architectures.build(replace(config, model_options={"other": 1})).count_params()


def test_a_module_beside_the_file_counts_as_its_code(own, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside_it.py").write_text("FACTOR = 1\n")
    change = "import keras\n", "import keras\nfrom beside_it import FACTOR\n"
    first = custom_code.digest(own(change))
    (tmp_path / "beside_it.py").write_text("FACTOR = 2\n")

    assert custom_code.digest(own(change)) != first


def test_functions_that_changed_since_the_training_are_refused(own):
    """The config of an artifact has only their sha256."""
    example = own()
    trained = configs.from_json(example.to_json())
    custom_code.require(trained, custom_code.digest(example))
    assert custom_code.function(trained, "loss") is not None

    with pytest.raises(ConfigError, match=r"from pipeline/configs/.*\n.*configs/nowhere.py"):
        custom_code.require(replace(trained, name="nowhere"), "0" * 64)
    for name, has in (("digits", "no functions"), ("cells", "starts with [0-9a-f]{12};")):
        with pytest.raises(
            ConfigError, match=f"not the ones used in training.*{has}.*expected 0{{12}}"
        ):
            custom_code.require(shipped(name), "0" * 64)


def test_a_package_of_several_files_is_a_config(tmp_path, monkeypatch):
    """Its digest covers all its files."""
    folder = tmp_path / "several"
    folder.mkdir()
    start, rest = WHOLE.replace('name="leaves"', 'name="several"').split("def focal", 1)
    body, rest = rest.split("def macro_recall", 1)
    focal = f"import keras\n\n\ndef focal{body}"
    (folder / "losses.py").write_text(focal)
    (folder / "__init__.py").write_text(
        f"{start}\nfrom pipeline.configs.several.losses import focal\ndef macro_recall{rest}"
    )
    monkeypatch.setattr(config_files, "CONFIGS", tmp_path)
    monkeypatch.setattr(pipeline.configs, "__path__", [str(tmp_path)])

    config = configs.load("several")
    first = custom_code.digest(config)

    assert custom_code.function(config, "loss").__module__ == "pipeline.configs.several.losses"
    (folder / "losses.py").write_text(focal.replace("** 2", "** 3"))
    assert custom_code.digest(configs.load("several")) != first


@pytest.mark.slow
def test_a_run_resumes_with_the_same_custom_functions_alone(own, competition, tiny, tmp_path):
    """data/test_custom_readers.py infers with a custom reader, in two processes."""
    names = ("name", "loss", "metric", "augment")  # a model compiles longer
    example, quiet, out = own(), {"show": lambda line: None}, tmp_path / "out"
    config = replace(tiny, epochs=2, **{name: getattr(example, name) for name in names})
    training.train(config, competition, out, max_steps=3, **quiet)
    trained = training.train(config, competition, out, **quiet)
    assert "validation_macro_recall" in trained.manifest["metrics"]
    assert trained.manifest["custom_code"] == custom_code.digest(example)

    own(("** 2", "** 3"))
    with pytest.raises(CheckpointError, match=r"Differences: custom_code: '.*' then, '.*' now"):
        training.train(config, competition, out, **quiet)
