"""Everything that is sent is looked through for secrets first; one that is found stops it, and is
not repeated.
"""

import hashlib
import json

import pytest

from deploy.bundle import push_rules
from deploy.errors import UsageError
from deploy.kernel import artifact_manifest as manifests
from deploy.kernel import push_and_watch
from deploy.relay import publish, submit
from tests.deploy.between import Between

HEX32 = hashlib.md5(b"a key", usedforsecurity=False).hexdigest()


def plant(notebook, metadata, where):
    """Put a token there."""
    token = f"KGAT_{HEX32}"
    cell = notebook["cells"][-1]
    if where == "the last cell":
        cell["source"] += f"\n# {token}"
    elif where == "lines of a cell":
        cell["source"] = ["a = 1\n", f"b = '{token}'\n"]
    elif where == "cell metadata":
        cell["metadata"] = {"deep": [{"deeper": token}]}
    elif where == "a name in cell metadata":
        cell["metadata"] = {token: 1}
    elif where == "an output":
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": token}]
    elif where == "an attachment":
        notebook["cells"][0]["attachments"] = {"a.txt": {"text/plain": token}}
    elif where == "the notebook's metadata":
        notebook["metadata"]["author"] = token
    else:
        metadata[where] = [f"ann/{token}"] if where.endswith("_sources") else token


@pytest.mark.parametrize(
    "where",
    [
        *("the last cell", "lines of a cell", "cell metadata", "a name in cell metadata"),
        *("an output", "an attachment", "the notebook's metadata", "title", "id", "machine_shape"),
        *("dataset_sources", "model_sources", "keywords"),
    ],
)
def test_a_secret_in_anything_that_a_push_sends_is_refused_and_not_repeated(built, where):
    """Whatever the reason for which it is quoted."""
    notebook, metadata = json.loads(built.notebook.read_text()), dict(built.metadata)
    plant(notebook, metadata, where)

    with pytest.raises(UsageError, match="a Kaggle token seems to be in") as caught:
        push_rules.check(notebook, metadata, size=1000, offline=False)

    assert HEX32[:12] not in str(caught.value)


@pytest.mark.parametrize("before", range(20, 61, 4))
def test_the_line_that_names_a_cell_shows_no_part_of_a_key(built, before):
    """It is cut, and a key may lie across the end."""
    notebook = json.loads(built.notebook.read_text())
    notebook["cells"][-1]["source"] = f"{'x' * (before - 12)} KAGGLE_KEY={HEX32}"

    with pytest.raises(UsageError) as caught:
        push_rules.check(notebook, built.metadata, size=1000, offline=False)

    assert HEX32[:6] not in str(caught.value)


def test_a_file_that_was_edited_after_the_gate_looked_is_not_what_is_sent(kaggle, between, built):
    """What was checked is what leaves this machine."""
    between.say("GetKernel", [(404, {"code": 404, "message": "Not found"})])
    between.say("SaveKernel", [{"versionNumber": 1, "url": "u"}])
    built.notebook.write_text(f"KAGGLE_KEY = '{HEX32}'")

    push_and_watch.push(kaggle, built, timeout_seconds=3600)

    assert between.bodies("SaveKernel")[0]["text"] == built.text
    assert HEX32 not in built.text


@pytest.mark.parametrize("name", ["manifest.json", "notes.md"])
def test_an_artifact_with_a_secret_in_a_text_is_not_published(
    kaggle, between: Between, tmp_path, shown, name
):
    """A dataset is one click away from being public. Weights are numbers, and are not read."""
    files = {"weights.npz": b"PK\x03\x04\xff" + HEX32.encode(), "notes.md": b"how it was trained"}
    planted = f'token = "KGAT_{HEX32}"'
    if name == "notes.md":
        files[name] += planted.encode()
    listed = {
        file: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for file, data in files.items()
    }
    manifest = {
        "run_id": "r1",
        "weights_sha256": listed["weights.npz"]["sha256"],
        "bundle_sha256": "",
        "files": listed,
    }
    files["manifest.json"] = manifests.sealed(
        {**manifest, "config": planted if name == "manifest.json" else ""}
    )
    for file, data in files.items():
        (tmp_path / "artifact").mkdir(exist_ok=True)
        (tmp_path / "artifact" / file).write_bytes(data)

    with pytest.raises(UsageError, match=rf"in {name}:\n  - a Kaggle token, line \d") as caught:
        publish.publish(
            kaggle,
            tmp_path / "artifact",
            "ann/digits-artifact",
            title="Digits Artifact",
            deadline_seconds=5,
            show=shown.append,
        )

    assert HEX32 not in str(caught.value)
    assert not between.seen


def test_a_submission_with_a_secret_in_its_description_is_not_sent(
    kaggle, between: Between, tmp_path, shown
):
    """It stays on kaggle.com for ever, for the whole team to read."""
    (tmp_path / "submission.csv").write_text("id,label\n1,0\n")

    with pytest.raises(UsageError, match="description") as caught:
        submit.submit(
            kaggle,
            push_and_watch.Run("ann/digits-infer-gpu", 3, "", "b1"),
            "digits",
            submission=tmp_path / "submission.csv",
            check=lambda given, sample: None,
            message=f"KGAT_{HEX32}",
            deadline_seconds=5,
            command="invoke {}".format,
            show=shown.append,
        )

    assert HEX32 not in str(caught.value)
    assert not between.seen
