"""A training's progress and artifact are read from its folder alone; nothing corrupt counts."""

import json
from pathlib import Path

import numpy as np
import pytest

from deploy import output
from deploy.errors import Unverified
from formats import checksums
from pipeline.runtime import provenance
from pipeline.train import checkpoint, pseudo_labels


def trained(folder: Path, *steps: int) -> Path:
    """Write checkpoints as the model side does, with their history."""
    for step in steps:
        arrays, told = {"w": np.arange(4.0) * step}, {"run_id": "r1", "rate": 2e-3}
        checkpoint.save(folder / "checkpoints", step, arrays, told)
    (folder / "history.csv").write_text("epoch,step\n")
    (folder / "progress.jsonl").write_text('{"step": 1, "steps": 120}\n')
    return folder


def test_the_newest_complete_checkpoint_counts_with_its_history(tmp_path):
    """The older one is not used. A folder without checkpoints has saved nothing."""
    (tmp_path / "checkpoints" / ".writing-x").mkdir(parents=True)
    assert output.saved_progress(tmp_path) is None

    found = output.saved_progress(trained(tmp_path, 20, 40))

    assert (str(found), found.step) == ("partial, step 40 of 120", 40)
    assert found.newest.folder == "checkpoints/step-00000040"
    files = [f"{found.newest.folder}/{name}" for name in ("manifest.json", "state.npz")]
    assert list(found.files) == [*files, "history.csv", "progress.jsonl"]


@pytest.mark.parametrize("name", ["state.npz", "manifest.json"])
def test_a_corrupt_checkpoint_is_skipped(tmp_path, name):
    """Whether a kill or a flipped bit corrupted it."""
    trained(tmp_path, 20, 40)
    path = tmp_path / "checkpoints" / "step-00000040" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    assert output.saved_progress(tmp_path).step == 20


def test_executables_are_taken_only_from_a_session_that_listed_them(tmp_path):
    """They are code, and a killed session leaves partial ones. A dataset has none."""
    trained(tmp_path, 40)
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "jit_step-cache").write_bytes(b"program")
    unlisted = output.saved_progress(tmp_path)
    provenance.seal(tmp_path, "partial")
    listed = output.saved_progress(tmp_path)

    assert "compiled/jit_step-cache" not in unlisted.files
    assert "compiled/jit_step-cache" in listed.expect("kernel")["files"]
    assert "compiled/jit_step-cache" not in listed.expect("dataset")["files"]


def test_each_fold_is_taken_whole(tmp_path):
    """The results of a finished fold, and the newest step of each; fold 10 comes after fold 2."""
    steps = {1: 120, 2: 120, 10: 40}
    for number, step in steps.items():
        trained(tmp_path / f"fold-{number}", step)
    (tmp_path / "fold-1" / "scores.csv").write_text("0.5\n")
    (tmp_path / pseudo_labels.FILE).write_bytes(b"labels")

    found = output.saved_progress(tmp_path)

    told = [f"fold-{number} step {step} of 120" for number, step in steps.items()]
    assert (found.step, str(found)) == (280, f"partial, {', '.join(told)}")
    assert found.newest.folder == "fold-10/checkpoints/step-00000040"
    assert {"fold-1/scores.csv", pseudo_labels.FILE} < found.files.keys()
    assert found.expect("kernel")["step"] == 40
    names = [f"fold-{number}/checkpoints/step-00000040/manifest.json" for number in steps]
    assert output.progress_in_words(names, []) == "partial, in fold-10"


def test_changed_files_are_not_resumed_from(tmp_path):
    """The curves start over. Later folds start from the weights in `init_from`."""
    trained(tmp_path, 40)
    weights = tmp_path / "fold-1" / "init" / "weights.npz"
    weights.parent.mkdir(parents=True)
    weights.write_text("{}")
    provenance.seal(tmp_path, "partial")
    before = output.saved_progress(tmp_path).files
    (tmp_path / "history.csv").write_text("epoch\r\n")

    assert before.keys() - output.saved_progress(tmp_path).files.keys() == {"history.csv"}
    weights.write_text("{} ")
    with pytest.raises(Unverified, match=r"weights\.npz is not the file that the run wrote"):
        output.saved_progress(tmp_path)


def edit(artifact, **changes):
    """Change values of the manifest."""
    path = artifact / "manifest.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")


def reseal(artifact, **changes):
    """Change values of the manifest as a training would have written them."""
    path = artifact / "manifest.json"
    path.write_bytes(checksums.sealed(json.loads(path.read_text()) | changes))


def link(artifact):
    """Put a link to the same bytes in the place of the weights."""
    weights = artifact / "weights.npz"
    weights.rename(artifact.parent / "weights.npz")
    weights.symlink_to(artifact.parent / "weights.npz")


def test_a_whole_artifact_is_verified(artifact):
    """The manifest of a training outside Kaggle has no bundle."""
    reseal(artifact, bundle_sha256=None)

    found = output.manifest(artifact)

    assert (found.run_id, found.bundle_sha256) == ("r1", "")


def test_missing_extra_and_cut_files_are_all_named(artifact):
    """In one message."""
    (artifact / "extra.bin").write_bytes(b"x")
    (artifact / "weights.npz").write_bytes(b"cut")
    listed = json.loads((artifact / "manifest.json").read_text())["files"]
    reseal(artifact, files={**listed, "golden.npz": {"sha256": "0" * 64, "size": 1}})

    named = r"(?s)extra\.bin is not in.*golden\.npz is missing.*weights\.npz has changed"
    with pytest.raises(Unverified, match=named):
        output.manifest(artifact)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        # Its files are whole, and inference would refuse it on the GPU.
        (lambda path: edit(path, run_id="r2"), "(?s)changed after.*the file that the run.*invoke"),
        (link, "weights.npz is missing or is a link"),
        (lambda path: (path / "manifest.json").unlink(), r"cannot be read(.|\n)*\ninvoke pull"),
    ],
)
def test_a_broken_or_edited_artifact_proves_nothing(artifact, spoil, said):
    spoil(artifact)

    with pytest.raises(Unverified, match=said):
        output.manifest(artifact)
