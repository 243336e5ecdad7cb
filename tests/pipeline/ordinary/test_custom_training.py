"""The examples of docs/custom-training.md: each trains, resumes bit for bit, and is the same on
eight devices; and what cannot work is refused before training.
"""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

from pipeline import config as configs
from pipeline.__main__ import main
from pipeline.config import Optimizer, custom_code
from pipeline.data import sampler
from pipeline.data.dataset import Weighted
from pipeline.errors import ConfigError
from pipeline.models import architectures
from pipeline.train import checkpoint, custom_check, learning_rate, optimizer, training
from pipeline.train.progress_log import Log, in_words
from pipeline.train.step import Batch, Examples
from tests.pipeline.train.test_train_step import after, apart, begun, drawn, rounding

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/custom-training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n# pipeline/configs/(\w+)\.py\n(.*?)```", PAGE, re.DOTALL)
# The config that they import is the competitor's to delete.
FILES = {name: text.replace("pipeline.configs", "tests.configs") for name, text in BLOCKS}
# Those that change what a step computes; the shipped optimizer by the same test.
STEPS = [name for name in FILES if name not in ("rare_twice", "logged")]


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Return a function: the config of a block of the page, with texts replaced, and others of
    its fields.
    """

    monkeypatch.chdir(tmp_path)  # where the log goes

    def made(name, *changes, **fields):
        text = f"# pipeline/configs/{name}.py\n{FILES[name]}"
        for before, later in changes:
            assert text.count(before) == 1
            text = text.replace(before, later)
        text += f"\nCONFIG = replace(CONFIG, **{fields!r})\n"
        (tmp_path / f"{name}.py").write_text(text)
        return configs.load(str(tmp_path / f"{name}.py"))

    return made


def small(config):
    """Return the config with a batch of 32 in groups of 8, and where it may be a small model."""
    given = replace(config.optimizer, base_batch=32)
    mlp = {} if config.model == "two_exits" else {
        "model": "mlp", "model_options": {"width": 8, "depth": 1, "dropout": 0.5}
    }  # fmt: skip
    rates = {} if config.model == "two_exits" else {"layer1_*": 0.5}
    given = replace(given, layer_rates=rates if given.layer_rates else {})
    return replace(
        config, batch=32, batchnorm_batch=8, warmup_epochs=1, num_classes=4, optimizer=given, **mlp
    )


def some(names, default):
    """Return the names as parameters, marked slow unless they are in `default`."""
    slow = pytest.mark.slow
    return [name if name in default else pytest.param(name, marks=slow) for name in names]


@pytest.mark.parametrize(
    "name", some(["adam", *STEPS], ("adam", "muon", "early_exit", "halves", "sharpness"))
)
def test_a_step_is_the_same_on_eight_devices_and_in_micro_batches(example, tiny, name):
    """As closely as with the shipped Adam: within the effect of an ulp."""
    rows = drawn()
    config = small(replace(tiny, name="adam") if name == "adam" else example(name))

    bound = rounding(config, rows, 2)
    for micro_batch, replicas in ((8, 1), (None, 8)):
        other = after(replace(config, micro_batch=micro_batch), rows, replicas, 2)
        assert apart(other, after(config, rows, 1, 2)) < bound


def test_a_custom_mix_changes_the_step(example):
    rows, mixed = drawn(), small(example("halves"))
    plain = replace(mixed, augment_batch="")

    assert apart(after(mixed, rows), after(plain, rows)) > 10 * rounding(plain, rows)


@pytest.mark.parametrize("name", some(FILES, ("signum", "early_exit")))
def test_an_example_resumes_bit_for_bit(example, competition, tmp_path, name):
    config, arrays = (
        example(name, num_classes=4, batchnorm_batch=None, epochs=4, warmup_epochs=1),
        [],
    )
    config = replace(config, batch=16, optimizer=replace(config.optimizer, base_batch=16))
    for folder, steps in (("parts", 2), ("parts", 5), ("whole", 5)):
        training.train(config, competition, tmp_path / folder, max_steps=steps, show=str)
        found = checkpoint.latest(tmp_path / folder / "checkpoints")
        assert found is not None and found.step == steps
        arrays.append(found.arrays)

    assert all(np.array_equal(array, arrays[1][key]) for key, array in arrays[2].items())


SAID = {
    "signum": ["optimizer.name='Signum' (signum.py, line 10): ", " state arrays, changes "],
    "restarts": ["optimizer.schedule='restarts' (restarts.py, line 12): learning rates from"],
    "early_exit": ["loss='both' (early_exit.py, line 18): one value per row for early, late"],
    "halves": [
        "augment_batch='halves' (halves.py, line 7): mixes each of the images (16, 8, 8, 1)"
    ],
    "rare_twice": ["sampler='rare_twice' (rare_twice.py, line 9): ", " of 160 rows in an epoch"],
    "sharpness": ["train_step='sharpness' (sharpness.py, line 9): the same weights with whole b"],
    "teacher": ["train_step='mean_teacher' (teacher.py, line 9): the same weights with whole b"],
    "logged": ["log='tensorboard' (logged.py, line 7): receives each progress"],
}


@pytest.mark.parametrize(
    "name", some(SAID, [name for name in SAID if name not in ("sharpness", "teacher")])
)
def test_the_check_shows_its_results(example, name):
    told = []
    custom_check.by_jax(example(name), told.append)

    assert all(said in "\n".join(told) for said in SAID[name])


UPDATE = "self.assign(average, self.momentum * average + (1 - self.momentum) * gradient)"
BROKEN = [
    (
        "signum",
        (UPDATE, "self.steps = getattr(self, 'steps', 0) + 1; average = gradient - self.steps"),
        "Signum.*different weights after resuming",
    ),
    ("signum", ("ops.sign(average)", "ops.sqrt(average)"), "Signum.*weights that are not finite"),
    ("restarts", ("step / total_steps", "step / (0 * step)"), "line 12.*learning rate of nan"),
    ("restarts", ("ops.minimum((step + 1)", "min((step + 1)"), r"raised .*line \d+\)"),
    ("early_exit", ("0.3 * of(extra", "of(outputs) + 0 * of(extra"), "the output 'early'.*model="),
    (
        "early_exit",
        (", extra):", "):\n    extra = {'early': outputs}\n"),
        "the extra outputs early, but loss='both' ignores them",
    ),
    ("halves", ("others, number)", "others, 64)[:number]"), "line 7.*rows of different groups"),
    ("halves", ("partners, 1 -", "partners, 1 - 3 *"), "weights from -0.5"),
    ("halves", (", 1 - inside.mean(1, dtype=jnp.float32)", ", labels"), "it returned .*; expected"),
    ("rare_twice", ("1.0)", "np.nan)"), r"line 9\) raised ValueError.*weights of 0 or more"),
    ("rare_twice", ("epoch < 10", "np.random.rand(len(labels)) < 0.5"), "different rows for"),
    (
        "sharpness",
        ("grads, sums = step.gradients(", "lifted = [x * step.micro_batch for x in lifted]\n    "
         "grads, sums = step.gradients("),
        "line 9.*produces different weights with micro-batches of 4",
    ),
    ("teacher", ("** 2).sum()", "** 2).mean()"), "line 9.*different weights with micro-batches"),
    ("logged", ("def tensorboard(record):", "def tensorboard():"), "too many positional"),
    (
        "signum",
        ('name="Signum", base', 'name="Signum", arguments={"beta": 0.9}, base'),
        "it accepts .*momentum=0.9.*optimizer.arguments=.*'beta': 0.9",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "says"), BROKEN)
def test_a_broken_example_is_refused_before_training(example, name, change, says):
    with pytest.raises(ConfigError, match=rf"(?s){says}") as refused:
        custom_check.by_jax(example(name, change), str)

    assert f"{name}.py" in str(refused.value) and "\n" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("lion", ('scaling="sqrt",', ""), r"optimizer\.scaling=''.*'linear' or 'sqrt' or 'none'"),
        ("lion", ('"Lion"', '"Loin"'), "one of .*Lion"),
        ("lion", ('"beta_1"', '"beta"'), r"accepts the arguments .*beta_1"),
        ("lion", ("stage1_*", "stem"), "layer_rates has 'stem'.*stage1_a_conv"),
        ("restarts", ('schedule="restarts"', 'schedule="restart"'), r"restarts\.\n.*'one_cycle'"),
        ("rare_twice", ('sampler="rare_twice"', 'sampler="rare"'), r"rare_twice\.\n.*'balanced'"),
    ],
)
def test_a_wrong_name_or_number_is_refused_before_the_first_step(
    example, competition, tmp_path, name, change, says
):
    with pytest.raises(ConfigError, match=rf"(?s){says}"):
        config = example(name, change, num_classes=4, epochs=8)
        training.train(config, competition, tmp_path / "out", show=str)

    assert not list(tmp_path.glob("out/checkpoints/step-*"))


DRAWS = """
def noisy(labels, outputs, key):
    import jax

    losses = keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
    return losses if key is None else losses * jax.random.bernoulli(key, 0.5, losses.shape)
