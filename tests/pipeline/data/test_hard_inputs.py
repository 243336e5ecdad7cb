"""What hundreds of spoiled inputs have taught: each fault that they found has its test here, beside
the module's own.
"""

import json
import os
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import artifact
from pipeline.data import table_features
from pipeline.errors import ArtifactError, ConfigError, DataError
from pipeline.inference import inference
from pipeline.session import checkpoint
from pipeline.storage import checksums
from pipeline.training import scale_check
from tests.pipeline.handmade import resealed

# -- texts in tables


def test_names_of_columns_that_are_texts_in_themselves_do_not_fill_the_screen(tmp_path):
    """A CSV without a header has a row of data for one, and a config may name anything."""
    (tmp_path / "x.csv").write_text(f"{'long ' * 1000},b\n1,2\n")

    with pytest.raises(ConfigError, match=r"expected also y+") as caught:
        table_features.read_table(tmp_path / "x.csv", ["y" * 10_000], "Correct it.")

    assert len(str(caught.value)) < 2500


# -- archives of arrays


def packed(path: Path, **members: bytes) -> Path:
    """Write an archive of these members, whose names are taken as they are."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["weights.npz", "golden.npz"])
def test_a_member_that_is_no_array_is_refused_in_an_artifact(trained, tmp_path, name):
    """Also where whoever wrote it sealed the manifest again."""
    folder = tmp_path / "artifact"
    shutil.copytree(trained[1] / "artifact", folder)
    with zipfile.ZipFile(folder / name) as archive:
        first, *others = archive.namelist()
        members = {member: archive.read(member) for member in others}
    packed(folder / name, **{first.removesuffix(".npy"): b"evil"}, **members)

    with pytest.raises(ArtifactError, match=rf"{name} holds '.*', which is no array"):
        artifact.load(resealed(folder))


@pytest.mark.parametrize("spoiled", ["a member that is no array", "state.npz", "manifest.json"])
def test_the_checkpoint_before_a_corrupt_one_is_taken(tmp_path, spoiled):
    """A run that opened a pipe, into which nobody writes, once waited for ever."""
    checkpoint.save(tmp_path, 1, {"a": np.zeros(3)}, {})
    newest = checkpoint.save(tmp_path, 2, {"a": np.ones(3)}, {})
    if spoiled.endswith(("npz", "json")):
        (newest / spoiled).unlink()
        os.mkfifo(newest / spoiled)
    else:
        packed(newest / "state.npz", **{"00000": b"evil"})
        told = json.loads((newest / "manifest.json").read_bytes())
        told["sha256"] = checksums.sha256(newest / "state.npz")
        (newest / "manifest.json").write_bytes(checksums.sealed(told))

    found = checkpoint.latest(tmp_path)

    assert found is not None and found.step == 1 and len(found.skipped) == 1


# -- files that an earlier session left


@pytest.mark.parametrize("text", ['{"origin": {', "[]", "{}", "[" * 100_000])
def test_losses_of_a_check_that_a_kill_cut_off_are_refused_by_name(tiny, tmp_path, text):
    """What was left of them once ended every later check in a traceback."""
    (tmp_path / "losses.json").write_text(text)
    examples = SimpleNamespace(fingerprint=lambda: "x")

    with pytest.raises(ConfigError, match=r"(?s)losses\.json is not what a check writes.*Remove"):
        scale_check._losses(tiny, tmp_path, tmp_path, examples, str)


# -- an older submission


def test_an_older_submission_survives_an_inference_that_fails(trained, competition, tmp_path):
    """Yesterday's good file was once exchanged for the mean prediction, by a test set that could
    not be read.
    """
    loaded, lines = artifact.load(trained[1] / "artifact"), []
    for path in (competition / "test").iterdir():
        path.write_bytes(b"<html>")
    older = tmp_path / "out" / "submission.csv"
    older.parent.mkdir()
    older.write_text("yesterday's")

    with pytest.raises(DataError, match="21 images cannot be used"):
        inference.infer(loaded, competition, older.parent, show=lines.append)

    assert [path.read_text() for path in older.parent.iterdir()] == ["yesterday's"]
    assert lines[-1] == f"Warning: {older} is as it was before."


def test_predictions_that_are_all_the_same_are_told(trained, competition, tmp_path):
    loaded, lines = artifact.load(trained[1] / "artifact"), []
    paths = [*(competition / "test").iterdir()]
    for path in paths[1:]:
        shutil.copyfile(paths[0], path)

    found = inference.infer(loaded, competition, tmp_path / "out", show=lines.append)

    assert not np.ptp(found.values, axis=0).any()
    (warning,) = [line for line in lines if line.startswith("Warning")]
    assert "all 21 rows have the same prediction" in warning
