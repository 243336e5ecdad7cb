"""One publish makes one version, of bytes that came back equal."""

import hashlib
import itertools
from functools import partial

import pytest

from deploy.errors import Refused, Unreachable, Unverified
from deploy.retries import Pace
from tests.deploy.between import RESET
from tests.deploy.services import GONE, at, published, returns, takes_all

DENIED = (403, {"code": 403, "message": "Permission 'datasets.get' was denied"})


def then(always, *first):
    """Return answers that begin so and stay the same afterwards."""
    return itertools.chain(first, itertools.repeat(always))


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

    assert server.count("GetDataset") > 5 and kaggle.pace.stable == 0.1
    assert sum("waiting until it stays so" in line for line in shown) == 2


def test_what_an_earlier_call_may_have_made_is_waited_for(publish, server):
    """Its answer was lost, and Kaggle shows the version late: another call would make another."""
    server.say("GetDataset", then(at(2), at(1), at(1)))

    assert publish(sent_after=1).version == 2
    assert server.count("CreateDatasetVersion") == 0


def test_two_versions_for_one_call_are_noticed(publish, server):
    """Inference would mount one that we know nothing of."""
    server.say("GetDataset", [GONE, at(2)])

    with pytest.raises(Refused, match="version 2; expected 1"):
        publish()


def test_other_bytes_of_the_same_size_are_noticed(publish, server, artifact):
    """Stale and converted uploads were seen, with status ok."""
    returns(server, artifact, w=b"Weights")

    with pytest.raises(Unverified, match="other bytes"):
        publish()
