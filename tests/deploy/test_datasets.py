"""One publish makes one version, private, of bytes that came back equal; what is mounted is it."""

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy import datasets
from deploy.client import Kaggle
from deploy.connection import Pace
from deploy.datasets import DatasetVersion
from deploy.errors import Ambiguous, Denied, Refused, Unreachable, Unverified, UsageError
from deploy.journal import PUBLISH, Failed, Request, Sending, State
from deploy.records import Records
from deploy.saved import Checkpoint, SavedProgress
from formats import checksums
from localkaggle.faults import instead
from localkaggle.server import LocalKaggle
from tests.deploy.between import RESET
from tests.deploy.sending import ARTIFACT, done, trained
from tests.deploy.services import GONE, at, published, records_in, returns, takes_all
from tests.deploy.small import connect, metadata
from tests.faults.recorded_session import write_artifact

DENIED = (403, {"code": 403, "message": "Permission 'datasets.get' was denied"})
Publish = Callable[..., DatasetVersion]


def then(always: Any, *first: Any) -> Any:
    """Return answers that begin so and stay the same afterwards."""
    return itertools.chain(first, itertools.repeat(always))


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Return the records of a project that has sent nothing."""
    return records_in(tmp_path)


# What Kaggle may answer


@pytest.fixture
def server(between, artifact):
    takes_all(between, artifact)
    between.say("GetDataset", then(at(1), GONE))
    return between


@pytest.fixture
def publish(kaggle, server, artifact, shown):
    return partial(published, kaggle, artifact, shown)


@pytest.mark.parametrize("absent", [GONE, DENIED])
def test_a_first_version_is_created_private(publish, server, absent):
    """Kaggle tells the owner by 404, or by 403 and a list without it, that there is none."""
    server.always("ListDatasets", {"datasets": []})
    server.say("GetDataset", then(at(1), absent, absent))

    made = publish()

    sent = server.bodies("CreateDataset")[0]
    assert (made.version, dict(made.files)["weights.npz"]) == (1, 7)
    assert sent["isPrivate"] is True and "run_id=r1" in sent["description"]
    assert server.count("CreateDatasetVersion") == 0


@pytest.mark.parametrize("trouble", [(500, b""), (429, {"code": 429}), RESET])
def test_trouble_is_not_taken_for_a_free_name(kaggle, publish, server, trouble):
    """The official client takes any error for "the slug is free"."""
    kaggle.pace = Pace(first=0.01, most=0.05, patience=0.1)
    server.always("GetDataset", trouble)

    with pytest.raises(Unreachable):
        publish()

    assert server.count("CreateDataset") == server.count("StartBlobUpload") == 0


def test_the_next_version_says_what_it_holds(publish, server, artifact):
    """Notes name the run and the weights."""
    another = (artifact / "manifest.json").read_bytes().replace(b"r1", b"r2")
    returns(server, artifact, m=another)  # is current

    def current():
        yield from [at(4), at(4)]
        returns(server, artifact)
        yield from itertools.repeat(at(5))

    server.say("GetDataset", current())

    assert publish().version == 5
    digest = hashlib.sha256(b"weights").hexdigest()
    (sent,) = server.bodies("CreateDatasetVersion")
    assert sent["body"]["versionNotes"] == f"run_id=r1 sha256={digest}"


def test_a_version_counts_once_it_has_stayed_ready(kaggle, publish, server, shown):
    """Reports say that it is not mounted at once; and an answer may be a replica's, with an older
    one after it.
    """
    server.say("GetDataset", then(at(1), GONE, at(1), GONE, at(1)))

    assert publish().version == 1

    assert server.count("GetDataset") >= 5 and kaggle.pace.stable == 0.1
    assert sum("waiting until it stays so" in line for line in shown) == 2


def test_what_an_earlier_call_may_have_made_is_waited_for(publish, server, records):
    """Its answer was lost, and Kaggle shows the version late: another call would make another."""
    lost = records.journal.intend(Request(PUBLISH, "digits", "ann/digits-artifact"))
    records.journal.record(records.journal.record(lost, Sending(1)), Failed(Ambiguous("no answer")))
    server.say("GetDataset", then(at(2), at(1), at(1)))

    assert publish().version == 2
    assert server.count("CreateDatasetVersion") == 0


@pytest.mark.parametrize("appears", [True, False])
def test_a_lost_answer_is_looked_up(kaggle, publish, server, records, appears):
    """A version that appears is ours; else nobody knows, and the journal says so."""
    kaggle.pace = Pace(first=0.01, most=0.02, patience=60)
    server.say("GetDataset", then(at(1), GONE, GONE) if appears else itertools.repeat(GONE))
    server.always("CreateDataset", RESET)

    if appears:
        assert publish().version == 1
    else:
        with pytest.raises(Ambiguous):
            publish()

    row = records.journal.last(PUBLISH)
    expected = State.ENDED if appears else State.UNKNOWN
    assert (row.state, row.before) == (expected, 0)
    assert server.count("CreateDataset") == 1


def test_two_versions_for_one_call_are_noticed(publish, server, records):
    """Inference would mount one that we know nothing of. That Kaggle refused is not recorded: it
    took the call.
    """
    server.say("GetDataset", [GONE, at(2)])

    with pytest.raises(Refused, match="version 2; expected 1"):
        publish()

    assert records.journal.last(PUBLISH).state == State.VERSION


def test_other_bytes_of_the_same_size_are_noticed(publish, server, artifact, records):
    """Stale and converted uploads were seen, with status ok."""
    returns(server, artifact, w=b"Weights")

    with pytest.raises(Unverified, match="other bytes"):
        publish()

    row = records.journal.last(PUBLISH)
    assert (row.state, row.number) == (State.VERSION, 1) and "other bytes" in row.why


def test_an_upload_goes_on_with_the_same_bytes_alone(kaggle, publish, server, artifact, records):
    """A file of the same name and size may have changed since the upload broke."""
    kaggle.pace = Pace(first=0.01, most=0.05, patience=0.1)
    server.always("GetDataset", GONE)
    server.always("put", RESET)

    def announced(weights: bytes, run_id: str) -> int:
        write_artifact(artifact, "b1", {"weights.npz": weights}, run_id)
        with pytest.raises(Unreachable):
            publish()
        return server.count("StartBlobUpload")

    first = announced(b"weights", "r1")
    assert announced(b"weights", "r1") == first  # the storage is asked what it has of it
    assert announced(b"Weights", "r1") > first
    notes = [*records.project.runs.glob(".publish.*/uploads/*")]
    assert {note.stat().st_mode & 0o777 for note in notes} == {0o600}  # there is a key in them
    left = [path.parent.name for path in records.project.runs.rglob("manifest.json")]
    assert left == ["staged"]  # not "artifact", where a pulled one lies


# What is published


@pytest.fixture
def local(host: Callable[..., LocalKaggle]) -> LocalKaggle:
    return host()


@pytest.fixture
def live(local: LocalKaggle) -> Kaggle:
    """Return a client of that Kaggle that gives up soon."""
    return connect(pace=Pace(first=0.02, most=0.06, patience=0.4))


@pytest.fixture
def send(live: Kaggle, records: Records, shown: list[str]) -> Publish:
    """Return what publishes a training, by version and weights, with changes of the project."""

    def publishes(version: int = 1, weights: bytes = b"weights", **changes: Any) -> DatasetVersion:
        _, folder = trained(records, version, weights)
        return done(datasets.artifact(live, changed(records, **changes), folder), shown)

    return publishes


@pytest.fixture
def folder(records: Records) -> Path:
    """Return the folder of the artifact that `send` publishes, if it is told no more."""
    return trained(records)[1] / "artifact"


def changed(records: Records, **changes: Any) -> Records:
    return Records(replace(records.project, **changes))


def versions(local: LocalKaggle) -> int:
    return sum(len(dataset.versions) for dataset in local.datasets.datasets.values())


def test_the_same_artifact_is_published_once(local, live, send, records, folder):
    """The journal has both: one that made the version, and one that found it."""
    assert [send().version, send().version, versions(local)] == [1, 1, 1]

    rows = records.journal.requests(PUBLISH, handle=ARTIFACT)
    assert [(row.state, row.number, row.is_ours) for row in rows] == [
        (State.ENDED, 1, False),
        (State.ENDED, 1, True),
    ]
    datasets.require_current(live, records, folder)


def test_what_a_desktop_leaves_in_a_folder_is_not_published(local, live, records, shown):
    """A file of the user's own has to be moved out; no training has to be run again for it."""
    _, pulled = trained(records)
    own = pulled / "artifact" / "notes.txt"
    own.write_text("mine")
    with pytest.raises(Unverified, match=r"notes\.txt is not in the manifest(.|\n)*Move out"):
        done(datasets.artifact(live, records, pulled), shown)
    assert not versions(local)
    own.unlink()
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        own.with_name(name).write_bytes(b"icons")

    done(datasets.artifact(live, records, pulled), shown)

    (version,) = local.datasets.datasets[ARTIFACT].versions
    assert {path.name for path in version.folder.iterdir()} == {"manifest.json", "weights.npz"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [("notes.txt", b"KGAT_" + b"1f" * 16, r"(?s)notes\.txt.*a Kaggle token"), ("a/b", b"", "flat")],
)
def test_what_must_not_be_sent_or_would_be_lost_is_not(local, live, records, name, text, said):
    """Kaggle keeps a secret for ever, and skips folders."""
    run, pulled = trained(records)
    files = {"weights.npz": b"weights", name: text}
    write_artifact(pulled / "artifact", run.bundle_sha256, files)

    with pytest.raises(UsageError, match=said):
        done(datasets.artifact(live, records, pulled), [])

    assert not versions(local) and "StartBlobUpload" not in local.faults.seen
    assert records.journal.last(PUBLISH).state == State.NOT_SENT


