"""An artifact is what its manifest says, file by file, or it is nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.errors import Unverified, UsageError
from deploy.kernel import artifact_manifest
from pipeline.storage import checksums
from tests.faults.recorded_session import write_artifact

WEIGHTS = bytes(range(256)) * 4
CHANGED = "(?s)changed after it was written.*expected .* manifest_sha256.*invoke pull"


@pytest.fixture
def artifact(tmp_path):
    write_artifact(tmp_path / "artifact", "", {"weights.npz": WEIGHTS}, "r1")
    return tmp_path / "artifact"


def edit(artifact, **changes):
    """Change values of the manifest, or leave out those that are None."""
    path = artifact / "manifest.json"
    values = json.loads(path.read_text()) | changes
    values = {name: value for name, value in values.items() if value is not None}
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


def test_a_whole_artifact_is_verified(artifact):
    """The manifest of a training outside of Kaggle names no bundle."""
    manifest = json.loads((artifact / "manifest.json").read_text()) | {"bundle_sha256": None}
    del manifest["manifest_sha256"]
    (artifact / "manifest.json").write_bytes(artifact_manifest.sealed(manifest))

    found = artifact_manifest.verify(artifact)

    assert (found.run_id, found.bundle_sha256) == ("r1", "")


@given(st.integers(0, 1023), st.integers(1, 255))
def test_one_changed_byte_is_found(artifact, place, change):
    """Property: any byte, any change."""
    data = bytearray(WEIGHTS)
    data[place] ^= change
    (artifact / "weights.npz").write_bytes(data)

    with pytest.raises(Unverified, match="sha256"):
        artifact_manifest.verify(artifact)


def test_missing_extra_and_cut_files_are_all_named(artifact):
    """One message, one round."""
    (artifact / "extra.bin").write_bytes(b"x")
    (artifact / "weights.npz").write_bytes(b"cut")

    with pytest.raises(Unverified, match=r"(?s)extra\.bin is not in.*3 bytes, expected 1024"):
        artifact_manifest.verify(artifact)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: (path / "manifest.json").write_text("{}"), "cannot be read"),
        # Its files are whole, and inference would refuse it on the GPU.
        (lambda path: edit(path, run_id="r2"), CHANGED),
        (lambda path: edit(path, metrics={"accuracy": 1.0}), CHANGED),
        (lambda path: edit(path, manifest_sha256="0" * 64), CHANGED),
        # An older version of this project wrote it, or somebody took it out.
        (lambda path: edit(path, manifest_sha256=None), "has no manifest_sha256"),
    ],
)
def test_a_broken_or_edited_manifest_proves_nothing(artifact, spoil, said):
    """Missing fields never count as success."""
    spoil(artifact)

    with pytest.raises(Unverified, match=said):
        artifact_manifest.verify(artifact)


SIMPLE = st.none() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.text(), SIMPLE | st.lists(st.booleans()), max_size=5))
def test_both_sides_seal_a_manifest_alike(manifest):
    """Neither imports the other."""
    assert artifact_manifest.sealed(manifest) == checksums.sealed(manifest)


def test_no_artifact_is_a_usage_error_that_says_what_to_run(tmp_path):
    """Pull comes first."""
    with pytest.raises(UsageError, match="invoke pull"):
        artifact_manifest.verify(tmp_path)
