"""The description of a run: one frozen `Config` with its `Data`, `Optimizer` and `Baseline`.

It is read from a Python file in `pipeline/configs/`, or from JSON. It imports only
`pipeline.errors`, so that commands read a config in milliseconds.
"""

from pipeline.config.config import Baseline, Config, Optimizer
from pipeline.config.config_files import from_json, load, to_text
from pipeline.config.data_layout import Data

__all__ = ["Baseline", "Config", "Data", "Optimizer", "from_json", "load", "to_text"]
