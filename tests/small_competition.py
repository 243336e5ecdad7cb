"""A small competition of generated images, a fast config, and one trained run for many tests."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline import config as configs
from pipeline.config import Config
from tests.shipped import shipped, written

CLASSES = ("10", "9", "A b", "ß")  # texts that sort differently from numbers


def draw(label: int, random: np.random.Generator) -> np.ndarray:
    """Return an image whose bright quarter shows the label: uint8 (8, 8)."""
    image = random.integers(0, 60, (8, 8), dtype=np.uint8)
    row, column = divmod(label, 2)
    image[row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] += 180
    return image


def write_competition(folder: Path, *, train: int = 96, test: int = 21, seed: int = 0) -> Path:
    """Write a competition like `digits`, with four labels."""
    random = np.random.default_rng(seed)
    rows = ["id,label"]
    for part, number in (("train", train), ("test", test)):
        (folder / part).mkdir(parents=True)
        for index in range(number):
            name = f"{part[1]}{index:03d}"
            Image.fromarray(draw(index % 4, random)).save(folder / part / f"{name}.png")
            if part == "train":
                rows.append(f"{name},{CLASSES[index % 4]}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    # Not sorted, so that a wrong order is noticed.
    ids = [f"e{index:03d}" for index in random.permutation(test)]
    (folder / "sample_submission.csv").write_text(
        "id,label\n" + "".join(f"{name},x\n" for name in ids)
    )
    return folder


@pytest.fixture
def competition(tmp_path: Path) -> Path:
    """Return a folder with a competition that the test may change."""
    return write_competition(tmp_path / "competition")


@pytest.fixture(scope="session")
def tiny() -> Config:
    """Return a config for that competition that trains in seconds; one layer compiles fastest."""
    digits = shipped("digits")
    return replace(
        digits,
        name="tiny",
        num_classes=4,
        batch=16,
        epochs=8,
        warmup_epochs=1,
        data=replace(digits.data, validation_fraction=1 / 12),  # two rows of each label
        model="mlp",
        model_options={"width": 16, "depth": 1, "dropout": 0.1},
        batchnorm_batch=None,
        batchnorm_momentum=0.8,  # 44 steps are too few for statistics that forget more slowly
        optimizer=replace(digits.optimizer, base_rate=2e-2, base_batch=8),
        progress_seconds=0,
        checkpoint_seconds=3600,
    )


@pytest.fixture(scope="session")
def trained(tiny: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[str]]:
    """Return (competition folder, output folder, shown lines) of one run, which no test changes."""
    from pipeline.train import training

    folder = write_competition(tmp_path_factory.mktemp("trained") / "competition")
    lines: list[str] = []
    training.train(tiny, folder, folder.parent / "out", show=lines.append)
    return folder, folder.parent / "out", lines


@pytest.fixture
def written_config(tmp_path: Path) -> Callable[[Config], Path]:
    """Return a function that writes a config to a file like pipeline/configs/digits.py."""
    return partial(written, tmp_path)


CUSTOM = """
import keras
from keras import layers, ops

from pipeline.config import from_json

{code}

CONFIG = from_json({config!r})
"""


@pytest.fixture
def custom(tiny: Config, tmp_path: Path) -> Callable[..., Config]:
    """Return a function that writes a config with this code, whose model is `made`, and with fields
    that differ from those of `tiny`.
    """

    def write(code: str, **fields: Any) -> Config:
        config = replace(tiny, **{"model": "made", "model_options": {}, **fields})
        path = tmp_path / "tiny.py"
        path.write_text(CUSTOM.format(code=code, config=config.to_json()))
        return configs.load(str(path))

    return write


@pytest.fixture
def unreadable(tmp_path: Path) -> Iterator[Callable[[Path], AbstractContextManager[None]]]:
    """Return a context in which a path of `tmp_path` cannot be read; root becomes nobody in it."""
    folders = [
        folder
        for folder in tmp_path.parents
        if folder.stat().st_uid == os.getuid() and folder != Path("/")
    ]
    before = {folder: folder.stat().st_mode & 0o7777 for folder in [tmp_path, *folders]}

    @contextmanager
    def forbid(path: Path) -> Iterator[None]:
        for folder, mode in before.items():
            folder.chmod(mode | 0o011)
        path.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(user)

    yield forbid
    for folder, mode in before.items():
        folder.chmod(mode)


@pytest.fixture
def flipped() -> Callable[[Path, int], None]:
    """Return a function that flips one bit of a file."""

    def flip(path: Path, place: int) -> None:
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= 1 << (place % 8)
        path.write_bytes(content)

    return flip
