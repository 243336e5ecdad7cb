"""The resources of a step on a TPU v5e-8, from its compiler; no TPU is needed."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

from pipeline import config as configs
from pipeline.config import config_files
from tests.shipped import shipped
from workbench.plan import compiled_step
from workbench.plan.accelerators import RUNTIMES, V5E

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("libtpu"), reason="libtpu is not installed"),
]


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


LONG = {"cifar100_wrn", "digits_mobilenet"}  # they take the compiler minutes


@pytest.mark.parametrize("name", sorted({*config_files.named_files()} - LONG))
def test_a_step_of_a_shipped_config_fits_into_a_core(name):
    config = configs.load(name)
    if config.batch % RUNTIMES["tpu-v5e-8"].cores:
        pytest.skip("somebody's own batch")

    found = compiled_step.for_tpu(config, "tpu-v5e-8")

    assert 0 < found.memory <= V5E.memory
    assert found.collectives.get("all-reduce", 0) > 0


def test_groups_of_batchnorm_and_images_on_the_cores_cost_no_waiting():
    """Cores synchronize as often as with one group each, and gather no images."""
    digits = shipped("digits")
    optimizer = replace(digits.optimizer, base_batch=1024)
    single = replace(digits, optimizer=optimizer, batch=1024, batchnorm_batch=128)
    grouped = replace(single, batchnorm_batch=64)

    whole, groups, held = (
        compiled_step.for_tpu(config, "tpu-v5e-8", images=images)
        for config, images in ((single, 0), (grouped, 0), (grouped, 50_000))
    )

    reduces = [one.collectives["all-reduce"] for one in (whole, groups, held)]
    assert reduces[1:] == reduces[:1] * 2
    assert not any("all-gather" in one.collectives for one in (groups, held))
