"""Custom readers: inputs and labels of any shape, from the files to a submission."""

import csv
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pipeline import artifact
from pipeline import config as configs
from pipeline.config import Data, custom_code
from pipeline.data import custom_readers, dataset, samples
from pipeline.data.labels import Target
from pipeline.errors import ConfigError, DataError, SubmissionError
from pipeline.evaluate import metrics
from pipeline.infer import inference, submission
from pipeline.train import custom_check, training

IDS = [f"r{number:02d}" for number in range(40)]

# Two inputs; labels are a map of 2 x 3 numbers that follows from both.
OWN = """
import keras
import numpy as np
from keras import layers
from pipeline.config import Config, Data, Optimizer
from pipeline.data.custom_readers import Rows

def rows(ids):
    numbers = np.array([int(name[1:]) for name in ids], np.int32)
    pictures = np.stack([np.full((4, 4), 5 * number, np.uint8) for number in numbers])
    return {"picture": pictures, "place": numbers[:, None] % 2, "height": np.zeros(
        (len(ids), 1), np.float32)}

def read_all(folder, config):
    ids = (folder / "ids.txt").read_text().split()
    found = rows(ids)
    means = found["picture"].mean(axis=(1, 2)) / 255
    labels = np.zeros((len(ids), 2, 3), np.float32)
    labels[np.arange(len(ids)), found["place"][:, 0]] = means[:, None]
    return Rows(ids, found, labels, groups=[name[:2] for name in ids],
                weights=[1 + (name < "r20") for name in ids], state={"z": 1, "a": [2]})

def read_some(folder, config, ids, state):
    assert list(state) == ["z", "a"]
    if "r11" in ids:
        raise ValueError("r11 is torn")
    return rows(ids)

def layered(inputs, num_classes, batchnorm_momentum):
    place = layers.Embedding(2, 6, name="place")(inputs["place"])
    x = layers.Concatenate(name="joined")([
        layers.Flatten(name="flat")(inputs["picture"]), layers.Flatten(name="own")(place),
        inputs["height"]])
    x = layers.Dense(12, activation="relu", name="hidden")(x)
    return layers.Reshape((2, 3), name="map")(layers.Dense(6, dtype="float32", name="out")(x))

def squared(labels, outputs):
    return keras.ops.mean(keras.ops.square(outputs - labels), axis=(1, 2))

def farthest(truth, numbers, greater_is_better=False):
    return float(abs(truth - numbers).max())

def shaken(inputs, labels, key):
    import jax
    up = jax.random.bernoulli(key)
    picture = jax.numpy.where(up, inputs["picture"][::-1], inputs["picture"])
    return {**inputs, "picture": picture}, labels

def first(numbers):
    return numbers[:, 0, 0]

def columns(ids, numbers):
    return {"first": first(numbers), "largest": numbers.max(axis=(1, 2))}

CONFIG = Config(
    name="maps", competition="maps", target="custom", seed=3, folds=2,
    data=Data(
        kind="custom", group_column="tens", weight_column="first", custom_labels=("float32", 2, 3),
        custom_inputs={
            "picture": ("uint8", 4, 4), "place": ("int32", 1), "height": ("float32", 1)}),
    read_training="read_all", read_test="read_some", write_submission="columns",
    model="layered", loss="squared", metric="farthest", augment="shaken",
    optimizer=Optimizer(name="adam", base_rate=5e-3, base_batch=8), batch=8, epochs=4,
    warmup_epochs=1, progress_seconds=0, checkpoint_seconds=3600)
"""


def written(folder, before="", after=""):
    """Write the config with a text replaced, and return it."""
    assert before in OWN
    (folder / "maps.py").write_text(OWN.replace(before, after) if before else OWN)
    return configs.load(str(folder / "maps.py"))


