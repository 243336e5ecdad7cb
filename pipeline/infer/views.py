"""Test-time augmentation, which averages predictions over several views of an image.

The views follow the data augmentation of the config:

- `data.flip`: mirrored images.
- `data.flip_vertical`: upside-down images.
- `data.rotate`: quarter turns.
- `data.crop_scale`: an enlarged centre.
- `data.crop_padding`: shifts by a pixel, with zero padding.

Mirrored and rotated views form a group, so their mean does not change if an image is mirrored or
rotated.
"""

from dataclasses import dataclass, replace

import numpy as np

from pipeline.config.data_layout import Data

MOVES = ((1, 0), (-1, 0), (0, 1), (0, -1))
# Areas of the enlarged centres, from 0 (the whole image) to 1 (`crop_scale`). The first is the mean
# in training, where objects appear larger (Touvron et al. 2019, arXiv:1906.06423).
AREAS = (0.5, 0.25)


@dataclass(frozen=True)
class View:
    """A view of an image.

    These changes are applied in order: enlarge the centre, which is a fraction `zoom` of each side;
    shift by up to a pixel; mirror horizontally; rotate to the left by quarter turns.
    """

    down: int = 0
    right: int = 0
    mirrored: bool = False
    turns: int = 0
    zoom: float = 1.0

    def apply(self, images: np.ndarray) -> np.ndarray:
        """Return this view of uint8 images (n, height, width, channels), which must be square for
        quarter turns. The original view also accepts other inputs.

        >>> View(right=1).apply(np.array([[[[1], [2]]]], np.uint8)).ravel().tolist()
        [0, 1]
        >>> View(mirrored=True).apply(np.array([[[[1], [2]]]], np.uint8)).ravel().tolist()
        [2, 1]
        >>> View(zoom=0.5).apply(np.array([[[[0], [100], [200], [0]]]], np.uint8)).ravel().tolist()
        [100, 125, 175, 200]
        """
        if self.zoom < 1:
            images = _enlarged(_enlarged(images, self.zoom, 1), self.zoom, 2)
        if self.down or self.right:
            height, width = images.shape[1:3]
            padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
            images = padded[:, 1 - self.down :, 1 - self.right :][:, :height, :width]
        images = images[:, :, ::-1] if self.mirrored else images
        images = np.rot90(images, self.turns, (1, 2)) if self.turns else images
        return np.ascontiguousarray(images)


def _enlarged(images: np.ndarray, zoom: float, axis: int) -> np.ndarray:
    """Enlarge the middle of an axis, using the same calculation as `pipeline.augment.geometry`."""
    size, one = images.shape[axis], 1 << 16  # positions are in 16.16 fixed point
    edge = round(size * (1 - zoom) / 2)
    step = (size - 2 * edge) * one // size
    positions = edge * one + (step - one) // 2 + step * np.arange(size)
    positions = np.clip(positions, edge * one, (size - edge - 1) * one)
    low, part = positions >> 16, (positions >> 8 & 255).astype(np.uint16)
    part = part.reshape([-1, 1, 1][: 4 - axis])
    ends = (images.take(each, axis) for each in (low, np.minimum(low + 1, size - 1)))
    sums = (256 - part) * next(ends) + part * next(ends)  # at most 256 x 255, so 16 bits suffice
    return np.asarray((sums + 128 >> 8).astype(np.uint8))


def views(data: Data, number: int) -> tuple[View, ...]:
    """Return up to `number` views: the original image, then the others, most useful first.

    >>> [view.mirrored for view in views(Data(height=8, width=8, channels=1, flip=True), 2)]
    [False, True]
    >>> [view.turns for view in views(Data(height=8, width=8, channels=1, rotate=True), 9)]
    [0, 2, 1, 3]
    """
    sides = [(0, 0)]  # mirrored, turns
    steps = [(1, 0)] * data.flip + [(1, 2)] * data.flip_vertical + [(0, 2), (0, 1)] * data.rotate
    for mirror, turn in steps:
        more = ((side ^ mirror, (turns + turn) % 4) for side, turns in sides)
        sides += [each for each in more if each not in sides]
    places = [View()]
    if data.crop_scale:
        areas = (1 - share * (1 - data.crop_scale) for share in AREAS)
        places += [View(zoom=area**0.5) for area in areas]
    if data.crop_padding:
        places += [View(*move) for move in MOVES]
    every = (
        replace(place, mirrored=bool(side), turns=turns)
        for place in places
        for side, turns in sides
    )
    return tuple(every)[:number]
