"""Publish: one call makes one version, and only bytes that came back equal are called published."""

import hashlib
import itertools
from pathlib import Path

import pytest

from deploy.client.retries import Pace
from deploy.errors import Ambiguous, DeadlinePassed, Refused, RunFailed, Unreachable, Unverified
from deploy.relay import publish as datasets
from tests.deploy.between import RESET, Between

HANDLE = "ann/digits-artifact"
GONE = (404, {"code": 404, "message": "Not found"})
DENIED = (403, {"code": 403, "message": "Permission 'datasets.get' was denied"})
FILES = ("manifest.json", "weights.npz")
QUICK = Pace(first=0.01, most=0.05, patience=0.1)


def at(version: int) -> dict[str, object]:
    return {"currentVersionNumber": version, "isPrivate": True}


def then(always, *first):
    """Return answers that begin so and stay the same afterwards."""
    return itertools.chain(first, itertools.repeat(always))


@pytest.fixture
def server(between: Between, artifact: Path) -> Between:
    """A dataset service that takes every upload and returns the same bytes for any version."""
    upload = {"token": "t", "createUrl": "http://localhost/put/x"}
    between.say("StartBlobUpload", itertools.repeat(upload))
    between.say("put", itertools.repeat((200, b"")))
    between.say("GetDatasetStatus", itertools.repeat({"status": "READY"}))
    sizes = [{"name": name, "totalBytes": (artifact / name).stat().st_size} for name in FILES]
    between.say("ListDatasetFiles", itertools.repeat({"datasetFiles": sizes}))
    returns(between, artifact)
    for operation in ("CreateDataset", "CreateDatasetVersion"):
        between.say(operation, itertools.repeat({"status": "ok"}))
    return between


def returns(between: Between, artifact: Path, **changed: bytes) -> None:
    """Let downloads give the artifact's files, or other bytes for the named ones."""
    urls = {
        name: between.serve(name, changed.get(name[0], (artifact / name).read_bytes()))
        for name in FILES
    }

    def located():
        while True:
            yield 302, {}, {"Location": urls[between.bodies("DownloadDataset")[-1]["fileName"]]}

    between.say("DownloadDataset", located())


def publish(kaggle, artifact, shown, deadline: float = 60):
    return datasets.publish(
        kaggle,
        artifact,
        HANDLE,
        title="Digits Artifact",
        deadline_seconds=deadline,
        show=shown.append,
    )


@pytest.mark.parametrize("absent", [GONE, DENIED])
def test_a_first_version_is_created_private(kaggle, server, artifact, shown, absent):
    """Kaggle tells the owner by 404, or by 403 and a list without it, that there is none."""
    server.always("ListDatasets", {"datasets": []})
    server.say("GetDataset", then(at(1), absent, absent))

    made = publish(kaggle, artifact, shown)

    sent = server.bodies("CreateDataset")[0]
    assert (made.version, dict(made.files)["weights.npz"]) == (1, 7)
    assert sent["isPrivate"] is True and "run_id=r1" in sent["description"]
    assert server.count("CreateDatasetVersion") == 0


@pytest.mark.parametrize(
    "trouble", [(500, b""), (429, {"code": 429, "message": "Too many"}), RESET]
)
def test_trouble_is_not_taken_for_a_free_name(kaggle, server, artifact, shown, trouble):
    """The official client takes any error for "the slug is free"."""
    kaggle.pace = QUICK
    server.say("GetDataset", itertools.repeat(trouble))

    with pytest.raises(Unreachable):
        publish(kaggle, artifact, shown)

    assert server.count("CreateDataset") == server.count("StartBlobUpload") == 0


def test_the_next_version_says_what_it_holds(kaggle, server, artifact, shown):
    """Notes name the run and the weights."""
    returns(server, artifact, m=b"{}")  # what is current is another artifact
    downloads = iter([at(4), at(4)])

    def current():
        yield from downloads
        returns(server, artifact)
        yield from itertools.repeat(at(5))

    server.say("GetDataset", current())

    made = publish(kaggle, artifact, shown)

    digest = hashlib.sha256(b"weights").hexdigest()
    assert made.version == 5
    assert (
        server.bodies("CreateDatasetVersion")[0]["body"]["versionNotes"]
        == f"run_id=r1 sha256={digest}"
    )