"""
MADE = """
def made(images, num_classes, momentum):
    return layers.Dense(num_classes)(layers.Flatten()(images))
"""


def test_a_loss_that_draws_gets_other_keys_in_each_group_and_step_and_none_in_validation(custom):
    """The rows that count are the same on any machine."""
    sgd = Optimizer(name="sgd", base_rate=0.1, base_batch=8)
    given = {"loss": "noisy", "batch": 32, "batchnorm_batch": 8, "warmup_epochs": 0}
    config, rows = custom(MADE + DRAWS, optimizer=sgd, **given), drawn()
    bound = rounding(config, rows)
    for micro_batch, replicas in ((8, 1), (None, 8)):
        other = after(replace(config, micro_batch=micro_batch), rows, replicas)
        assert apart(other, after(config, rows)) < bound

    step, state, _ = begun(config, 1)
    images, labels = (np.concatenate([array[0, :8]] * 4) for array in rows)  # groups alike
    evaluated = step.evaluate(state.params, state.buffers, images, labels, 32)[0]
    whole, quarter = float(evaluated), slice(0, 8)
    one_group = step.evaluate(state.params, state.buffers, images[quarter], labels[quarter], 8)[0]
    assert whole == pytest.approx(4 * float(one_group), rel=1e-5)  # nothing is left out
    draws = np.repeat(step.augmentation.draws(0)[:1], 32, axis=0)
    batch = Batch(images, labels, draws)
    states = state, state._replace(step=state.step + 1)
    first, later = (float(jax.jit(step.gradients)(each, batch, ())[1].loss) for each in states)
    assert 0.2 * whole < first < 0.8 * whole and first != later


def test_the_model_computed_again_draws_the_same_or_if_asked_another_dropout(tiny):
    config = replace(tiny, batch=32, batchnorm_batch=8, warmup_epochs=0)
    step, state, _ = begun(config, 1)
    (images,), (labels,) = drawn()
    rows = Examples(images, Weighted(labels, np.ones(32)), None, None, np.arange(32))

    @partial(jax.jit, static_argnums=0)
    def outputs(draw):
        return step.compute(state.params, state.buffers, rows, draw=draw).outputs

    assert np.array_equal(outputs(0), outputs(0)) and np.array_equal(outputs(1), outputs(1))
    assert not np.array_equal(outputs(0), outputs(1))
    assert not np.array_equal(outputs(1), outputs(2))


NOISY = """
class Noisy(keras.optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        self.draws = keras.random.SeedGenerator(0)

    def update_step(self, gradient, variable, learning_rate):
        noise = keras.random.normal(variable.shape, seed=self.draws)
        super().update_step(gradient + noise, variable, learning_rate)
"""
DEAF = """
def deaf(learning_rate):
    return keras.optimizers.SGD(0.5)
"""
SCALED = """
def scaled(learning_rate):
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(learning_rate))
"""
STAYS = """
def stays(step, state, batch, held):
    return step.update(state, *step.gradients(state, batch, held))._replace(step=state.step)
