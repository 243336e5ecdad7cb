"""Views: an image as it is, mirrored, and moved by a pixel, for predictions that are averaged
(test-time augmentation).

Only what training has done to its images, too: mirrored where `data.flip` is set, moved where
`data.crop_padding` is, with zeros at the edge.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.config.data_layout import Data

MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass(frozen=True)
class View:
    """One way to look at an image: moved down and right by so many pixels, and then mirrored left
    to right, or not.
    """

    down: int = 0
    right: int = 0
    mirrored: bool = False

    def of(self, images: np.ndarray) -> np.ndarray:
        """Return the images, uint8 (n, height, width, channels), seen in this way; the images
        themselves, if nothing is done to them.

        >>> View(right=1).of(np.array([[[[1], [2]]]], np.uint8)).ravel().tolist()
        [0, 1]
        >>> View(mirrored=True).of(np.array([[[[1], [2]]]], np.uint8)).ravel().tolist()
        [2, 1]
        """
        if self.down or self.right:
            moved = np.zeros_like(images)
            height, width = images.shape[1:3]
            moved[:, _to(self.down, height), _to(self.right, width)] = images[
                :, _to(-self.down, height), _to(-self.right, width)
            ]
            images = moved
        return np.ascontiguousarray(images[:, :, ::-1]) if self.mirrored else images


def of(data: Data, number: int) -> tuple[View, ...]:
    """Return that many views, the unchanged image first; as many as there are where there are
    fewer.

    >>> [view.mirrored for view in of(Data(height=8, width=8, channels=1, flip=True), 2)]
    [False, True]
    """
    sides = (False, True) if data.flip else (False,)
    moves = MOVES if data.crop_padding else MOVES[:1]
    return tuple(View(down, right, mirrored) for down, right in moves for mirrored in sides)[
        :number
    ]


def _to(move: int, length: int) -> slice:
    """Return the places that are still there after a move."""
    return slice(max(move, 0), length + min(move, 0))
