"""A plan follows from its figures, and what is not known is never a number."""

import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Data
from pipeline.errors import ConfigError
from tests.doors.given import write_config
from tests.pipeline.handmade import with_data
from tests.shipped import shipped
from workbench.__main__ import main
from workbench.plan import compiled_step, laws, operation_counts, outlook, plan, plan_table, probe
from workbench.plan.accelerators import RUNTIMES, cost, precision
from workbench.plan.compiled_step import Compiled
from workbench.plan.laws import AffineLaw, Interval
from workbench.plan.operation_counts import Counts, image_bytes
from workbench.plan.outlook import Given, Outlook, Work

HOUR = 3600.0
FITS = Outlook(
    "tpu-v5e-8", "Kaggle TPU v5e-8", "", 128, "mixed_bfloat16", 16e9, 2e9,
    memory_basis="compiled", fits=True,
    total=Interval(HOUR, 2 * HOUR, 4 * HOUR), spent=cost(RUNTIMES["tpu-v5e-8"], 2 * HOUR),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Cache compiled results in a folder for this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setitem(sys.modules, "libtpu", None)  # Python then finds no such package
        yield


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return the arguments of a plan, its first output, and the folder that it wrote to."""
    folder, out, err = tmp_path_factory.mktemp("planned"), io.StringIO(), io.StringIO()
    words = ["plan", "--config", str(write_config(folder, precision="float32")), "--json"]
    words += ["--for", "gpu-t4x2,tpu-v5e-8,colab-cpu"]
    files = ["--output", str(folder), "--page", str(folder / "plan.html")]
    with redirect_stdout(out), redirect_stderr(err):
        assert main([*words, *files]) == 0
    return words, out.getvalue(), err.getvalue(), folder


def step(memory: float, operations: float = 0.0, refused: str = "") -> Compiled:
    """Return a compiler's report."""
    return Compiled(memory, operations, 0.0, {}, 1.0, "0", refused)


@given(
    fixed=st.floats(0, 8e9), image=st.floats(1e4, 1e7), more=st.floats(1, 1.4),
    first=st.integers(1, 50), unit=st.sampled_from([8, 64]),
)  # fmt: skip
def test_the_largest_batch_is_found_by_three_compilations(fixed, image, more, first, unit):
    """Far from the limit a batch takes relatively more memory than near it."""
    room, tried = 16e9, []

    def compiled(batch: int) -> Compiled:
        tried.append(batch)
        refused = fixed + image * batch > room
        near = image * batch > room / 2
        memory = image * batch * (1 if near else more)
        return step(memory + fixed * (not refused), refused="too large" * refused)

    found = compiled_step.largest(compiled, first * unit, unit, room, fixed)

    limit = (room - fixed) / image
    assert len(tried) <= 3 and max(tried) <= 2**20
    assert found <= limit * (1 + 1e-9)
    if 100 * unit < limit < 2**20 and fixed / 500 < image * first * unit < room - fixed:
        assert found >= 0.95 * limit


def test_no_batch_larger_than_the_data_is_tried():
    """Nor one that a config would refuse."""
    tried = []

    def compiled(batch: int) -> Compiled:
        tried.append(batch)
        return step(batch)

    assert compiled_step.largest(compiled, 64, 8, 1e12, 0.0, most=1_080) == 1_080
    assert tried == [64, 1_080]
    assert compiled_step.largest(compiled, 2_048, 8, 1e12, 0.0, most=1_080) == 2_048


@pytest.mark.parametrize(
    ("change", "ram", "bound"),
    [
        ({}, 29e9, False),
        ({"height": 512, "width": 512}, 29e9, True),
        ({"height": 512}, 4e12, False),
    ],
)
def test_images_that_do_not_fit_into_memory_are_decoded_each_epoch(tiny, change, ram, bound):
    config = replace(tiny, data=replace(tiny.data, **change))
    host = replace(RUNTIMES["gpu-t4x2"], ram=ram)

    found = laws.verdict(config, host, 10**6, 3000.0)

    assert found is not None and found.bound is bound
    assert found.waits == pytest.approx(1 - 4 * laws.DECODES / 3000 if bound else 0)


def lasting(hours: float) -> Outlook:
    total = Interval(*[hours * HOUR] * 3)
    return replace(FITS, total=total, spent=cost(RUNTIMES["tpu-v5e-8"], hours * HOUR))


TOO_LARGE = replace(FITS, fits=False, micro_batch=0, memory=245e9, room=36e9)
UNKNOWN = [replace(FITS, total=None), replace(FITS, retired="retired")]


@pytest.mark.parametrize(
    ("outlooks", "said"),
    [
        ([lasting(2)], "about 2 h."),
        ([lasting(15)], "in 2 sessions (push-train --until-done)"),
        ([lasting(50)], "the quota of 3 weeks"),
        ([TOO_LARGE], "245 GB per core"),
        ([replace(TOO_LARGE, why="slow; set height=64")], "; set height=64."),
        ([replace(TOO_LARGE, micro_batch=2)], "micro_batch=2"),
        ([replace(FITS, fits=None)], "It is unknown whether a step fits in its memory"),
        (UNKNOWN, "There are no estimates"),
    ],
)
def test_the_advice_counts_sessions_and_weeks_and_says_what_does_not_fit(outlooks, said):
    assert said in plan.advice(outlooks)


def on(runtime, config, found, **more):
    """Return the outlook of a runtime for a compiler's report of a step."""
    core, cores = RUNTIMES[runtime].core, RUNTIMES[runtime].cores
    counts = more.pop("counts", Counts(0, 0, 1.0))
    plain = Outlook(runtime, "", "", config.batch // cores, precision(config, core), core.memory)
    return outlook.on_accelerator(
        plain, Work(config, counts, Given(1_100, "counted", **more)), found
    )


def test_figures_for_a_gpu_are_marked_as_estimates():
    """The TPU that stands in for it may refuse what fits into a larger GPU."""
    config, counts = shipped("cifar100_wrn"), Counts(10**8, 0, 1.0)  # weights of 400 MB

    taken = on("gpu-t4x2", config, step(4.4e9, 1e12), counts=counts)
    refused = on("colab-a100", config, step(34e9, refused="too large"), counts=counts)

    assert (taken.memory, taken.fits) == (4.4e9, True)
    assert taken.step.usual == pytest.approx(1e12 / RUNTIMES["gpu-t4x2"].core.operations / 0.35)
    assert (taken.memory_basis, taken.time_basis, taken.compiled) == ("estimated", "prior", None)
    assert plan_table.row(taken, 1)[1].startswith("~4.4")
    assert taken.largest // config.batch == (14.4e9 - 0.4e9) // 4e9
    assert (refused.memory, refused.fits, refused.compiled) == (pytest.approx(34.4e9), True, None)


def test_images_held_on_the_cores_do_not_grow_with_the_batch():
    config = replace(shipped("cifar100_wrn"), feed="device")

    one = on("gpu-t4x2", config, step(4e6))

    images = round(1_100 * (1 - config.data.validation_fraction)) // 2 * image_bytes(config)
    room, each = RUNTIMES["gpu-t4x2"].core.memory, (4e6 - images) / one.share
    assert one.largest == 2 * int((room - images) / each)


@given(
    fixed=st.integers(0, 2 * 10**10), image=st.floats(1e9, 1e13), side=st.sampled_from([64, 512])
)
def test_the_advised_image_size_fits_into_a_core(fixed, image, side):
    """If not even one image of the config does."""
    core, data = RUNTIMES["gpu-t4x2"].core, Data(height=side, width=side, channels=3)
    config = replace(shipped("cifar100_wrn"), data=data, feed="host")
    counts = Counts(fixed // 4, 0, 1.0)
    found = step(counts.state + image * config.batch // 2)

    one = on("gpu-t4x2", config, found, counts=counts)

    assert one.fits or re.search("height=|a smaller model|batchnorm_batch", one.why)
    if advised := re.search(r"height=(\d+) and width=(\d+)", one.why):
        fits, more = (counts.state + (int(advised[1]) + n) ** 2 / side**2 * image for n in (0, 8))
        assert advised[1] == advised[2] and fits <= core.memory * (1 + 1e-6)
        assert more > 0.99 * core.memory


def test_an_unknown_figure_is_a_dash():
    row = plan_table.row(Outlook("gpu-h100", "one H100", "", 8, "float32", 72e9), 100)

    assert row == ("one H100", *[plan_table.MISSING] * 8)


def test_a_plan_survives_json_and_the_cache(planned, capsys):
    """It reports unknown memory, since there is no libtpu."""
    words, out, err, folder = planned

    assert main(words) == 0
    again = capsys.readouterr()

    found = json.loads(out.splitlines()[-1])
    assert json.loads(again.out) == found == json.loads((folder / "plan.json").read_text())
    assert "memory is unknown, because libtpu is not installed" in err
    there, _, unknown = found["outlooks"]
    assert there["memory_basis"] == "unknown" and there["fits"] is None
    assert there["spent"]["weeks"] == 1 and unknown["memory"] is None
    made = plan.from_json(found)
    assert json.loads(json.dumps(made.to_json())) == found
    page = (folder / "plan.html").read_text()
    assert made.outlooks[0].title in page and "<svg" in page


def test_time_on_this_machine_comes_from_timed_steps(tiny, monkeypatch):
    monkeypatch.setattr(probe, "LEAST", 0.01)
    said = []

    made = plan.make(tiny, ["cpu"], Given(1_000, "counted"), said.append)

    (one,) = made.outlooks
    assert sum("Timing" in line for line in said) == 1
    assert (one.memory_basis, one.time_basis, one.fits) == ("compiled", "measured", True)
    # These are two timings: that of an epoch's steps may be the faster one.
    assert one.epoch.usual > one.step.usual > 0
    assert one.total.usual > tiny.epochs * one.epoch.usual  # compiling comes to it
    assert 0 < one.computing < one.memory


@pytest.mark.parametrize(
    ("option", "value", "code", "said"),
    [
        ("--for", "tpu-v9", 2, "must be one of tpu-v5e-8"),
        ("--images", "many", 2, "expected an integer"),
        ("--input", 5_000 * "x", 2, "there is no such folder"),
        ("--probe", 5_000 * "x", 2, "not a complete training run"),
        ("--page", 5_000 * "x", 8, "Could not write"),
    ],
)
def test_invalid_options_are_refused(tiny, written_config, capsys, option, value, code, said):
    words = ["plan", "--config", str(written_config(tiny)), "--for", "colab-cpu", option, value]

    assert main(words) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "labelled", "basis", "test_images"),
    [
        ((), 50_000, "assumed", None),
        (("--input",), 96, "counted in the folder", 21),
        (("--input", "--images", "7"), 7, "set by --images", 21),
    ],
)
def test_the_folders_images_are_counted_and_decoded(
    competition, tiny, written_config, capsys, words, labelled, basis, test_images
):
    """--images overrides the count."""
    config = written_config(replace(tiny, data=replace(tiny.data, labelled=None)))
    given = [word if word != "--input" else f"--input={competition}" for word in words]

    assert main(["plan", "--config", str(config), "--for", "colab-cpu", "--json", *given]) == 0

    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["labelled"] == labelled and found["images_basis"].startswith(basis)
    assert found["inference"]["images"] == test_images
    assert found["decodes_basis"].startswith("measured" if words else "assumed")


def test_a_model_that_cannot_be_built_has_no_plan(tiny, written_config, capsys):
    broken = replace(tiny, model_options={"width": -1, "depth": 1, "dropout": 0.1})

    assert main(["plan", "--config", str(written_config(broken))]) == 2
    assert "width" in capsys.readouterr().err


def test_a_cached_result_depends_on_what_changes_the_program(tiny, tmp_path, monkeypatch):
    """A corrupt one is computed again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def found(config, what="x", number=2):
        return compiled_step.kept(what, config, lambda: {"a": number})["a"]

    assert found(tiny, number=1) == found(replace(tiny, epochs=99, seed=7)) == 1
    assert found(replace(tiny, batch=32)) == found(tiny, "y") == 2
    for content in ("[1]", "[" * 100_000):
        for path in tmp_path.rglob("*.json"):
            path.write_text(content)
        assert found(tiny, number=3) == 3


def run_of(tmp_path, config, speed, devices="8 x TPU v5 lite (tpu)"):
    """Write the files of a complete training that a plan reads, and return their folder."""
    folder = tmp_path / f"run-{config.batch}"
    (folder / "artifact").mkdir(parents=True)
    manifest = {
        "run_id": "r1",
        "config": config.to_json(),
        "devices": devices,
        "precision": "float32",
    }
    manifest |= {"precision": "float32", "custom_code": ""}
    (folder / "artifact" / "manifest.json").write_text(json.dumps(manifest))
    lines = [{"step": 1, "images_per_second": 1.0}, {"step": 9, "images_per_second": speed}]
    (folder / "progress.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def earlier_runs(tmp_path, config, *seconds):
    """Return earlier trainings, each with twice the batch of the one before."""
    configs = [compiled_step.with_batch(config, 2**n * config.batch) for n in range(len(seconds))]
    speeds = [one.batch / each for one, each in zip(configs, seconds, strict=True)]
    return [probe.read(run_of(tmp_path, *one)) for one in zip(configs, speeds, strict=True)]


def test_runs_give_the_time_of_their_network_on_their_runtime_only(tiny, tmp_path):
    """With two batch sizes, by a line; with one, by the time per image; and with two of which the
    larger was faster, by the nearer one.
    """
    batch, four = tiny.batch, compiled_step.with_batch(tiny, 4 * tiny.batch)
    one = earlier_runs(tmp_path / "one", tiny, 0.5 + 0.001 * batch)
    two = earlier_runs(tmp_path / "two", tiny, 0.5 + 0.001 * batch, 0.5 + 0.002 * batch)
    odd = earlier_runs(tmp_path / "odd", tiny, 0.30, 0.25)

    def usual(runs, config=tiny, runtime="tpu-v5e-8", precision="float32"):
        found = probe.measured(runs, config, runtime, precision)
        return found and found[0].usual

    assert usual(two, four) == pytest.approx(0.5 + 0.004 * batch)
    assert usual(one, four) == pytest.approx(4 * (0.5 + 0.001 * batch))
    assert usual(odd, four) == pytest.approx(0.5) and usual(odd) == pytest.approx(0.30)
    another = replace(tiny, model_options={**tiny.model_options, "width": 9})
    assert usual(two, another) is usual(two, runtime="gpu-t4x2") is None
    assert usual(two, precision="mixed_bfloat16") is usual([]) is None


def test_a_run_replaces_the_assumed_time_and_is_named(tiny, tmp_path):
    config = replace(tiny, precision="float32")
    runs = earlier_runs(tmp_path, config, 7.0)

    one = on("tpu-v5e-8", config, step(1e9, 1e12), runs=runs)

    assert (one.step.usual, one.time_basis) == (pytest.approx(7.0), "measured")
    assert "run r1 in run-" in one.time_source


@given(room=st.floats(1, 2000), groups=st.sampled_from([1, 2, 8]), size=st.sampled_from([16, 64]))
def test_the_advised_micro_batch_has_whole_groups_and_fits(room, groups, size):
    config = shipped("cifar100_wrn")
    optimizer = replace(config.optimizer, base_batch=2 * groups * size)
    config = replace(config, batch=2 * groups * size, batchnorm_batch=size, optimizer=optimizer)
    image = RUNTIMES["gpu-t4x2"].core.memory / room

    one = on("gpu-t4x2", config, step(image * config.batch / 2))

    assert one.fits is (groups * size <= room) or abs(groups * size - room) < 1e-6 * room
    if one.micro_batch:
        assert one.micro_batch % size == 0 and one.share % one.micro_batch == 0
        assert one.micro_batch <= room * (1 + 1e-9)
    assert one.fits or one.micro_batch or "batchnorm_batch" in one.why or "height=" in one.why


def test_without_batchnorm_any_micro_batch_is_advised():
    """A group of 256 rows does not fit into a core of 16 GB; 100 rows do."""
    config = replace(shipped("cifar100_wrn"), batch=2048, batchnorm_batch=256)
    found, own = step(256 * 1.6e8, refused="too large"), Counts(0, 0, 1.0, normalizes=False)

    one, other = (on("tpu-v5e-8", config, found, counts=each) for each in (own, Counts(0, 0, 1.0)))

    assert "batchnorm_batch" not in one.why and one.micro_batch == 64
    assert "batchnorm_batch" in other.why and not other.micro_batch


def test_a_step_that_the_compiler_refuses_gets_a_smaller_micro_batch():
    config = replace(shipped("cifar100_wrn"), batchnorm_batch=32)

    one = on("tpu-v5e-8", config, step(2e10, refused="too large"))

    assert (one.fits, one.memory, one.memory_basis) == (False, 2e10, "compiled")
    assert one.micro_batch and one.micro_batch <= one.share / 2


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ("1 x NVIDIA K80 (gpu)", "ran on unknown devices, 1 x NVIDIA K80"),
        (None, "not a complete training run"),
    ],
)
def test_an_unusable_run_is_refused(tiny, tmp_path, devices, said):
    folder = run_of(tmp_path, tiny, 9.0, devices) if devices else tmp_path

    with pytest.raises(ConfigError, match=said):
        probe.read(folder)
    assert probe.pulled(tmp_path) == []


def test_a_batch_that_does_not_split_over_the_cores_is_refused_before_it_is_compiled(tiny):
    odd = replace(tiny, batch=15, optimizer=replace(tiny.optimizer, base_batch=15))

    one, other = plan.make(odd, ["gpu-t4x2", "colab-t4"], Given(1_000, "counted")).outlooks

    assert (one.fits, one.total) == (False, None) and "cannot be split evenly across 2" in one.why
    assert other.fits is not False and other.total


def test_an_input_bound_epoch_takes_as_long_as_its_host_reads(tiny):
    config = replace(tiny, feed="files")

    one = on("gpu-t4x2", config, step(1e9, 1.0), decodes=0.5)

    validated = 1_100 * config.data.validation_fraction
    images = 1_100 - validated + laws.VALIDATES * validated
    assert one.epoch.usual == pytest.approx(images / (4 * 0.5), rel=1e-3)
    assert "input-bound: 4 CPUs supply 2 images per second" in one.why


def test_session_hours_and_the_remaining_quota_decide_sessions_and_weeks():
    runtime = RUNTIMES["tpu-v5e-8"]

    sessions = [cost(runtime, 18 * HOUR, session_hours=end).sessions for end in (None, 3.0, 12.0)]
    weeks = [cost(runtime, 21 * HOUR, left=left).weeks for left in (None, 21.0, 1.0, 0.0)]

    assert sessions == [2, 6, 2]
    assert weeks == [2, 1, 2, 3]


@pytest.mark.parametrize(
    ("runtime", "hours", "what", "published"),
    [
        ("colab-t4", (14 + 41 / 60) / 60, "units", 0.48),  # YOLOv8 on 2 and on 8 CPUs
        ("colab-t4-high", (6 + 42 / 60) / 60, "units", 0.23),
        ("colab-a100", 38.2, "units", 500.0),  # of Colab Pro+
        ("colab-a100", 1.0, "yen", 150.0),
        ("gpu-t4x2", 31.0, "weeks", 2),  # about 30 hours of a GPU
    ],
)
def test_published_prices_are_reproduced(runtime, hours, what, published):
    spent = cost(RUNTIMES[runtime], hours * HOUR)

    assert getattr(spent, what) == pytest.approx(published, rel=0.02)


def test_an_epoch_of_2018_follows_from_two_others():
    """A step takes a fixed time, and a time per image."""
    images = 46_000
    law = AffineLaw.through(
        *((batch, t * batch / images) for batch, t in ((256, 234.6), (1024, 80.3)))
    )

    seconds = [law.of(batch) * images / batch for batch in (64, 128, 512, 2048)]

    assert seconds == pytest.approx([844.3, 421.7, 136.9, 58.1], rel=0.10)


def test_images_of_224_pixels_take_49_times_the_memory_of_32_and_fit_nowhere():
    """5 GB became 250, which nobody had estimated before the run."""
    data = Data(height=224, width=224, channels=3)
    config = replace(shipped("cifar100_wrn"), data=data, epochs=100)
    one = on("colab-a100", config, step(49 * 5e9, 1e15))

    assert one.memory == pytest.approx(245e9) and one.fits is False
    assert "245 GB" in plan.advice([replace(one, micro_batch=0)])


def test_a_checkpoint_is_as_large_as_what_a_training_keeps(tiny):
    averaged = replace(tiny, optimizer=replace(tiny.optimizer, ema_momentum=0.9))

    plain, more = (plan.make(one, [], Given(100, "counted")) for one in (tiny, averaged))

    assert plain.checkpoint == plain.counts.state
    assert more.checkpoint == more.counts.state + 4 * more.counts.parameters


def test_the_time_of_progressive_images_is_marked_as_an_upper_bound(tiny):
    growing = replace(with_data(tiny, height=16, width=16), progressive=(0.5,))

    plain, less = (plan.make(one, [], Given(100, "counted")) for one in (tiny, growing))

    assert plan.GROWS in plan_table.lines(less) and plan.GROWS not in plan_table.lines(plain)


def test_folds_and_held_out_images_count_in_the_time(tiny):
    """Five folds train five times on four fifths, and validate on the rest."""
    once = replace(tiny, data=replace(tiny.data, validation_fraction=0.2))
    five = replace(once, folds=5, views=2)

    one, more = (on("tpu-v5e-8", config, step(1e9, 1e15)) for config in (once, five))

    assert more.epoch == one.epoch
    around = outlook.STARTS + outlook.COMPILES
    assert more.total.usual - around == pytest.approx(5 * (one.total.usual - around))
    assert one.epoch.usual == pytest.approx(880 / tiny.batch * one.step.usual * (1 + 0.4 / 4))


def test_a_step_with_a_frozen_backbone_is_planned_as_a_third():
    """Only the head, one layer, has gradients."""
    mobile = shipped("digits_mobilenet")
    options = dict(mobile.model_options) | {"backbone_rate": 0}

    trained, frozen = map(operation_counts.of, (mobile, replace(mobile, model_options=options)))

    assert trained.operations == 3 * frozen.operations and frozen.trainable < trained.trainable / 10


def test_a_linear_model_on_features_is_planned_as_one_pass_without_gradients():
    """For any number of epochs, over all images, held out or not. One model infers."""
    mobile = replace(shipped("digits_mobilenet"), precision="float32", frozen_epochs=2, folds=5)
    linear = replace(mobile, fit="linear")

    given = Given(1_000, "counted", 10**6, decodes=1e9)

    trained, once = (plan.make(one, ["tpu-v5e-8"], given) for one in (mobile, linear))

    assert trained.counts.operations == 3 * once.counts.operations
    assert once.counts.state < trained.counts.state / 2 and not once.counts.normalizes
    assert once.inference.total.usual < trained.inference.total.usual
    (one,) = once.outlooks
    assert one.epoch.usual == pytest.approx(1_000 / linear.batch * one.step.usual)
    assert one.total.usual == one.epoch.usual + outlook.STARTS + outlook.COMPILES
    said = "\n".join(plan_table.about(once))
    assert "one pass over 1,000 images" in said and "epochs" not in said
    assert "checkpoint" not in said


def test_frozen_epochs_take_a_third_of_the_time_and_a_program_of_their_own():
    """The memory is that of steps that train all layers."""
    mobile = replace(shipped("digits_mobilenet"), precision="float32")
    late = replace(mobile, frozen_epochs=10)

    whole, half = (on("tpu-v5e-8", config, step(1e9, 1e15)) for config in (mobile, late))

    assert half.memory == whole.memory and half.epoch == whole.epoch
    begins = outlook.STARTS + outlook.COMPILES
    steps = (half.total.usual - begins - outlook.COMPILES) / (whole.total.usual - begins)
    assert steps == pytest.approx((10 + 10 / 3) / 20)
    made = plan.make(late, [], Given(1_000, "counted"))
    assert "20 epochs (10 frozen, which take a third of the time)" in plan_table.about(made)[0]
