"""Test-time augmentation: predictions are averaged over views of an image: unchanged, mirrored,
upside down, and moved by a pixel.

A view does only what training did to its images: it is mirrored where `data.flip` is set, upside
down where `data.flip_vertical` is, and moved where `data.crop_padding` is, with zeros at the edge.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.config.data_layout import Data

MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass(frozen=True)
class View:
    """A view of an image: moved down and right by a pixel or none, then mirrored left to right,
    then turned upside down.
    """

    down: int = 0
    right: int = 0
    mirrored: bool = False
    upside_down: bool = False

    def apply(self, images: np.ndarray) -> np.ndarray:
        """Return this view of the images, uint8 (n, height, width, channels). The unchanged view
        takes and returns inputs of any shape.

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
    """Return up to `number` views, the unchanged image first.

    >>> [view.mirrored for view in views(Data(height=8, width=8, channels=1, flip=True), 2)]
    [False, True]
    """
    sides = (False, True) if data.flip else (False,)
    ends = (False, True) if data.flip_vertical else (False,)
    moves = MOVES if data.crop_padding else MOVES[:1]
    every = [View(*move, side, end) for move in moves for end in ends for side in sides]
    return tuple(every[:number])
