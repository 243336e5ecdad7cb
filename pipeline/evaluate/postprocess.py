"""The config's `postprocess` function, which changes averaged predictions."""

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Config, custom_code
from pipeline.errors import ConfigError

Postprocess = Callable[[Sequence[str], np.ndarray], np.ndarray]


def unchanged(ids: Sequence[str], predictions: np.ndarray) -> np.ndarray:
    return predictions


def of(configs: Sequence[Config], folder: Path | None) -> Postprocess:
    """Return the `postprocess` function that all members share. It also checks the result.

    Raises:
        ConfigError: if the members name different functions, or the function is missing or invalid.
    """
    config, names = configs[0], sorted({each.postprocess for each in configs})
    custom: Any = custom_code.function(config, "postprocess")
    if names == [""]:
        return unchanged
    if custom is None or len(names) > 1:
        raise ConfigError(
            f"postprocess is {' and '.join(map(repr, names))} in the configs of"
            f" {', '.join(each.name for each in configs)}; expected the same function for all.\n"
            "Edit the configs and train again. Complete runs do not repeat the training, but only"
            " update their artifacts. If a config is outside pipeline/configs/, pass its path as"
            " --config."
        )
    place = (folder,) if len(inspect.signature(custom).parameters) > 2 else ()
    described = custom_code.described(config, "postprocess")
    if place == (None,):
        raise ConfigError(f"{described} reads the competition folder.\nPass it with --input DIR.")

    def changed(ids: Sequence[str], predictions: np.ndarray) -> np.ndarray:
        with custom_code.telling(config, "postprocess"):
            found = np.asarray(custom(tuple(ids), predictions.copy(), *place), np.float32)
        if found.shape != predictions.shape or not np.isfinite(found).all():
            raise ConfigError(
                f"{described} returned an array of shape {found.shape} with"
                f" {(~np.isfinite(found)).sum()} non-finite numbers; expected an array of shape"
                f" {predictions.shape} with only finite numbers.\n"
                "Return a row for each id."
            )
        return found

    return changed
