"""An artifact is what its manifest says, byte for byte, or it is refused."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import artifact
from pipeline.errors import ArtifactError, DiskError, DivergedError
from pipeline.models import architectures, weight_names
from pipeline.storage import checksums
from tests.pipeline.handmade import resealed

NAMES = ("manifest.json", "weights.npz", "golden.npz")
Spoil = Callable[[Path], object]


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    """Return a copy of a trained artifact that the test may spoil."""
    return Path(shutil.copytree(trained[1] / "artifact", tmp_path / "artifact"))


def told(folder: Path) -> dict:
    """Return what the manifest says."""
    return json.loads((folder / "manifest.json").read_bytes())


def save(folder: Path, **changes) -> dict:
    """Save what is in the folder once more, but for some arguments; return its manifest."""
    old = folder.with_name(".artifact-old")
    loaded = artifact.load(folder if folder.is_dir() else old)
    built = architectures.build(loaded.config)
    artifact.assign(built, {**loaded.weights, **changes.pop("weights", {})})
    names = ("config", "target", "encoding", "prior")
    golden = ("golden_inputs", "golden_outputs", "golden_file")
    given = {name: getattr(loaded, name) for name in (*names, *golden)}
    made = {"config", "classes", "golden", "files"}
    details = {key: value for key, value in loaded.manifest.items() if key not in made}
    return artifact.save(folder, model=built, **{**given, "details": details, **changes})


def test_an_artifact_holds_all_that_inference_needs(folder, tiny):
    """Config, classes, weights by name, and golden inputs with their outputs."""
    loaded = artifact.load(folder)

    built = architectures.build(loaded.config)
    artifact.assign(built, loaded.weights)
    assert loaded.config == tiny
    assert loaded.classes == ("10", "9", "A b", "ß")
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
    """Wherever it is."""

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
def test_what_was_sealed_can_be_opened(manifest):
    """Whatever JSON can hold, and what it makes of the rest."""
    content = checksums.sealed(manifest)

    assert checksums.sealed(checksums.opened(content)) == content


def text(before: str, after: str) -> Spoil:
    """Edit the text of the manifest, and not its seal."""

    def spoil(folder: Path) -> None:
        path = folder / "manifest.json"
        assert before in path.read_text()
        path.write_bytes(path.read_text().replace(before, after).encode())

    return spoil


def written(content: str) -> Spoil:
    return lambda folder: (folder / "manifest.json").write_text(content)


def sealed(**values: object) -> Spoil:
    """Change the manifest as somebody would who made all of it."""

    def spoil(folder: Path) -> None:
        (folder / "manifest.json").write_bytes(checksums.sealed(told(folder) | values))

    return spoil


def renamed(classes: object) -> Spoil:
    return lambda folder: sealed(
        classes=classes, target=told(folder)["target"] | {"names": classes}
    )(folder)


def config(**values: object) -> Spoil:
    return lambda folder: sealed(config=told(folder)["config"] | values)(folder)


def listed(name: str) -> Spoil:
    entry = {"sha256": "0" * 64, "size": 1}
    return lambda folder: sealed(files=told(folder)["files"] | {name: entry})(folder)


def arrays(name: str, change: Callable[[dict[str, np.ndarray]], object]) -> Spoil:
    """Change the arrays of a file, and announce its new sha256."""

    def spoil(folder: Path) -> None:
        with np.load(folder / name) as file:
            found = dict(file)
        change(found)
        with zipfile.ZipFile(folder / name, "w") as archive:
            for key, array in found.items():
                with archive.open(f"{key}.npy", "w") as member:
                    np.lib.format.write_array(member, array)
        resealed(folder)

    return spoil


def golden(inputs: Callable = np.asarray, outputs: Callable = np.asarray) -> Spoil:
    return arrays(
        "golden.npz",
        lambda found: found.update(
            inputs=inputs(found["inputs"]), outputs=outputs(found["outputs"])
        ),
    )


def announced(content: bytes) -> Spoil:
    return lambda folder: ((folder / "weights.npz").write_bytes(content), resealed(folder))


def linked(folder: Path) -> None:
    """Put a link in place of the weights, which could be led elsewhere after they were checked."""
    (folder / "weights.npz").rename(folder.parent / "elsewhere.npz")
    (folder / "weights.npz").symlink_to(folder.parent / "elsewhere.npz")


def unsealed(folder: Path) -> None:
    """Take the seal away."""
    found = told(folder)
    del found["manifest_sha256"]
    (folder / "manifest.json").write_text(json.dumps(found))


def one_array(folder: Path) -> None:
    """Write a single array in place of an archive, which numpy opens without a word."""
    with (folder / "weights.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    resealed(folder)


ENTRY = '{{"files": {{"a": {{"sha256": {}, "size": {}}}}}}}'
REFUSED: list[tuple[Spoil, str]] = [
    # A manifest that was changed, also where it makes sense.
    (text('"batch": 16', '"batch": 17'), "changed after"),
    (text("manifest_sha256", "manifest_shb256"), "lacks manifest_sha256"),
    (text("\n}", "\n} "), "changed after"),
    (text("\n", "\r\n"), "changed after"),
    (text('"run_id"', '"run_id": "another", "run_id"'), "changed after"),
    (text('"metrics"', '"matrics"'), "lacks metrics"),
    (unsealed, "lacks manifest_sha256"),
    # What is no manifest.
    *((written(each), "is not a manifest") for each in ("", "[]", "3", "{", "\ufeff{}")),
    *((written(each), "is not a manifest") for each in ('{"files": 3}', '{"files": {"a": {}}}')),
    (written("[" * 100_000), "is not a manifest"),
    (written('{"files": {}, "run_id": "\\ud800"}'), "is not a manifest"),
    (written(ENTRY.format('"0"', "1e999")), "is not a manifest"),
    (written(ENTRY.format("3", "1")), "is not a manifest"),
    (written(ENTRY.format('"0"', "9" * 5000)), "is not a manifest"),
    # Files that are not there, and names that are paths or no file's.
    (lambda folder: (folder / "manifest.json").unlink(), "has no manifest"),
    (lambda folder: (folder / "weights.npz").unlink(), "weights.npz is missing"),
    (lambda folder: (folder / "golden.npz").unlink(), "golden.npz is missing"),
    (linked, "is missing"),
    (lambda folder: shutil.copy(folder / "weights.npz", folder / "golden.npz"), "other bytes"),
    *((listed(name), "is missing") for name in ("../outside.npz", "/etc/hostname", "a/b.npz")),
    *((listed(name), "is missing") for name in (".", "", "n" * 300, "a\0b", "\n")),
    # A maker's mistakes: all is announced and sealed.
    (sealed(files={}), "contradicts itself about weights"),
    (sealed(weights_sha256="0" * 64), "contradicts itself about weights"),
    (config(batch=0), "batch=0"),
    (sealed(metrics=None), "metrics=None"),
    (sealed(metrics={"validation_accuracy": "0.9"}), "are not numbers"),
    *((config(model_options=options), "model_options=") for options in ([1], None, "width")),
    *((announced(each), "cannot be read") for each in (b"", b"no archive", b"PK\3\4" + b"\0" * 60)),
    (one_array, "cannot be read"),
    (sealed(prior=[0.5, 0.5]), "the prior is"),
    (sealed(folds=[{}]), "its config none"),
    (
        arrays("weights.npz", lambda of: of["2.1 logits/bias"].fill(np.nan)),
        "bias is not finite",
    ),
    (golden(lambda old: np.array([print], dtype=object)), "pickle"),
    (golden(lambda old: old[:0], lambda old: old[:0]), "golden inputs are uint8"),
    (golden(lambda old: old[:, :7]), "golden inputs are uint8"),
    (golden(lambda old: old.astype(np.float32)), "golden inputs are float32"),
    (golden(lambda old: np.array(3)), "golden inputs are int"),
    (golden(outputs=lambda old: old[:1]), "golden outputs are float32"),
    (golden(outputs=lambda old: old[:, :3]), "golden outputs are float32"),
    (golden(outputs=lambda old: old.astype("U4")), "golden outputs are <U4"),
    (golden(outputs=lambda old: old * np.nan), "golden outputs is not finite"),
    (arrays("golden.npz", lambda of: of.pop("outputs")), "cannot be read"),
    (arrays("golden.npz", lambda of: of.pop("file")), "do not belong together"),
    # Classes that would give every prediction a wrong name, and exit code 0.
    *(
        (renamed(classes), "expected 4 different texts, in order")
        for classes in (
            ["ß", "A b", "9", "10"],
            ["10", "9", "A b", "ß", "ü"],
            ["10", "9", "A b"],
            ["10", "10", "9", "A b"],
            [1, 2, 3, 4],
            "abcd",
            {"10": 0, "9": 1, "A b": 2, "ß": 3},
        )
    ),
    (sealed(classes=None), "expected 4 different texts, in order"),
]


@pytest.mark.parametrize(("spoil", "said"), REFUSED)
def test_what_is_no_whole_artifact_is_refused_in_words(folder, spoil, said):
    (folder.parent / "outside.npz").write_bytes(b"x")
    spoil(folder)

    with pytest.raises(ArtifactError, match=said):
        artifact.load(folder)


@pytest.mark.parametrize("values", [{"run_id": "another"}, {"weights_sha256": "0" * 64}])
def test_the_artifact_of_another_run_is_refused(folder, values):
    """What was pushed says what it expects."""
    with pytest.raises(ArtifactError, match="another run"):
        artifact.load(folder, expect=values)


def test_weights_of_another_model_are_refused_by_name(folder, tiny):
    """With both shapes."""
    weights = {**artifact.load(folder).weights, "2.1 logits/bias": np.zeros(9, np.float32)}

    with pytest.raises(ArtifactError, match=r"2.1 logits/bias: weights \(9,\), model \(4,\)"):
        artifact.assign(architectures.build(tiny), weights)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_may_not_be_read_is_named(folder, unreadable, name):
    """It is neither missing nor changed."""
    with (
        unreadable(folder / name),
        pytest.raises(ArtifactError, match=rf"Could not read .*{name}: Permission denied"),
    ):
        artifact.load(folder)


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed between two renames"])
@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"details": {}}, ValueError, "lacks"),
        ({"weights": {"2.1 logits/bias": np.full(4, np.nan)}}, DivergedError, "logits/bias"),
        ({"golden_outputs": np.full((8, 4), np.inf)}, DivergedError, "golden outputs"),
    ],
    ids=["details", "weights", "golden outputs"],
)
def test_a_save_that_fails_leaves_the_older_artifact(folder, changes, error, said, killed):
    """And nothing half written beside it: what is not finite is complete, and worth nothing."""
    before = {name: (folder / name).read_bytes() for name in NAMES}
    if killed:
        folder.rename(folder.with_name(".artifact-old"))

    with pytest.raises(error, match=said):
        save(folder, **changes)

    (place,) = folder.parent.iterdir()
    assert {name: (place / name).read_bytes() for name in NAMES} == before
    assert place == folder or error is DivergedError  # which is seen before anything is touched


def test_a_file_in_the_artifact_s_place_is_not_moved_away(folder):
    """It is somebody's."""
    folder.rename(folder.with_name(".artifact-old"))
    folder.write_text("mine")

    with pytest.raises(DiskError, match="Not a directory"):
        save(folder)

    assert folder.read_text() == "mine"
