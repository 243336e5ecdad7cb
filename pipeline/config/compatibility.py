"""Which fields of a config may change when a run resumes."""

from dataclasses import MISSING, fields
from typing import Any

from pipeline.config.config import Config
from pipeline.config.data_layout import Data
from pipeline.config.optimizer import Optimizer

# Nothing that training reads. The images themselves are compared by content.
FREE = {
    "feed",
    "infer_precision",
    "golden_tolerance",
    "limit_predictions",
    "handoff",
    "metric",  # its effect on the labels, their log, is in the fingerprint of the data
    "progress_seconds",
    "checkpoint_seconds",
    "session_hours",
    "infer_hours",
    "micro_batch",
    "views",
    *("read_test", "write_submission"),
    "data.sample_submission",
    "data.positive_label",
    "data.labelled",
    *("floor", "floor.model", "floor.metric", "floor.score", "floor.error", "floor.rows"),
} | {
    f"data.{part}_{form}"
    for part in ("train", "test")
    for form in ("csv", "images", "records", "array")
}


# What a field has that an older config does not know.
DEFAULTS = {
    f"{prefix}{field.name}": list(field.default)
    if isinstance(field.default, tuple)  # as JSON writes it
    else field.default
    for kind, prefix in ((Config, ""), (Data, "data."), (Optimizer, "optimizer."))
    for field in fields(kind)
    if field.default is not MISSING
} | {"data.own_inputs": {}}

# What an older run did before there was the field. It matters where there is a decay.
BEFORE = {"optimizer.decay_biases": True}


def changes(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return the differences of two configs that training depends on, a text for each value.

    >>> changes({"batch": 8, "data": {"flip": True}}, {"batch": 6, "data": {"flip": True}})
    ['batch: 8 then, 6 now']
    >>> changes({"batch": 8}, {"batch": 8, "data": {"alpha": "drop"}})  # an older config
    []
    >>> older = {"optimizer": {"weight_decay": 0.1}}
    >>> changes(older, {"optimizer": {"weight_decay": 0.1, "decay_biases": False}})
    ['optimizer.decay_biases: True then, False now']
    >>> changes(older, {"optimizer": {"weight_decay": 0.1, "decay_biases": True}})
    []
    """
    before, now = _flat(theirs), _flat(ours)
    defaults = DEFAULTS | (BEFORE if before.get("optimizer.weight_decay") else {})
    before = {name: defaults[name] for name in now if name in DEFAULTS} | before
    return [
        f"{name}: {before.get(name)!r} then, {now.get(name)!r} now"
        for name in sorted((before.keys() | now.keys()) - FREE)
        if before.get(name) != now.get(name)
    ]


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config's values by full name, for example "data.height"."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": part for key, part in value.items()}
        else:
            flat[name] = value
    return flat
