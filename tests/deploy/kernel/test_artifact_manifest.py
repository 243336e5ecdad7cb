"""An artifact is what its manifest says, file by file, or it is nothing."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.errors import Unverified, UsageError
from deploy.kernel import artifact_manifest
from pipeline.storage import checksums


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    folder = tmp_path / "artifact"
    folder.mkdir()
    weights = bytes(range(256)) * 4
    (folder / "weights.npz").write_bytes(weights)
    digest = hashlib.sha256(weights).hexdigest()
    files = {"weights.npz": {"sha256": digest, "size": len(weights)}}
    value = {"run_id": "r1", "weights_sha256": digest, "bundle_sha256": None, "files": files}
    (folder / "manifest.json").write_bytes(artifact_manifest.sealed(value))
    return folder


def test_a_whole_artifact_is_verified(artifact):
    """The manifest of a training outside of Kaggle names no bundle."""
    found = artifact_manifest.verify(artifact)

    assert (found.run_id, found.bundle_sha256) == ("r1", "")


@given(st.integers(0, 1023), st.integers(1, 255))
def test_one_changed_byte_is_found(artifact, place, change):
    """Property: any byte, any change."""
    path = artifact / "weights.npz"
    data = bytearray(bytes(range(256)) * 4)
    data[place] ^= change
    path.write_bytes(data)

    with pytest.raises(Unverified, match="sha256"):
        artifact_manifest.verify(artifact)


def test_missing_extra_and_cut_files_are_all_named(artifact):
    """One message, one round."""
    (artifact / "extra.bin").write_bytes(b"x")
    (artifact / "weights.npz").write_bytes(b"cut")

    with pytest.raises(
        Unverified, match=r"(?s)extra\.bin is not in the manifest.*has 3 bytes, expected 1024"
    ):
        artifact_manifest.verify(artifact)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"files": []}', '{"run_id": 1}', "[" * 100_000),
        *(
            f'{{"run_id": "r", "files": {{"x": {{"sha256": "0", "size": {size}}}}}}}'
            for size in ("Infinity", "1e400", "9" * 5000)
        ),
    ],
    ids=lambda text: text[-30:],
)
def test_a_broken_manifest_proves_nothing(artifact, text):
    """Missing fields never count as success."""
    (artifact / "manifest.json").write_text(text)

    with pytest.raises(Unverified):
        artifact_manifest.verify(artifact)


@pytest.mark.parametrize(
    "change", [{"run_id": "r2"}, {"metrics": {"accuracy": 1.0}}, {"manifest_sha256": "0" * 64}]
)
def test_an_edited_manifest_is_refused(artifact, change):
    """Its files are whole, and inference would refuse it on the GPU."""
    path = artifact / "manifest.json"
    manifest = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")

    with pytest.raises(
        Unverified,
        match=r"(?s)changed after it was written.*expected .* manifest_sha256.*invoke pull",
    ):
        artifact_manifest.verify(artifact)


def test_a_manifest_without_a_seal_is_refused(artifact):
    """An older version of this project wrote it, or somebody took it out."""
    path = artifact / "manifest.json"
    path.write_text(
        json.dumps(
            {
                key: value
                for key, value in json.loads(path.read_text()).items()
                if "manifest" not in key
            }
        )
    )

    with pytest.raises(Unverified, match="has no manifest_sha256"):
        artifact_manifest.verify(artifact)


@given(
    st.dictionaries(
        st.text(),
        st.none()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text()
        | st.lists(st.booleans()),
    )
)
def test_both_sides_seal_a_manifest_alike(manifest):
    """Neither imports the other."""
    assert artifact_manifest.sealed(manifest) == checksums.sealed(manifest)


def test_no_artifact_is_a_usage_error_that_says_what_to_run(tmp_path):
    """Pull comes first."""
    with pytest.raises(UsageError, match="invoke pull"):
        artifact_manifest.verify(tmp_path)
