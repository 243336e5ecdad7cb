"""Load configs from Python files or JSON, and write them as JSON."""

import difflib
import importlib
import importlib.util
import json
import os
import random
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline.config import custom_code
from pipeline.config.config import Baseline, Config, Optimizer, PseudoLabels
from pipeline.config.data_layout import Data
from pipeline.errors import ConfigError, place

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
PARTS = {
    "data": Data,
    "optimizer": Optimizer,
    "baseline": Baseline,
    "pseudo_labels": PseudoLabels,
}


def load(config: str) -> Config:
    """Load the `CONFIG` in a Python file, given by name or by a path that ends in .py.

    Raises:
        ConfigError: if the config does not exist, its file raises an error, or `CONFIG` is missing
            or has a different name.

    >>> load("digits").num_classes
    10
    """
    files, named = named_files(), not config.endswith(".py")
    path = files.get(config) if named else Path(config)
    # Path.is_file would raise an error for a long name.
    if path is None or not os.path.isfile(path):  # noqa: PTH113
        meant = _did_you_mean(Path(config).stem, files)
        raise ConfigError(
            f"--config {config!r}: config not found.{meant} Expected one of"
            f" {', '.join(files)}, or a path to a .py file.\n"
            "Correct the name, or create a config for a folder with invoke inspect --input DIR"
            " --write NAME"
        )
    drawn = random.getstate()
    random.seed(0)  # Keras uses it to seed any layer created outside a function
    try:
        module = importlib.import_module(f"pipeline.configs.{config}") if named else _run(path)
    except ConfigError as error:
        raise ConfigError(f"In {path}{place(error, path)}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{path}{place(error, path)} could not be loaded: {type(error).__name__}: {error}."
            f"{_suggested_field(str(error))}\n"
            "Expected a Python file such as pipeline/configs/digits.py. Fix that line."
        ) from error
    finally:
        random.setstate(drawn)
    value, name = getattr(module, "CONFIG", None), config if named else path.stem
    if not isinstance(value, Config) or value.name != name:
        found = f"has name={value.name!r}" if isinstance(value, Config) else f"is {value!r}"
        raise ConfigError(
            f"{path}: CONFIG {found}; expected a pipeline.config.Config with name={name!r},"
            " because notebooks and manifests use this name to find the file.\n"
            f"Change it to CONFIG = Config(name={name!r}, …), or rename the file."
        )
    custom_code.register(value, module, path)
    return value


def named_files() -> dict[str, Path]:
    """Return {name: path} for all configs in pipeline/configs/.

    If a config is a package, this is the path of its __init__.py.
    """
    files = {path.stem: path for path in CONFIGS.glob("[!_.]*.py")}
    packages = {path.parent.name: path for path in CONFIGS.glob("[!_.]*/__init__.py")}
    return dict(sorted((files | packages).items()))  # like Python, prefer a package


def to_text(config: Config) -> str:
    return json.dumps(config.to_json(), indent=2, sort_keys=True)


def from_json(value: Mapping[str, Any]) -> Config:
    """Create a `Config` from the output of `Config.to_json`.

    Raises:
        ConfigError: if a field is unknown, missing or invalid.

    >>> from pipeline import config
    >>> config.from_json(config.load("digits").to_json()) == config.load("digits")
    True
    """
    try:
        parts = {name: kind(**value[name]) for name, kind in PARTS.items() if value.get(name)}
        return Config(**{**value, **parts})
    except (TypeError, AttributeError) as error:  # an unknown or missing field, or not an object
        raise ConfigError(
            f"The config's JSON is invalid: {error}.{_suggested_field(str(error))}\n"
            "Correct the field's name, or add the missing field."
        ) from error


def _suggested_field(message: str) -> str:
    unknown = re.search(r"__init__\(\) got an unexpected keyword argument '(\w+)'", message)
    kinds = {field.name: kind.__name__ for kind in PARTS.values() for field in fields(kind)}
    kinds |= {field.name: Config.__name__ for field in fields(Config)}
    if unknown and unknown[1] in kinds:
        return f" {unknown[1]} is a field of {kinds[unknown[1]]}."
    return _did_you_mean(unknown[1], kinds) if unknown else ""


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    alike = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {alike[0]}?" if alike else ""


def _run(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"relay_config_{path.stem}", path)
    assert spec is not None  # noqa: S101 - always true for a .py file
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses need it
    # Python's cache does not detect an edit within the same second if the file size is the same.
    exec(compile(path.read_bytes(), path, "exec"), vars(module))  # noqa: S102 - same as an import
    return module
