"""Common folders of image files: any format and bit depth, with alpha or without."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import artifact as artifact_module
from pipeline.artifact import Artifact
from pipeline.config import Config, Data
from pipeline.data import dataset, image_arrays, image_decoding
from pipeline.data.dataset import read_test
from pipeline.errors import ArtifactError, DataError
from pipeline.infer import check, inference
from pipeline.train import training
from tests.pipeline.handmade import with_data
from tests.shipped import shipped
from workbench.inspect import inspection

LABELS = ("cat", "dog")


def settings(**data: object) -> Config:
    """Return a config for two classes of 8x8 images that trains in a few seconds."""
    small = {"model": "mlp", "model_options": {"width": 8, "depth": 1, "dropout": 0.0}}
    short = {"batch": 8, "epochs": 1, "warmup_epochs": 0, "batchnorm_batch": None, "views": 1}
    layout = Data(**{"height": 8, "width": 8, "channels": 1, **data})
    named = {"name": "files", "num_classes": 2, "data": layout, "progress_seconds": 0}
    return replace(shipped("digits"), **small, **short, **named)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Config, Artifact]:
    """Return a competition of black pictures that only their alpha channel shows, a config that
    lays them on white, and the artifact of its training.
    """
    folder, black = tmp_path_factory.mktemp("alpha"), Image.new("L", (8, 8))
    for number, path in enumerate(sorted(class_folders(folder, (".png",)).rglob("*.png"))):
        Image.merge("LA", (black, Image.fromarray(picture(number)))).save(path)
    config = settings(train_csv=None, alpha="white")
    training.train(config, folder, folder / "out", show=str)
    return folder, config, artifact_module.load(folder / "out" / "artifact")


def test_inference_lays_pictures_on_the_colour_that_training_did(trained, tmp_path):
    """Even if the config file has changed since, like all rules for pixels."""
    folder, config, artifact = trained

    found = [
        inference.infer(artifact, folder, tmp_path, config=each, show=str).values
        for each in (config, with_data(config, alpha="drop"))
    ]

    assert np.array_equal(*found) and np.ptp(found[0], axis=0).any()


def test_an_artifact_holds_a_file_that_must_decode_as_in_training(trained, tmp_path):
    """Golden inputs are already decoded."""
    folder, config, artifact = trained
    assert artifact.golden_file == (folder / "train" / "cat" / "i00.png").read_bytes()
    other = replace(artifact, config=with_data(config, alpha="drop"))

    with pytest.raises(ArtifactError, match="alpha: 'white' in training, 'drop' here"):
        inference.infer(other, folder, tmp_path, show=str)


def test_another_pillow_may_only_round_a_golden_file_differently(trained, monkeypatch):
    """So may a different build of the same version."""
    artifact = trained[2]
    inputs = artifact.golden_inputs.copy()
    inputs[0, 0, 0] -= 1  # 1/64 of a level in the mean
    nearly = replace(artifact, golden_inputs=inputs)

    check.check_decoding(nearly)
    monkeypatch.setattr(image_decoding.PIL, "__version__", "99.0")
    check.check_decoding(nearly)
    with pytest.raises(ArtifactError, match=r"at most 0\.5 is allowed\. .*'99\.0' here"):
        check.check_decoding(replace(artifact, golden_inputs=255 - inputs))


def picture(number: int) -> np.ndarray:
    """Return a noisy image whose bright half, left or right, is the label: uint8 (8, 8)."""
    pixels = np.random.default_rng(number).integers(0, 60, (8, 8), dtype=np.uint8)
    pixels[:, 4 * (number % 2) :][:, :4] += 180
    return pixels


def class_folders(folder: Path, endings: tuple[str, ...], *, count: int = 24) -> Path:
    """Write a folder for each of two labels, and a test set, whose files have these endings in
    turn.
    """
    rows = ["id,label"]
    for number in range(count):
        ending = endings[number % len(endings)]
        for place, letter in ((Path("train", LABELS[number % 2]), "i"), (Path("test"), "t")):
            (folder / place).mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(picture(number + 1000 * (letter == "t")))
            path = folder / place / f"{letter}{number:02d}{ending}"
            image.save(path, format=FORMATS[ending.lower()])
        rows.append(f"t{number:02d},cat")
    (folder / "sample_submission.csv").write_text("\n".join(rows) + "\n")
    return folder


def by_id(folder: Path) -> Path:
    """Move the images of class folders into one folder, and write a table of their labels."""
    rows = ["id,label"]
    for path in sorted((folder / "train").glob("*/*")):
        rows.append(f"{path.stem},{path.parent.name}")
        path.rename(folder / "train" / path.name)
    for label in LABELS:
        (folder / "train" / label).rmdir()
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    return folder


FORMATS = dict.fromkeys((".jpg", ".jpeg", ".jfif"), "JPEG") | {".tif": "TIFF"}
FORMATS |= {f".{kind}": kind.upper() for kind in ("png", "bmp", "tiff", "gif", "webp")}


def test_a_folder_with_every_ending_is_read_like_a_png_folder(tmp_path):
    """In class folders, and by id with suffix="*", which inspect proposes; a .jfif is a JPEG."""
    read, endings = [], (*FORMATS, *map(str.upper, FORMATS))
    for each in ((".png",), endings):
        folder = class_folders(tmp_path / each[0], each)
        found = [dataset.read_training(folder, settings(train_csv=None)).inputs]
        found.append(dataset.read_training(by_id(folder), settings(suffix="*")).inputs)
        read.append([*found, read_test(folder, settings(suffix="*")).inputs(np.arange(24))])

    lossy = ("JPEG", "WEBP")
    kept = [n for n in range(24) if FORMATS[endings[n % len(endings)].lower()] not in lossy]
    for png, other in zip(*read, strict=True):
        same = [np.array_equal(*pair) for pair in zip(png, other, strict=True)]
        assert len(png) == 24 and sum(same) == len(kept)
    found = inspection.inspect(folder).inputs
    assert found.data.suffix == "*" and not found.train.broken and len(found.train.pixels) == 24


def test_files_that_are_not_read_are_counted_and_named(tmp_path):
    """In the log of a training, and by inspect."""
    folder = class_folders(tmp_path, (".tif",))
    for name in ("cat/notes.txt", "cat/a.dcm", "dog/b.dcm"):
        (folder / "train" / name).write_bytes(b"no image")
    shutil.copy(folder / "test" / "t00.tif", folder / "train" / "beside.tif")
    shown: list[str] = []

    dataset.read_training(folder, settings(train_csv=None), show=shown.append)
    found = inspection.inspect(folder)

    assert shown[0].startswith("Ignored 4 files that are not images in label folders: ")

    what = "3 files not read due to their extension (.dcm, .txt), for example train/cat/a.dcm"
    assert what in [each.text for each in found.findings]


@pytest.mark.parametrize(
    ("ending", "edit"), [(".bmp", r'Set data\.suffix="\*"'), (".dcm", "Convert")]
)
def test_missing_images_that_have_another_ending_are_named(ending, edit, tmp_path):
    """ "Complete the download" would be the wrong advice."""
    folder = by_id(class_folders(tmp_path, (".png",)))
    for path in sorted((folder / "train").iterdir())[:5]:
        path.rename(path.with_suffix(ending))

    with pytest.raises(DataError, match=rf"(?s)5 of 24 images .*5 of these .*\({ending}\).*{edit}"):
        dataset.read_training(folder, settings())
    if ending == ".dcm":
        with pytest.raises(DataError, match=r"5 of these .*\(\.dcm\)"):
            inspection.inspect(folder)


@pytest.mark.parametrize("most", [4095, 65535])
def test_an_x_ray_of_12_bits_keeps_its_grey_levels(tmp_path, most):
    """In a PNG or TIFF of 16 bits, among ordinary images, which do not change."""
    folder = class_folders(tmp_path, (".png",))
    deep, cats = np.linspace(0, most, 64).astype(np.uint16).reshape(8, 8), folder / "train" / "cat"
    Image.fromarray(deep).save(cats / "i00.png")
    Image.fromarray(deep).save(cats / "i02.tif")
    (cats / "i02.png").unlink()

    found = inspection.inspect(folder)
    read = dataset.read_training(folder, replace(settings(), data=found.inputs.data)).inputs

    assert found.inputs.data.white == (4095 if most == 4095 else None)
    reasons = [each.text for each in found.findings if each.about == "white"]
    assert ("white=4095 (12 bits)" in "".join(reasons)) == (most == 4095)
    levels = np.floor(deep / most * 255 + 0.5)
    for own, wanted in zip(read[:3, :, :, 0], (levels, levels, picture(4)), strict=True):
        assert np.array_equal(own, wanted)


def test_a_tif_of_floats_needs_data_white(tmp_path):
    """Without it, the file is refused; inspect measures it."""
    folder = class_folders(tmp_path, (".tif",))
    for path in folder.glob("train/*/*.tif"):
        Image.fromarray((np.asarray(Image.open(path)) / 255).astype(np.float32)).save(path)

    with pytest.raises(DataError, match=r"floats from .* set data\.white"):
        dataset.read_training(folder, settings(train_csv=None))
    data = inspection.inspect(folder).inputs.data
    read = dataset.read_training(folder, replace(settings(), data=data))

    assert data.white == 1.0
    assert np.array_equal(read.inputs[0][:, :, 0], picture(0))


def test_images_that_stay_in_their_files_are_decoded_once_before_the_first_step(
    tmp_path, monkeypatch
):
    """The fingerprint comes from the same pass."""
    folder = class_folders(tmp_path, (".png",), count=40)
    config = settings(train_csv=None)
    decodes, decode = list[int](), image_arrays.decode
    counted = lambda *given: decodes.append(1) or decode(*given)  # noqa: E731
    monkeypatch.setattr(image_arrays, "decode", counted)

    fingerprint = dataset.read_training(folder, replace(config, feed="files")).fingerprint

    assert len(decodes) == 40
    assert fingerprint == dataset.read_training(folder, config).fingerprint