"""
KEYED = """
def keyed(labels, outputs, key):
    import jax

    losses = keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=True)
    return losses * jax.random.uniform(key, losses.shape)
"""
SHUFFLED = """
def shuffled(images, labels, key):
    return images[::-1], labels[::-1]
"""


@pytest.mark.parametrize(
    ("code", "optimizer", "fields", "says"),
    [
        (NOISY, {"name": "Noisy"}, {}, "of another object, such as a SeedGenerator"),
        (DEAF, {"name": "deaf"}, {}, "has a learning rate of 0.5 at step"),
        (SCALED, {"name": "scaled"}, {}, "in float16, the training step scales the loss"),
        ("", {"name": "SGD", "arguments": {"use_ema": True}}, {}, "use optimizer.ema_momentum"),
        (
            "",
            {"name": "SGD", "arguments": {"clipnorm": 1.0}, "clip_norm": 1.0},
            {},
            "remove clip_norm",
        ),
        ("", {"name": "Ftrl", "layer_rates": {"dense*": 0.5}}, {}, "learning rates per layer"),
        (STAYS, {}, {"train_step": "stays"}, "counts 0 steps .*Finish with step.update"),
        (KEYED, {}, {"loss": "keyed"}, r"raised .*line \d+\)"),
        (
            SHUFFLED,
            {},
            {"augment_batch": "shuffled", "class_weights": "balanced"},
            "does not mix the row weights",
        ),
    ],
)
def test_an_option_with_another_effect_than_expected_is_refused(
    custom, tiny, code, optimizer, fields, says
):
    given = {"base_batch": tiny.batch, "beta_1": 0.9, **optimizer}
    config = custom(MADE + code, optimizer=replace(tiny.optimizer, **given), **fields)

    with pytest.raises(ConfigError, match=rf"(?s){says}"):
        custom_check.check_optimizer_of(config)
        custom_check.by_jax(config, str)


def test_a_class_of_keras_that_the_file_imports_is_the_same_as_by_its_name(custom, tiny):
    """Weight decay leaves out biases; without a gradient Lion only decays."""
    lion = replace(tiny.optimizer, name="Lion", base_batch=16, arguments={"weight_decay": 0.5})
    config = custom(f"{MADE}\nfrom keras.optimizers import Lion\n", optimizer=lion)
    applied = replace(learning_rate.apply(config, 100), warmup_steps=0)
    variables = architectures.build(config).trainable_variables
    before = [np.array(one) + 1 for one in variables]

    made = optimizer.optimizer(config, applied, variables)
    made.build(variables)
    zeros = [np.zeros(one.shape, np.float32) for one in variables]
    after_step, _ = made.stateless_apply([one.value for one in made.variables], zeros, before)

    moved = [not np.array_equal(*pair) for pair in zip(before, after_step, strict=True)]
    assert moved == [len(one.shape) == 2 for one in variables] and {*moved} == {True, False}


LOOKAHEAD = """
class Slow(keras.optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        self.slow = [self.add_variable_from_reference(one, "slow") for one in variables]
        for slow, one in zip(self.slow, variables):
            slow.assign(one)

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)
        slow = self.slow[self._get_variable_index(variable)]
        self.assign(slow, 0.5 * (slow + variable))
