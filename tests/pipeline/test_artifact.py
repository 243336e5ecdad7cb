"""An artifact is what its manifest says, byte for byte, or it is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import artifact
from pipeline.data.labels import Target
from pipeline.errors import ArtifactError, DiskError, DivergedError
from pipeline.models import architectures, weight_names
from pipeline.storage import checksums

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("manifest.json", "weights.npz", "golden.npz")

ONE = Target("classes", ("a",))


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    """Return a copy of a trained artifact that the test may spoil."""
    return Path(shutil.copytree(trained[1] / "artifact", tmp_path / "artifact"))


def edited(folder: Path, **values: object) -> None:
    """Change the manifest as somebody would who made all of it."""
    path = folder / "manifest.json"
    path.write_bytes(checksums.sealed({**json.loads(path.read_text()), **values}))


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


def test_a_manifest_has_every_promised_key(folder):
    """Scripts of users rely on them."""
    manifest = json.loads((folder / "manifest.json").read_text())

    assert set(artifact.KEYS) <= set(manifest)
    assert manifest["status"] == "complete"
    assert manifest["weights_sha256"] == checksums.sha256(folder / "weights.npz")


def test_the_artifact_of_one_model_says_nothing_of_folds(folder):
    """Its form is what it was before there were any."""
    loaded = artifact.load(folder)

    assert "folds" not in loaded.manifest
    assert loaded.folds == (loaded.weights,)
    assert not any(name.startswith("fold-") for name in loaded.weights)


def test_equal_weights_make_equal_bytes(folder, tiny, tmp_path):
    """The sha256 of the weights names the weights, not the time of writing."""
    loaded = artifact.load(folder)
    built = architectures.build(tiny)
    artifact.assign(built, loaded.weights)

    manifest = artifact.save(
        tmp_path / "again",
        model=built,
        config=tiny,
        target=loaded.target,
        encoding=None,
        prior=loaded.prior,
        golden_inputs=loaded.golden_inputs,
        golden_outputs=loaded.golden_outputs,
        golden_file=loaded.golden_file,
        details={
            key: loaded.manifest[key]
            for key in loaded.manifest
            if key not in ("config", "classes", "golden", "files")
        },
    )

    assert manifest == loaded.manifest


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


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"batch": 16', '"batch": 17'),
        lambda text: text.replace('"metrics"', '"matrics"'),
        lambda text: text.replace("manifest_sha256", "manifest_shb256"),
        lambda text: text + " ",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace('"run_id"', '"run_id": "another", "run_id"'),
        lambda text: json.dumps(
            {k: v for k, v in json.loads(text).items() if k != "manifest_sha256"}
        ),
    ],
    ids=[
        "a value",
        "a name",
        "the name of the seal",
        "a space",
        "ends of lines",
        "a name twice",
        "no seal",
    ],
)
def test_a_manifest_that_was_changed_is_refused(folder, change):
    """Also where it makes sense: no prediction would show a config that is not the run's."""
    path = folder / "manifest.json"
    before = path.read_bytes()
    path.write_bytes(change(before.decode()).encode())
    assert path.read_bytes() != before

    with pytest.raises(ArtifactError):
        artifact.load(folder)


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"ß": "\ud800", "a": [None, True, -0.0, 1e300]},
        {"x": {10: 1, 9: 2}},
        {"nan": float("nan")},
        {"t": (1, 2)},
    ],
    ids=str,
)
def test_what_was_sealed_can_be_opened(manifest):
    """Whatever JSON can hold, and what it makes of the rest."""
    content = checksums.sealed(manifest)

    assert checksums.sealed(checksums.opened(content)) == content


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "spoil",
    [
        Path.unlink,
        lambda path: path.write_bytes(path.read_bytes()[:-5]),
        lambda path: path.write_bytes(b""),
    ],
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


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "[]",
            "null",
            "3",
            "{",
            '{"files": 3}',
            '{"files": {"a": {}}}',
            "[" * 100_000,
            '{"files": {}, "run_id": "\\ud800"}',
            "\ufeff{}",
        ),
        '{"files": {"a": {"sha256": "0", "size": 1e999}}}',
        '{"files": {"a": {"sha256": 3, "size": 1}}}',
        '{"files": {"a": {"sha256": "0", "size": ' + "9" * 5000 + "}}}",
    ],
    ids=lambda text: text[:40],
)
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


