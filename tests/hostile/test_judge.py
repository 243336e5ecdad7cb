"""The payloads work, and the guard sees what they do."""

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest

from pipeline import config
from pipeline.errors import PipelineError
from tests.hostile import payloads
from tests.hostile.guard import Guard, Harm

SAMPLE = b"id,p\na,0\nb,0\n"


@pytest.mark.parametrize("name", payloads.pickles(Path("x")))
def test_a_payload_is_alive(tmp_path, name):
    """Otherwise a missing mark would prove nothing."""
    pickle.loads(payloads.pickles(tmp_path / "marker")[name])  # noqa: S301 - made for this

    assert (tmp_path / "marker").exists()


def through_a_link(given: Path, guard: Guard) -> None:
    (given / "link").symlink_to(guard.top / "evil")
    (given / "link").write_text("evil")


def far_away(given: Path, guard: Guard) -> None:
    """Write a file that is gone afterwards."""
    with tempfile.NamedTemporaryFile(dir=guard.top.parent):
        pass


def unpickled(given: Path, guard: Guard) -> None:
    (given / "x.npy").write_bytes(
        payloads.objects(next(iter(payloads.pickles(guard.marker).values())))
    )
    np.load(given / "x.npy", allow_pickle=True)


def a_config(given: Path, guard: Guard) -> None:
    """Load a config: it is a program of the user's own, which may do anything."""
    (given / "evil.py").write_text(f"from pathlib import Path\nPath({str(guard.marker)!r}).touch()")
    with pytest.raises(PipelineError):
        config.load(str(given / "evil.py"))


CARELESS = {
    "a name that climbs": lambda given, guard: (given / "../../evil").write_text("evil"),
    "moved out": lambda given, guard: (given / "../given").rename(guard.top / "y"),
    **{work.__name__: work for work in (through_a_link, far_away, unpickled, a_config)},
}


@pytest.mark.parametrize("name", CARELESS)
def test_the_guard_sees_changes_outside_the_folder(tmp_path, name):
    guard = Guard(tmp_path / "top")

    with pytest.raises(Harm), guard.watching() as given:
        CARELESS[name](given, guard)
    with guard.watching() as given:  # the tree is as it was
        (given / "x").write_text("x")
