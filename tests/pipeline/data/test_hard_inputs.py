"""What hundreds of spoiled inputs have taught: each fault that they found has its test here, beside
the module's own.
"""

import csv
import json
import os
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline import artifact
from pipeline import config as configs
from pipeline.data import table_features
from pipeline.errors import ArtifactError, ConfigError, DataError
from pipeline.inference import inference
from pipeline.session import checkpoint
from pipeline.storage import checksums, csv_files
from pipeline.submission import submission_csv
from pipeline.training import scale_check


def quiet(line: str) -> None:
    """Take a line that a user would see."""


# -- texts in tables


@pytest.mark.parametrize(
    "name", ["a\rb", "\r", "a\r\nb", "a\nb", 'a"b', "a,b", " a", "a ", "'", "\u2028", "\x0b"]
)
def test_every_id_comes_back_as_it_is_in_the_sample(tmp_path, name):
    """A carriage return was once written without quotes, where every reader ends the line; and the
    exit code was 0.
    """
    sample, path = tmp_path / "sample.csv", tmp_path / "submission.csv"
    quoted = name.replace('"', '""')
    sample.write_bytes(f'id,p\n"{quoted}",0.5\nz,0.5\n'.encode())

    submission_csv.write(path, sample, ["z", name], ["0.25", "0.75"])

    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["id", "p"], [name, "0.75"], ["z", "0.25"]]
    assert submission_csv.check(path, sample) == 2


def test_a_table_with_a_nul_is_refused_by_its_line(tmp_path):
    """Some programs end the text there, and others refuse the file."""
    (tmp_path / "x.csv").write_bytes(b"id,p\na,1\nb\0,2\n")

    with pytest.raises(
        DataError, match=r"x\.csv could not be read as a CSV: line 3 holds a NUL.*\nExpected UTF-8"
    ):
        csv_files.read(tmp_path / "x.csv", DataError, "Download it again.")


def test_names_of_columns_that_are_texts_in_themselves_do_not_fill_the_screen(tmp_path):
    """A CSV without a header has a row of data for one, and a config may name anything."""
    (tmp_path / "x.csv").write_text(f"{'long ' * 1000},b\n1,2\n")

    with pytest.raises(ConfigError, match=r"expected also y+\.\nSet id_column") as caught:
        table_features.read_table(tmp_path / "x.csv", ["y" * 10_000], "Correct it.")

    assert len(str(caught.value)) < 2500


# -- archives of arrays


