"""A local Kaggle a test, the real client's environment, and notebooks of plain Python."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kagglesdk import KaggleClient

from localkaggle.server import LocalKaggle

Start = Callable[..., LocalKaggle]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a local Kaggle; it ends with the test."""
    with ExitStack() as stack:

        def begin(**options: Any) -> LocalKaggle:
            options = {"queue_seconds": 0.05, "ready_seconds": 0.2, **options}
            return stack.enter_context(LocalKaggle(tmp_path / "kaggle", **options))

        yield begin


@pytest.fixture
def kaggle(start: Start) -> LocalKaggle:
    """Return a local Kaggle as it comes."""
    return start()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Callable[[LocalKaggle], Any]:
    """Return a function that gives a kagglesdk client, led to a local Kaggle by its environment
    variables alone.
    """

    def connect(kaggle: LocalKaggle, key: str | None = None) -> Any:
        for name, value in kaggle.environment.items():
            monkeypatch.setenv(name, value)
        from kagglesdk.kaggle_env import KaggleEnv

        return KaggleClient(
            env=KaggleEnv.LOCAL,
            username=kaggle.environment["KAGGLE_USERNAME"],
            password=key or kaggle.environment["KAGGLE_KEY"],
        )

    return connect
