"""What is wrong with a competitor's own functions is said before a run spends anything."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import pipeline.configs
from localkaggle import competitions
from pipeline import competition_metric
from pipeline import config as configs
from pipeline.config import config_files, own_code
from pipeline.configs import orders
from pipeline.data import dataset
from pipeline.errors import CheckpointError, ConfigError, DataError
from pipeline.models import architectures
from pipeline.training import own_code_check, training
from tests.pipeline.handmade import without_numbers

ROOT = Path(__file__).resolve().parents[3]
ORDERS = Path(orders.__file__)
WHOLE = ROOT / "tests" / "pipeline" / "digits_own.py"
LOGITS = 'layers.Dense(num_classes, dtype="float32", name="logits")(x)'
LOSS = "(1 - keras.ops.exp(-losses)) ** GAMMA * losses"
RECALL = "float(np.mean([(labels[truth == each] == each).mean() for each in np.unique(truth)]))"
ERASED = "jax.lax.dynamic_update_slice(image, black, (*corner, 0))"
# Of a config with functions of its own, and of one with readers of its own: a text that is replaced
# by another one, and what the refusal says.
FOR_EACH = RECALL.replace("np.unique(truth)", "range(10)")
FLOATS = "to_numpy(np.float32)"
BROKEN = [
    (LOGITS, LOGITS.replace("num_classes", "7"), r"line 18\).*shape \(None, 7\), not \(None, 10"),
    (LOSS, f"keras.ops.mean({LOSS})", r"line 38\) returns float32 \(\) for 16 rows"),
    (RECALL, FOR_EACH, r"line 44\) fails where rows of a class are missing"),
    (RECALL, "float(len(truth))", r"line 44\) gives 20 to the truth and 20 to the worst"),
    (RECALL, f"{RECALL} / 'a'", r"line 44\) \(line 46\) ended with TypeError"),
    (ERASED, "image[1:]", r"line 49\) returns uint8 \(7, 8, 1\)"),
    (ERASED, "image + np.random.randint(99, dtype='uint8')", r"line 49\) gives two results"),
]
READERS = [
    ("table.loc[list(ids)]", "table.iloc[: len(ids)]", r"line 26\) returns rows of other ids"),
    ("ids=list(table.index)", "ids=['a', *table.index[1:-1], 'a']", r"1197 ids, 1196 .*, as 'a'"),
    ("np.stack(pictures)[..., None]", "np.stack(pictures)", r"\(1197, 8, 8\); expected uint8"),
    (FLOATS, "to_numpy()", r"the input 'numbers' is float64 \(1197, 2\)"),
    (FLOATS, f"{FLOATS} * np.float32('nan')", "the input 'numbers' is not finite in row 0"),
    ('labels=table["size"]', 'labels=table["size"][1:]', r"the shape \(1196,\); expected \(1197"),
    ("state=state)", "state=table)", r"line 18\) returns a state that JSON cannot hold"),
    ("found = inputs(", "found = outputs(", r"line 18\) ended with NameError \(line 22\)"),
]


@pytest.fixture
def own(tmp_path):
    """Return a function: the config of a file in which a text is replaced."""

    def made(before="", after=""):
        text = WHOLE.read_text()
        assert before in text
        (tmp_path / WHOLE.name).write_text(text.replace(before, after) if before else text)
        return configs.load(str(tmp_path / WHOLE.name))

    return made


@pytest.mark.slow
def test_the_example_of_the_page_works_and_is_told_with_file_and_line(tmp_path):
    text = (ROOT / "docs" / "own-code.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    rest = "    # and the rest, as in pipeline/configs/digits.py\n"
    assert rest in code
    digits = (ROOT / "pipeline" / "configs" / "digits.py").read_text()
    fields = ("competition", "num_classes", "data", "optimizer", "batch", "epochs")
    lines = [line for line in digits.splitlines() if line.strip().startswith(fields)]
    path = tmp_path / "leaves.py"
    path.write_text(code.replace(rest, "\n".join(lines) + "\n"))
    told = []

    own_code_check.check(configs.load(str(path)), told.append)

    assert [line.split(" (")[0] for line in told[:4]] == [
        "augment='erased'", "loss='focal'", "metric='macro_recall'", "model='squeeze_net'"
    ]  # fmt: skip
    assert "greater is better; it gets classes" in told[2]
    assert "TensorFlow computes the same outputs" in told[4]


@pytest.fixture(scope="module")
def orders_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("orders") / "orders"
    competitions.EMBEDDED["orders"]().write(folder)
    return folder


# One of the broken metrics gets no rows.
@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
@pytest.mark.parametrize(
    ("file", "before", "after", "says"),
    [(WHOLE, *row) for row in BROKEN] + [(ORDERS, *row) for row in READERS],
)
def test_what_cannot_work_is_refused_with_file_line_and_edit(
    file, before, after, says, tmp_path, orders_folder
):
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path = tmp_path / file.name
    path.write_text(text.replace(before, after), encoding="utf-8")

    with pytest.raises((ConfigError, DataError), match=says) as refused:
        config = configs.load(str(path))
        if file == ORDERS:
            dataset.read_training(orders_folder, config)
        own_code_check.by_jax(config, str)

    assert file.name in str(refused.value) and "\n" in str(refused.value)


def test_what_can_work_is_not_refused(own):
    """Each way to write a function that is read from its signature or its file."""
    text, kept = WHOLE.read_text(), "@dataclasses.dataclass\nclass Kept:\n    b: int"
    for before, after in (
        ("(truth: np.ndarray, labels: np.ndarray)", "(truth, labels, beta: float = 2.0)"),
        ("*, width: int = 24", "width: int = 24, **more"),
        ("SIDE = 3", f"import dataclasses\n{kept}\nSIDE = 3"),
        ("from typing import Any", "from __future__ import annotations\nfrom typing import Any"),
    ):
        text = text.replace(before, after)

    config = replace(own(WHOLE.read_text(), text), model_options={"width": 8, "other": 1})

    assert competition_metric.of(config).greater_is_better
    with without_numbers():
        assert architectures.build(config).count_params()


def test_a_module_beside_the_file_counts_as_its_code(own, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside_it.py").write_text("FACTOR = 1\n")
    first = own("SIDE = 3", "from beside_it import FACTOR\nSIDE = 3").code
    (tmp_path / "beside_it.py").write_text("FACTOR = 2\n")

    assert own_code.fingerprint(tmp_path / WHOLE.name) != first


def test_functions_that_are_not_those_of_the_training_are_refused(own):
    """An artifact's config has their sha256 only."""
    trained = configs.from_json(own().to_json())
    assert own_code.function(trained, "loss") is not None

    with pytest.raises(ConfigError, match=r"expected pipeline/configs/nowhere.py"):
        own_code.function(replace(trained, name="nowhere", code="0" * 64), "loss")
    for name, has in (("digits", "none"), ("cells", "begins with [0-9a-f]{12};")):
        elsewhere = replace(trained, name=name, code="0" * 64)
        with pytest.raises(
            ConfigError, match=f"not those of the training.*{has}.*expected 0{{12}}"
        ):
            own_code.function(elsewhere, "loss")


