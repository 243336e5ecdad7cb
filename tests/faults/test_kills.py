"""The same command completes a task that was killed or interrupted at any instant."""

import json
import os
import random
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.records import Records
from tests.faults.child import stopped
from tests.faults.matrix import CALLS
from tests.faults.recorded_session import write_artifact
from tests.faults.world import MADE, litter, settle, temporary

WRITING = ("push-train", "pull", "publish", "submit")
ENDS = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}
STOPS = [
    (task, call, sent, when)
    for task in WRITING
    for call in sorted(CALLS[task])
    for sent in ENDS
    for when in ("before", "after", "later")
]
SAMPLE = {
    ("push-train", "SaveKernel", signal.SIGKILL, "after"),
    ("pull", "storage", signal.SIGKILL, "after"),
    ("publish", "upload", signal.SIGINT, "before"),
    ("publish", "CreateDataset", signal.SIGKILL, "after"),
    ("submit", "CreateCodeSubmission", signal.SIGINT, "later"),
}


@pytest.mark.parametrize(
    ("task", "call", "sent", "when"),
    [pytest.param(*stop, marks=[] if stop in SAMPLE else [pytest.mark.slow]) for stop in STOPS],
)
def test_the_same_command_completes_a_stopped_task(task, call, sent, when, seed):
    """It is stopped before a call, after it, or up to 20 ms later."""
    draw = random.Random(f"{seed} {task} {call}")  # noqa: S311 - guards nothing
    later = draw.random() / 50 if when == "later" else 0
    with temporary(task) as world:
        code, said = stopped(world, task, call, sent, after=when != "before", later=later)

        assert code == ENDS[sent] or (later and code == 0), said
        assert code != 130 or ("\ninvoke " in said and "Traceback" not in said)
        settle(world, task)
        assert world.counts() == MADE[task] and not litter(world)


def test_ctrl_c_shows_how_to_resume():
    """K07."""
    with temporary("watch") as world:
        call = "GetKernelSessionStatus"
        code, said = stopped(world, "watch", call, signal.SIGINT, after=True)

    assert code == 130 and "invoke watch --run" in said


@pytest.mark.parametrize("examples", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_publish_has_no_byte_of_a_killed_one(examples):
    """K29: even if the files have the same sizes and times."""
    with temporary("publish") as world:
        ours = Records(world.project).last_artifact()
        bundle = json.loads((ours / "manifest.json").read_text())["bundle_sha256"]

        def write(sizes, stamp):
            names = ["weights.npz", "one.npz", "two.npz", "three.npz"][: len(sizes)]
            contents = map(os.urandom, sizes)
            write_artifact(
                ours, bundle, dict(zip(names, contents, strict=True)), os.urandom(6).hex()
            )
            for path in ours.iterdir():
                os.utime(path, (stamp, stamp))

        @settings(max_examples=examples)
        @given(
            sizes=st.lists(st.integers(1, 50_000), min_size=2, max_size=4),
            stamp=st.integers(10**9, 2 * 10**9),
            call=st.sampled_from(["StartBlobUpload", "upload"]),
            place=st.integers(1, 2),
            after=st.booleans(),
        )
        def publish_twice(sizes, stamp, call, place, after):
            write(sizes, stamp)
            sent = signal.SIGKILL
            code, said = stopped(world, "publish", call, sent, after=after, place=place)
            assert code == -signal.SIGKILL, said
            write(sizes, stamp)
            settle(world, "publish")

        publish_twice()
