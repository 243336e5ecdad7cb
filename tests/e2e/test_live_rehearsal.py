"""`doctor --live` reports the facts, keeps no secret, and leaves nothing behind.

The real client talks to a local Kaggle that behaves in awkward ways and runs the notebooks' code.
"""

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest

from deploy import deadline, secrets
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.errors import DeadlinePassed, Unreachable
from deploy.probe import ASSUMED, Probe
from localkaggle import facts as local_facts
from localkaggle.facts import Facts
from localkaggle.faults import edited, meanwhile
from localkaggle.server import USER, LocalKaggle
from localkaggle.sessions.session import Session
from tests import forked
from tests.e2e.plain_session import Plain
from tests.faults.world import competition

HURRIED = Pace(first=0.05, most=0.25, patience=5)
PACE = Pace(first=0.1, most=1.0, patience=10)  # of real sessions
QUICK = {"queue_seconds": 0.01, "ready_seconds": 0.05}
LATE_SECONDS = 1.0  # the delay of a poll


@contextmanager
def kaggle(
    behaviour: Mapping[str, Any], session: Callable[..., Any] = Plain
) -> Iterator[LocalKaggle]:
    """Start a local Kaggle with this behaviour, which the environment of this process names."""
    options = dict(behaviour)
    beside = {name: options.pop(name) for name in local_facts.OPTIONS if name in options}
    beside |= {"competitions": [competition()], "facts": Facts(**options), "session": session}
    with (
        TemporaryDirectory(prefix="live-", ignore_cleanup_errors=True) as folder,
        patch.dict(os.environ),
        patch.object(secrets, "_known", set()),
        LocalKaggle(Path(folder, "kaggle"), **beside) as local,
    ):
        os.environ.update(local.environment)
        yield local


def probe(
    folder: Path,
    *,
    pace: Pace = HURRIED,
    killed_seconds: float = 1.5,
    show: Callable[[str], None] = lambda line: print(line, flush=True),
) -> dict[str, Any]:
    """Probe the Kaggle that the environment names."""

    def connect() -> Kaggle:
        return Kaggle.connect(pace=pace, timeouts=(60, 60))

    made = Probe(connect, "digits", show, killed_seconds)
    return made.run(folder)


def there(local: LocalKaggle) -> list[str]:
    """Return the handles of all kernels and datasets on a server."""
    return [*local.kernels.kernels, *local.datasets.datasets]


def test_a_probe_shows_the_facts_and_leaves_nothing_behind(tmp_path):
    """Its one file configures a local Kaggle."""
    shown: list[str] = []
    with kaggle({**QUICK, "layout": "flat", "own_output": False}) as local:
        found = probe(tmp_path, show=shown.append)
        left = there(local)
        made = [
            (said["isPrivate"], said["slug"].rpartition("/")[2].startswith("relay-live-k"))
            for name, said, *_ in local.journal
            if name == "SaveKernel"
        ]

    read = local_facts.read(Path(found["file"]))
    assert left == found["left"] == [] and made == [(True, True)] * 3
    assert [str(path) for path in tmp_path.iterdir()] == [found["file"]]
    assert (read["layout"], read["own_output"]) == ("flat", False)
    assert set(ASSUMED) == set(found["facts"])
    assert USER not in Path(found["file"]).read_text() and "no quota" in " ".join(shown)
    assert f"{'layout':20}{'2026':12}flat  differs" in shown
    assert "again: Mount the notebook's own output." in shown


def test_a_lost_or_foreign_answer_to_a_push_ends_only_its_step(tmp_path):
    """Nothing of another user is examined or deleted; the lost push is deleted."""
    with kaggle(QUICK) as local:
        other = edited(ref="/code/ben/other", url="")
        local.faults.say("SaveKernel", ["reset after", other])
        found = probe(tmp_path)
        asked = [str(said) for name, said, *_ in local.journal if name != "SaveKernel"]
        assert there(local) == []

    assert found["notes"] == ["cpu raised Ambiguous", "again raised RunFailed"]
    assert found["facts"].keys() == {"killed_output"}
    assert not [said for said in asked if "ben" in said]


def test_a_notebook_that_cannot_be_deleted_is_listed_with_its_command(tmp_path):
    shown: list[str] = []
    with kaggle(QUICK) as local:
        local.faults.say("DeleteKernel", itertools.repeat("403"))
        found = probe(tmp_path, show=shown.append)
        left = there(local)

    commands = [f"kaggle kernels delete {handle}" for handle in left]
    assert len(left) == 1 and sorted(found["left"]) == sorted(commands)
    assert all(f"It may still be on Kaggle. To delete it: {each}" in shown for each in commands)


def test_without_kaggle_the_probe_ends_with_the_commands_that_delete_what_it_made(tmp_path):
    """It never answers again."""
    shown: list[str] = []
    with kaggle(QUICK) as local:
        for call in ("ListKernelSessionOutput", "DeleteKernel", "GetKernel"):
            local.faults.say(call, itertools.repeat("reset"))
        with pytest.raises(Unreachable, match="list the output"):
            probe(tmp_path, pace=Pace(first=0.05, most=0.25, patience=1), show=shown.append)
        assert all(f"delete {handle}" in "\n".join(shown) for handle in there(local))