def competition(folder):
    """Write a competition for it, and return its folder."""
    folder.mkdir()
    (folder / "ids.txt").write_text(" ".join(IDS))
    lines = ["id,first,largest", *(f"{name},0,0" for name in reversed(IDS[:12]))]
    (folder / "sample_submission.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def maps(tmp_path):
    """Return a folder and a function: the config of the file, with a text replaced."""
    return competition(tmp_path / "competition"), partial(written, tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a competition folder and the output of a training there that was stopped once."""
    folder = tmp_path_factory.mktemp("maps")
    config, place, out = written(folder), competition(folder / "competition"), folder / "out"
    # A training would refuse r11 of the test set, so there is none yet.
    (place / "sample_submission.csv").rename(folder / "sample_submission.csv")
    training.train(config, place, out, max_steps=5, show=str)
    training.train(config, place, out, show=str)
    (folder / "sample_submission.csv").rename(place / "sample_submission.csv")
    return place, out


FORMS = {
    "bytes": ("uint8", 3, 2),
    "one": ("int32", 1),
    "byte": ("uint8", 1),
    "numbers": ("float32", 2, 1, 3),
}


@pytest.mark.parametrize("names", [list(FORMS), ["numbers"]])
@settings(max_examples=30)
@given(data=st.data())
def test_packed_inputs_come_apart_again_bit_for_bit(data, names):
    forms = {name: FORMS[name] for name in names}
    inputs = {
        name: data.draw(arrays.arrays(kind, (2, *shape))) for name, (kind, *shape) in forms.items()
    }

    whole = custom_readers.pack(inputs)
    assert whole.shape == (2, *Data(kind="custom", custom_inputs=forms).shape)
    again = custom_readers.unpacked(whole, forms)
    for name, array in inputs.items():
        assert np.asarray(again[name]).tobytes() == array.tobytes()
    assert np.asarray(custom_readers.pack(again, jnp.concatenate)).tobytes() == whole.tobytes()


def test_labels_of_any_shape_go_from_a_custom_reader_to_a_submission(finished, tmp_path):
    """Through augmentation, groups, folds, a stop, golden outputs and validation.npz. Only code
    that weights do not depend on may be corrected after the training.
    """
    folder, out = finished
    loaded, kept = artifact.load(out / "artifact"), np.load(out / "validation.npz")
    corrected = written(tmp_path, "numbers.max(axis=(1, 2))", "numbers.min(axis=(1, 2))")

    found = inference.infer(loaded, folder, tmp_path / "1", config=corrected, show=str)

    assert kept["values"].shape == (40, 2, 3) and kept["values"].dtype == np.float32
    farthest = np.abs(kept["truth"] - kept["values"]).max()
    assert loaded.manifest["metrics"]["validation_farthest"] == pytest.approx(farthest)
    assert [*found.broken] == ["r11"] and "(line 26)" in found.broken["r11"]
    row = found.ids.index("r11")
    assert np.array_equal(found.values[row], loaded.prior) and loaded.prior.shape == (2, 3)
    with (tmp_path / "1" / "submission.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == [*found.ids] == IDS[11::-1]
    assert float(lines[0]["largest"]) == found.values[0].min()
    other = written(tmp_path, "keras.ops.square(outputs - labels)", "keras.ops.abs(outputs)")
    with pytest.raises(ConfigError, match="not the ones used in training"):
        inference.infer(loaded, folder, tmp_path / "3", config=other, show=str)


def test_an_unreadable_test_row_is_reported_before_training(maps):
    folder, made = maps
    with pytest.raises(ConfigError, match=r"raised ValueError \(line 26\): r11 is torn"):
        dataset.read_training(folder, made())


def test_a_submission_with_wrong_columns_is_refused_before_training_too(maps, tmp_path):
    folder, made = maps
    config = made('"largest"', '"Largest"')
    sample = samples.of(folder, config.data)
    writer, metric = submission.writer_of(config, folder), metrics.of(config)
    form = submission.Form(Target("custom", ()), metric, sample, writer=writer)

    with pytest.raises(SubmissionError, match=r"returned 2 rows, .*'Largest': .*It must return a"):
        form.write(tmp_path / "out.csv", IDS[:2], np.zeros((2, 2, 3), np.float32))
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(SubmissionError, match=r"must return a dict .* id \(first, largest\)"):
        custom_check.check_submission_of(config, sample.columns, folder)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('custom_labels=("float32", 2, 3)', "custom_labels=()", "data.custom_labels="),
        ('loss="squared", ', "", "loss='' is invalid"),
        ("greater_is_better=False", "other=3", "greater_is_better=True"),
        ("CONFIG = Config(", "CONFIG = Config(feed='files',", "feed='files' is invalid"),
        ('kind="custom", ', 'kind="custom", flip=True, ', "data.flip=True is invalid"),
        ("farthest", "mean_output", "must not be called absolute_error, .*mean_output"),
    ],
)
def test_contradictory_fields_are_refused(maps, before, after, said):
    with pytest.raises(ConfigError, match=said):
        metrics.of(maps[1](before, after))


def test_pictures_from_a_custom_reader_can_be_augmented():
    """If they are uint8 (height, width, 1 or 3), and labels are not custom."""
    data = Data(
        kind="custom", custom_inputs={"picture": ("uint8", 4, 4, 1)}, flip=True, crop_padding=1
    )
    assert data.images and data.shape == (4, 4, 1) and data.dtype == "uint8"
    assert not Data(kind="custom", custom_inputs={"numbers": ("float32", 4)}).images
    with pytest.raises(ConfigError, match=r"data.rotate=True is invalid.*\(4, 2, 1\)"):
        Data(kind="custom", custom_inputs={"picture": ("uint8", 4, 2, 1)}, rotate=True)


@pytest.mark.parametrize(
    "forms",
    [
        {"i": 5},
        {"i": (["uint8"], 3)},
        {"i": ("uint8",)},
        {1: ("uint8", 2)},
        {"a/b": ("uint8", 2)},
        {},
        3,
    ],
)
def test_an_invalid_form_is_refused(forms):
    with pytest.raises(ConfigError, match=r"data.custom_inputs.* is invalid"):
        Data(kind="custom", custom_inputs=forms)


def test_only_a_row_that_is_not_finite_gets_the_mean_prediction(maps):
    folder, made = maps
    nan = '"height": np.where(numbers == 4, np.nan, 0).astype(np.float32)[:, None]}\n'
    config = made('"height": np.zeros(\n        (len(ids), 1), np.float32)}\n', nan)
    ids = [name for name in IDS[:8] if name != "r11"]

    test = custom_readers.TestInputs(folder, config, ids, '{"z": 1, "a": 2}')
    found = list(dataset.TestSet(tuple(ids), test, test.broken).blocks(5))

    assert [start for start, _, _ in found] == [0, 5]
    assert [*found[0][2]] == [4] and "not finite" in found[0][2][4] and not found[1][2]


SHAKEN, READ = "return {**inputs", "Rows(ids, found"


@pytest.mark.parametrize(
    ("before", "after", "old", "new", "same"),
    [
        ("", "", "numbers.max(axis=(1, 2))", "numbers.min(axis=(1, 2))", True),
        ("", "", 'if "r11" in ids:', 'if "r10" in ids:', True),
        ("", "", "return numbers[:, 0, 0]", "return 2 * numbers[:, 0, 0]", True),
        ("", "", "folds=2,", 'folds=2, keep="best",', True),
        (SHAKEN, f"x = farthest; {SHAKEN}", "truth - numbers", "numbers", False),
        (READ, f"{READ} or read_some(folder, config, ids, [])", "torn", "t", False),
        ('metric="farthest"', 'metric="squared"', "outputs - labels", "labels", False),
    ],
)
def test_only_a_function_that_the_training_uses_counts_as_its_code(
    maps, before, after, old, new, same
):
    """The augmentation or the reader may also refer to a metric."""
    folder, made = maps
    first, file = custom_code.digest(made(before, after)), folder.parent / "maps.py"
    file.write_text(file.read_text().replace(old, new))

    assert (custom_code.digest(configs.load(str(file))) == first) == same


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('weights=[1 + (name < "r20")', "weights=[[1, 2]", r"'\[1, 2\]' .*expected weights"),
        (
            "groups=[name[:2] for",
            "groups=[name[:2] for name in ids[1:]] or [",
            "which do not match each other or the config",
        ),
        ("groups=[name[:2] for", "groups=[None for", "'None' in 'tens' .*expected a value"),
        ('state={"z": 1', "state={1: 1", "dicts with string keys"),
        ("    return rows(ids)\n\ndef layered", "\ndef layered", "the input 'height' is NoneType"),
    ],
)
def test_an_invalid_result_of_a_reader_is_described(maps, before, after, said):
    folder, made = maps
    sample = folder / "sample_submission.csv"
    sample.write_text(sample.read_text().replace("r11,0,0\n", ""))
    with pytest.raises(DataError, match=said):
        dataset.read_training(folder, made(before, after))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("picture}, labels", "picture}", r"line \d+\) returned \{.*; expected \(\{"),
        # The bytes of several inputs are joined, and would be other numbers.
        (
            "{**inputs,",
            '{**inputs, "place": inputs["place"] * 1.5,',
            r"returned .*'float32 \(1,\)'}.*; expected .*'int32 \(1,\)'}",
        ),
        ("return numbers[:, 0, 0]", "return numbers[:, 0]", "1-dimensional"),
        ("return numbers[:, 0, 0]", "return [None] * len(numbers)", "'first': None"),
        ("return numbers[:, 0, 0]", "return list(numbers)", "'first': array"),
    ],
)
def test_errors_that_would_end_a_finished_run_are_found_before_it(maps, before, after, said):
    with pytest.raises((ConfigError, SubmissionError), match=said):
        custom_check.by_jax(maps[1](before, after), str)
