"""The accelerator is proven, and only the local Kaggle may stand in for it."""

import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import DeviceError
from pipeline.inspection.image_networks import BASE
from pipeline.runtime import devices
from pipeline.runtime.devices import Devices


@pytest.mark.parametrize(
    ("local", "asked", "said"),
    [
        ("", "TpuV5E8", r"Asked for TpuV5E8(.|\n)*verified(.|\n)*docker pin(.|\n)*quota"),
        # The local Kaggle stands in for the shape that it names, and for no other.
        ("NvidiaTeslaT4", "TpuV5E8", "accelerator given: NvidiaTeslaT4"),
        # The TensorFlow of an image may see GPUs that its JAX has no plugin for.
        ("", "NvidiaTeslaT4", rf"the image: it has jax {jax.__version__}.* lacks jax-cuda"),
        # As a CPU, or a name that Kaggle has made since.
        ("", "", "expected one of TpuV5E8, TpuV6E8, NvidiaTeslaT4"),
    ],
)
def test_what_is_not_what_was_asked_for_is_refused(monkeypatch, local, asked, said):
    """The message names what was found and the usual causes."""
    monkeypatch.setenv(devices.LOCAL, local)

    with pytest.raises(DeviceError, match=said):
        devices.prove(asked)


def test_the_local_kaggle_is_believed(monkeypatch):
    """Virtual devices stand in for cores or GPUs. With one GPU of two a training would take twice
    as long as planned.
    """
    monkeypatch.setenv(devices.LOCAL, "TpuV5E8")
    here = devices.prove("TpuV5E8")
    assert (here.platform, here.count, here.simulated) == ("cpu", 8, "TpuV5E8")
    assert "8 x cpu" in str(here) and "local Kaggle" in str(here)

    monkeypatch.setenv(devices.LOCAL, "NvidiaTeslaT4")
    one = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: one)
    with pytest.raises(DeviceError, match=r"found 1 x cpu(.|\n)*JAX lacks jax-cuda13"):
        devices.prove("NvidiaTeslaT4")


def test_precision_follows_the_hardware():
    """bfloat16 where it is computed, unless the config says otherwise."""
    tpu, cpu = Devices("tpu", "TPU v5 lite", 8, None), Devices("cpu", "cpu", 1, None)

    assert devices.precision("auto", tpu) == "mixed_bfloat16"
    assert devices.precision("auto", cpu) == "float32"
    assert devices.precision("mixed_bfloat16", cpu) == "mixed_bfloat16"


INSPECT = """
import sys
from pipeline.__main__ import main

code = main(["inspect", sys.argv[1], "--for", "cpu"])
import jax
print(code, jax.device_count())
"""


@pytest.mark.slow
def test_what_inspect_times_and_trains_has_every_core_as_a_training_has(tmp_path, monkeypatch):
    """Of a table with too few rows it trains nothing, which is soonest."""
    rows = [f"r{n},{n}.5,{'ab'[n % 2]}" for n in range(4)]
    (tmp_path / "train.csv").write_text("\n".join(["id,height,kind", *rows, ""]))
    (tmp_path / "test.csv").write_text("id,height\ns1,1.5\ns2,2.5\n")
    (tmp_path / "sample_submission.csv").write_text("id,kind\ns1,a\ns2,a\n")
    monkeypatch.delenv("XLA_FLAGS")
    words = [sys.executable, "-c", INSPECT, tmp_path]

    done = subprocess.run(words, capture_output=True, text=True)

    wanted = ["0", str(devices.cpu_devices(BASE, devices.cores()))]
    assert done.stdout.split()[-2:] == wanted, done.stderr


@given(st.integers(1, 10_000), st.integers(1, 256))
def test_a_cpu_is_split_into_the_most_devices_that_share_a_batch_evenly(batch, cores):
    """As many as it has cores, and never more than a TPU has: each holds the whole model."""
    most = min(cores, devices.MOST_CPU_DEVICES)

    count = devices.cpu_devices(batch, cores)

    assert 1 <= count <= most and batch % count == 0
    assert all(batch % more for more in range(count + 1, most + 1))


def test_a_number_of_devices_that_the_user_chose_stays(monkeypatch):
    """Also where that number does not divide the batch: training then says so."""
    assert jax.device_count() == 8  # from now on JAX refuses another number
    assert devices.use_cores(12)  # tests/conftest.py chose eight in XLA_FLAGS

    monkeypatch.setenv("XLA_FLAGS", "")
    assert not devices.use_cores(12)
    monkeypatch.setattr(jax, "config", SimpleNamespace(jax_num_cpu_devices=3))
    assert devices.use_cores(12)
