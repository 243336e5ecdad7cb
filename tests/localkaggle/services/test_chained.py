"""A run that is longer than a session: what a later version finds of an earlier one, and what a
killed session leaves.
"""

from functools import partial

import pytest

from tests.localkaggle.pushed_notebooks import Scripted, finished, notebook, save, soon

HANDLE = "rehearsal/small-kernel"
OWN = {"kernel_data_sources": [HANDLE]}


def act(session: Scripted) -> None:
    """Write this version's state; print that of a mounted one or fail, as the notebook asks."""
    if "read" in session.notebook:
        session.log.add("stdout", (session.inputs[f"notebooks/{HANDLE}"] / "state").read_text())
    (session.working / "state").write_text(f"of {session.working.parent.name}")
    if "fail" in session.notebook:
        raise RuntimeError("as asked for")


@pytest.fixture
def push(start, client):
    """Return a function that pushes to a new local Kaggle; it gives the last answer and version."""

    def begin(*texts, own_output=True):
        kaggle = start(own_output=own_output, session=partial(Scripted, act))
        api = client(kaggle)
        for number, text in enumerate(texts, 1):
            answer = save(api, notebook(text), **(OWN if "read" in text else {}))
            assert not answer.error
            version = finished(kaggle, number=number)
        return answer, version

    return begin


def test_a_notebook_that_lists_itself_sees_its_last_complete_output(push):
    """Version 3 finds what version 1 wrote: version 2 failed and is skipped."""
    answer, version = push("write", "fail", "read")

    assert not answer.invalid_kernel_sources and version.status == "COMPLETE"
    assert "of rehearsal--small-kernel--v1" in version.log.text()


def test_a_kaggle_may_refuse_a_notebook_as_a_source_of_itself(push):
    """The version runs without it. Whether the site takes it is unknown."""
    answer, version = push("write", "read", own_output=False)

    assert answer.invalid_kernel_sources == OWN["kernel_data_sources"]
    assert version.status == "ERROR"


def test_a_session_that_is_killed_leaves_what_it_had_written(start, client):
    """By SIGKILL, at no moment that the notebook knows of."""
    kaggle = start()
    cell = "import time\nopen('state.txt', 'w').close()\ntime.sleep(600)"
    save(client(kaggle), notebook(cell))
    version = kaggle.kernels.version(HANDLE, 1)
    assert soon((version.working / "state.txt").exists)

    version.session.kill()

    assert finished(kaggle).status == "ERROR" and "killed" in version.failure
    assert "state.txt" in version.files() and version.seconds < 600
