"""Refuse an old Python in words, where pip would list every version of a package that it lacks.

pip before 23.1 looks for the dependencies before it reads `requires-python`. All settings are in
pyproject.toml.
"""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent))

import commands  # noqa: F401 - ends here on an old Python

setup()