def interrupted(folder: Path, seconds: float) -> None:
    """Probe like the command, with a deadline."""
    try:
        with deadline.limit(seconds, "late"):
            probe(folder)
    except KeyboardInterrupt:
        os._exit(130)
    except DeadlinePassed:
        os._exit(5)


@pytest.mark.parametrize(
    ("operation", "place", "after"),
    [
        *(("SaveKernel", place, True) for place in range(3)),
        ("ListKernelSessionOutput", 0, False),
    ],
)
def test_what_was_made_is_deleted_after_ctrl_c(operation, place, after, tmp_path):
    """Within half a second, after which a hanging process ends."""
    begun, ended = Event(), Event()
    with kaggle(QUICK) as local:

        def press() -> None:
            begun.wait(60)
            os.kill(child.pid, signal.SIGINT)
            ended.wait(1.0)

        strike = meanwhile(press, after=after)
        local.faults.say(operation, [*[None] * place, strike])
        child = forked.begun(tmp_path / "log", interrupted, tmp_path / "live", 600.0)
        begun.set()
        child.join()
        ended.set()
        assert there(local) == [], (tmp_path / "log").read_text()

    assert child.exitcode == 130
    files = [path for path in (tmp_path / "live").iterdir() if path.suffix == ".json"]
    assert all(local_facts.read(path) for path in files) and len(files) == 1


def test_what_was_made_is_deleted_after_the_deadline(tmp_path):
    """The timer of the deadline must not interrupt the clean-up."""
    with kaggle({**QUICK, "queue_seconds": 300.0}) as local:
        child = forked.begun(tmp_path / "log", interrupted, tmp_path / "live", 4.0)
        child.join()
        assert there(local) == [], (tmp_path / "log").read_text()

    assert child.exitcode == 5


@pytest.mark.parametrize(
    ("found", "seen", "notes"),
    [
        (
            {"layout": 5, "internet": "yes", "secret": "ann@example.org", "markers": [3]},
            {"other_slug", "listing_seconds"},
            [],
        ),
        ({"layout": "flat", "markers": "notebook"}, set(), ["cpu raised RunFailed"]),
    ],
)
def test_only_valid_facts_get_into_the_file(tmp_path, found, seen, notes):
    """Neither texts of Kaggle, which may name somebody, nor values of a wrong type."""
    odd = json.dumps({"findings": found})
    log = json.dumps([{"data": f"[1]\n{odd}\n"}])
    with kaggle(QUICK) as local:
        refusal = edited(error="ann@example.org may not", versionNumber=0)
        local.faults.say("SaveKernel", [None, refusal])
        local.faults.say("ListKernelSessionOutput", itertools.repeat(edited(log=log)))
        result = probe(tmp_path)

    assert local_facts.read(Path(result["file"]))
    assert result["facts"].keys() & {"layout", "internet", "own_output"} == set()
    assert result["facts"].keys() >= seen
    assert result["notes"] == [*notes, "again raised Refused"]
    assert "ann" not in Path(result["file"]).read_text()


# Behaviours of the local Kaggle.
MODES = {
    "as assumed": {},
    "the old places of inputs, no own output, none after a kill": {
        "layout": "flat",
        "own_output": False,
        "killed_output": False,
    },
    "both places, no internet, an output listed late": {
        "layout": "both",
        "internet": False,
        "listing_seconds": 2.0,
    },
    "a push that is saved, and waits": {"new_script_seconds": 2.0, "queue_seconds": 4.0},
    "other addresses, versions known late": {
        "other_slug": "-x",
        "versions_seconds": 1.2,
    },
}


def agrees(fact: str, seen: Any, truth: Any) -> bool:
    """Return whether a fact is right; for seconds, within the delay of a poll."""
    if not fact.endswith("_seconds"):
        return bool(seen == truth)
    return bool(abs(seen - truth) <= LATE_SECONDS and (seen or truth <= LATE_SECONDS))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_its_facts_are_right_and_nothing_is_left(mode, tmp_path):
    """In real sessions."""
    behaviour = {"queue_seconds": 0.3, "ready_seconds": 0.5, **MODES[mode]}
    truth = {**vars(local_facts.Options()), **vars(Facts()), **behaviour}
    with kaggle(behaviour, Session) as local:
        # A notebook on a busy machine has begun by then.
        found = probe(tmp_path, pace=PACE, killed_seconds=12.0)
        left = there(local)
    read = local_facts.read(Path(found["file"]))
    read |= vars(read.pop("facts"))

    assert left == found["left"] == found["notes"] == []
    assert found["facts"].keys() == ASSUMED.keys()
    assert {fact: read[fact] for fact in ASSUMED if not agrees(fact, read[fact], truth[fact])} == {}
