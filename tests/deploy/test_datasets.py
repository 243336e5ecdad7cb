"""A publish makes one private version, whose bytes came back equal."""

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy import datasets
from deploy.connection import Pace
from deploy.errors import Ambiguous, Denied, Refused, Unreachable, Unverified, UsageError
from deploy.journal import PUBLISH, Request, State
from deploy.output import Checkpoint, SavedProgress
from deploy.records import Records
from formats import checksums
from tests.deploy.between import RESET
from tests.deploy.services import GONE, at, published, records_in, returns, takes_all
from tests.deploy.small import connect
from tests.deploy.steps import done
from tests.faults.recorded_session import write_artifact

KEY = f"KGAT_{'1f' * 16}"
DENIED = (403, {"code": 403, "message": "Permission 'datasets.get' was denied"})


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
    """Kaggle answers the owner 404, or 403 with a list without it."""
    server.always("ListDatasets", {"datasets": []})
    server.say("GetDataset", then(at(1), absent, absent))

    made = publish()

    sent = server.bodies("CreateDataset")[0]
    assert (made.version, dict(made.files)["weights.npz"]) == (1, 7)
    assert sent["isPrivate"] is True and "run_id=r1" in sent["description"]
    assert server.count("CreateDatasetVersion") == 0


def test_a_version_counts_after_it_has_stayed_ready(kaggle, publish, server, shown):
    """Kaggle may mount it later, and a replica may answer with an older version."""
    server.say("GetDataset", then(at(1), GONE, at(1), GONE, at(1)))

    assert publish().version == 1

    assert server.count("GetDataset") >= 5 and kaggle.pace.stable == 0.1
    assert sum("waiting until it is stable" in line for line in shown) == 2


def test_what_an_earlier_call_may_have_made_is_waited_for(publish, server, records):
    """Its answer was lost, and Kaggle shows the version late."""
    lost = records.journal.intend(Request(PUBLISH, "digits", "ann/digits-artifact"))
    lost = records.journal.record(lost, State.SENT, before=1)
    records.journal.fail(lost, Ambiguous("no answer"))
    server.say("GetDataset", then(at(2), at(1), at(1)))

    assert publish().version == 2
    assert server.count("CreateDatasetVersion") == 0


def test_a_call_whose_answer_was_lost_is_looked_for_and_not_made_again(publish, server, records):
    """Exit code 0 if its version exists."""
    server.say("CreateDataset", [RESET])

    assert (publish().version, server.count("CreateDataset")) == (1, 1)
    assert records.journal.last(PUBLISH).state == State.ENDED


def test_a_wrong_download_makes_no_second_version(publish, server, artifact):
    """A page in place of a file once looked like another artifact, and ours was uploaded again."""
    server.always("GetDataset", at(1))
    returns(server, artifact, m=b"{}")

    with pytest.raises(Unreachable, match=r"sent 2 bytes for manifest\.json"):
        publish()

    assert server.count("StartBlobUpload") == 0


def test_two_versions_for_one_call_are_noticed(publish, server, records):
    """Inference would mount an unknown one. The entry is not refused: Kaggle took the call."""
    server.say("GetDataset", [GONE, at(2)])

    with pytest.raises(Refused, match="version 2; expected version 1"):
        publish()

    assert records.journal.last(PUBLISH).state == State.VERSION


def test_other_bytes_of_the_same_size_are_noticed(publish, server, artifact, records):
    """Stale and converted uploads have been seen, with status ok."""
    returns(server, artifact, w=b"Weights")

    with pytest.raises(Unverified, match="differs from the file"):
        publish()

    row = records.journal.last(PUBLISH)
    assert (row.state, row.number) == (State.VERSION, 1) and "differs from the file" in row.why


def test_an_upload_is_resumed_only_with_the_same_bytes(kaggle, publish, server, artifact, records):
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


