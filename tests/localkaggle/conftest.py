"""A local Kaggle per test: it starts in milliseconds."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localkaggle.server import LocalKaggle
from tests.localkaggle.pushed_notebooks import Scripted

Start = Callable[..., LocalKaggle]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a local Kaggle, which runs a function instead of notebooks and
    ends with the test.
    """
    with ExitStack() as stack:

        def begin(act: Callable[[Scripted], None] = lambda session: None, **given: Any) -> Any:
            quick = {"competitions": (), "queue_seconds": 0, "ready_seconds": 0}
            options = quick | {"session": partial(Scripted, act)} | given
            return stack.enter_context(LocalKaggle(tmp_path / "kaggle", **options))

        yield begin


@pytest.fixture
def kaggle(start: Start) -> LocalKaggle:
    """Return a local Kaggle whose pushes stay in the queue."""
    return start(queue_seconds=3600.0)
