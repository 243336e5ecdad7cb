"""Fixtures: small competitions with a model each, trained when a test first asks for one."""

from collections.abc import Callable
from functools import cache, partial

import pytest

from tests.hostile import bench


@pytest.fixture(scope="session")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], bench.Subject]:
    """Return a function that gives the embedded competition of a name; not to be changed."""
    return cache(partial(bench.trained, tmp_path_factory.mktemp("subjects")))
