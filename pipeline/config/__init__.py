"""Load and validate a run's config.

A config is a frozen `Config`, which contains `Data`, `Optimizer` and `Baseline`.

This package only imports `pipeline.errors`, so commands can load a config in milliseconds.
"""

from pipeline.config.config import Baseline, Config, Optimizer, PseudoLabels
from pipeline.config.config_files import from_json, load, to_text
from pipeline.config.data_layout import Data

__all__ = [
    "Baseline",
    "Config",
    "Data",
    "Optimizer",
    "PseudoLabels",
    "from_json",
    "load",
    "to_text",
]