"""


def test_an_optimizer_may_begin_with_copies_of_the_weights(custom, tiny):
    """As one that looks ahead does. A step takes the state's memory, of which each array has its
    own.
    """
    slow = replace(tiny.optimizer, name="Slow", base_batch=32)
    config = custom(MADE + LOOKAHEAD, optimizer=slow, batch=32, batchnorm_batch=8)

    found = after(config, drawn())

    assert any(name.endswith("slow") for name in found)


def test_a_layer_learns_at_its_own_rate_and_at_0_not_at_all(tiny):
    """With SGD the first step is the rate times the gradient."""
    sgd = replace(tiny.optimizer, name="sgd", base_rate=0.1, base_batch=32, momentum=0)
    plain = replace(tiny, batch=32, batchnorm_batch=8, warmup_epochs=0, optimizer=sgd)
    ours = replace(plain, optimizer=replace(sgd, layer_rates={"layer1_d*": 0.5, "logits": 0}))
    start, (first, other) = begun(plain, 1)[2], (after(each, drawn()) for each in (plain, ours))

    moved = {
        name: (np.abs(first[name] - start[name]).sum(), np.abs(other[name] - start[name]).sum())
        for name in start
        if name.startswith("params/") and "beta" not in name
    }
    for name, (whole, part) in moved.items():
        share = 0.5 if "layer1_dense" in name else 0 if "logits" in name else 1
        assert whole and part == pytest.approx(share * whole, rel=1e-4)
    assert len(moved) >= 4


@pytest.mark.parametrize("name", configs.config_files.named_files())
def test_explain_names_the_files_of_a_run_in_order(name, capsys):
    assert main(["explain", "--config", name, "--json"]) == 0

    *lines, last = capsys.readouterr().out.splitlines()
    way = json.loads(last)["way"]
    assert [line.split()[0] for line in lines] == list(way)
    assert all((ROOT / file).is_file() for file in way)
    config = configs.load(name)
    called = [line for line in lines if f"{name}.py, line " in line]
    assert bool(called) == bool(custom_code.functions(config))
    reads = {"images": "image_files", "table": "table_features", "custom": "custom_readers"}
    assert f"pipeline/data/{reads.get(config.data.kind, 'dataset')}.py" in way


def test_a_balanced_epoch_has_each_label_equally_often(tiny):
    labels = np.array([0] * 90 + [1] * 9 + [2])
    rows = sampler.of(replace(tiny, sampler="balanced"), labels)

    for epoch in range(3):
        found = rows(epoch)
        assert sorted(np.bincount(labels[found])) == [33, 33, 34]
        assert np.bincount(found[labels[found] == 1])[90:99].min() >= 3
    assert not np.array_equal(rows(0), rows(1)) and np.array_equal(rows(1), rows(1))


def test_each_of_several_losses_is_in_the_progress_line(example, competition, tmp_path):
    lines = []
    config = example("early_exit", num_classes=4, batchnorm_batch=None, epochs=2, warmup_epochs=1)
    training.train(config, competition, tmp_path, show=lines.append)

    shown = [line for line in map(in_words_of, lines) if line]
    assert re.search(r"loss \d\.\d+.*  early \d\.\d+  late \d\.\d+", shown[-1])
    header, *_ = (tmp_path / "history.csv").read_text().splitlines()
    assert ",loss_early,loss_late," in header


def in_words_of(line):
    """Return a line of progress as text, or "" for any other line."""
    return in_words(json.loads(line)) if line.startswith("{") else ""


def test_a_log_gets_lines_epochs_and_pictures_and_one_that_fails_ends_nothing(
    example, competition, tmp_path
):
    config = example("logged", num_classes=4, batchnorm_batch=None, epochs=2, warmup_epochs=1)
    training.train(config, competition, tmp_path / "out", show=str)
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"validation_accuracy" in events.read_bytes()

    said = []
    broken = example("logged", ("writer.flush()", "writer.flash()"), num_classes=4)
    log = Log(broken, said.append)
    log({"step": 1, "loss": 0.5})
    log({"step": 2, "loss": 0.4})
    (warning,) = said
    assert "log is no longer called: log='tensorboard'" in warning and "flash" in warning