def test_files_that_a_desktop_adds_are_not_published(publish, server, artifact):
    """They need no new training; the user's files have to be moved out."""
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        (artifact / name).write_bytes(b"icons")

    assert publish().files.keys() == {"manifest.json", "weights.npz"}

    (artifact / "notes.txt").write_text("mine")
    with pytest.raises(
        Unverified, match=r"notes\.txt is not in the manifest(.|\n)*Remove any files"
    ):
        publish()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("notes.txt", KEY, r"(?s)notes\.txt.*a Kaggle token"),
        (f"{KEY}.txt", "", r"(?s)a file's name.*a Kaggle token"),
    ],
)
def test_a_file_with_a_secret_or_in_a_folder_is_not_sent(
    publish, server, artifact, records, name, text, said
):
    (artifact / name).parent.mkdir(exist_ok=True)
    write_artifact(artifact, "b1", {"weights.npz": b"weights", name: text.encode()}, "r1")

    with pytest.raises(UsageError, match=said):
        publish()

    assert server.count("StartBlobUpload") == 0
    assert records.journal.last(PUBLISH).state == State.NOT_SENT


@pytest.mark.parametrize(
    ("is_private", "said"),
    [
        (False, "artifact is public"),
        (True, r"features\.csv, but no manifest\.json"),
    ],
)
def test_a_dataset_that_is_public_or_not_ours_is_not_changed(publish, server, is_private, said):
    """A person made it on the site. Exit code 2, before the upload."""
    server.always("GetDataset", at(1) | {"isPrivate": is_private})
    server.always("DownloadDataset", GONE)
    server.always("ListDatasetFiles", {"datasetFiles": [{"name": "features.csv"}]})

    with pytest.raises(UsageError, match=said):
        publish()

    assert server.count("StartBlobUpload") == 0


def test_an_artifact_of_another_competition_is_not_published(
    kaggle, server, artifact, records, tmp_path
):
    """Its manifest has the config that it was trained with."""
    path = artifact / "manifest.json"
    manifest = {**json.loads(path.read_text()), "config": {"competition": "digits"}}
    path.write_bytes(checksums.sealed(manifest))
    letters = replace(records.project, competition="letters", handoff="kernel")

    with pytest.raises(UsageError, match="trained for the competition digits, but the") as raised:
        done(datasets.artifact(kaggle, Records(letters), tmp_path))

    assert str(raised.value).endswith("invoke push-train --config digits")
    assert server.count("StartBlobUpload") == 0


def test_a_checkpoint_is_published_with_flat_names(host, records, tmp_path):
    """The journal has the step in its name, since it is a new version of the same dataset."""
    local, name = host(), "checkpoints/step-00000040"
    state = tmp_path / "pulled" / name / "state.npz"
    state.parent.mkdir(parents=True)
    state.write_bytes(b"state")
    sha256 = checksums.sha256(state)
    progress = SavedProgress([Checkpoint("", name, 40, 0, "r1", "")], {f"{name}/state.npz": sha256})

    done(datasets.checkpoint(connect(), records, tmp_path / "pulled", progress))

    (version,) = local.datasets.datasets["rehearsal/digits-checkpoint"].versions
    held = {path.name: path.read_bytes() for path in version.folder.iterdir()}
    manifest = checksums.opened(held.pop("manifest.json"))
    assert held == {"checkpoints--step-00000040--state.npz": b"state"}
    assert (manifest["run_id"], manifest["step"], manifest["weights_sha256"]) == ("r1", 40, sha256)
    assert records.journal.last(PUBLISH).run_id == "r1 at step 40"


# What Kaggle refuses


TAKEN = 'The requested title "Digits Artifact" is already in use by a dataset.'
UPDATE = "Permission 'datasets.update' was denied"


@pytest.mark.parametrize(
    ("there", "call", "code", "said", "kind", "advice"),
    [
        (GONE, "CreateDataset", 409, TAKEN, Refused, r'Delete it by hand(.|\n)*handoff="kernel"'),
        (at(1), "CreateDatasetVersion", 403, UPDATE, Denied, "is processing(.|\n)*a few minutes"),
    ],
)
def test_a_refused_call_names_the_fix_and_makes_nothing(
    publish, server, artifact, records, there, call, code, said, kind, advice
):
    """A name is in use; or the version before is still being processed."""
    another = (artifact / "manifest.json").read_bytes().replace(b"r1", b"r2")
    returns(server, artifact, m=another)
    server.always("GetDataset", there)
    server.say(call, [(code, {"code": code, "message": said})])

    with pytest.raises(kind, match=advice) as caught:
        publish()

    assert "rules" not in str(caught.value)
    assert records.journal.last(PUBLISH).state == State.REFUSED
