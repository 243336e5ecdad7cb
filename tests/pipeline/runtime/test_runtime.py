"""A run knows its devices, inputs, processes and bundle, or it is refused."""

import json
import socket
import zipfile
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from pipeline.__main__ import main
from pipeline.data import image_files
from pipeline.errors import ArtifactError, ConfigError, DataError, DeviceError
from pipeline.runtime import backend, devices, mounts, provenance


@pytest.mark.parametrize(
    ("local", "asked", "said"),
    [
        ("", "TpuV5E8", r"Requested TpuV5E8(.|\n)*verified(.|\n)*docker pin(.|\n)*quota"),
        # The local Kaggle stands in for the shape that it names, and for no other.
        ("NvidiaTeslaT4", "TpuV5E8", "local Kaggle simulates NvidiaTeslaT4"),
        # The TensorFlow of an image may see GPUs that its JAX has no plugin for.
        ("", "NvidiaTeslaT4", rf"the image: JAX requires jax-cuda.*{jax.__version__}"),
        # As a CPU, or a name that Kaggle has made since.
        ("", "", "expected one of TpuV5E8, TpuV6E8, NvidiaTeslaT4"),
    ],
)
def test_a_machine_that_was_not_requested_is_refused(monkeypatch, local, asked, said):
    """The message names the machine and the usual causes."""
    monkeypatch.setenv(devices.LOCAL, local)

    with pytest.raises(DeviceError, match=said):
        devices.prove(asked)


def test_the_local_kaggle_is_believed(monkeypatch):
    """Virtual devices stand in for cores or GPUs. With one GPU of two a training would take twice
    as long as planned.
    """
    monkeypatch.setenv(devices.LOCAL, "TpuV5E8")
    here = devices.prove("TpuV5E8")
    assert (here.platform, here.count, here.simulated) == ("cpu", 8, "TpuV5E8")
    assert "8 x cpu" in str(here) and "local Kaggle" in str(here)

    monkeypatch.setenv(devices.LOCAL, "NvidiaTeslaT4")
    one = jax.devices()[:1]
    monkeypatch.setattr(jax, "devices", lambda *_: one)
    with pytest.raises(DeviceError, match=r"found 1 x cpu(.|\n)*JAX requires jax-cuda13"):
        devices.prove("NvidiaTeslaT4")


def test_a_number_of_devices_that_the_user_chose_stays(monkeypatch):
    """Even if it does not divide the batch, which training then reports."""
    assert jax.device_count() == 8  # from now on JAX refuses another number
    assert backend.use_every_core(12)  # tests/conftest.py chose eight in XLA_FLAGS

    monkeypatch.setenv("XLA_FLAGS", "")
    assert not backend.use_every_core(12)
    monkeypatch.setattr(jax, "config", SimpleNamespace(jax_num_cpu_devices=3))
    assert backend.use_every_core(12)


SAMPLE = "sample_submission.csv"


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.parent


R1 = json.dumps({"run_id": "r1"})


@pytest.mark.parametrize(
    ("new", "name", "find"),
    [
        ("competitions/digits", SAMPLE, lambda root: mounts.competition(root, "digits", SAMPLE)),
        ("competitions/wines", "a.csv", lambda root: mounts.competition(root, "wines", None)),
        ("datasets/keras/x", "n.h5", lambda root: mounts.file(root, "keras/x/n.h5").parent),
        ("datasets/ann/r1", "manifest.json", lambda root: mounts.artifact(root, "r1")),
    ],
    ids=["competition", "without a sample", "file", "artifact"],
)
def test_inputs_are_found_in_each_layout_and_in_both_at_once(tmp_path, new, name, find):
    """Kaggle moved its inputs; a session may see both places for a while."""
    flat = new.split("/")[-1]
    for place in (new, flat):
        folder = put(tmp_path / place / place / name, R1)
        assert find(tmp_path / place) == folder
    put(tmp_path / "both" / flat / name, R1)
    newer = put(tmp_path / "both" / new / name, R1)
    assert find(tmp_path / "both") == newer


@pytest.mark.parametrize(
    ("needs", "unpacked"),
    [
        (("train.csv", "train"), {"train.csv", "train/1.png", SAMPLE}),
        (("train*.csv", "test"), {"train.csv", SAMPLE}),
        (None, {"train.csv", "train/1.png", "more/notes/a.txt", SAMPLE}),
        (("more/notes",), {"more/notes/a.txt", SAMPLE}),
    ],
)
def test_files_that_are_only_in_an_archive_are_unpacked_beside_the_mount(
    tmp_path, capsys, needs, unpacked
):
    """The competition's folder is read-only, and unneeded archives stay packed."""
    folder = put(tmp_path / "competitions/leaves" / "read.me")
    put(folder / "more" / "other.txt")
    for name, held in (
        ("train.csv.zip", "train.csv"),
        ("train.zip", "1.png"),
        ("more/notes.zip", "a.txt"),
        (f"{SAMPLE}.zip", SAMPLE),
    ):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(held, "x")
    before = sorted(folder.rglob("*"))

    found = mounts.competition(tmp_path, "leaves", SAMPLE, needs)

    names = {f"{inside / name}" for inside, files in image_files.walk(found) for name in files}
    assert {name for name in names if not name.endswith(".zip")} == {
        *unpacked, "read.me", "more/other.txt"
    }  # fmt: skip
    assert sorted(folder.rglob("*")) == before and found.name == "leaves"
    assert zipfile.is_zipfile(found / "train.zip")  # for a reader that opens it itself
    said = capsys.readouterr().out.splitlines()
    assert [line.startswith("Unpacked ") and f"{SAMPLE}.zip" in line for line in said] == [True]


