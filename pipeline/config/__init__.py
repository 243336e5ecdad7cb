"""What a run is: one frozen `Config`, checked when it is made.

Comes in: a Python file of `pipeline/configs/`, or JSON. Goes out: `Config` with its `Data`,
`Optimizer` and `Baseline`, which every other package reads. Never imported here: anything but
`pipeline.errors`, so that a command reads a config in milliseconds.
"""

from pipeline.config.config import Baseline, Config, Optimizer
from pipeline.config.config_files import from_json, load, to_text
from pipeline.config.data_layout import Data

__all__ = ["Baseline", "Config", "Data", "Optimizer", "from_json", "load", "to_text"]
