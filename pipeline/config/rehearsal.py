"""What a rehearsal on the local Kaggle changes in a config: how much is done, never what.

The local Kaggle sets it for its sessions, beside the notebook, so that the notebook is the one that
is pushed to kaggle.com. There the variable does not exist, and nothing changes.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from pipeline.config.config import Config
from pipeline.errors import ConfigError

VARIABLE = "LOCALKAGGLE_REHEARSAL"
# How much of a run; and random weights in place of published ones that no session can fetch.
AMOUNTS = (
    "batch", "batchnorm_batch", "micro_batch", "epochs", "warmup_epochs", "folds", "views",
    "data.height", "data.width", "optimizer.base_batch",
    "model_options.pretrained", "model_options.batchnorm",
)  # fmt: skip


def shortened(
    config: Config, seconds: float | None = None, show: Callable[[str], None] = print
) -> Config:
    """Return the config as this session takes it.

    Args:
        config: as its file says.
        seconds: of this session, if it is shorter than others: less of the quota was left.
        show: takes a line for each change; on Kaggle there is none.

    Raises:
        ConfigError: if a change is not one of an amount, or cannot work.
    """
    if seconds is not None:
        hours = seconds / 3600
        show(f"This session has {hours:.1f} hours: what is left of the week's quota.")
        train = min(config.session_hours or hours, hours)
        config = dataclasses.replace(
            config, session_hours=train, infer_hours=min(config.infer_hours or train, hours)
        )
    changes = json.loads(os.environ.get(VARIABLE) or "{}")
    for name, value in changes.items():
        show(f"Rehearsal: {name} is {value!r} in place of {_value(config, name)!r}")
    return with_changes(config, changes) if changes else config


def with_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return the config with other amounts.

    Args:
        changes: {name: value}, with a dot for a field of a field.

    Raises:
        ConfigError: if a name is not in `AMOUNTS`, or a value cannot work.

    >>> from pipeline import config
    >>> with_changes(config.load("digits"), {"epochs": 2, "warmup_epochs": 1}).epochs
    2
    """
    unknown = sorted(set(changes) - set(AMOUNTS))
    if unknown:
        raise ConfigError(
            f"A rehearsal would change {', '.join(unknown)}; expected {', '.join(AMOUNTS)}.\n"
            "Change the config itself."
        )
    parts: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        part, _, field = name.rpartition(".")
        parts.setdefault(part, {})[field] = value
    whole = parts.pop("", {})
    options = dict(config.model_options) | parts.pop("model_options", {})
    whole["model_options"] = options
    for part, fields in parts.items():
        whole[part] = dataclasses.replace(getattr(config, part), **fields)
    return dataclasses.replace(config, **whole)


def _value(config: Config, name: str) -> Any:
    part, _, field = name.rpartition(".")
    if part == "model_options":
        return config.model_options.get(field)
    return getattr(getattr(config, part) if part else config, field)
