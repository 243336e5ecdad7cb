"""What a plan says follows from its figures, and what is not known is never a number."""

import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config import Data, load
from pipeline.errors import ConfigError
from tests.doors.given import write_config
from workbench.__main__ import main
from workbench.plan import (
    cost,
    input_rate,
    kept_plans,
    laws,
    operation_counts,
    outlook,
    plan,
    plan_table,
    probe,
    run_files,
    speed_records,
    tpu_compiler,
)
from workbench.plan.accelerators import RUNTIMES
from workbench.plan.laws import AffineLaw, Interval
from workbench.plan.outlook import Outlook
from workbench.plan.tpu_compiler import Tried

HOUR = 3600.0
FITS = Outlook(
    "tpu-v5e-8", "Kaggle TPU v5e-8", "", 128, "mixed_bfloat16", 16e9, 2e9,
    memory_basis="compiled", fits=True,
    total=Interval(HOUR, 2 * HOUR, 4 * HOUR), spent=cost.of(RUNTIMES["tpu-v5e-8"], 2 * HOUR),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Keep what is compiled in a folder of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setitem(sys.modules, "libtpu", None)  # Python then finds no such package
        yield


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Return the words of a plan, what it first printed, and the folder of what it wrote."""
    folder, out, err = tmp_path_factory.mktemp("planned"), io.StringIO(), io.StringIO()
    words = ["plan", "--config", str(write_config(folder, precision="float32")), "--json"]
    words += ["--for", "gpu-t4x2,tpu-v5e-8,colab-cpu"]
    files = ["--output", str(folder), "--page", str(folder / "plan.html")]
    with redirect_stdout(out), redirect_stderr(err):
        assert main([*words, *files]) == 0
    return words, out.getvalue(), err.getvalue(), folder


@given(
    fixed=st.floats(1e-4, 1), image=st.floats(1e-6, 1e-2), batches=st.sets(
        st.integers(1, 10_000), min_size=2, max_size=2
    ), batch=st.integers(1, 10_000),
)  # fmt: skip
def test_two_batches_give_every_other(fixed, image, batches, batch):
    """And one alone gives none."""
    law = AffineLaw(fixed, image)
    first, second = ((one, law.of(one)) for one in sorted(batches))

    found = AffineLaw.through(first, second)

    # The difference of two steps is rounded to an ulp of the longer one.
    rounding = 1e-14 * second[1] / (second[0] - first[0])
    near = rounding * (batch + second[0]) + 1e-11 * batch + 1e-11
    assert found.of(batch) == pytest.approx(law.of(batch), rel=1e-9, abs=near)
    with pytest.raises(ConfigError, match="two batches that differ"):
        AffineLaw.through(first, first)


@given(
    fixed=st.floats(0, 8e9), image=st.floats(1e4, 1e7), more=st.floats(1, 1.4),
    first=st.integers(1, 50), unit=st.sampled_from([8, 64]),
)  # fmt: skip
def test_the_largest_batch_is_found_by_three_compilations(fixed, image, more, first, unit):
    """Far from its limit a batch takes more memory than near it."""
    room, tried = 16e9, []

    def compiled(batch: int) -> Tried:
        tried.append(batch)
        taken = fixed + image * batch <= room
        near = image * batch > room / 2
        memory = image * batch * (1 if near else more)
        return Tried(batch, memory + fixed * taken, taken)

    found = tpu_compiler.largest(tpu_compiler.search(compiled, first * unit, unit, room, fixed))

    limit = (room - fixed) / image
    assert len(tried) <= 3
    assert found <= limit * (1 + 1e-9)
    if limit > 100 * unit and fixed / 500 < image * first * unit < room - fixed:
        assert found >= 0.95 * limit


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

    found = input_rate.of(config, host, 10**6, 3000.0)

    assert found is not None and found.bound is bound
    assert found.waits == pytest.approx(1 - 4 * input_rate.DECODES / 3000 if bound else 0)


def lasting(hours: float) -> Outlook:
    total = Interval(*[hours * HOUR] * 3)
    return replace(FITS, total=total, spent=cost.of(RUNTIMES["tpu-v5e-8"], hours * HOUR))


TOO_LARGE = replace(FITS, fits=False, micro_batch=0, memory=245e9, room=36e9)
UNKNOWN = [replace(FITS, total=None), replace(FITS, retired="retired")]


@pytest.mark.parametrize(
    ("outlooks", "said"),
    [
        ([lasting(2)], "about 2 h."),
        ([lasting(15)], "in 2 sessions (push-train --until-done)"),
        ([lasting(50)], "the quota of 3 weeks"),
        ([TOO_LARGE], "245 GB a core"),
        ([replace(TOO_LARGE, why="slow; set height=64")], "; set height=64."),
        ([replace(TOO_LARGE, micro_batch=2)], "micro_batch=2"),
        (UNKNOWN, "Nothing can be said"),
    ],
)
def test_the_advice_counts_sessions_and_weeks_and_says_what_does_not_fit(outlooks, said):
    assert said in plan.advice(outlooks)


@given(fixed=st.floats(0, 2e10), image=st.floats(1e10, 1e13), side=st.sampled_from([64, 224, 512]))
def test_images_that_are_advised_fit_into_a_core(fixed, image, side):
    """Where not even one of these does."""
    core, data = RUNTIMES["gpu-t4x2"].core, Data(height=side, width=side, channels=3)
    config = replace(load("cifar100_wrn"), data=data)
    work = outlook.Work(config, operation_counts.Counts(1, 1, 1.0, 1.0), 1000)

    one = outlook.of("gpu-t4x2", work, None, AffineLaw(fixed, image), "")

    assert one.fits or re.search("height=|a smaller model|batchnorm_batch", one.why)
    if found := re.search(r"height=(\d+) and width=(\d+)", one.why):
        fits, more = (fixed + (int(found[1]) + n) ** 2 / side**2 * image for n in (0, 8))
        assert (
            found[1] == found[2] and fits <= core.memory * (1 + 1e-9) and more > 0.99 * core.memory
        )


def test_a_figure_that_is_not_known_is_no_number():
    row = plan_table.row(Outlook("gpu-h100", "one H100", "", 8, "float32", 72e9), 100)

    assert row == ("one H100", *[plan_table.MISSING] * 8)


def test_a_plan_of_a_small_network_is_kept_and_comes_back(planned, capsys):
    """And says where its memory is estimated, since there is no compiler of TPUs."""
    words, out, err, folder = planned

    assert main(words) == 0
    again = capsys.readouterr()

    found = json.loads(out.splitlines()[-1])
    assert "Compiling" in err and "Compiling" not in again.err
    assert json.loads(again.out) == found == json.loads((folder / "plan.json").read_text())
    assert "estimated, since libtpu is not installed" in out
    there, _, unknown = found["outlooks"]
    assert there["memory_basis"] == "estimated" and there["fits"] is True
    assert there["spent"]["weeks"] == 1 and unknown["memory"] is None
    made = plan.from_json(found)
    assert json.loads(json.dumps(made.to_json())) == found
    page = (folder / "plan.html").read_text()
    assert made.outlooks[0].title in page and "<svg" in page


def test_images_that_the_cores_hold_come_to_the_memory_of_a_step(planned):
    config, given = load(str(planned[-1] / "tiny.py")), plan.Given(1_001, "counted")
    sent, held = (
        plan.make(replace(config, feed=feed), ["gpu-t4x2"], given).outlooks[0]
        for feed in ("host", "device")
    )

    images = round(1_001 * (1 - config.data.validation_fraction))
    assert held.memory - sent.memory == -(-images // 2) * run_files.image_bytes(config)


def test_time_on_this_machine_is_that_of_the_steps_that_were_timed(tiny, monkeypatch):
    monkeypatch.setattr(probe, "LEAST", 0.01)
    said = []

    made = plan.make(tiny, ["cpu"], plan.Given(1_000, "counted"), said.append)

    (one,) = made.outlooks
    assert sum("Timing" in line for line in said) == 2
    assert (one.memory_basis, one.time_basis, one.fits) == ("compiled", "measured", True)
    # Two timings of one machine: that of an epoch's steps may be the quicker one.
    assert one.epoch.usual > one.step.usual > 0
    assert one.total.usual > tiny.epochs * one.epoch.usual  # compiling comes to it
    assert 0 < one.computing < one.memory


@pytest.mark.parametrize(
    ("option", "value", "code", "said"),
    [
        ("--for", "tpu-v9", 2, "expected one of tpu-v5e-8"),
        ("--images", "many", 2, "expected a number"),
        ("--input", 5_000 * "x", 2, "there is no such folder"),
        ("--probe", 5_000 * "x", 2, "there is no"),
        ("--page", 5_000 * "x", 8, "Could not write"),
    ],
)
def test_options_that_cannot_work_are_refused(
    tiny, written_config, capsys, option, value, code, said
):
    words = ["plan", "--config", str(written_config(tiny)), "--for", "colab-cpu", option, value]

    assert main(words) == code
    assert said in capsys.readouterr().err


def test_a_model_that_cannot_be_built_still_gets_the_rest_of_its_plan(tiny, written_config, capsys):
    broken = replace(tiny, model_options={"width": -1, "depth": 1, "dropout": 0.1})

    assert main(["plan", "--config", str(written_config(broken))]) == 2

    out, err = capsys.readouterr()
    assert "Kaggle TPU v5e-8" in out and "the model is not built" in out
    assert "width" in err


def test_kept_results_follow_from_what_a_program_follows_from(tiny):
    longer = replace(tiny, epochs=99, seed=7)

    assert kept_plans.key("x", tiny) == kept_plans.key("x", longer)
    assert kept_plans.key("x", tiny) != kept_plans.key("x", replace(tiny, batch=32))
    assert kept_plans.key("x", tiny) != kept_plans.key("y", tiny)


@pytest.mark.parametrize("content", ["[1]", "[" * 100_000])
def test_a_kept_result_that_is_spoiled_is_computed_again(tiny, tmp_path, content):
    assert kept_plans.found("x", tiny, lambda: {"a": 1}, tmp_path) == {"a": 1}
    assert kept_plans.found("x", tiny, lambda: {"a": 2}, tmp_path) == {"a": 1}
    next(tmp_path.glob("*.json")).write_text(content)

    assert kept_plans.found("x", tiny, lambda: {"a": 2}, tmp_path) == {"a": 2}


def run_of(tmp_path, config, speed, devices="8 x TPU v5 lite (tpu)"):
    """Write what a plan reads of a complete training, and return its folder."""
    folder = tmp_path / f"run-{config.batch}"
    (folder / "artifact").mkdir(parents=True)
    told = {"run_id": "r1", "config": config.to_json(), "devices": devices, "precision": "float32"}
    told["custom_code"] = ""
    (folder / "artifact" / "manifest.json").write_text(json.dumps(told))
    lines = [{"step": 1, "images_per_second": 1.0}, {"step": 9, "images_per_second": speed}]
    (folder / "progress.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def seen_runs(tmp_path, config, *seconds):
    """Return what a plan reads of trainings, each with twice the batch of the one before."""
    configs = [plan.with_batch(config, 2**n * config.batch) for n in range(len(seconds))]
    speeds = [one.batch / each for one, each in zip(configs, seconds, strict=True)]
    folders = [run_of(tmp_path, *one) for one in zip(configs, speeds, strict=True)]
    return list(map(speed_records.read, folders))


def test_two_runs_of_a_network_with_two_batches_give_its_time(tiny, tmp_path):
    """Unless the larger batch was quicker."""
    seen = seen_runs(tmp_path, tiny, 0.5 + 0.001 * tiny.batch, 0.5 + 0.002 * tiny.batch)

    law, source = speed_records.law(seen, tiny, "tpu-v5e-8")

    assert (law.fixed, law.image) == pytest.approx((0.5, 0.001))
    assert "run-" in source
    assert speed_records.law(seen, tiny, "gpu-t4x2") is None
    odd = seen_runs(tmp_path / "odd", tiny, 0.30, 0.25)
    assert speed_records.law(odd, tiny, "tpu-v5e-8") is None


def test_what_a_run_reached_is_expected_of_its_network_again_and_moves_others(tiny, tmp_path):
    seen = [speed_records.read(run_of(tmp_path, tiny, 1e6))]
    before, same = laws.EFFICIENCY, speed_records.efficiency(seen, tiny, "tpu-v5e-8")[0]
    another = replace(tiny, model_options={**tiny.model_options, "width": 9})
    moved, source = speed_records.efficiency(seen, another, "tpu-v5e-8")

    assert same[2] / same[0] < before[2] / before[0]
    assert min(before[1], same[1]) < moved[1] < max(before[1], same[1])
    assert "r1" in source
    assert speed_records.efficiency(seen, tiny, "gpu-t4x2") == (before, "")


@given(room=st.floats(1, 2000), groups=st.sampled_from([1, 2, 8]), size=st.sampled_from([16, 64]))
def test_a_micro_batch_that_is_advised_has_whole_groups_and_fits(room, groups, size):
    config = load("cifar100_wrn")
    optimizer = replace(config.optimizer, base_batch=2 * groups * size)
    config = replace(config, batch=2 * groups * size, batchnorm_batch=size, optimizer=optimizer)
    work = outlook.Work(config, operation_counts.Counts(1, 1, 1.0, 1.0), 1000)
    core = RUNTIMES["gpu-t4x2"].core

    one = outlook.of("gpu-t4x2", work, None, AffineLaw(0.0, core.memory / room), "")

    assert one.fits is (groups * size <= room) or abs(groups * size - room) < 1e-6 * room
    if one.micro_batch:
        assert one.micro_batch % size == 0 and one.share % one.micro_batch == 0
        assert one.micro_batch <= room * (1 + 1e-9)
    assert one.fits or one.micro_batch or "batchnorm_batch" in one.why or "height=" in one.why


def test_a_step_that_its_compiler_refuses_gets_smaller_micro_batches_though_it_seems_to_fit():
    config = replace(load("cifar100_wrn"), batchnorm_batch=32)
    work = outlook.Work(config, operation_counts.Counts(1, 1, 1.0, 1.0), 1000)

    one = outlook.of("tpu-v5e-8", work, None, AffineLaw(0.0, 1.0), "", refused=2e10)

    assert (one.fits, one.memory, one.memory_basis) == (False, 2e10, "compiled")
    assert one.micro_batch and one.micro_batch <= one.share / 2


@pytest.mark.parametrize(
    ("devices", "said"),
    [("1 x NVIDIA K80 (gpu)", "of which no plan is made"), (None, "there is no artifact")],
)
def test_a_run_that_a_plan_cannot_use_is_refused(tiny, tmp_path, devices, said):
    folder = run_of(tmp_path, tiny, 9.0, devices) if devices else tmp_path

    with pytest.raises(ConfigError, match=said):
        speed_records.read(folder)
    assert speed_records.pulled(tmp_path) == []


def test_the_quota_that_is_left_decides_in_how_many_weeks(tiny):
    runtime = RUNTIMES["tpu-v5e-8"]

    weeks = [cost.of(runtime, 21 * HOUR, left=left).weeks for left in (None, 21.0, 1.0, 0.0)]

    assert weeks == [2, 1, 2, 3]


def test_a_checkpoint_is_as_large_as_what_a_training_keeps(tiny):
    counts = operation_counts.of(tiny)
    averaged = replace(tiny, optimizer=replace(tiny.optimizer, ema_momentum=0.9))

    plain, more = (run_files.of(one, counts, 100) for one in (tiny, averaged))

    assert plain.checkpoint == counts.state
    assert more.checkpoint == counts.state + 4 * counts.parameters
    assert plain.disk == 3 * plain.checkpoint


def test_a_step_of_a_frozen_backbone_is_planned_as_a_third_of_one_that_trains_it():
    """Nothing is computed backwards but its head, which is one layer."""
    mobile = load("digits_mobilenet")
    options = dict(mobile.model_options) | {"backbone_rate": 0}

    trained, frozen = map(operation_counts.of, (mobile, replace(mobile, model_options=options)))

    assert trained.in_bounds == 3 * frozen.in_bounds and frozen.trainable < trained.trainable / 10