def test_nothing_is_published_in_a_dataset_that_is_public(local, send):
    """Exit code 2, before the upload."""
    send()
    local.datasets.datasets[ARTIFACT].is_private = False

    with pytest.raises(UsageError, match=f"{ARTIFACT} is public"):
        send(2, b"other")

    assert versions(local) == 1


def test_a_dataset_that_somebody_made_for_something_else_is_not_replaced(
    local, live, send, tmp_path
):
    """A person made it on the site."""
    (tmp_path / "my_features.csv").write_text("a,b\n")
    token = live.upload(tmp_path / "my_features.csv")
    live.create_dataset(ARTIFACT, title="By Hand", description="", tokens=[token])

    with pytest.raises(UsageError, match=r"my_features\.csv, and no manifest\.json"):
        send()

    assert versions(local) == 1


def test_an_artifact_of_another_competition_is_not_published(local, live, records):
    """Its manifest has the config that it was trained with."""
    _, pulled = trained(records)
    path = pulled / "artifact" / "manifest.json"
    manifest = {**json.loads(path.read_text()), "config": {"competition": "digits"}}
    path.write_bytes(checksums.sealed(manifest))
    others = changed(records, competition="letters", handoff="kernel")

    with pytest.raises(UsageError, match="trained for the competition digits; the") as raised:
        done(datasets.artifact(live, others, pulled), [])

    assert str(raised.value).endswith("invoke push-train --config digits")
    assert not versions(local)


