"""Shorten a config for a rehearsal on the local Kaggle, for example by reducing its epochs.

The local Kaggle passes the changes in an environment variable that does not exist on kaggle.com, so
a rehearsal runs exactly the notebook that will be pushed.
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
    """Return the config with the changes for this session, and print each change.

    Args:
        seconds: duration of this session if it is limited by the remaining quota.

    Raises:
        ConfigError: if a change is invalid.
    """
    if seconds is not None:
        hours = seconds / 3600
        print(f"This session is limited to {hours:.1f} hours, the remainder of the weekly quota.")
        train = min(config.session_hours or hours, hours)
        infer = min(config.infer_hours or train, hours)
        config = dataclasses.replace(config, session_hours=train, infer_hours=infer)
    changes = json.loads(os.environ.get(VARIABLE) or "{}")
    for name, value in changes.items():
        print(f"Rehearsal: {name} is {value!r} instead of the config's value")
    return with_changes(config, changes) if changes else config


def with_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return a copy of the config with changed fields.

    Names of nested fields start with "data." or "optimizer.".

    Raises:
        ConfigError: if a name is unknown or a value is invalid.

    >>> from pipeline import config
    >>> with_changes(config.load("digits"), {"epochs": 2, "warmup_epochs": 1}).epochs
    2
    """
    fields = config.to_json()
    for name, value in changes.items():
        part, _, field = name.rpartition(".")
        (fields[part] if part else fields)[field] = value
    return from_json(fields)
