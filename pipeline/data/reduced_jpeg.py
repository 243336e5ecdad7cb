"""A JPEG decoded at a half, a quarter or an eighth of its size and resized, by OpenCV.

This takes half of Pillow's time. Only `pipeline.data.image_decoding` calls it, for
decode="reduced". Pillow decodes everything else, and says what is wrong with a file: a JPEG
without its end marker, one that OpenCV cannot decode, and a resize for which four pixels are too
few.
"""

import functools
import io
import math
import struct
import threading

import numpy as np
from PIL import Image

from pipeline.errors import ConfigError

END = b"\xff\xd9"
# OpenCV's flags: colour as RGB, orientation ignored, a part of the size. OpenCV has no name for
# the first together with the others. `opencv_version` checks that they work.
RGB, UPRIGHT, PARTS = 256, 128, {8: 64, 4: 32, 2: 16}
# Bilinear takes four pixels for each new one. Up to 1.25 pixels a side it misses nothing visible.
LEAST_SCALE = 0.8
HEAD, FRAME = struct.Struct(">BBH"), struct.Struct(">BHHB")

Box = tuple[float, float, float, float]
Size = tuple[int, int]
# A thread's resized image, overwritten by its next one. Otherwise the system allocates and frees
# memory for each image, and threads wait for each other.
_buffers = threading.local()
# Markers of a header: the first with a length, those after it without one, the start of the pixels,
# the frames of sequential and progressive files, and those that may change how to show the file.
FIRST, BARE, SCAN = 0xC0, range(0xD0, 0xDA), 0xDA
FRAMES, METADATA = (0xC0, 0xC1, 0xC2), (0xE1, 0xEE)


def plain_size(content: bytes) -> Size | None:
    """Return width and height of a plain JPEG: three colours of 8 bits, no EXIF, no inks.

    Returns None for others. Pillow knows more, but holds the interpreter ten times as long.

    >>> frame = b"\\xff\\xc0\\x00\\x11\\x08\\x01\\x77\\x01\\xf4\\x03" + bytes(9)
    >>> plain_size(b"\\xff\\xd8" + frame + b"\\xff\\xda" + bytes(9)), plain_size(b"\\xff\\xd8")
    ((500, 375), None)
    """
    place, size = 2, None
    while place + 10 <= len(content):
        sign, kind, length = HEAD.unpack_from(content, place)
        if sign != 0xFF or kind in METADATA or kind in BARE or not FIRST <= kind < 0xFF:
            return None
        if kind == SCAN:
            return size
        if kind in FRAMES:
            bits, height, width, colours = FRAME.unpack_from(content, place + 4)
            size = (width, height) if (bits, colours) == (8, 3) and width and height else None
        place += 2 + length
    return None


def decode(content: bytes, given: Size, least: Size, box: Box, size: Size) -> np.ndarray | None:
    """Return the box of a colour JPEG in another size; None where Pillow has to do it.

    This thread's next call overwrites the result.

    Args:
        content: of the file.
        given: its width and height.
        least: the least width and height to decode at.
        box: left, top, right, bottom, in pixels of the file.
        size: width and height of the result.

    Returns:
        RGB, uint8 (height, width, 3).
    """
    import cv2

    shrunk = min(given[0] // least[0], given[1] // least[1])
    part = next((part for part in PARTS if part <= shrunk), None)
    if part is None or not content.endswith(END):
        return None
    left, top = box[0] / part, box[1] / part
    width, height = (box[2] - box[0]) / part, (box[3] - box[1]) / part
    across, down = size[0] / width, size[1] / height
    if min(across, down) < LEAST_SCALE:
        return None
    try:
        whole = cv2.imdecode(np.frombuffer(content, np.uint8), PARTS[part] | RGB | UPRIGHT)
    except cv2.error:
        return None
    if whole is None or whole.shape != (-(-given[1] // part), -(-given[0] // part), 3):
        return None
    if left % 1 or top % 1:
        matrix = np.array(
            [[1 / across, 0, left + 0.5 / across - 0.5], [0, 1 / down, top + 0.5 / down - 0.5]]
        )
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        border = cv2.BORDER_REPLICATE
        return np.asarray(cv2.warpAffine(whole, matrix, size, flags=flags, borderMode=border))
    # Faster. The file may hold only a part of the last row or column. Given the scale, and not the
    # size, OpenCV moves nothing for it.
    cut = whole[int(top) :, int(left) :][: math.ceil(height), : math.ceil(width)]
    resized = cv2.resize(cut, None, getattr(_buffers, "resized", None), fx=across, fy=down)
    _buffers.resized = resized
    return np.asarray(resized[: size[1], : size[0]])


@functools.cache
def opencv_version() -> str:
    """Return OpenCV's version, after a check that it decodes as this module expects.

    Raises:
        ConfigError: if it is missing, or does not.
    """
    try:
        import cv2
    except ImportError as error:
        raise ConfigError(
            f'data.decode="reduced" needs OpenCV, which cannot be imported here: {error}. Kaggle\'s'
            ' images have it.\nSet data.decode="full" in the config, or install it:\n'
            "pip install opencv-python-headless"
        ) from error
    file = io.BytesIO()
    Image.new("RGB", (32, 16), (200, 100, 50)).save(file, "JPEG", quality=95)
    for part in PARTS:
        size = 32 // part, 16 // part
        found = decode(file.getvalue(), (32, 16), size, (0, 0, 32, 16), size)
        if (
            found is None
            or found.shape != (*size[::-1], 3)
            or np.abs(found.astype(int) - (200, 100, 50)).max() > 4
        ):
            raise ConfigError(
                f'data.decode="reduced" cannot work with OpenCV {cv2.__version__}: expected a '
                'decoder that gives RGB at a part of the size.\nSet data.decode="full" in the '
                "config, or install a version that pyproject.toml names."
            )
    return cv2.__version__
