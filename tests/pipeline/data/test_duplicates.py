"""Images that are one picture to a person are found in their pixels, whatever their order."""

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline.data import dataset, duplicates
from tests.pipeline.handmade import with_data


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """Return images of independent random patches: no two are one picture."""
    patches = np.random.default_rng(seed).integers(30, 220, (count, 8, 8, 1), dtype=np.uint8)
    return patches.repeat(3, axis=1).repeat(3, axis=2)


def same_parts(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two numberings put the same places together."""
    return np.array_equal(one[:, None] == one, other[:, None] == other)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 7), min_size=2, max_size=24), st.randoms(use_true_random=False))
def test_copies_are_one_group_whatever_their_order(sources, random):
    """Equal ones, and some a level brighter, as after saving again; others are apart."""
    originals = pictures(8)
    brighter = np.array([random.randint(0, 1) for _ in sources], np.uint8)
    pixels = originals[sources] + brighter[:, None, None, None]

    found = duplicates.groups(pixels)

    assert found.dtype == np.int32 and same_parts(found, np.array(sources))


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 30),
    st.sampled_from([(8, 8, 1), (20, 20, 1), (20, 11, 3), (3, 5, 1)]),
    st.sampled_from([4, 12, 60]),
)
def test_no_pair_is_missed_that_comparing_all_pairs_finds(seed, count, form, contrast):
    """Copies of few pictures, lighter or noisier by about as much as is allowed, and of any
    contrast.
    """
    random = np.random.default_rng(seed)
    sources = random.normal(128, contrast, (4, *form))
    lighter, noise = random.uniform(-3, 3, (count, 1, 1, 1)), random.normal(0, 1.5, (count, *form))
    pixels = sources[random.integers(0, 4, count)] + lighter + noise
    pixels = np.clip(pixels, 0, 255).astype(np.uint8)
    thumbs = duplicates.thumbnails(pixels)
    seen = np.flatnonzero(thumbs.std(axis=1) > duplicates.FLAT)
    every = np.array(list(combinations(seen, 2)), np.int64).reshape(-1, 2)

    assert duplicates.near(pixels) == duplicates.alike(pixels, thumbs, every)


def test_many_copies_of_one_picture_are_compared_once(monkeypatch):
    """As of "no image available": each copy has the neighbours of the first."""
    compared = []
    alike = duplicates.alike
    monkeypatch.setattr(duplicates, "alike", lambda *given: compared.append(given) or alike(*given))
    pixels = np.concatenate([pictures(2), pictures(1).repeat(300, axis=0) + np.uint8(1)])

    assert same_parts(duplicates.groups(pixels), np.array([0, 1] + [0] * 300))
    assert len(compared[0][2]) == 1


def test_flat_images_are_one_only_if_they_are_equal():
    """The thumbnails of black images are all alike."""
    flat = np.stack([np.full((9, 9, 1), level, np.uint8) for level in (0, 1, 0, 2)])

    assert duplicates.groups(flat).tolist() == [0, 1, 0, 2]


def test_groups_of_a_column_hold_the_duplicates_too():
    """A copy of one patient's picture joins another patient's group."""
    pixels = pictures(6)[[0, 1, 2, 3, 4, 0]]

    found = duplicates.groups(pixels, np.array([0, 0, 1, 1, 2, 2]))

    assert same_parts(found, np.array([0, 0, 1, 1, 0, 0]))


def test_training_finds_the_groups_in_the_pixels(competition, tiny):
    """And they count in the fingerprint, so that a run does not resume with others."""
    first = Image.open(competition / "train" / "r000.png")
    first.save(competition / "train" / "r004.png", compress_level=0)
    shown: list[str] = []

    grouped = with_data(tiny, group_duplicates=True)
    found = dataset.read_training(competition, grouped, show=shown.append)

    assert found.groups[0] == found.groups[4] and len(np.unique(found.groups)) == 95
    assert shown == ["96 images in 95 groups of duplicates, which no split divides"]
    plain = dataset.read_training(competition, tiny)
    assert plain.groups is None and plain.fingerprint != found.fingerprint
