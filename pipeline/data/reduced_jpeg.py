"""JPEG: a photograph decoded at a half, a quarter or an eighth of its size and resized, by OpenCV:
half of the time that Pillow takes.

Only `pipeline.data.image_decoding` calls this, where the config says decode="reduced". What is not
a plain case stays with Pillow, which also says what is wrong with a file: a JPEG that does not end
with its end marker, one that OpenCV cannot decode, and a resize for which four pixels are too few.
"""

import functools
import io
import math
import struct
import threading
from typing import Any

import numpy as np
from PIL import Image

from pipeline.errors import ConfigError

END = b"\xff\xd9"
# Colour, as RGB, at a part of the size; the file's orientation is left to whoever asks. OpenCV has
# no name for the first three together: `library` looks whether they do what is meant.
RGB, UPRIGHT, PARTS = 256, 128, {8: 64, 4: 32, 2: 16}
# Bilinear takes four pixels for each new one: of 1.25 pixels along a side nothing is left out that
# could be seen.
LEAST = 0.8
HEAD, FRAME = struct.Struct(">BBH"), struct.Struct(">BHHB")

Box = tuple[float, float, float, float]
Size = tuple[int, int]
# A thread's last resized image, written over by the next: else the system hands out, fills and
# takes back memory for each image, in which threads wait for each other.
_held = threading.local()
# Of a header: the first marker with a length, and those behind it without one; what begins the
# pixels, frames of sequential and progressive files, and what may change how a file is to be shown.
FIRST, BARE, SCAN, FRAMES, METADATA = (
    0xC0,
    range(0xD0, 0xDA),
    0xDA,
    (0xC0, 0xC1, 0xC2),
    (0xE1, 0xEE),
)


def plain(content: bytes) -> Size | None:
    """Return width and height of a JPEG whose header says nothing else of interest: three colours
    of 8 bits, no EXIF, no inks; None of others.

    Pillow knows more, and holds the interpreter ten times as long, for which other threads wait.

    >>> plain(b"\\xff\\xd8\\xff\\xc0\\x00\\x11\\x08\\x01\\x77\\x01\\xf4\\x03" + bytes(9) + b"\\xff\\xda" + bytes(9)), plain(b"\\xff\\xd8")
    ((500, 375), None)
    """
    place, found = 2, None
    while place + 10 <= len(content):
        sign, kind, length = HEAD.unpack_from(content, place)
        if sign != 0xFF or kind in METADATA or kind in BARE or not FIRST <= kind < 0xFF:
            return None
        if kind == SCAN:
            return found
        if kind in FRAMES:
            bits, height, width, colours = FRAME.unpack_from(content, place + 4)
            found = (width, height) if (bits, colours) == (8, 3) and width and height else None
        place += 2 + length
    return None


def reduced(content: bytes, given: Size, least: Size, box: Box, size: Size) -> np.ndarray | None:
    """Return a part of a colour JPEG in another size, uint8 (height, width, 3), RGB; None where
    Pillow has to do it.

    What is returned is written over by this thread's next call.

    Args:
        content: of a file. given: its width and height. least: below which it must not be decoded.
        box: left, top, right, bottom in pixels of the file. size: width and height wanted.
    """
    import cv2

    shrunk = min(given[0] // least[0], given[1] // least[1])
    part = next((part for part in PARTS if part <= shrunk), None)
    if part is None or not content.endswith(END):
        return None
    left, top, across, down = (
        box[0] / part,
        box[1] / part,
        (box[2] - box[0]) / part,
        (box[3] - box[1]) / part,
    )
    along, upright = size[0] / across, size[1] / down
    if min(along, upright) < LEAST:
        return None
    file, flags = np.frombuffer(content, np.uint8), PARTS[part] | RGB | UPRIGHT
    try:
        whole = cv2.imdecode(file, flags)
    except cv2.error:
        return None
    if whole is None or whole.shape != (-(-given[1] // part), -(-given[0] // part), 3):
        return None
    if left % 1 or top % 1:
        moved = np.array(
            [[1 / along, 0, left + 0.5 / along - 0.5], [0, 1 / upright, top + 0.5 / upright - 0.5]]
        )
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return np.asarray(
            cv2.warpAffine(whole, moved, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
        )
    cut = whole[int(top) :, int(left) :][: math.ceil(down), : math.ceil(across)]
    # Faster. The last row or column may lie in the file only in part: given the scale, and not the
    # size, OpenCV moves nothing for it.
    found = cv2.resize(cut, None, getattr(_held, "resized", None), fx=along, fy=upright)
    _held.resized = found
    return np.asarray(found[: size[1], : size[0]])


@functools.cache
def library() -> str:
    """Return OpenCV's version, after a look whether it decodes as this module expects.

    Raises:
        ConfigError: if it is not there, or does not.
    """
    try:
        import cv2
    except ImportError as error:
        raise ConfigError(
            f'data.decode="reduced" needs OpenCV, which cannot be imported here: {error}. Kaggle\'s images have it.\n'
            'Install opencv-python-headless, or set data.decode="full" in the config.'
        ) from error
    file = io.BytesIO()
    Image.new("RGB", (32, 16), (200, 100, 50)).save(file, "JPEG", quality=95)
    found: Any = [_tried(file.getvalue(), part) for part in PARTS]
    wanted = [(16 // part, 32 // part, 3) for part in PARTS]
    right = [
        one is not None and np.abs(one.astype(int) - (200, 100, 50)).max() <= 4 for one in found
    ]
    if [getattr(one, "shape", None) for one in found] != wanted or not all(right):
        raise ConfigError(
            f'data.decode="reduced" cannot work with OpenCV {cv2.__version__}: expected a decoder that gives RGB at a part of the size.\n'
            'Set data.decode="full" in the config, or install a version that pyproject.toml names.'
        )
    return cv2.__version__


def _tried(content: bytes, part: int) -> np.ndarray | None:
    size = (32 // part, 16 // part)
    found = reduced(content, (32, 16), size, (0, 0, 32, 16), size)
    return None if found is None else found.copy()
