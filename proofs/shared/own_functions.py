"""Own functions: lets a proof's config use those of a config's own file, where the words of the
process have own=FILE among them.
"""

import sys
from dataclasses import replace

from pipeline import config as configs
from pipeline.config import Config

WORD = "own="


def used(config: Config) -> Config:
    """Return the config with the own file's model, loss, metric and augmentation."""
    files = [word.removeprefix(WORD) for word in sys.argv if word.startswith(WORD)]
    if not files:
        return config
    own = configs.load(files[0])
    return replace(
        config,
        name=own.name,
        model=own.model,
        model_options=own.model_options,
        loss=own.loss,
        metric=own.metric,
        augment=own.augment,
        code=own.code,
    )