def test_metrics_that_have_no_names_are_refused(folder):
    edited(folder, metrics=None)

    with pytest.raises(ArtifactError, match="metrics=None"):
        artifact.load(folder)


def test_an_array_of_objects_is_not_read(folder):
    """That would be pickle, and pickle runs code."""
    np.savez(
        folder / "golden.npz",
        inputs=np.array([print], dtype=object),
        outputs=np.zeros(1),
        allow_pickle=True,
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    told = {
        "sha256": checksums.sha256(folder / "golden.npz"),
        "size": (folder / "golden.npz").stat().st_size,
    }
    edited(folder, files={**manifest["files"], "golden.npz": told})

    with pytest.raises(ArtifactError, match="pickle"):
        artifact.load(folder)


def test_weights_of_another_model_are_refused_by_name(folder, tiny):
    """With both shapes."""
    loaded = artifact.load(folder)
    weights = dict(loaded.weights)
    weights["2.1 logits/bias"] = np.zeros(9, np.float32)

    with pytest.raises(ArtifactError, match=r"2.1 logits/bias: weights \(9,\), model \(4,\)"):
        artifact.assign(architectures.build(tiny), weights)


def test_a_save_that_fails_leaves_the_older_artifact(folder, tiny):
    """And nothing half written beside it."""
    before = {name: (folder / name).read_bytes() for name in NAMES}

    with pytest.raises(ValueError, match="lacks"):
        artifact.save(
            folder,
            model=architectures.build(tiny),
            config=tiny,
            target=ONE,
            encoding=None,
            prior=np.ones(1),
            golden_inputs=np.zeros((1, 8, 8, 1), np.uint8),
            golden_outputs=np.zeros((1, 4), np.float32),
            details={},
        )

    assert {name: (folder / name).read_bytes() for name in NAMES} == before
    assert [path.name for path in folder.parent.iterdir()] == ["artifact"]


@pytest.mark.parametrize("name", ["n" * 300, "a\0b", "\n"])
def test_a_name_that_no_file_can_have_is_refused(folder, name):
    """In one message, whatever the file system says to it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    edited(folder, files={**manifest["files"], name: {"sha256": "0" * 64, "size": 1}})

    with pytest.raises(ArtifactError, match="missing"):
        artifact.load(folder)


@pytest.mark.parametrize(
    "classes",
    [
        ["ß", "A b", "9", "10"],
        ["10", "9", "A b", "ß", "ü"],
        ["10", "9", "A b"],
        ["10", "10", "9", "A b"],
        [1, 2, 3, 4],
        "abcd",
        {"10": 0, "9": 1, "A b": 2, "ß": 3},
        None,
    ],
    ids=str,
)
def test_classes_that_are_not_the_model_s_are_refused(folder, classes):
    """They would give every prediction a wrong name, and exit code 0."""
    edited(folder, classes=classes)

    with pytest.raises(ArtifactError, match="expected 4 different texts, in order"):
        artifact.load(folder)


INPUTS, OUTPUTS = np.zeros((2, 8, 8, 1), np.uint8), np.full((2, 4), 0.25, np.float32)


@pytest.mark.parametrize(
    "arrays",
    [
        {"inputs": INPUTS[:0], "outputs": OUTPUTS[:0]},
        {"inputs": INPUTS[:, :7], "outputs": OUTPUTS},
        {"inputs": INPUTS.astype(np.float32), "outputs": OUTPUTS},
        {"inputs": np.array(3), "outputs": OUTPUTS},
        {"inputs": INPUTS, "outputs": OUTPUTS[:1]},
        {"inputs": INPUTS, "outputs": OUTPUTS[:, :3]},
        {"inputs": INPUTS, "outputs": OUTPUTS.astype("U4")},
        {"inputs": INPUTS, "outputs": OUTPUTS * np.nan},
        {"inputs": INPUTS},
        {},
    ],
    ids=range(10),
)
def test_golden_arrays_that_do_not_fit_the_config_are_refused(folder, arrays):
    """Before a model is built for them."""
    np.savez(folder / "golden.npz", **arrays)
    announce(folder, "golden.npz")

    with pytest.raises(ArtifactError):
        artifact.load(folder)


def announce(folder: Path, name: str) -> None:
    """Write the sha256 and the size of a file into the manifest, as somebody would who made all of
    it.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    told = {"sha256": checksums.sha256(folder / name), "size": (folder / name).stat().st_size}
    edited(folder, files={**manifest["files"], name: told})
    if name == "weights.npz":
        edited(folder, weights_sha256=told["sha256"])


@pytest.mark.parametrize(
    "content", [b"", b"no archive", b"PK\x03\x04" + bytes(60)], ids=["empty", "text", "torn"]
)
def test_an_archive_that_is_none_is_refused_also_if_it_is_announced(folder, content):
    """The sha256 says that it arrived whole, not that it was made well."""
    (folder / "weights.npz").write_bytes(content)
    announce(folder, "weights.npz")

    with pytest.raises(ArtifactError, match="cannot be read"):
        artifact.load(folder)


def test_a_single_array_in_place_of_an_archive_is_refused(folder):
    """numpy opens it without a word."""
    with (folder / "weights.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    announce(folder, "weights.npz")

    with pytest.raises(ArtifactError, match="cannot be read"):
        artifact.load(folder)


@pytest.mark.parametrize("options", [[1], None, "width"])
def test_model_options_that_are_none_are_refused_by_name(folder, options):
    """A manifest is not trusted to be of the right form."""
    manifest = json.loads((folder / "manifest.json").read_text())
    edited(folder, config={**manifest["config"], "model_options": options})

    with pytest.raises(ArtifactError, match="model_options="):
        artifact.load(folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_may_not_be_read_is_named(folder, unreadable, name):
    """It is neither missing nor changed."""
    with (
        unreadable(folder / name),
        pytest.raises(ArtifactError, match=rf"Could not read .*{name}: Permission denied"),
    ):
        artifact.load(folder)


def resave(folder: Path, tiny, **changes: np.ndarray) -> None:
    """Save the artifact in the folder once more, with some arrays exchanged."""
    loaded = artifact.load(folder)
    built = architectures.build(tiny)
    artifact.assign(
        built, {**loaded.weights, **{k: v for k, v in changes.items() if k in loaded.weights}}
    )
    artifact.save(
        folder,
        model=built,
        config=tiny,
        target=loaded.target,
        encoding=None,
        prior=loaded.prior,
        golden_inputs=loaded.golden_inputs,
        golden_outputs=changes.get("golden", loaded.golden_outputs),
        details={key: loaded.manifest[key] for key in artifact.KEYS},
    )


@pytest.mark.parametrize(
    "changes",
    [{"2.1 logits/bias": np.array([0, 0, np.nan, 0])}, {"golden": OUTPUTS * np.inf}],
    ids=["weights", "golden outputs"],
)
def test_what_is_not_finite_is_not_saved(folder, tiny, changes):
    """Such an artifact would be complete, and worth nothing; the older one stays."""
    before = (folder / "manifest.json").read_bytes()

    with pytest.raises(
        DivergedError, match=next(iter(changes)).replace("golden", "golden outputs")
    ):
        resave(folder, tiny, **changes)

    assert (folder / "manifest.json").read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["artifact"]


def test_a_file_in_the_artifact_s_place_is_not_moved_away(folder, tiny):
    """It is somebody's."""
    loaded = artifact.load(folder)
    shutil.rmtree(folder)
    folder.write_text("mine")

    with pytest.raises(DiskError, match="Not a directory"):
        artifact.save(
            folder,
            model=architectures.build(tiny),
            config=tiny,
            target=loaded.target,
            encoding=None,
            prior=loaded.prior,
            golden_inputs=loaded.golden_inputs,
            golden_outputs=loaded.golden_outputs,
            details={key: loaded.manifest[key] for key in artifact.KEYS},
        )

    assert folder.read_text() == "mine"


def test_a_save_after_a_kill_brings_the_older_artifact_back_first(folder, tiny):
    """Killed between two renames, and then out of luck again: what was good is still there."""
    before = {name: (folder / name).read_bytes() for name in NAMES}
    folder.rename(folder.with_name(".artifact-old"))

    with pytest.raises(ValueError, match="lacks"):
        artifact.save(
            folder,
            model=architectures.build(tiny),
            config=tiny,
            target=ONE,
            encoding=None,
            prior=np.ones(1),
            golden_inputs=INPUTS,
            golden_outputs=OUTPUTS,
            details={},
        )

    assert {name: (folder / name).read_bytes() for name in NAMES} == before
    assert [path.name for path in folder.parent.iterdir()] == ["artifact"]
