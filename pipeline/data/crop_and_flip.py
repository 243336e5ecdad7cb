"""Random crops and flips of a batch of images, in numpy, with as few copies as possible.

At 32x32x3 and 1,024 images a batch this is 1.3 times as fast as a view of all windows with its axes
moved (docs/LOG.md).
"""

import numpy as np


def shifted(images: np.ndarray, side: int, down: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return a window of each image, of the image's own size, after padding with zeros.

    Args:
        images: (n, height, width, channels).
        side: zeros on each side, in pixels.
        down: int64 (n,), the first row of each window in the padded image.
        right: int64 (n,), its first column.
    """
    count, height, width, channels = images.shape
    shape = count, height + 2 * side, width + 2 * side, channels
    padded = np.zeros(shape, images.dtype)  # np.pad is slower
    padded[:, side : side + height, side : side + width] = images
    # A window's part of a line is contiguous. As one element of this view it is copied at once.
    line = np.dtype((np.void, width * padded.strides[2]))
    lines = np.ndarray((*shape[:2], 2 * side + 1), line, padded, 0, padded.strides[:3])
    windows: np.ndarray = lines[
        np.arange(count)[:, None], down[:, None] + np.arange(height), right[:, None]
    ]
    return windows.view(images.dtype).reshape(images.shape)


def mirrored(images: np.ndarray) -> np.ndarray:
    """Return images (n, height, width, channels) mirrored left to right."""
    # A channel at a time: numpy would copy the few values of each pixel one pixel at a time.
    flipped = np.empty_like(images)
    for channel in range(images.shape[3]):
        flipped[..., channel] = images[:, :, ::-1, channel]
    return flipped