def test_images_at_the_top_of_the_folder_are_there(tmp_path, capsys):
    """`inspect` then writes train_images=".", which `glob` refuses as a pattern."""
    folder = put(tmp_path / "competitions/leaves" / "1.png")
    put(folder / SAMPLE)
    needs = ("train.csv", ".")
    assert mounts.competition(tmp_path, "leaves", SAMPLE, needs) == folder

    with zipfile.ZipFile(folder / "train.csv.zip", "w") as archive:
        archive.writestr("train.csv", "x")
    found = mounts.competition(tmp_path, "leaves", SAMPLE, needs)

    assert found != folder and (found / "1.png").is_file() and (found / "train.csv").is_file()
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_missing_competition_is_refused_with_a_listing(tmp_path):
    """Without a listing it would take a session to look around."""
    put(tmp_path / "competitions" / "other" / SAMPLE)

    with pytest.raises(DataError, match=r"competitions/other/sample_submission\.csv"):
        mounts.competition(tmp_path, "digits", SAMPLE)


@pytest.mark.parametrize("name", ["keras/weights/b1.h5", "keras/weights"])
def test_a_file_that_is_missing_in_its_dataset_is_not_found(tmp_path, name):
    put(tmp_path / "input" / "datasets" / "keras" / "weights" / "notop.h5")

    assert mounts.file(tmp_path / "input", name) is None


def test_an_artifact_is_found_beside_others_and_an_older_one_is_named(tmp_path):
    """In a kernel's output, too. The old dataset version is plausible, and wrong. The folders of a
    competition are not searched: they can hold a hundred thousand images behind a network.
    """
    for place in ("competitions/digits/train", "competitions/digits", "digits/train/x"):
        put(tmp_path / place / "manifest.json", R1)
    for place, text in enumerate(("not JSON", "[]", "[" * 100_000, "3")):
        put(tmp_path / "datasets" / "ann" / f"other-{place}" / "manifest.json", text)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_bytes(b"\xff")
    put(tmp_path / "datasets" / "ann" / "digits-artifact" / "manifest.json", '{"run_id": "old"}')

    with pytest.raises(ArtifactError, match="run old"):
        mounts.artifact(tmp_path, "r1")
    folder = put(tmp_path / "notebooks/ann/digits-train-tpu/artifact" / "manifest.json", R1)
    assert mounts.artifact(tmp_path, "r1") == folder


def test_a_listing_of_many_files_is_short(tmp_path):
    """It is for a message, and must not take minutes."""
    for index in range(300):
        put(tmp_path / "competitions" / "digits" / "train" / f"{index:04d}.png")
    put(tmp_path / "datasets" / "ann" / "x" / "y.csv")

    told = mounts.listing(tmp_path)

    assert told.count(",") < 40
    assert "and more" in told
    assert "datasets/ann/x/" in told


@pytest.fixture
def command(competition, written_config, tiny, tmp_path):
    """Return the arguments of a training."""
    given = ["--config", written_config(tiny), "--input", competition, "--output", tmp_path / "out"]
    return ["train", *map(str, given)]


@pytest.mark.parametrize(
    "words",
    [
        ["--processes", "2"],
        ["--processes", "2", "--process-id", "2", "--coordinator", "127.0.0.1:1"],
        ["--process-id", "0", "--coordinator", "127.0.0.1:1"],
        *(
            ["--processes", "2", "--process-id", "0", "--coordinator", address]
            for address in ("127.0.0.1", "127.0.0.1:99999", ":5", "http://a:5")
        ),
    ],
)
def test_options_that_cannot_work_are_refused(command, tmp_path, words):
    assert main([*command, *words]) == 2
    assert not (tmp_path / "out").exists()


def test_a_taken_port_is_reported_before_the_others_wait(command, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        words = ["--processes", "2", "--process-id", "0", "--coordinator", address]

        assert main([*command, *words]) == 1

    assert "is in use" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "", "[]", "{", "{}", "[" * 100_000], ids=range(6))
def test_a_notebook_without_its_bundle_is_refused(tmp_path: Path, text):
    """A usage error: it was not pushed by us."""
    if text is not None:
        (tmp_path / "bundle.json").write_text(text)

    with pytest.raises(ConfigError, match=r"bundle\.json") as caught:
        provenance.from_bundle(tmp_path / "bundle.json")

    assert "invoke build" in str(caught.value)