def test_an_artifact_that_is_current_already_is_not_sent_again(kaggle, server, artifact, shown):
    """The same command again is no new version."""
    server.say("GetDataset", itertools.repeat(at(4)))

    assert publish(kaggle, artifact, shown).version == 4

    assert server.count("CreateDatasetVersion") == server.count("StartBlobUpload") == 0
    assert "already" in shown[-1]


def test_a_call_that_never_arrived_is_left_open(kaggle, server, artifact, shown):
    """Exit code 6, after some looks."""
    kaggle.pace = QUICK
    server.say("GetDataset", itertools.repeat(GONE))
    server.say("CreateDataset", [RESET])

    with pytest.raises(Ambiguous):
        publish(kaggle, artifact, shown)


def test_a_dropped_upload_is_repeated_whole(kaggle, server, artifact, shown):
    """The official client published a version without the file, and ended with 0."""
    server.say("GetDataset", then(at(1), GONE))
    server.say("put", [(503, b""), RESET, *[(200, b"")] * 2])

    assert publish(kaggle, artifact, shown).version == 1
    assert server.count("put") == 4


@pytest.mark.parametrize(
    ("operation", "answers", "kind"),
    [
        (
            "CreateDataset",
            [{"status": "error", "error": "The requested title is already in use"}],
            Refused,
        ),
        ("put", itertools.repeat((400, b"")), Refused),
        ("GetDatasetStatus", itertools.repeat({"status": "FAILED"}), RunFailed),
        ("GetDatasetStatus", itertools.repeat({"status": "A_NEW_WORD"}), DeadlinePassed),
        ("GetDatasetStatus", itertools.repeat({}), DeadlinePassed),
        ("ListDatasetFiles", itertools.repeat({"datasetFiles": []}), DeadlinePassed),
    ],
)
def test_what_is_not_ready_and_whole_is_not_published(
    kaggle, server, artifact, shown, operation, answers, kind
):
    """A refusal inside a success, a failure, an unknown word, a file that is missing."""
    server.say("GetDataset", itertools.chain([GONE], itertools.repeat(at(1))))
    server.say(operation, answers)

    with pytest.raises(kind):
        publish(kaggle, artifact, shown, deadline=0.2 if kind is DeadlinePassed else 60)


def test_an_answer_that_says_nothing_is_no_refusal(kaggle, server, artifact, shown):
    """The version may have been made, and is found; a refusal would have led to a second one."""
    server.say("GetDataset", then(at(1), GONE))
    server.say("CreateDataset", [{}])

    assert publish(kaggle, artifact, shown).version == 1
    assert server.count("CreateDataset") == 1 and server.count("CreateDatasetVersion") == 0


def test_a_version_counts_once_it_has_stayed_ready(kaggle, server, artifact, shown):
    """Reports say that it is not mounted at once; and an answer may be a replica's, with an older
    one after it.
    """
    server.say("GetDataset", then(at(1), GONE, at(1), GONE, at(1)))

    assert publish(kaggle, artifact, shown).version == 1

    asked = [name for name, _ in server.seen].count("GetDataset")
    assert asked > 5 and kaggle.pace.stable == 0.1
    assert sum("waiting until it stays so" in line for line in shown) == 2


def test_two_versions_for_one_call_are_noticed(kaggle, server, artifact, shown):
    """Inference would mount one that we know nothing of."""
    server.say("GetDataset", [GONE, at(2)])

    with pytest.raises(Refused, match="version 2; expected 1"):
        publish(kaggle, artifact, shown)


def test_other_bytes_of_the_same_size_are_noticed(kaggle, server, artifact, shown):
    """Stale and converted uploads were seen, with status ok."""
    server.say("GetDataset", then(at(1), GONE))
    returns(server, artifact, w=b"Weights")

    with pytest.raises(Unverified, match="other bytes"):
        publish(kaggle, artifact, shown)


def test_a_broken_artifact_is_not_sent(kaggle, server, artifact, shown):
    """It is verified before the first call."""
    (artifact / "weights.npz").write_bytes(b"wEights")

    with pytest.raises(Unverified):
        publish(kaggle, artifact, shown)

    assert not server.seen
