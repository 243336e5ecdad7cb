"""Notebooks of plain Python, pushed to a local Kaggle and waited for, and sessions without one."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kagglesdk.kernels.types.kernels_api_service as kernel_types
import nbformat
import pytest
import requests
from kagglesdk import KaggleClient
from kagglesdk.kaggle_env import KaggleEnv

from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from localkaggle.sessions.session import Outcome
from localkaggle.sessions.session_log import Log

SECONDS_AT_MOST = 300  # for what always happens, on however busy a machine


class Scripted:
    """A session that calls a function instead of running the notebook. What it raises is logged."""

    def __init__(
        self,
        act: Callable[["Scripted"], None],
        folder: Path,
        notebook: str,
        *,
        inputs: Mapping[str, Path],
        rerun: bool,
        log: Log,
        **rest: Any,
    ) -> None:
        self._act, self.notebook, self.log = act, notebook, log
        self.inputs, self.rerun = inputs, rerun
        self.working = folder / "working"
        self.working.mkdir(parents=True)

    def run(self) -> Outcome:
        """Call the function, and return how it ended."""
        try:
            self._act(self)
        except Exception as error:
            self.log.add("stderr", f"{error}\n")
            return Outcome("exception", "The notebook threw an exception", 0.0)
        return Outcome("", "", 0.0)

    def cancel(self) -> None:
        """Do nothing: the function ends by itself."""


def soon(happened: Callable[[], object]) -> bool:
    """Wait until something has happened, and return whether it did."""
    deadline = time.monotonic() + SECONDS_AT_MOST
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(happened())


@contextmanager
def signed_in(environment: Mapping[str, str]) -> Iterator[Any]:
    """Give Kaggle's client, led by the environment of a local Kaggle."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        user, key = environment["KAGGLE_USERNAME"], environment["KAGGLE_KEY"]
        yield KaggleClient(env=KaggleEnv.LOCAL, username=user, password=key)


@contextmanager
def refused(code: int, match: str | None = None, *, exactly: str = "") -> Iterator[None]:
    """Expect that Kaggle's client raises an error with this code, and a text that matches."""
    with pytest.raises(requests.HTTPError, match=match) as caught:
        yield
    assert caught.value.response.status_code == code
    assert not exactly or str(caught.value) == exactly


def notebook(*cells: str, **metadata: Any) -> str:
    """Return an .ipynb with these code cells."""
    kernelspec = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
    }
    made = nbformat.v4.new_notebook(metadata={**kernelspec, **metadata})
    made.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return str(nbformat.writes(made))


def save(client: Any, text: str, slug: str = "small-kernel", **fields: Any) -> Any:
    """Push a notebook and return the server's answer."""
    usual = {
        "slug": f"rehearsal/{slug}",
        "new_title": slug.replace("-", " ").title(),
        "text": text,
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "enable_internet": False,
    }
    request = make(kernel_types.ApiSaveKernelRequest, **{**usual, **fields})
    return client.kernels.kernels_api_client.save_kernel(request)


def finished(kaggle: LocalKaggle, slug: str = "small-kernel", number: int = 1) -> Any:
    """Wait for a version's end and return it."""
    version = kaggle.kernels.version(f"rehearsal/{slug}", number)
    assert version is not None
    assert soon(lambda: version.status not in ("QUEUED", "RUNNING"))
    return version


def ran(kaggle: LocalKaggle, client: Any, *cells: str, **fields: Any) -> Any:
    """Push a notebook of these cells, wait for its end, and return the version."""
    answer = save(client, notebook(*cells), **fields)
    assert not answer.error
    return finished(kaggle, number=answer.version_number)
