"""The local Kaggle behaves as its facts say, which a file of `invoke doctor --live` may hold.

Facts that change what our client does are shown there: tests/deploy, which fails without them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from localkaggle import facts
from localkaggle.__main__ import main
from localkaggle.facts import Facts
from localkaggle.sessions.machine_shapes import emulated
from tests.localkaggle.pushed_notebooks import Scripted, ask, finished, publish, push, request

FILES = {"a.csv": b"id\n1\n", ".hidden": b"h", ".cache/x": b"x", "empty": b"", "b/c.npz": b"c"}
KERNEL = {"userName": "rehearsal", "kernelSlug": "small-kernel"}
SOURCE = "rehearsal/small-data"


def written(path: Path, **values: Any) -> Path:
    path.write_text(json.dumps({"facts": values, "assumed": {}, "notes": [], "answers": []}))
    return path


def test_the_facts_of_a_file_are_what_a_server_is_made_with(tmp_path):
    """What the file does not say stays as it is assumed."""
    path = written(tmp_path / "seen.json", layout="flat", gpus=1, rewritten=["a.csv"])

    assert facts.read(path) == {"layout": "flat", "facts": Facts(gpus=1, rewritten=("a.csv",))}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"colour": "red"}, "unknown fact 'colour'; expected some of: token_seconds, "),
        ({"gpus": "two"}, "gpus='two'; expected a whole number, 0 or more"),
        ({"mount_seconds": -1}, "mount_seconds=-1; expected seconds, 0 or more"),
        ({"internet": 1}, "internet=1; expected true or false"),
        ({"rewritten": "a.csv"}, "rewritten='a.csv'; expected a list of names"),
        ({"refused_push": "all"}, "refused_push='all'; expected one of nothing, shell, source"),
        (None, "not what `invoke doctor --live` writes"),
    ],
)
def test_a_file_of_something_else_is_refused_before_anything_is_served(
    values, said, tmp_path, capsys
):
    path = tmp_path / "seen.json"
    path.write_text("[]") if values is None else written(path, **values)

    with pytest.raises(SystemExit):
        main(["serve", "--facts", str(path)])

    assert said in " ".join(capsys.readouterr().err.split())


def write(session: Scripted) -> None:
    """Leave files of every kind."""
    for name, data in FILES.items():
        path = session.working / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, FILES),
        ({"hidden_files": False}, {n: d for n, d in FILES.items() if not n.startswith(".")}),
        ({"empty_files": False}, {name: data for name, data in FILES.items() if data}),
        ({"rewritten": ("a.csv",)}, FILES | {"a.csv": FILES["a.csv"] + b"\n"}),
        ({"listing_seconds": 3600.0}, {}),
    ],
)
def test_an_output_is_kept_as_the_facts_say(start, given, expected):
    kaggle = start(write, facts=Facts(**given))
    push(kaggle)
    finished(kaggle)

    said = ask(kaggle, "ListKernelSessionOutput", **KERNEL).said
    got = {
        file["fileName"]: request(kaggle, "GET", file["url"]).content
        for file in said.get("files", ())
    }
    assert got == expected


@pytest.mark.parametrize(
    ("layout", "places"),
    [
        ("2026", [f"datasets/{SOURCE}"]),
        ("flat", ["small-data"]),
        ("both", [f"datasets/{SOURCE}", "small-data"]),
    ],
)
def test_a_source_is_mounted_where_the_layout_says_as_the_version_of_the_push(
    start, layout, places
):
    """A newer one is for the next session; one that is named may be older."""

    def act(session: Scripted) -> None:
        found = {path: (folder / "a.txt").read_text() for path, folder in session.inputs.items()}
        session.log.add("stdout", json.dumps(found))

    kaggle = start(act, layout=layout, queue_seconds=0.05)
    publish(kaggle, **{"a.txt": b"one"})
    push(kaggle, datasetDataSources=[SOURCE])
    publish(kaggle, **{"a.txt": b"two"})
    push(kaggle, datasetDataSources=[SOURCE])
    wrong = [f"{SOURCE}/{number}" for number in ("3", "0", "x", "1/2")]
    said = push(kaggle, datasetDataSources=[f"{SOURCE}/1", *wrong])

    logs = [json.loads(finished(kaggle, number=n).log.text())[0]["data"] for n in (1, 2, 3)]
    assert [json.loads(log) for log in logs] == [
        dict.fromkeys(places, content) for content in ("one", "two", "one")
    ]
    assert said["invalidDatasetSources"] == wrong


def test_a_version_that_is_ready_may_not_be_mounted_yet(start):
    """Until then a session gets the one before it; a first one is no source."""
    kaggle = start(facts=Facts(mount_seconds=3600.0))
    for content in (b"one", b"two"):
        publish(kaggle, **{"a.txt": content})
        said = push(kaggle, datasetDataSources=[SOURCE])
        first, *_ = versions = kaggle.datasets.datasets[SOURCE].versions
        assert said.get("invalidDatasetSources", []) == ([SOURCE] if len(versions) == 1 else [])
        first.mount_seconds = 0.0

    assert [*finished(kaggle, number=2).session.inputs.values()] == [first.folder]


@pytest.mark.parametrize(
    ("internet", "offline", "gpus"), [(True, False, 2), (False, False, 1), (True, True, 0)]
)
def test_a_session_has_the_internet_and_the_gpus_that_the_facts_say(start, internet, offline, gpus):
    """An offline Kaggle gives the internet to nobody."""
    kaggle = start(facts=Facts(internet=internet, gpus=gpus), offline=offline)
    push(kaggle, enableInternet=True, machineShape="NvidiaTeslaT4")

    given = finished(kaggle).session.given
    assert (given["internet"], given["gpus"]) == (internet and not offline, gpus)
    assert emulated("NvidiaTeslaT4", gpus) == {"JAX_NUM_CPU_DEVICES": str(max(gpus, 1))}


@pytest.mark.parametrize(
    ("asked", "status"),
    [({}, "NEW_SCRIPT"), ({"kernelExecutionType": "SAVE_AND_RUN_ALL"}, "COMPLETE")],
)
def test_a_push_may_have_to_say_that_it_wants_a_run(start, asked, status):
    kaggle = start(facts=Facts(default_execution="saved"))
    push(kaggle, **asked)

    finished(kaggle)
    assert ask(kaggle, "GetKernelSessionStatus", **KERNEL).said["status"] == status


def test_a_new_address_may_have_to_begin_with_a_letter(start):
    kaggle = start(facts=Facts(leading_digit=False))

    assert push(kaggle, slug="rehearsal/2026-kernel")["error"] == "Notebook not found"
    assert push(kaggle, slug="rehearsal/k-2026-kernel")["versionNumber"] == 1


def test_sources_may_be_named_by_their_addresses(start):
    kaggle = start(facts=Facts(prefixes=True))
    publish(kaggle, **{"a.txt": b"one"})
    push(kaggle, datasetDataSources=[SOURCE])

    metadata = ask(kaggle, "GetKernel", **KERNEL).said["metadata"]
    assert metadata["datasetDataSources"] == [f"datasets/{SOURCE}"]


def test_a_new_version_may_be_unknown_for_a_while(start):
    """The first makes its kernel unknown; a later one leaves the older as the current one."""
    kaggle = start(facts=Facts(versions_seconds=3600.0))
    push(kaggle)
    assert ask(kaggle, "GetKernelSessionStatus", **KERNEL).code == 404
    assert not ask(kaggle, "ListKernels", group="PROFILE").said.get("kernels")
    kaggle.kernels.version("rehearsal/small-kernel", 1).pushed -= 3600
    push(kaggle)

    current = ask(kaggle, "ListKernels", group="PROFILE").said["kernels"][0]
    assert current["currentVersionNumber"] == 1
    assert ask(kaggle, "GetKernelSessionStatus", **KERNEL, versionLabel="v2").code == 404


@pytest.mark.parametrize("reserves", [True, False])
def test_a_push_may_reserve_its_whole_timeout(start, reserves):
    kaggle = start(facts=Facts(reserves=reserves), queue_seconds=3600)
    kaggle.kernels.used_seconds["TPU"] = 17 * 3600.0

    said = push(kaggle, enableTpu=True, sessionTimeoutSeconds=4 * 3600)
    assert bool(said.get("error")) is reserves
    ask(kaggle, "DeleteKernel", **KERNEL)
    assert not push(kaggle, enableTpu=True, sessionTimeoutSeconds=2 * 3600).get("error")
    quota = ask(kaggle, "GetAcceleratorQuotaStatistics").said["tpuQuota"]
    assert ("timeReserved" in quota) is reserves


@pytest.mark.parametrize("code", [404, 403])
def test_what_is_not_there_is_answered_as_the_facts_say(start, code):
    kaggle = start(facts=Facts(missing=str(code)))

    assert ask(kaggle, "GetKernel", **KERNEL).code == code
    assert ask(kaggle, "GetDataset", ownerSlug="rehearsal", datasetSlug="none").code == code
