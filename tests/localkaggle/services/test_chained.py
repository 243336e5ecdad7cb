"""A run that is longer than a session: what a later version finds of an earlier one, and what a
session that was killed leaves.
"""

import time

from tests.localkaggle.pushed_notebooks import finished, notebook, save

WRITE = "from pathlib import Path\nPath('state.txt').write_text('{}')"
OWN = {"kernel_data_sources": ["rehearsal/small-kernel"]}
ROOT = "import os\nroot = os.environ.get('LOCALKAGGLE_ROOT', '/kaggle')\n"
READ = ROOT + "print(open(f'{root}/input/notebooks/rehearsal/small-kernel/state.txt').read())"


def pushed(kaggle, api, *cells, number=1, **fields):
    answer = save(api, notebook(*cells), **fields)
    assert not answer.error
    return answer, finished(kaggle, number=number)


def test_a_notebook_that_lists_itself_sees_its_last_complete_output(start, client):
    """Version 3 finds what version 1 wrote: version 2 failed, and is passed over."""
    kaggle = start()
    api = client(kaggle)
    pushed(kaggle, api, WRITE.format("of version 1"))
    pushed(kaggle, api, WRITE.format("of version 2"), "1 / 0", number=2)

    answer, version = pushed(kaggle, api, READ, number=3, **OWN)

    assert not answer.invalid_kernel_sources and version.status == "COMPLETE"
    assert "of version 1" in version.log.text()


def test_a_kaggle_may_refuse_a_notebook_as_a_source_of_itself(start, client):
    """The version runs, without it; nobody knows whether the site takes it."""
    kaggle = start(own_output=False)
    api = client(kaggle)
    pushed(kaggle, api, WRITE.format("of version 1"))

    answer, version = pushed(kaggle, api, READ, number=2, **OWN)

    assert answer.invalid_kernel_sources == OWN["kernel_data_sources"]
    assert version.status == "ERROR"


def test_a_session_that_is_killed_leaves_what_it_had_written(start, client):
    """By SIGKILL, at no moment that the notebook knows of."""
    kaggle = start()
    api = client(kaggle)
    save(api, notebook(WRITE.format("so far"), "import time\ntime.sleep(60)"))
    version = kaggle.kernels.version("rehearsal/small-kernel", 1)
    end = time.monotonic() + 30
    while not (version.working / "state.txt").exists() and time.monotonic() < end:
        time.sleep(0.05)

    version.session.kill()

    assert finished(kaggle).status == "ERROR" and "killed" in version.failure
    assert "state.txt" in version.files() and version.seconds < 40


def test_a_session_ends_at_its_cap(start, client):
    """As Kaggle's do after 9 hours: killed, and not asked."""
    kaggle = start(session_seconds={"CPU": 2})
    api = client(kaggle)

    _, version = pushed(kaggle, api, "import time\ntime.sleep(60)")

    assert version.status == "ERROR" and "exceeded 2 seconds" in version.failure
