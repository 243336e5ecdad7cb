"""Configs and kernels that ship: a competitor may delete or edit each of them."""

import shutil
from pathlib import Path

import pytest

from pipeline import config as configs
from pipeline.config import Config

ROOT = Path(__file__).resolve().parents[1]
DIGITS = Path(__file__).with_name("configs") / "digits.py"


def shipped(name: str) -> Config:
    """Return the tests' own copy of a config, where there is one, or else the one that ships."""
    if name == DIGITS.stem:
        return configs.load(str(DIGITS))
    there(f"pipeline/configs/{name}.py")
    return configs.load(name)


def written(folder: Path, config: Config) -> Path:
    """Write a config to a file named after it, and return the path."""
    path = folder / f"{config.name}.py"
    path.write_text(
        f"from pipeline.config import from_json\nCONFIG = from_json({config.to_json()!r})\n"
    )
    return path


def there(path: str) -> Path:
    """Return a file that ships; skip the test, or the module, if it was deleted."""
    if not (ROOT / path).is_file():
        pytest.skip(f"this copy of the template has no {path}", allow_module_level=True)
    return ROOT / path


def copied(project: Path, *left_out: str) -> Path:
    """Copy this repository without the developer's records and choices, with the tests' digits."""
    usual = (".*", "runs", "build", "tests", "docs", "relay.toml", "__pycache__")
    shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(*usual, *left_out))
    shutil.copy(DIGITS, project / "pipeline" / "configs")
    return project