def test_a_package_of_several_files_is_a_config(tmp_path, monkeypatch):
    """With the sha256 of all of them."""
    folder = tmp_path / "several"
    folder.mkdir()
    text = WHOLE.read_text().replace('name="digits_own"', 'name="several"')
    losses, rest = text.split("def focal", 1)
    body, rest = rest.split("def macro_recall", 1)
    (folder / "losses.py").write_text(f"import keras\nGAMMA = 2\nAny = object\ndef focal{body}")
    (folder / "__init__.py").write_text(
        f"{losses}\nfrom pipeline.configs.several.losses import focal\ndef macro_recall{rest}"
    )
    monkeypatch.setattr(config_files, "CONFIGS", tmp_path)
    monkeypatch.setattr(pipeline.configs, "__path__", [str(tmp_path)])

    config = configs.load("several")

    assert own_code.function(config, "loss").__module__ == "pipeline.configs.several.losses"
    assert own_code.elsewhere(config) == ""
    before = config.code
    (folder / "losses.py").write_text(f"import keras\nGAMMA = 3\nAny = object\ndef focal{body}")
    assert own_code.fingerprint(folder / "__init__.py") != before


@pytest.mark.slow
def test_a_run_with_own_functions_resumes_and_not_with_others(competition, tiny, tmp_path):
    """tests/pipeline/data/test_own_rows.py infers with a reader of its own, by two processes."""
    file = tmp_path / WHOLE.name
    file.write_text(WHOLE.read_text())
    own = configs.load(str(file))
    names = ("loss", "metric", "augment", "code")  # a model compiles longer
    config = replace(tiny, name=own.name, epochs=2, **{name: getattr(own, name) for name in names})
    out, lines = tmp_path / "out", []
    training.train(config, competition, out, max_steps=3, show=lines.append)
    trained = training.train(config, competition, out, show=lines.append)
    assert "validation_macro_recall" in trained.manifest["metrics"]
    assert trained.manifest["config"]["code"] == own.code

    file.write_text(WHOLE.read_text().replace("GAMMA = 2", "GAMMA = 3"))
    changed = replace(config, code=configs.load(str(file)).code)
    with pytest.raises(CheckpointError, match=r"changed since: code: '.*' then, '.*' now"):
        training.train(changed, competition, out, show=lines.append)
