"""Each config in pipeline/configs, with those of a competitor, can be trained and pushed."""

import pytest

from deploy import bundle
from deploy.project import Project
from pipeline import config as configs
from pipeline.config import custom_code
from pipeline.config.config_files import CONFIGS
from pipeline.models import architectures
from pipeline.train import custom_check
from tests.deploy.invoked import ROOT

NAMES = sorted(path.stem for path in CONFIGS.glob("[!_]*") if path.stem.isidentifier())
pytestmark = [pytest.mark.quick, pytest.mark.parametrize("name", NAMES)]


def test_its_model_is_built_and_its_custom_functions_work(name):
    """With JAX; `python -m pipeline check` and each training also compare TensorFlow."""
    config = configs.load(name)

    with architectures.without_numbers():
        assert architectures.build(config).count_params()
    if custom_code.functions(config):
        custom_check.by_jax(config, print)


def test_its_notebook_is_built(name, tmp_path):
    """Its imports are found, nothing looks like a secret, and Kaggle accepts its size."""
    config = configs.load(name)

    ours = Project(ROOT, name, config.competition, config.handoff, tmp_path / "runs", tmp_path)
    built = bundle.build(ours, bundle.read(ours, "train-tpu"), bundle.Inputs(), "someone")

    assert built.notebook.is_file()
