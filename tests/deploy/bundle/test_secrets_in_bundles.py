"""Everything that is sent is looked through for secrets first; one that is found stops it, and is
not repeated.
"""

import hashlib
import json

import pytest

from deploy.errors import UsageError
from deploy.kernel import artifact_manifest, push_and_watch
from deploy.relay import publish, submit

HEX32 = hashlib.md5(b"a key", usedforsecurity=False).hexdigest()
PLANTED = f'token = "KGAT_{HEX32}"'


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
    kaggle, between, artifact, shown, name
):
    """A dataset is one click away from being public. Weights are numbers, and are not read."""
    manifest = json.loads((artifact / "manifest.json").read_text())
    del manifest["manifest_sha256"]
    texts = {"weights.npz": f"PK\x03\x04{PLANTED}", "notes.md": "how it was trained"}
    if name == "notes.md":
        texts[name] = PLANTED
    else:
        manifest["config"] = PLANTED
    for file, text in texts.items():
        (artifact / file).write_text(text)
        digest = artifact_manifest.sha256(artifact / file)
        manifest["files"][file] = {"sha256": digest, "size": len(text)}
    manifest["weights_sha256"] = manifest["files"]["weights.npz"]["sha256"]
    (artifact / "manifest.json").write_bytes(artifact_manifest.sealed(manifest))
    words = {"title": "Digits Artifact", "deadline_seconds": 5, "show": shown.append}

    with pytest.raises(UsageError, match=rf"in {name}:\n  - a Kaggle token, line \d") as caught:
        publish.publish(kaggle, artifact, "ann/digits-artifact", **words)

    assert HEX32 not in str(caught.value) and not between.seen


def test_a_submission_with_a_secret_in_its_description_is_not_sent(
    kaggle, between, tmp_path, shown
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
            message=PLANTED,
            deadline_seconds=5,
            command="invoke {}".format,
            show=shown.append,
        )

    assert HEX32 not in str(caught.value) and not between.seen
