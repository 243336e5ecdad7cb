"""An unknown folder becomes a config and a rehearsal with a score, without an edit."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest

from localkaggle.competitions import EMBEDDED
from pipeline import config as configs
from pipeline.data import dataset
from tests.e2e.made_folders import LAYOUTS, goods, images, masks, pixels, reviews
from tests.e2e.project import by_jax, copied, given

CUSTOM = {  # with readers that inspect writes
    "masks": partial(masks, train=240),
    "reviews": partial(reviews, rows=800),
    "goods": partial(goods, rows=400),
}
NAMES = ("signs", "surfaces", "varieties", "pixels", "diabetes", "breast-cancer", *CUSTOM)
pytestmark = pytest.mark.slow


def write(name, folder, seed):
    if name in EMBEDDED:
        EMBEDDED[name]().write(folder)
    elif name in CUSTOM:
        CUSTOM[name](folder, seed)
    elif name in LAYOUTS:
        images(folder, seed, LAYOUTS[name])
    else:
        pixels(folder, seed)


def baseline(config, folder):
    """Return the score without features, and two of its standard errors on a fifth of the rows."""
    if config.target == "regression":
        table = pd.read_csv(folder / config.data.train_csv)
        return table[config.data.label_column].std(ddof=0), 0.0
    if config.target == "custom":
        return config.baseline.score, 2 * config.baseline.error
    labels = dataset.read_training(folder, config).labels
    if config.metric == "auc":
        return 0.5, 2 * math.sqrt(1 / (12 * len(labels) / 5))
    share = np.bincount(labels).max() / len(labels)
    return share, 2 * math.sqrt(share * (1 - share) / (len(labels) / 5))


@pytest.mark.parametrize("name", NAMES)
def test_what_inspect_writes_is_rehearsed_to_a_score_above_the_baseline(name, seed, tmp_path):
    project, folder, config = by_jax(copied(tmp_path)), tmp_path / "data", tmp_path / "mine.py"
    write(name, folder, seed)

    planned = "30s" if name == "breast-cancer" else "4m"
    words = ["--for", "cpu", "--budget", planned, "--write", config]
    given(project, "invoke", "inspect", "--input", folder, *words)
    before = config.read_bytes()
    made = configs.load(str(config))
    known, error = baseline(made, folder)
    lower = made.target == "regression"
    # On a busy machine a network may get too few steps: then it gets more time, once.
    for short in ("2m", "8m"):
        words = ["--config", config, "--input", folder, "--budget", short]
        score = given(project, "invoke", "dry-run", *words)["score"]
        learned = score < known if lower else score > known + error
        if learned:
            break

    assert learned
    assert config.read_bytes() == before
