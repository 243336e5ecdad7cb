"""Fixtures: a program that runs tasks in processes of their own."""

from collections.abc import Iterator

import pytest

from tests.faults.child import Children, children


@pytest.fixture(scope="session")
def launcher() -> Iterator[Children]:
    """Start it once, since it imports everything."""
    with children() as started:
        yield started
