"""An artifact is what its manifest says, byte for byte, or it is refused."""

import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import checksums
from formats.errors import DiskError
from pipeline import artifact
from pipeline.errors import ArtifactError
from pipeline.models import architectures, weight_names
from tests.pipeline.handmade import resealed

NAMES = ("manifest.json", "weights.npz", "golden.npz")
Spoil = Callable[[Path], object]


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    """Return a copy of a trained artifact that the test may spoil."""
    return Path(shutil.copytree(trained[1] / "artifact", tmp_path / "artifact"))


def told(folder: Path) -> dict:
    """Return the manifest."""
    return json.loads((folder / "manifest.json").read_bytes())


def save(folder: Path, **changes) -> dict:
    """Save the artifact again with some changes; return its manifest."""
    loaded, place = artifact.load(folder), changes.pop("place", folder)
    weights = {**loaded.weights, **changes.pop("weights", {})}
    return artifact.save(place, replace(loaded, weights=weights, **changes))


def test_an_artifact_holds_all_that_inference_needs(folder, tiny):
    """Config, classes, weights by name, and golden inputs with outputs."""
    loaded = artifact.load(folder)

    built = architectures.build(loaded.config)
    artifact.assign(built, loaded.weights)
    assert loaded.config == tiny
    assert loaded.target.names == ("10", "9", "A b", "ß")
    assert list(loaded.weights) == list(weight_names.keys(built).values())
    assert loaded.golden_inputs.shape == (8, 8, 8, 1)
    assert loaded.golden_outputs.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert "folds" not in loaded.manifest and loaded.folds == (loaded.weights,)


def test_equal_weights_make_equal_bytes(folder):
    """The sha256 of the weights names the weights, not the time of writing."""
    before = told(folder)

    assert save(folder) == before == told(folder)


@pytest.mark.parametrize("most", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_found_before_anything_is_parsed(folder, most):
    """At any place."""

    @settings(max_examples=most)
    @given(st.sampled_from(NAMES), st.floats(0, 1, exclude_max=True), st.integers(0, 7))
    def each(name: str, place: float, bit: int) -> None:
        content = bytearray(whole := (folder / name).read_bytes())
        content[int(place * len(content))] ^= 1 << bit
        (folder / name).write_bytes(content)
        with pytest.raises(ArtifactError):
            artifact.load(folder)
        (folder / name).write_bytes(whole)

    each()
    artifact.load(folder)


PLAIN = st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters())


@given(st.dictionaries(st.text() | st.integers(), PLAIN | st.tuples(PLAIN, PLAIN)))
def test_a_sealed_manifest_can_be_opened(manifest):
    """With any values that JSON can represent or converts."""
    content = checksums.sealed(manifest)

    assert checksums.sealed(checksums.opened(content)) == content


def text(before: str, after: str) -> Spoil:
    """Edit the text of the manifest, but not its seal."""
    return lambda folder: (folder / "manifest.json").write_text(
        (folder / "manifest.json").read_text().replace(before, after)
    )


def written(content: str) -> Spoil:
    return lambda folder: (folder / "manifest.json").write_text(content)


def sealed(**values: object) -> Spoil:
    """Change and seal the manifest; a dict is merged."""

    def spoil(folder: Path) -> None:
        old = told(folder)
        more = {
            name: old[name] | value if isinstance(value, dict) and value else value
            for name, value in values.items()
        }
        (folder / "manifest.json").write_bytes(checksums.sealed(old | more))

    return spoil


def arrays(name: str, **changes: Callable[[np.ndarray], np.ndarray] | None) -> Spoil:
    """Change the arrays of a file, and record its new sha256; None removes one."""

    def spoil(folder: Path) -> None:
        with np.load(folder / name) as file:
            found = dict(file)
        for key, change in changes.items():
            old = found.pop(key)
            found |= {key: change(old)} if change else {}
        with zipfile.ZipFile(folder / name, "w") as archive:
            for key, array in found.items():
                with archive.open(f"{key}.npy", "w") as member:
                    np.lib.format.write_array(member, array)
        resealed(folder)

    return spoil


BIAS, GOLDEN = "2.1 logits/bias", "golden.npz"
REFUSED: list[tuple[Spoil, str]] = [
    # A manifest that was changed, also where it makes sense.
    (text('"batch": 16', '"batch": 17'), "changed after"),
    (text("manifest_sha256", "manifest_shb256"), "manifest_sha256 is missing"),
    (text('"format": 1', '"format": 2'), "its format is 2, but this version of the project"),
    # What is no manifest.
    *((written(each), "is invalid") for each in ("", "[]", "{", "[" * 100_000)),
    *((sealed(files={"weights.npz": each}), "is invalid") for each in (3, {"sha256": 3})),
    # Files that are not there.
    (lambda folder: (folder / "manifest.json").unlink(), r"No such file .*manifest\.json"),
    (lambda folder: (folder / "weights.npz").unlink(), "weights.npz is missing"),
    (lambda folder: shutil.copy(folder / "weights.npz", folder / GOLDEN), "does not match"),
    # A maker's mistakes: all is announced and sealed.
    (sealed(files={}), "is invalid .KeyError"),
    (sealed(weights_sha256="0" * 64), "weights_sha256 does not match"),
    (sealed(run_id=[]), "run_id must be a str"),
    (sealed(config={"batch": 0}), "batch=0"),
    (sealed(prior=[0.5, 0.5]), r"and prior: .*got .*\(2,\)"),
    (arrays(GOLDEN, inputs=lambda old: np.array([print], dtype=object)), "pickle"),
    (arrays(GOLDEN, inputs=lambda old: old.astype(np.float32)), "golden inputs.*'float32'"),
    (arrays(GOLDEN, outputs=lambda old: old[:, :3]), r"golden inputs.*\(8, 3\)"),
    (sealed(target={"names": ["10", "9", "A b"]}), r"golden inputs.*\(8, 3\)"),
]


@pytest.mark.parametrize(("spoil", "said"), REFUSED)
def test_an_invalid_artifact_is_refused_with_the_reason(folder, spoil, said):
    spoil(folder)

    with pytest.raises(ArtifactError, match=said):
        artifact.load(folder)


@pytest.mark.parametrize("values", [{"run_id": "another"}, {"weights_sha256": "0" * 64}])
def test_the_artifact_of_another_run_is_refused(folder, values):
    """A bundle pins the artifact."""
    with pytest.raises(ArtifactError, match="from a different run"):
        artifact.load(folder, expect=values)


def test_weights_of_another_model_are_refused_by_name(folder, tiny):
    """With both shapes."""
    weights = {**artifact.load(folder).weights, "2.1 logits/bias": np.zeros(9, np.float32)}

    with pytest.raises(ArtifactError, match=r"2.1 logits/bias: weights \(9,\), model \(4,\)"):
        artifact.assign(architectures.build(tiny), weights)


def test_a_file_that_may_not_be_read_is_named(folder, unreadable):
    """It is not reported as missing or changed."""
    said = r"Permission denied: .*golden\.npz"
    with unreadable(folder / GOLDEN), pytest.raises(ArtifactError, match=said):
        artifact.load(folder)


def test_a_file_in_the_artifact_s_place_is_not_moved_away(folder):
    """It may be somebody's."""
    theirs = folder.with_name("theirs")
    theirs.write_text("mine")

    with pytest.raises(DiskError, match="Not a directory"):
        save(folder, place=theirs)

    assert theirs.read_text() == "mine"
