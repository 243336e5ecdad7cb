"""Models: the client makes, changes, reads and deletes them, their instances and versions."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import kagglesdk.models.types.model_api_service as types
import pytest
from kagglesdk.models.types.model_enums import ModelFramework

from localkaggle.server import LocalKaggle
from localkaggle.services.protocol import make
from tests.localkaggle.pushed_notebooks import refused
from tests.localkaggle.services.test_datasets import new_files, upload

# What the official client does with a folder, from its own templates to the end.
WHOLE = """
import json, pathlib, tarfile
from kaggle import api

def folder(name, **files):
    made = pathlib.Path(name)
    made.mkdir()
    for file, text in files.items():
        (made / file).write_text(text)
    return made

def filled(path, **values):
    path = pathlib.Path(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

said = {}
model, first, second = folder("model"), folder("first", weights="one"), folder("second", w="2")
named = {"ownerSlug": "rehearsal", "framework": "pyTorch", "instanceSlug": "small_net"}
filled(api.model_initialize(str(model)), ownerSlug="rehearsal", slug="nets", title="Nets")
said["made"] = api.model_create_new(str(model)).ref
filled(api.model_instance_initialize(str(first)), modelSlug="nets", **named)
said["instance"] = api.model_instance_create(str(first)).ref
handle = said["instance"]
said["version"] = api.model_instance_version_create(handle, str(second), "smaller").error
said["newest"] = [file.name for file in api.model_instance_files(handle).files]
said["files"] = [file.name for file in api.model_instance_version_files(handle + "/1").files]
got = api.model_instance_version_download(handle + "/1", "got", quiet=True)
with tarfile.open(got) as archive:
    said["bytes"] = archive.extractfile("weights").read().decode()
filled("model/model-metadata.json", title="Better nets")
api.model_update(str(model))
filled("first/model-instance-metadata.json", overview="An overview")
api.model_instance_update(str(first))
found = api.model_get("rehearsal/nets")
said["found"] = [found.title, found.is_private]
said["overview"] = api.model_instance_get(handle).overview
def versions():
    listed = api.model_instance_versions_list(handle).version_list.versions
    return [version.version_number for version in listed]

said["versions"] = versions()
instances = api.model_instances_list("rehearsal/nets").instances
said["notes"] = [item.version_notes for item in instances]
said["public"] = [item.ref for item in api.model_list()]
said["own"] = [item.ref for item in api.model_list(owner="rehearsal")]
api.model_instance_version_delete(handle + "/1", True)
said["left"] = versions()
api.model_instance_delete(handle, True)
api.model_delete("rehearsal/nets", True)
said["after"] = api.model_list(owner="rehearsal")
print(json.dumps(said))
"""


@pytest.fixture
def kaggle(start) -> LocalKaggle:
    """Return a local Kaggle without competitions."""
    return start(competitions=())


def create(client, **fields):
    usual = {"owner_slug": "rehearsal", "slug": "nets", "title": "Nets"}
    request = make(types.ApiCreateModelRequest, **{**usual, **fields})
    return client.models.model_api_client.create_model(request)


def instance(client, *tokens: str, **fields):
    usual = {
        "instance_slug": "small",
        "framework": ModelFramework.MODEL_FRAMEWORK_JAX,
        "files": new_files(tokens),
    }
    body = make(types.ApiCreateModelInstanceRequestBody, **{**usual, **fields})
    request = make(
        types.ApiCreateModelInstanceRequest, owner_slug="rehearsal", model_slug="nets", body=body
    )
    return client.models.model_api_client.create_model_instance(request)


def ask(client, method: str, owner: str = "rehearsal", **fields):
    kind = getattr(types, f"Api{method.title().replace('_', '')}Request")
    request = make(kind, owner_slug=owner, model_slug="nets", **fields)
    return getattr(client.models.model_api_client, method)(request)


def test_the_client_makes_changes_reads_and_deletes_a_model(kaggle, tmp_path):
    """Private unless its metadata say otherwise; a version that is deleted leaves the others."""
    done = subprocess.run(
        [sys.executable, "-c", WHOLE],
        cwd=tmp_path, env={**os.environ, **kaggle.environment}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "made": "rehearsal/nets",
        "instance": "rehearsal/nets/pytorch/small_net",
        "version": "",
        "newest": ["w"],
        "files": ["weights"],
        "bytes": "one",
        "found": ["Better nets", True],
        "overview": "An overview",
        "versions": [2, 1],
        "notes": ["smaller"],
        "public": [],
        "own": ["rehearsal/nets"],
        "left": [2],
        "after": [],
    }


def test_a_slug_is_used_once(kaggle, client):
    """By a model, and by an instance of one framework; the answer says so and is no error."""
    connected = client(kaggle)
    create(connected)
    assert instance(connected, upload(connected, "w", b"1")).error == ""

    assert "already used" in create(connected).error
    assert "already exists" in instance(connected, upload(connected, "w", b"1")).error
    other = ModelFramework.MODEL_FRAMEWORK_KERAS
    assert instance(connected, upload(connected, "w", b"1"), framework=other).error == ""
    assert len(ask(connected, "get_model").instances) == 2


def test_a_file_that_was_never_sent_makes_no_instance(kaggle, client):
    """The instance is not there, and can still be made."""
    connected = client(kaggle)
    create(connected)

    with refused(400, "never uploaded"):
        instance(connected, "blob-000099")

    assert ask(connected, "list_model_instances").instances == []
    assert instance(connected, upload(connected, "w", b"1")).error == ""


def test_an_instance_names_the_one_that_it_is_made_from(kaggle, client):
    """One that is not there is refused."""
    connected = client(kaggle)
    create(connected)
    instance(connected)
    base = "rehearsal/nets/jax/small"

    instance(connected, instance_slug="tuned", base_model_instance=base)

    jax = ModelFramework.MODEL_FRAMEWORK_JAX
    got = ask(connected, "get_model_instance", framework=jax, instance_slug="tuned")
    told = got.base_model_instance_information
    assert (told.owner.slug, told.model_slug, told.instance_slug) == ("rehearsal", "nets", "small")
    with refused(404, "no model instance"):
        instance(connected, instance_slug="lost", base_model_instance=base + "er")


def test_a_model_of_somebody_else_is_read_if_it_is_public_and_never_changed(kaggle, client):
    """The site does not say whether a private one is there."""
    connected = client(kaggle)
    create(connected, is_private=False)
    mine = kaggle.models.models.pop("rehearsal/nets")
    kaggle.models.models["stranger/nets"] = replace(mine, owner="stranger")

    assert ask(connected, "get_model", "stranger").title == "Nets"
    with refused(403, "models.update"):
        ask(connected, "delete_model", "stranger")
    mine.page.is_private = True
    with refused(403, "models.get"):
        ask(connected, "get_model", "stranger")
