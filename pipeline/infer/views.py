"""Test-time augmentation, which averages predictions over several views of an image.

Besides the original image, there are mirrored views if `data.flip` is set, upside-down views if
`data.flip_vertical` is set, and views shifted by a pixel, with zero padding, if `data.crop_padding`
is set.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.config.data_layout import Data

MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass(frozen=True)
class View:
    """A view of an image, which can be shifted by up to a pixel, then mirrored horizontally, then
    turned upside down.
    """

    down: int = 0
    right: int = 0
    mirrored: bool = False
    upside_down: bool = False

    def apply(self, images: np.ndarray) -> np.ndarray:
        """Apply this view to images, uint8 (n, height, width, channels). Inputs other than images
        are only accepted by the original view.

        >>> View(right=1).apply(np.array([[[[1], [2]]]], np.uint8)).ravel().tolist()
        [0, 1]
        >>> View(mirrored=True).apply(np.array([[[[1], [2]]]], np.uint8)).ravel().tolist()
        [2, 1]
        """
        if self.down or self.right:
            height, width = images.shape[1:3]
            padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
            images = padded[:, 1 - self.down :, 1 - self.right :][:, :height, :width]
        images = images[:, :, ::-1] if self.mirrored else images
        return np.ascontiguousarray(images[:, ::-1] if self.upside_down else images)


def views(data: Data, number: int) -> tuple[View, ...]:
    """Return up to `number` views, starting with the original image.

    >>> [view.mirrored for view in views(Data(height=8, width=8, channels=1, flip=True), 2)]
    [False, True]
    """
    sides, ends = range(1 + data.flip), range(1 + data.flip_vertical)
    moves = MOVES if data.crop_padding else MOVES[:1]
    every = [View(*move, bool(side), bool(end)) for move in moves for end in ends for side in sides]
    return tuple(every[:number])
