"""An artifact is what its manifest says, byte for byte, or it is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import artifact, model
from pipeline.errors import ArtifactError

NAMES = ("manifest.json", "weights.npz", "golden.npz")


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    """Return a copy of a trained artifact that the test may spoil."""
    return Path(shutil.copytree(trained[1] / "artifact", tmp_path / "artifact"))


def edited(folder: Path, **values: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_an_artifact_holds_all_that_inference_needs(folder, tiny):
    """Config, classes, weights by name, and golden images with their outputs."""
    loaded = artifact.load(folder)

    built = model.build(loaded.config)
    artifact.assign(built, loaded.weights)
    assert loaded.config == tiny
    assert loaded.classes == ("10", "9", "A b", "ß")
    assert list(loaded.weights) == [weight.path for weight in built.weights]
    assert loaded.golden_images.shape == (8, 8, 8, 1)
    assert loaded.golden_outputs.sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_a_manifest_has_every_promised_key(folder):
    """Scripts of users rely on them."""
    manifest = json.loads((folder / "manifest.json").read_text())

    assert set(artifact.KEYS) <= set(manifest)
    assert manifest["status"] == "complete"
    assert manifest["weights_sha256"] == artifact.sha256(folder / "weights.npz")


def test_equal_weights_make_equal_bytes(folder, tiny, tmp_path):
    """The sha256 of the weights names the weights, not the time of writing."""
    loaded = artifact.load(folder)
    built = model.build(tiny)
    artifact.assign(built, loaded.weights)

    manifest = artifact.save(
        tmp_path / "again",
        model=built,
        config=tiny,
        classes=loaded.classes,
        golden_images=loaded.golden_images,
        golden_outputs=loaded.golden_outputs,
        details={
            key: loaded.manifest[key] for key in loaded.manifest if key not in ("config", "classes", "golden", "files")
        },
    )

    assert manifest == loaded.manifest


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(NAMES[1:]), place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found_before_anything_is_parsed(trained, tmp_path_factory, name, place, bit):
    """Wherever it is."""
    folder = Path(shutil.copytree(trained[1] / "artifact", tmp_path_factory.mktemp("a") / "artifact"))
    content = bytearray((folder / name).read_bytes())
    content[place % len(content)] ^= 1 << bit
    (folder / name).write_bytes(content)

    with pytest.raises(ArtifactError, match="other bytes"):
        artifact.load(folder)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-5]), lambda path: path.write_bytes(b"")]
)
def test_a_missing_or_cut_file_is_refused(folder, name, spoil):
    """Each of the three."""
    spoil(folder / name)

    with pytest.raises(ArtifactError, match=str(folder)):
        artifact.load(folder)


def test_exchanged_files_are_refused(folder):
    """A name does not make the content."""
    (folder / "weights.npz").rename(folder / "x")
    (folder / "golden.npz").rename(folder / "weights.npz")
    (folder / "x").rename(folder / "golden.npz")

    with pytest.raises(ArtifactError, match="other bytes"):
        artifact.load(folder)


def test_a_link_in_place_of_a_file_is_refused(folder, tmp_path):
    """It could be led elsewhere after it was checked."""
    (folder / "weights.npz").rename(tmp_path / "elsewhere.npz")
    (folder / "weights.npz").symlink_to(tmp_path / "elsewhere.npz")

    with pytest.raises(ArtifactError, match="missing"):
        artifact.load(folder)


@pytest.mark.parametrize("name", ["../outside.npz", "/etc/hostname", "a/b.npz", ".", ""])
def test_a_name_that_leads_out_of_the_folder_is_refused(folder, tmp_path, name):
    """A manifest comes over the network; its names are not paths."""
    (tmp_path / "outside.npz").write_bytes(b"x")
    manifest = json.loads((folder / "manifest.json").read_text())
    edited(folder, files={**manifest["files"], name: {"sha256": "0" * 64, "size": 1}})

    with pytest.raises(ArtifactError):
        artifact.load(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"run_id": "another"},
        {"weights_sha256": "0" * 64},
    ],
)
def test_the_artifact_of_another_run_is_refused(folder, values):
    """What was pushed says what it expects."""
    with pytest.raises(ArtifactError, match="another run"):
        artifact.load(folder, expect=values)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"files": 3}', '{"files": {"a": {}}}'])
def test_what_is_no_manifest_is_refused(folder, text):
    """Whatever stands there."""
    (folder / "manifest.json").write_text(text)

    with pytest.raises(ArtifactError):
        artifact.load(folder)


def test_a_config_that_cannot_work_is_refused_by_its_field(folder):
    """Also in an artifact a config checks itself."""
    manifest = json.loads((folder / "manifest.json").read_text())
    edited(folder, config={**manifest["config"], "batch": 0})

    with pytest.raises(ArtifactError, match="batch=0"):
        artifact.load(folder)


def test_an_array_of_objects_is_not_read(folder):
    """That would be pickle, and pickle runs code."""
    np.savez(folder / "golden.npz", images=np.array([print], dtype=object), outputs=np.zeros(1), allow_pickle=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    told = {"sha256": artifact.sha256(folder / "golden.npz"), "size": (folder / "golden.npz").stat().st_size}
    edited(folder, files={**manifest["files"], "golden.npz": told})

    with pytest.raises(ArtifactError, match="pickle"):
        artifact.load(folder)


def test_weights_of_another_model_are_refused_by_name(folder, tiny):
    """With both shapes."""
    loaded = artifact.load(folder)
    weights = dict(loaded.weights)
    weights["logits/bias"] = np.zeros(9, np.float32)

    with pytest.raises(ArtifactError, match=r"logits/bias: weights \(9,\), model \(4,\)"):
        artifact.assign(model.build(tiny), weights)


def test_a_save_that_fails_leaves_the_older_artifact(folder, tiny):
    """And nothing half written beside it."""
    before = {name: (folder / name).read_bytes() for name in NAMES}

    with pytest.raises(ValueError, match="lacks"):
        artifact.save(
            folder,
            model=model.build(tiny),
            config=tiny,
            classes=("a",),
            golden_images=np.zeros((1, 8, 8, 1), np.uint8),
            golden_outputs=np.zeros((1, 4), np.float32),
            details={},
        )

    assert {name: (folder / name).read_bytes() for name in NAMES} == before
    assert [path.name for path in folder.parent.iterdir()] == ["artifact"]
