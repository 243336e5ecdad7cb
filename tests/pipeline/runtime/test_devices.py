"""The accelerator is proven, and only the local Kaggle may stand in for it."""

import jax
import pytest

from pipeline.errors import DeviceError
from pipeline.runtime import devices
from pipeline.runtime.devices import Devices


def test_a_cpu_is_not_a_tpu(monkeypatch):
    """The message names what was found and the usual causes."""
    monkeypatch.delenv(devices.LOCAL, raising=False)

    with pytest.raises(DeviceError, match="Asked for TpuV5E8") as caught:
        devices.prove("TpuV5E8")

    for cause in ("verified", "docker pin", "quota"):
        assert cause in str(caught.value)


def test_the_local_kaggle_is_believed(monkeypatch):
    """Eight virtual devices stand in for eight cores."""
    monkeypatch.setenv(devices.LOCAL, "TpuV5E8")

    here = devices.prove("TpuV5E8")

    assert (here.platform, here.count, here.simulated) == ("cpu", len(jax.devices()), "TpuV5E8")
    assert "local Kaggle" in str(here)


def test_the_local_kaggle_s_gpu_is_not_a_tpu(monkeypatch):
    """It stands in for the shape that it names, and for no other."""
    monkeypatch.setenv(devices.LOCAL, "NvidiaTeslaT4")

    with pytest.raises(DeviceError, match="accelerator given: NvidiaTeslaT4"):
        devices.prove("TpuV5E8")


def test_precision_follows_the_hardware():
    """bfloat16 where it is computed, unless the config says otherwise."""
    tpu, cpu = Devices("tpu", "TPU v5 lite", 8, None), Devices("cpu", "cpu", 1, None)

    assert devices.precision("auto", tpu) == "mixed_bfloat16"
    assert devices.precision("auto", cpu) == "float32"
    assert devices.precision("mixed_bfloat16", cpu) == "mixed_bfloat16"
