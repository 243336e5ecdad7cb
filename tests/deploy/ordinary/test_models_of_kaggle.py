"""A push that mounts Kaggle's models: what is shown before, and a missing licence."""

from dataclasses import replace

import pytest

from deploy.calls import SOURCES, Source
from deploy.errors import Denied, SourceMissing, SourcesRefused
from deploy.models import FRAMEWORKS, word
from localkaggle.facts import Facts
from tests.deploy import steps
from tests.deploy.small import connect, push, sent

NAME = "keras/dinov3/Keras/dinov3_small/1"
PAGE = "https://www.kaggle.com/models/keras/dinov3"


@pytest.fixture
def live(host, tmp_path):
    """Return a Kaggle with the model, and its client."""
    local = host(queue_seconds=3600.0)
    (tmp_path / "model").mkdir()
    local.models.publish({NAME: tmp_path / "model"})
    return local, connect()


@pytest.fixture
def ours(ours):
    return replace(ours, models=[NAME.replace("Keras", "keras")])


def test_the_plan_shows_each_model_that_is_mounted(live, ours):
    assert f"mounts      the model {NAME}: {PAGE}" in steps.looked(live[1], ours).lines()


def test_a_model_whose_licence_is_not_accepted_ends_a_push_before_its_session(live, ours):
    """Exit code 3, and the page. Once it is accepted the same command pushes."""
    local, kaggle = live
    local.facts = Facts(gate="licence")

    with pytest.raises(Denied, match=f"(?s)has not accepted the licence.*{PAGE}$") as told:
        push(kaggle, ours)

    assert (told.value.exit_code, sent(local)) == (3, 0)
    local.facts = Facts()
    assert push(kaggle, ours).version == 1
    assert local.kernels.version("rehearsal/digits-train-tpu", 1).request.model_data_sources == [
        NAME
    ]


def test_a_missing_model_ends_a_push_before_its_session(live, ours):
    local, kaggle = live
    local.faults.say("ListModelInstanceVersionFiles", ["404"])

    with pytest.raises(SourceMissing, match=f"(?s)pretrained in the config.*{PAGE}$") as told:
        push(kaggle, ours)

    assert (told.value.exit_code, sent(local)) == (2, 0)


def test_a_token_without_access_to_a_model_pushes_it_with_a_note(live, ours, shown):
    """The note names the causes, and the page."""
    local, kaggle = live
    local.faults.say("ListModelInstanceVersionFiles", ["403"])

    assert push(kaggle, ours, show=shown.append).version == 1
    start = "Could not check that Kaggle has the model"
    (note,) = [text for text in shown if text.startswith(start)]
    assert "more permissions" in note and note.endswith(PAGE)


def test_a_push_that_kaggle_starts_without_a_model_names_its_page(live, ours, monkeypatch):
    local, kaggle = live
    monkeypatch.setattr(local.models, "mounted", lambda source: None)

    with pytest.raises(SourcesRefused, match=f"(?s)model sources: {NAME}.*licence.*{PAGE}") as told:
        push(kaggle, ours)

    assert (told.value.exit_code, told.value.kinds) == (4, ("model_sources",))


def test_a_model_is_the_same_however_kaggle_writes_its_framework(live, ours):
    """Otherwise a push whose answer was lost would seem to lack its model."""
    names = (NAME.lower(), f"models/{NAME}", NAME)

    assert {Source(1, model_sources=(name,)).asks[SOURCES[-1]] for name in names} == {(NAME,)}


def test_kaggles_client_knows_each_framework():
    """A call about a model uses kagglesdk's name."""
    from kagglesdk.models.types.model_enums import ModelFramework

    asked = {*ModelFramework.__members__} - {"MODEL_FRAMEWORK_UNSPECIFIED"}
    assert {word(framework) for framework in FRAMEWORKS} == asked
