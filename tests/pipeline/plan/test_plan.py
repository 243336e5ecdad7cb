"""What a plan says follows from its figures, and what is not known is never a number."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.__main__ import main
from pipeline.errors import ConfigError
from pipeline.plan import (
    accelerators,
    cost,
    input_rate,
    kept_plans,
    largest_batch,
    plan,
    plan_command,
)
from pipeline.plan.accelerators import RUNTIMES
from pipeline.plan.largest_batch import Tried
from pipeline.plan.plan import Outlook
from pipeline.plan.step_memory import MemoryLaw
from pipeline.plan.step_time import TRUNCATED, AffineLaw, Interval

HOUR = 3600.0
FITS = Outlook(
    "tpu-v5e-8", "Kaggle TPU v5e-8", "", 128, "mixed_bfloat16", 16e9, 2e9, "compiled", True,
    total=Interval(HOUR, 2 * HOUR, 4 * HOUR), spent=cost.of(RUNTIMES["tpu-v5e-8"], 2 * HOUR),
)  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keep what is compiled in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@given(
    fixed=st.floats(1e-4, 1), image=st.floats(1e-6, 1e-2), batches=st.sets(
        st.integers(1, 10_000), min_size=2, max_size=2
    ), images=st.integers(1, 10**6), batch=st.integers(1, 10_000),
)  # fmt: skip
def test_two_batches_give_the_time_of_every_other(fixed, image, batches, images, batch):
    law = AffineLaw(fixed, image)
    first, second = ((one, law.step(one)) for one in sorted(batches))

    found = AffineLaw.through(first, second)

    # The difference of two steps is rounded to an ulp of the longer one.
    rounding = 1e-14 * second[1] / (second[0] - first[0])
    near = rounding * (batch + second[0]) + 1e-11 * batch + 1e-11
    assert found.step(batch) == pytest.approx(law.step(batch), rel=1e-9, abs=near)
    assert law.epoch(images, batch, steps=TRUNCATED) <= law.epoch(images, batch) * (1 + 1e-12)


def test_one_batch_gives_no_law():
    with pytest.raises(ConfigError, match="Probe two batches"):
        AffineLaw.through((8, 1.0), (8, 1.1))


@given(fixed=st.floats(0, 1e9), image=st.floats(1, 1e8), room=st.floats(0, 1e12))
def test_what_fits_does_and_one_image_more_does_not(fixed, image, room):
    law = MemoryLaw(fixed, image)

    most = law.fits(room)

    slack = 1e-9 * (room + fixed)
    assert most == 0 or law.bytes(most) <= room + slack
    assert law.bytes(most + 1) > room - slack


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

    found = largest_batch.largest(largest_batch.search(compiled, first * unit, unit, room, fixed))

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
    assert found.times == pytest.approx(3000 / (4 * input_rate.DECODES) if bound else 1)


@pytest.mark.parametrize(
    ("hours", "said"),
    [
        (2, "about 2 h."),
        (15, "in 2 sessions (push-train --until-done)"),
        (50, "the quota of 3 weeks"),
    ],
)
def test_the_advice_counts_sessions_and_weeks(hours, said):
    seconds = hours * HOUR
    spent = cost.of(RUNTIMES["tpu-v5e-8"], seconds)
    one = replace(FITS, total=Interval(seconds, seconds, seconds), spent=spent)

    assert said in plan.advice([one])


def test_what_fits_nowhere_is_said_with_its_size():
    one = replace(FITS, fits=False, micro_batch=0, memory=245e9, room=36e9)

    assert "245 GB a core" in plan.advice([one]) and "36 GB" in plan.advice([one])
    assert "micro_batch=2" in plan.advice([replace(one, micro_batch=2)])


def test_nothing_is_advised_where_nothing_is_known():
    unknown = replace(FITS, total=None)

    assert "Nothing can be said" in plan.advice([unknown, replace(FITS, retired="retired")])


def test_a_figure_that_is_not_known_is_no_number():
    row = plan_command._row(Outlook("gpu-h100", "one H100", "", 8, "float32", 72e9))

    assert row == ("one H100", *[plan_command.MISSING] * 8)


def test_a_plan_of_a_small_network_is_kept(tiny, written_config, tmp_path, capsys):
    words = ["plan", "--config", str(written_config(tiny)), "--for", "gpu-t4x2,colab-cpu", "--json"]

    assert main([*words, "--output", str(tmp_path)]) == 0
    first = capsys.readouterr()
    assert main(words) == 0
    second = capsys.readouterr()

    found = json.loads(first.out.splitlines()[-1])
    assert "Compiling" in first.err and "Compiling" not in second.err
    assert json.loads(second.out) == found == json.loads((tmp_path / "plan.json").read_text())
    there, unknown = found["outlooks"]
    assert there["memory_basis"] == "estimated" and there["fits"] is True
    assert there["spent"]["weeks"] == 1 and unknown["memory"] is None


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--for", "tpu-v9", "expected one of tpu-v5e-8"),
        ("--images", "many", "expected a number"),
        ("--input", "missing", "there is no such folder"),
    ],
)
def test_options_that_cannot_work_are_refused(tiny, written_config, capsys, option, value, said):
    words = ["plan", "--config", str(written_config(tiny)), "--for", "colab-cpu", option, value]

    assert main(words) == 2
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


def test_a_kept_result_that_is_spoiled_is_computed_again(tiny, tmp_path):
    assert kept_plans.found("x", tiny, lambda: {"a": 1}, tmp_path) == {"a": 1}
    assert kept_plans.found("x", tiny, lambda: {"a": 2}, tmp_path) == {"a": 1}
    next(tmp_path.glob("*.json")).write_text("{")

    assert kept_plans.found("x", tiny, lambda: {"a": 2}, tmp_path) == {"a": 2}


def test_every_runtime_is_found_by_its_name():
    assert all(accelerators.found(name) is one for name, one in RUNTIMES.items())