def packed(path: Path, **members: bytes) -> Path:
    """Write an archive of these members, whose names are taken as they are."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_a_member_that_is_no_array_is_refused_as_test_images(tmp_path):
    """numpy gives its bytes; that it has no shape was once a traceback."""
    path = packed(tmp_path / "test.npz", x=b"evil")

    with pytest.raises(
        DataError, match=r"test\.npz is no array: ValueError: 'x' in it is no array.*\nSet"
    ):
        table_features.array(
            path, configs.load("digits").data, 1, "Set data.test_array in the config."
        )


@pytest.mark.parametrize("name", ["weights.npz", "golden.npz"])
def test_a_member_that_is_no_array_is_refused_in_an_artifact(trained, tmp_path, name):
    """Also where whoever wrote it sealed the manifest again."""
    folder = tmp_path / "artifact"
    shutil.copytree(trained[1] / "artifact", folder)
    with zipfile.ZipFile(folder / name) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    first, *others = members
    packed(
        folder / name,
        **{first.removesuffix(".npy"): b"evil"},
        **{member: members[member] for member in others},
    )
    told = json.loads((folder / "manifest.json").read_bytes())
    digest = checksums.sha256(folder / name)
    told["files"][name] = {"sha256": digest, "size": (folder / name).stat().st_size}
    told["weights_sha256"] = told["files"]["weights.npz"]["sha256"]
    (folder / "manifest.json").write_bytes(checksums.sealed(told))

    with pytest.raises(
        ArtifactError, match=rf"{name} holds '.*', which is no array.*\nPull or download"
    ):
        artifact.load(folder)


def test_a_member_that_is_no_array_makes_a_checkpoint_a_torn_one(tmp_path):
    """The one before it is taken."""
    checkpoint.save(tmp_path, 1, {"a": np.zeros(3)}, {})
    newest = checkpoint.save(tmp_path, 2, {"a": np.ones(3)}, {})
    packed(newest / "state.npz", **{"00000": b"evil"})
    told = json.loads((newest / "manifest.json").read_bytes())
    (newest / "manifest.json").write_bytes(
        checksums.sealed({**told, "sha256": checksums.sha256(newest / "state.npz")})
    )

    found = checkpoint.latest(tmp_path)

    assert found is not None and found.step == 1


# -- files that an earlier session left


@pytest.mark.parametrize(
    "text", ['{"origin": {', "[]", "{}", "[" * 100_000], ids=["cut off", "a list", "empty", "deep"]
)
def test_losses_of_a_check_that_a_kill_cut_off_are_refused_by_name(tiny, tmp_path, text):
    """They were once written in place, and what was left of them ended every later check in a
    traceback.
    """
    (tmp_path / "losses.json").write_text(text)
    examples = SimpleNamespace(fingerprint=lambda: "x")

    with pytest.raises(
        ConfigError, match=r"losses\.json is not what a check writes: .*\nRemove it"
    ):
        scale_check._losses(tiny, tmp_path, tmp_path, examples, quiet)


# -- an older submission


def test_an_older_submission_survives_an_inference_that_fails(trained, competition, tmp_path):
    """Yesterday's good file was once exchanged for the mean prediction, by a test set that could
    not be read.
    """
    loaded, lines = artifact.load(trained[1] / "artifact"), []
    for path in (competition / "test").iterdir():
        path.write_bytes(b"<html>")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "submission.csv").write_text("yesterday's")

    with pytest.raises(DataError, match="21 images cannot be used"):
        inference.infer(loaded, competition, tmp_path / "out", show=lines.append)

    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["yesterday's"]
    assert lines[-1] == f"Warning: {tmp_path / 'out' / 'submission.csv'} is as it was before."


def test_predictions_that_are_all_the_same_are_told(trained, competition, tmp_path):
    """Such a file is valid, and hardly what anybody means."""
    loaded, lines = artifact.load(trained[1] / "artifact"), []
    picture = next((competition / "test").iterdir()).read_bytes()
    for path in (competition / "test").iterdir():
        path.write_bytes(picture)

    found = inference.infer(loaded, competition, tmp_path / "out", show=lines.append)

    assert not np.ptp(found.values, axis=0).any()
    assert [line for line in lines if line.startswith("Warning")] == [
        "Warning: all 21 rows have the same prediction; look at the inputs and the training"
    ]


def test_what_numpy_says_of_a_deep_header_does_not_fill_the_screen(tmp_path):
    """It quotes the whole header, thousands of brackets."""
    header = (
        b"{'descr': " + b"[" * 5000 + b"]" * 5000 + b", 'fortran_order': False, 'shape': (1,), }\n"
    )
    (tmp_path / "x.npy").write_bytes(
        b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header
    )

    with pytest.raises(DataError, match=r"x\.npy is no array") as caught:
        table_features.array(
            tmp_path / "x.npy", configs.load("digits").data, 1, "Set data.test_array in the config."
        )

    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("name", ["state.npz", "manifest.json"])
def test_a_pipe_in_place_of_a_file_is_a_torn_checkpoint(tmp_path, name):
    """Nobody writes into it: a run that opened it once waited for ever."""
    checkpoint.save(tmp_path, 1, {"w": np.zeros(3, np.float32)}, {})
    checkpoint.save(tmp_path, 2, {"w": np.ones(3, np.float32)}, {})
    newest = max(tmp_path.glob("step-*"))
    (newest / name).unlink()
    os.mkfifo(newest / name)

    found = checkpoint.latest(tmp_path)

    assert found is not None and found.step == 1 and "no file" in found.skipped[0]
