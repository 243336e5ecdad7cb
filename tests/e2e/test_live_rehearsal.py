"""`doctor --live` reports what is so, keeps no secret, and leaves nothing behind."""

import itertools
import signal

import pytest

from deploy.retries import Pace
from localkaggle import facts as local_facts
from localkaggle.facts import Facts
from localkaggle.fault_kinds import edited
from tests.e2e.live_rehearsal import FREE, KILLS, kaggle, killed, smoke, there
from tests.e2e.plain_session import Plain

pytestmark = pytest.mark.slow
PACE = Pace(first=0.1, most=1.0, patience=10)
KILLED_SECONDS = 12.0  # a notebook on a busy machine has begun by then
LATE_SECONDS = 1.0  # by which a poll may miss the end of something
SLOW_SECONDS = 20.0  # of sessions, between two pushes that may mount a dataset
# What the local Kaggle does, and which costly steps show it.
MODES = {
    "as assumed": ({}, ("tpu", "gpu", "submit")),
    "the old places of inputs, no own output, none after a kill": (
        {"layout": "flat", "own_output": False, "killed_output": False},
        (),
    ),
    "both places, names with prefixes, no internet, an output listed late": (
        {"layout": "both", "prefixes": True, "internet": False, "listing_seconds": 2.0},
        (),
    ),
    "a dataset that is ready and mounted late": ({"ready_seconds": 3.0, "mount_seconds": 4.0}, ()),
    "a push that is saved only": ({"default_execution": "saved"}, ()),
    "a push that is called saved, and waits": (
        {"new_script_seconds": 2.0, "queue_seconds": 4.0},
        (),
    ),
    "other addresses, versions known late, files lost or rewritten": (
        {
            "other_slug": "-x",
            "leading_digit": False,
            "versions_seconds": 1.2,
            "hidden_files": False,
            "empty_files": False,
            "rewritten": ("table.csv",),
        },
        (),
    ),
    "a refused push that leaves a shell": ({"refused_push": "shell"}, ("tpu",)),
    "a refused push that leaves its source": (
        {"refused_push": "source", "reserves": True},
        ("tpu",),
    ),
    "no TPU, one GPU, no score": (
        {"verified": False, "gpus": 1, "scores": False},
        ("tpu", "gpu", "submit"),
    ),
}
# Answers that a test gets, and in which secrets can be planted.
ANSWERS = (
    *("GetAcceleratorQuotaStatistics", "ListDataFiles", "GetSubmissionLimits", "SaveKernel"),
    *("GetKernel", "GetKernelSessionStatus", "ListKernelSessionOutput", "GetDatasetStatus"),
    *("GetDataset", "ListDatasetFiles"),
)


def agrees(fact, seen, truth):
    """Return whether a fact is as it is: seconds as far as polls can tell."""
    if not fact.endswith("_seconds"):
        return seen == truth
    if fact == "mount_seconds" and truth:
        return truth <= seen <= truth + SLOW_SECONDS
    return abs(seen - truth) <= LATE_SECONDS and (seen or truth <= LATE_SECONDS)


@pytest.mark.parametrize("mode", MODES)
def test_its_table_says_what_is_so_and_nothing_is_left(mode, tmp_path):
    behaviour, wanted = MODES[mode]
    usual = {"queue_seconds": 0.3, "ready_seconds": 0.5}
    truth = {**local_facts.OPTIONS, **vars(Facts()), **usual, **behaviour}
    with kaggle(behaviour) as local:
        result = smoke(tmp_path, PACE, wanted=wanted, killed_seconds=KILLED_SECONDS)
        left = there(local)
    read = local_facts.read(result.file)
    read |= vars(read.pop("facts"))
    rows = [row for row in result.rows if row.step in {*FREE, *wanted}]
    if not truth["verified"]:  # no TPU refuses a second session where none is
        rows = [row for row in rows if row.fact not in ("refused_push", "reserves")]

    assert left == [] and len(rows) > 10
    assert [row.fact for row in rows if not row.seen] == []
    wrong = {row.fact: row.seen for row in rows if not agrees(row.fact, read[row.fact],
                                                              truth[row.fact])}  # fmt: skip
    assert wrong == {}


def test_no_secret_of_an_answer_comes_into_its_file(seed, tmp_path):
    key = f"{seed:032x}"
    with kaggle({"ready_seconds": 0.05}, Plain) as local:
        for operation in ANSWERS:
            planted = edited(remark=[f"KGAT_{key}", f"KAGGLE_KEY={key}"])
            local.faults.say(operation, itertools.repeat(planted))
        smoke(tmp_path)
        struck = {operation for _, _, operation in local.faults.struck}
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

    assert struck >= set(ANSWERS)
    assert b"remark" in written and key.encode() not in written


@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: " ".join(map(str, kill)))
def test_killed_at_any_call_and_given_again_it_makes_nothing_twice_and_loses_nothing(kill):
    assert killed(kill) == (-signal.SIGKILL, [])
