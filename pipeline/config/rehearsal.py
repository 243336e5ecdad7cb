"""What a rehearsal on the local Kaggle changes in a config: how much is done, never what.

The local Kaggle sets it for its sessions, beside the notebook, so that the notebook is the one that
is pushed to kaggle.com. There the variable does not exist, and nothing changes.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

from pipeline.config.config import Config
from pipeline.config.config_files import from_json

VARIABLE = "LOCALKAGGLE_REHEARSAL"


def shortened(config: Config, seconds: float | None = None) -> Config:
    """Return the config as this session takes it, and print each change; on Kaggle there is none.

    Args:
        config: as its file says.
        seconds: of this session, if it is shorter than others: less of the quota was left.

    Raises:
        ConfigError: if a change cannot work.
    """
    if seconds is not None:
        hours = seconds / 3600
        print(f"This session has {hours:.1f} hours: what is left of the week's quota.")
        train = min(config.session_hours or hours, hours)
        infer = min(config.infer_hours or train, hours)
        config = dataclasses.replace(config, session_hours=train, infer_hours=infer)
    changes = json.loads(os.environ.get(VARIABLE) or "{}")
    for name, value in changes.items():
        print(f"Rehearsal: {name} is {value!r}, in place of what the config says")
    return with_changes(config, changes) if changes else config


def with_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return the config with other amounts.

    Args:
        changes: {name: value}, with a dot for a field of a field.

    Raises:
        ConfigError: if a name is unknown, or a value cannot work.

    >>> from pipeline import config
    >>> with_changes(config.load("digits"), {"epochs": 2, "warmup_epochs": 1}).epochs
    2
    """
    fields = config.to_json()
    for name, value in changes.items():
        part, _, field = name.rpartition(".")
        (fields[part] if part else fields)[field] = value
    return from_json(fields)