def test_what_a_session_saved_is_published_flat_for_the_next(local, live, records, tmp_path):
    """Once for each step; it is the next version of the same dataset."""
    saved = tmp_path / "pulled" / "checkpoints" / "step-00000040"
    saved.mkdir(parents=True)
    (saved / "state.npz").write_bytes(b"state")
    name = "checkpoints/step-00000040"
    sha256 = checksums.sha256(saved / "state.npz")
    progress = SavedProgress([Checkpoint("", name, 40, 0, "r1", "")], {f"{name}/state.npz": sha256})
    pulled = saved.parent.parent

    for _ in range(2):
        done(datasets.checkpoint(live, records, pulled, progress), [])

    (version,) = local.datasets.datasets["rehearsal/digits-checkpoint"].versions
    held = {path.name: path.read_bytes() for path in version.folder.iterdir()}
    manifest = checksums.opened(held.pop("manifest.json"))
    assert held == {"checkpoints--step-00000040--state.npz": b"state"}
    assert (manifest["run_id"], manifest["step"], manifest["weights_sha256"]) == ("r1", 40, sha256)
    assert records.journal.last(PUBLISH).run_id == "r1 at step 40"


# What Kaggle refuses, or does not show


def test_a_dataset_that_never_comes_says_where_to_look(local, send, shown):
    """Kaggle took the call, and answers 404 for some time."""
    local.faults.say("GetDataset", ["404"] * 3)

    send()

    (line,) = [line for line in shown if "not there yet" in line]
    assert f"https://www.kaggle.com/datasets/{ARTIFACT}:" in line and "no room" in line


TAKEN = 'The requested title "Digits Artifact" is already in use by a dataset.'
UPDATE = "Permission 'datasets.update' was denied"


@pytest.mark.parametrize(
    ("code", "said", "kind", "advice"),
    [
        (409, TAKEN, Refused, r'Delete it by hand(.|\n)*handoff="kernel"'),
        (403, UPDATE, Denied, r"still processes(.|\n)*in some minutes"),
    ],
)
def test_a_refused_call_says_what_helps_and_made_nothing(
    local, send, records, code, said, kind, advice
):
    """A name is taken; or the version before is still processed, which is about no rules."""
    calls = ("CreateDataset", "CreateDatasetVersion")
    if kind is Denied:
        send()
    local.faults.say(calls[kind is Denied], [instead(code, {"code": code, "message": said})])

    with pytest.raises(kind, match=advice) as caught:
        send(2, b"other")

    assert "rules" not in str(caught.value)
    assert records.journal.last(PUBLISH).state == State.REFUSED


# What is mounted is what was published


@pytest.mark.parametrize(
    ("source", "answer", "told"),
    [
        (ARTIFACT, None, []),
        (ARTIFACT, "500", [f"Not known whether Kaggle has {ARTIFACT}"]),
        ("ann/theirs/1", None, None),
    ],
)
def test_a_source_that_is_not_shared_is_named_before_a_push(
    local, live, send, records, shown, source, answer, told
):
    """Where Kaggle does not tell, that is said, and no more."""
    send()
    shown.clear()
    path = records.project.root / "kernels" / "train-tpu" / "kernel-metadata.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**metadata("train-tpu"), "dataset_sources": [source]}))
    local.faults.say("GetDataset", itertools.repeat(answer))
    steps = datasets.require_shared(live, records.project, "train-tpu")

    if told is None:
        with pytest.raises(UsageError, match=r"no dataset ann/theirs that is ready; .*metadata"):
            done(steps, shown)
        return
    assert done(steps, shown) == [source]
    assert [line.partition(": ")[0] for line in shown] == told
