"""A config as JSON text, and back: every field, and nothing else."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from pipeline.config.config import Config
from pipeline.config.data_layout import Data
from pipeline.config.floor import Floor
from pipeline.config.optimizer import Optimizer
from pipeline.errors import ConfigError


def to_text(config: Config) -> str:
    """Return the config as indented JSON, keys sorted: equal configs give equal texts."""
    return json.dumps(config.to_json(), indent=2, sort_keys=True)


def from_json(value: Mapping[str, Any]) -> Config:
    """Return the `Config` that `to_json` wrote.

    Raises:
        ConfigError: if a key is unknown or missing, or a value cannot work.

    >>> from pipeline import config
    >>> config.from_json(config.load("digits").to_json()) == config.load("digits")
    True
    """
    parts = dict(value)
    parts["data"] = _build(Data, parts.get("data"), "data")
    parts["optimizer"] = _build(Optimizer, parts.get("optimizer"), "optimizer")
    if parts.get("floor") is not None:
        parts["floor"] = _build(Floor, parts["floor"], "floor")
    config: Config = _build(Config, parts, "the config")
    return config


def _build(kind: type, value: object, where: str) -> Any:
    """Return `kind(**value)`, with a refusal that lists the field names."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where}={value!r} cannot work: "
            f"expected an object with the fields of {kind.__name__}.\nAdd it."
        )
    fields = {f.name: f for f in dataclasses.fields(kind)}
    needed = {
        name
        for name, f in fields.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    }
    unknown, missing = set(value) - set(fields), needed - set(value)
    for problem, names in (("unknown", unknown), ("missing", missing)):
        if names:
            raise ConfigError(
                f"{where} has {problem} fields: {', '.join(sorted(map(str, names)))}; "
                f"expected {', '.join(sorted(fields))}.\nCorrect the spelling or edit the file."
            )
    return kind(**value)
