"""All images are decoded in order, broken ones are reported, and none is decoded twice."""

import os
import resource
import shutil
import threading
from functools import partial
from pathlib import Path

import numpy as np
import PIL
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from formats.errors import DiskError
from pipeline.config import Data, data_layout
from pipeline.data import image_arrays, image_decoding
from pipeline.data.dataset import TestSet
from pipeline.errors import DataError
from pipeline.runtime import devices

FORM = Data(height=6, width=5, channels=3)
COUNT = 83  # more than two runs of a thread, and no multiple of one


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of images whose pixels are their number, three of them broken; read-only."""
    folder = tmp_path_factory.mktemp("images")
    for index in range(COUNT):
        Image.new("RGB", (5, 6), (index, 0, 255 - index)).save(folder / f"{index:03d}.png")
    (folder / "007.png").write_bytes(b"")
    (folder / "040.png").write_bytes((folder / "041.png").read_bytes()[:50])
    (folder / "082.png").write_text("<html>404</html>")
    return folder


@pytest.fixture
def own(tmp_path):
    """Return a few files that the test may change."""
    paths = [tmp_path / f"{index}.png" for index in range(5)]
    for index, path in enumerate(paths):
        Image.new("RGB", (5, 6), (index, 9, 9)).save(path)
    return paths


def files(folder):
    return sorted(folder.glob("*.png"))


@pytest.fixture(autouse=True, scope="module")
def _small_images_are_kept():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_layout, "CACHED_ABOVE", 0)
        yield


def read(paths, data, *, cache=None, show=str, **more):
    """Return all images and the reason for each broken one, as a training reads them."""
    return image_arrays.read(paths, data, cache, show, **more)


def blocks(paths, form, size):
    """Return the blocks of a test set of these images."""
    images = image_arrays.FileImages(paths, form)
    return TestSet(tuple(map(str, paths)), images, images.broken).blocks(size)


def wanted():
    pixels = np.zeros((COUNT, 6, 5, 3), np.uint8)
    for row in {*range(COUNT)} - {7, 40, 82}:
        pixels[row] = (row, 0, 255 - row)
    return pixels


@pytest.mark.parametrize("cpus", [1, 5])
def test_images_come_in_the_order_of_their_files(folder, monkeypatch, cpus):
    """Broken ones are zeros, with row and reason."""
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)

    pixels, broken = read(files(folder), FORM)

    assert np.array_equal(pixels, wanted())
    assert sorted(broken) == [7, 40, 82]
    assert broken[7] == "it is empty"
    assert "cannot be decoded" in broken[40]
    assert broken[82] == "it is text, not an image: '<html>404</html>'"


@settings(max_examples=25)
@given(st.integers(0, COUNT), st.integers(1, 100))
def test_blocks_are_what_read_gives_cut_into_parts(folder, count, size):
    paths = files(folder)[:count]
    pixels, broken = read(paths, FORM)

    parts = list(blocks(paths, FORM, size))

    assert [start for start, _, _ in parts] == list(range(0, count, size))
    assert all(len(part) == size for _, part, _ in parts[:-1])
    assert np.array_equal(np.concatenate([part for _, part, _ in parts] or [pixels]), pixels)
    assert {row: reason for _, _, part in parts for row, reason in part.items()} == broken


def test_threads_end_with_the_generator(own):
    given_ = blocks(own * 200, FORM, 10)
    next(given_)
    given_.close()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gather")]


@pytest.mark.parametrize(
    "read", [lambda *given: read(*given), lambda *given: next(blocks(*given, 2))]
)
def test_a_file_that_is_missing_is_named(own, read):
    own[1].unlink()

    with pytest.raises(DataError, match=r"(?s)1\.png: No such file .*complete the download"):
        read(own, FORM)


def test_a_cache_hit_gives_the_same_as_a_miss(folder, tmp_path, shards_of_twenty, monkeypatch):
    """The same pixels and reasons, with a message. Neither uses memory if there is none left."""
    monkeypatch.setattr(devices, "memory_left", lambda: 0)
    said, cache = [], tmp_path / "a" / "cache"

    for _ in range(2):
        images, broken = read(files(folder), FORM, cache=cache, show=said.append)
        assert isinstance(images, image_arrays.FileImages)
        assert np.array_equal(images[:], wanted()) and sorted(broken) == [7, 40, 82]

    (line,) = [line for line in said if "Found" in line]
    assert line.startswith("Found 83 of 83 decoded images in")
    assert {path.suffix for path in cache.glob("*/*")} == {".json", ".npy"}


def test_the_run_after_a_kill_decodes_only_the_rest(
    folder, tmp_path, shards_of_twenty, monkeypatch
):

    def kill(line):
        if line.startswith("Read 40"):
            raise KeyboardInterrupt

    monkeypatch.setattr(image_arrays, "SHOW_SECONDS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        read(files(folder), FORM, cache=tmp_path / "cache", show=kill)

    pixels, broken, count = decoded_again(
        monkeypatch, files(folder), FORM, cache=tmp_path / "cache"
    )

    assert np.array_equal(pixels, wanted()) and sorted(broken) == [7, 40, 82]
    assert count == COUNT - 40


def white(path):
    Image.new("L", (5, 6), 255).save(path)


CHANGES = {
    "order": lambda paths, patch: (paths[::-1], FORM),
    "size": lambda paths, patch: white(paths[1]) or (paths, FORM),
    "channels": lambda paths, patch: (paths, Data(height=6, width=5, channels=1)),
    "rule": lambda paths, patch: patch(image_decoding, "RULES", 99) or (paths, FORM),
    "Pillow": lambda paths, patch: patch(PIL, "__version__", "99.0") or (paths, FORM),
}


@pytest.mark.parametrize("change", CHANGES)
def test_different_files_formats_or_rules_use_different_caches(own, tmp_path, change, monkeypatch):
    read(own, FORM, cache=tmp_path / "cache")

    paths, form = CHANGES[change](own, monkeypatch.setattr)
    found = read(paths, form, cache=tmp_path / "cache")[0]

    assert np.array_equal(found, read(paths, form)[0])
    assert len(list((tmp_path / "cache").glob("*/*.npy"))) == 2


def decoded_again(patch, *given, **more):
    """Return what `read` gives, and how many images were decoded for it."""
    count, decode = [], image_arrays.decode
    counted = lambda *words: count.append(1) or decode(*words)  # noqa: E731
    with patch.context() as patched:
        patched.setattr(image_arrays, "decode", counted)
        return *read(*given, **more), len(count)


def keep(paths, folder, base):
    """Prepare the shards, and return how many images each has."""
    sizes = []
    for name, part in image_arrays.shards(paths, FORM, base).items():
        made = image_arrays.shard(paths[part], FORM, name, [], str)
        sizes.append(len(image_arrays.save(folder, name, made).pixels))
    return sizes


@pytest.fixture
def shards_of_twenty(monkeypatch):
    monkeypatch.setattr(image_arrays, "SHARD", 20 * 6 * 5 * 3)


def test_files_of_equal_names_and_sizes_in_other_folders_have_caches_of_their_own(tmp_path):
    for value in (10, 200):
        (folder := tmp_path / str(value)).mkdir()
        Image.new("L", (5, 6), value).save(folder / "0.bmp")
        found = read([folder / "0.bmp"], FORM, base=folder, cache=tmp_path / "cache")[0]

        assert found.min() == found.max() == value


@settings(max_examples=8)
@given(data=st.data())
def test_prepared_images_are_found_wherever_the_competition_is_mounted(
    folder, tmp_path_factory, data
):
    """By paths below its folder. Only corrupt or missing shards are decoded again."""
    top, spoilt = tmp_path_factory.mktemp("top"), set()
    shutil.copytree(folder, top / "elsewhere", copy_function=shutil.copyfile)
    for path in files(top / "elsewhere"):
        os.utime(path, ns=(5, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_arrays, "SHARD", 20 * 6 * 5 * 3)
        sizes = keep(files(folder), top / "prepared", folder)
        for path in data.draw(st.sets(st.sampled_from(sorted((top / "prepared").iterdir())))):
            data.draw(st.sampled_from([cut, other_bit, os.unlink]))(path)
            spoilt.add(int(path.name.split("-")[0]))

        places = {"base": top / "elsewhere", "prepared": [top / "empty", top / "prepared"]}
        pixels, broken, count = decoded_again(patch, files(top / "elsewhere"), FORM, **places)

    assert np.array_equal(pixels, wanted())
    assert sizes == [20, 20, 20, 20, 3] and sorted(broken) == [7, 40, 82]
    assert count == sum(sizes[number - 1] for number in spoilt)


def test_a_shard_that_cannot_be_written_is_an_error(own, tmp_path):
    (tmp_path / "kept").write_text("a file")

    with pytest.raises(DiskError, match="kept"):
        keep(own, tmp_path / "kept", tmp_path)


def cut(path):
    path.write_bytes(path.read_bytes()[:-9])


def other_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("ending", "spoil"),
    [
        ("npy", other_bit),
        ("npy", Path.unlink),
        ("json", Path.unlink),  # as a kill leaves it
        ("json", lambda path: path.write_text("")),
    ],
)
def test_a_corrupt_cache_is_rebuilt(own, tmp_path, ending, spoil):
    """With a message; the next run uses the new one."""
    again = partial(read, own, FORM, cache=tmp_path / "cache")
    wanted, said = again()[0], []
    spoil(next((tmp_path / "cache").glob(f"*/*.{ending}")))

    found = [again(show=said.append)[0] for _ in range(2)]

    assert np.array_equal(found[0], wanted) and np.array_equal(found[1], wanted)
    assert ["is corrupt" in line for line in said[:-1]] == [True] * (len(said) - 1)
    assert "Found 5" in said[-1] and len(said) == 2 - ((ending, spoil) == ("json", Path.unlink))


def test_images_within_a_file_are_read_like_files(own, tmp_path):
    """Each order of them has its own cache."""
    contents, path = [each.read_bytes() for each in own], tmp_path / "all"
    path.write_bytes(b"".join([b"head", *(content + b"between" for content in contents)]))
    starts = [path.read_bytes().index(content) for content in contents]
    parts = [
        image_arrays.Part(str(path), start, len(content))
        for start, content in zip(starts, contents, strict=True)
    ]

    for order in (slice(None), slice(None, None, -1)):
        found = read(parts[order], FORM, cache=tmp_path / "cache")[0]
        assert np.array_equal(found, read(own[order], FORM)[0])
    assert read([parts[0]._replace(size=40)], FORM)[1].keys() == {0}


@pytest.mark.parametrize(
    ("way", "said"),
    [("half", "half of the free"), ("full", "File too large"), ("file", "Not a directory")],
)
def test_without_disk_space_only_the_cache_is_lost(own, tmp_path, monkeypatch, way, said):
    """Half of the free space is left for checkpoints. A full disk leaves no partial file."""
    cache, limits = tmp_path / "cache", resource.getrlimit(resource.RLIMIT_FSIZE)
    if way == "half":
        free = shutil.disk_usage(tmp_path)._replace(free=5 * 6 * 5 * 3 * 2 - 1)
        monkeypatch.setattr(image_arrays.shutil, "disk_usage", lambda path: free)
    if way == "file":
        cache.write_text("a file")
    lines = []

    try:
        if way == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (300, limits[1]))
        found = read(own, FORM, cache=cache, show=lines.append)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert np.array_equal(found, read(own, FORM)[0])
    assert any(said in line for line in lines)
    assert cache.is_file() or list(cache.glob("*/*")) == []
