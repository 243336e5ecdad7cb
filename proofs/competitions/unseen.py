"""Unseen: a competition that nothing in this project was written for: other names, other tables,
photographs in JPEG of many sizes.

The pictures are crops of the two photographs that scikit-learn ships. No pixel is in two of the
three sets: each photograph's part is cut into blocks, a block belongs to one set, and a crop lies
within one block.
"""

import hashlib
import io
from collections.abc import Iterable
from itertools import product

import numpy as np
from PIL import Image

from localkaggle.competitions import Competition, accuracy
from localkaggle.competitions.tables import split, table

SAMPLE = "submission_format.csv"
TRAIN, VISIBLE, HIDDEN = 600, 200, 200
BLOCK, LEAST, MOST = (
    44,
    28,
    40,
)  # pixels: a block's side, and the shortest and longest side of a crop

Box = tuple[int, int, int, int]
"""left, top, right, bottom, in pixels."""
# Where in which photograph a kind of thing is to be seen, and little else.
PLACES: dict[str, tuple[str, tuple[Box, ...]]] = {
    "sky": ("china.jpg", ((336, 0, 560, 190), (0, 0, 100, 140))),
    "temple": ("china.jpg", ((98, 70, 318, 340),)),
    "petals": ("flower.jpg", ((196, 114, 420, 336),)),
    "leaves": ("flower.jpg", ((0, 60, 165, 427), (462, 0, 640, 380))),
}


def unseen(seed: int = 0) -> Competition:
    """Return the competition: 600 pictures to train, 200 to test in sight, 200 hidden ones; four
    kinds, scored by accuracy.

    images_train/ and images_test/ hold them, labels.csv (file, variety) and submission_format.csv
    name them with their ending. Which crops they are, which set a block belongs to and what the
    files are called all come from the seed.
    """
    from sklearn.datasets import load_sample_image

    random = np.random.default_rng(seed)
    photographs = {name: load_sample_image(name) for name in ("china.jpg", "flower.jpg")}
    kinds = {kind: _apart(kind, seed) for kind in PLACES}
    names = (
        f"IMG_{hashlib.sha256(f'{seed} {n}'.encode()).hexdigest()[:8]}.jpg"
        for n in range(TRAIN + VISIBLE + HIDDEN)
    )

    def crops(part: int, count: int) -> tuple[dict[str, bytes], dict[str, str]]:
        """Return `count` pictures of a set by name, and what each shows."""
        pictures, varieties = {}, {}
        for _, name in zip(range(count), names, strict=False):
            kind = str(random.choice(list(PLACES)))
            corner = kinds[kind][part][random.integers(len(kinds[kind][part]))]
            size = random.integers(LEAST, MOST + 1, 2)
            left, top = corner + random.integers(0, BLOCK - size + 1)
            width, height = size
            pictures[name] = _jpeg(
                photographs[PLACES[kind][0]][top : top + height, left : left + width]
            )
            varieties[name] = kind
        return pictures, varieties

    (train, varieties), (visible, _), (hidden, solution) = (
        crops(0, TRAIN),
        crops(1, VISIBLE),
        crops(2, HIDDEN),
    )
    labels = table(["file", "variety"], sorted(varieties.items()))
    return Competition(
        slug="varieties",
        title="Varieties",
        training={"labels.csv": labels, **_in("images_train", train)},
        visible_test={SAMPLE: _placeholders(visible), **_in("images_test", visible)},
        hidden_test={SAMPLE: _placeholders(hidden), **_in("images_test", hidden)},
        solution={"variety": solution},
        score=accuracy,
        sample=SAMPLE,
    )


def _apart(kind: str, seed: int) -> list[np.ndarray]:
    """Return the corners, (n, 2) as left and top, of the blocks that train, of those in sight, and
    of the hidden ones.
    """
    corners = np.array([corner for box in PLACES[kind][1] for corner in _blocks(box)])
    fifth = len(corners) // 5
    return [corners[part] for part in split(len(corners), visible=fifth, hidden=fifth, seed=seed)]


def _blocks(box: Box) -> Iterable[tuple[int, int]]:
    left, top, right, bottom = box
    return product(range(left, right - BLOCK + 1, BLOCK), range(top, bottom - BLOCK + 1, BLOCK))


def _jpeg(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def _in(folder: str, pictures: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{name}": content for name, content in pictures.items()}


def _placeholders(pictures: dict[str, bytes]) -> bytes:
    return table(["file", "variety"], [[name, "leaves"] for name in sorted(pictures)])
