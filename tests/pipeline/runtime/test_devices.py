"""The accelerator is proven, and only the local Kaggle may stand in for it."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import DeviceError
from pipeline.inspection.image_networks import BASE
from pipeline.runtime import devices
from pipeline.runtime.devices import Devices

VERSION = rf"the image: it has jax {jax.__version__}.* lacks jax-cuda"


@pytest.mark.parametrize(
    ("local", "asked", "said"),
    [
        (None, "TpuV5E8", r"Asked for TpuV5E8(.|\n)*verified(.|\n)*docker pin(.|\n)*quota"),
        # The local Kaggle stands in for the shape that it names, and for no other.
        ("NvidiaTeslaT4", "TpuV5E8", "accelerator given: NvidiaTeslaT4"),
        # The TensorFlow of an image may see GPUs that its JAX has no plugin for.
        (None, "NvidiaTeslaT4", VERSION),
        # As a CPU, or a name that Kaggle has made since.
        (None, "", "expected one of TpuV5E8, TpuV6E8, NvidiaTeslaT4"),
    ],
)
def test_what_is_not_what_was_asked_for_is_refused(monkeypatch, local, asked, said):
    """The message names what was found and the usual causes."""
    monkeypatch.delenv(devices.LOCAL, raising=False)
    if local:
        monkeypatch.setenv(devices.LOCAL, local)

    with pytest.raises(DeviceError, match=said):
        devices.prove(asked)


@pytest.mark.parametrize(
    ("asked", "count", "wanted"),
    [("TpuV5E8", 8, 8), ("NvidiaTeslaT4", 2, 2), ("NvidiaTeslaT4", 1, 2)],
)
def test_the_local_kaggle_is_believed(monkeypatch, asked, count, wanted):
    """Virtual devices stand in for cores or GPUs. With one GPU of two a training would take twice
    as long as planned.
    """
    monkeypatch.setenv(devices.LOCAL, asked)
    all_of_them = jax.devices()[:count]
    monkeypatch.setattr(jax, "devices", lambda *_: all_of_them)
    monkeypatch.setattr(jax, "device_count", lambda *_: count)

    if count != wanted:
        with pytest.raises(DeviceError, match=f"found {count} x cpu(.|\\n)*JAX lacks jax-cuda13"):
            devices.prove(asked)
        return
    here = devices.prove(asked)
    assert (here.platform, here.count, here.simulated) == ("cpu", count, asked)
    assert f"{count} x cpu" in str(here) and "local Kaggle" in str(here)


def test_precision_follows_the_hardware():
    """bfloat16 where it is computed, unless the config says otherwise."""
    tpu, cpu = Devices("tpu", "TPU v5 lite", 8, None), Devices("cpu", "cpu", 1, None)

    assert devices.precision("auto", tpu) == "mixed_bfloat16"
    assert devices.precision("auto", cpu) == "float32"
    assert devices.precision("mixed_bfloat16", cpu) == "mixed_bfloat16"


EVERY_CORE = """
from pipeline.runtime import devices
import jax

devices.use_cores(12)
first = jax.device_count()
devices.use_cores(1)  # JAX computes already
print(first, jax.device_count())
"""


INSPECT = """
import sys
from pipeline.__main__ import main

code = main(["inspect", sys.argv[1], "--for", "cpu"])
import jax
print(code, jax.device_count())
"""


@pytest.mark.slow
def test_what_inspect_times_and_trains_has_every_core_as_a_training_has(tmp_path):
    """Of a table with too few rows it trains nothing, which is soonest."""
    rows = [f"r{n},{n}.5,{'ab'[n % 2]}" for n in range(4)]
    (tmp_path / "train.csv").write_text("\n".join(["id,height,kind", *rows, ""]))
    (tmp_path / "test.csv").write_text("id,height\ns1,1.5\ns2,2.5\n")
    (tmp_path / "sample_submission.csv").write_text("id,kind\ns1,a\ns2,a\n")
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}

    done = subprocess.run(
        [sys.executable, "-c", INSPECT, str(tmp_path)],
        cwd=Path(__file__).resolve().parents[3],
        env=kept,
        capture_output=True,
        text=True,
    )

    code, count = done.stdout.splitlines()[-1].split()
    assert (int(code), int(count)) == (0, devices.cpu_devices(BASE, devices.cores())), done.stderr


@given(st.integers(1, 10_000), st.integers(1, 256))
def test_a_cpu_is_split_into_the_most_devices_that_share_a_batch_evenly(batch, cores):
    """As many as it has cores, and never more than a TPU has: each holds the whole model."""
    most = min(cores, devices.MOST_CPU_DEVICES)

    count = devices.cpu_devices(batch, cores)

    assert 1 <= count <= most and batch % count == 0
    assert all(batch % more for more in range(count + 1, most + 1))


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 5),
        ({"JAX_NUM_CPU_DEVICES": "3"}, 3),
    ],
)
def test_a_number_of_devices_that_the_user_chose_stays(given_, expected):
    """Also where that number does not divide the batch: training then says so."""
    kept = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}

    done = subprocess.run(
        [sys.executable, "-c", EVERY_CORE],
        env={**kept, **given_},
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == [str(expected)] * 2
