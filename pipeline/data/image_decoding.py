"""From the bytes of an image file to uint8 pixels, by one rule for training and inference.

PNG, JPEG, WebP, BMP, GIF and TIFF, by the file's first bytes. The rules:

grey         1 (black and white: 0 and 255), L, LA; I;16, I;16B, I and F, which have 16 or 32 bits:
             `white` becomes 255, and what is between is rounded. Without it 65535 does
colour       RGB, RGBA, RGBX, P and PA (the palette's colours), CMYK (Pillow's formula; Adobe's
             inverted inks are inverted back), YCbCr
16 bits      of a colour, or with alpha: Pillow keeps the high byte, at most one level from the
             rounded value
refused      F, and I beyond 16 bits, without `white`: nothing says which value is white. LAB
alpha        "drop" drops it; the colours below it stay as stored. Keras (`load_img`), TensorFlow,
             torchvision and fastai do the same, so weights and results from there hold here. A
             palette's transparent colour is a colour like the others. "white" and "black" lay the
             image on that colour, for pictures that are drawn in the alpha channel
to grey      ITU-R 601 luma, (299 R + 587 G + 114 B) / 1000. To colour: three equal channels
orientation  that of the EXIF tag, all eight; one that cannot be read counts as upright
pages        several pages or frames are refused. Of a JPEG with more pictures behind it, as phones
             write, the first is taken
profiles     ICC profiles and gamma are ignored, as in the loaders above

Equal bytes give equal pixels with one version of Pillow, and of OpenCV, which decodes some JPEGs
where the config asks for speed (decode="reduced"). Another version's JPEG decoder may differ by a
level.
"""

import functools
import io
import math
import struct
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import PIL

# These imports register TIFF and WebP. Without them Pillow would import every parser it has.
from PIL import Image, TiffImagePlugin, UnidentifiedImageError, WebPImagePlugin  # noqa: F401

from pipeline.errors import ConfigError

# Raise this with every change of the pixels, so that no cache keeps those of an older rule.
RULES = 2
# The first bytes of each format. All have others behind these that are no text.
HEADS = {
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "JPEG": (b"\xff\xd8\xff",),
    "WEBP": (b"RIFF",),
    "BMP": (b"BM",),
    "GIF": (b"GIF87a", b"GIF89a"),
    "TIFF": (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
}
DEEP = ("I;16", "I;16B", "I", "F")  # modes of grey pixels with more than 8 bits
# 0.7 GB once decoded. Pillow's own limit, which the process may have changed.
MOST_PIXELS = 178_956_970
# Bilinear over all pixels that a new one covers, so that nothing is aliased: half the work of
# bicubic, and no ringing at edges, which uint8 would clip.
FILTER = Image.Resampling.BILINEAR
# Much larger images are first reduced by a whole number (a JPEG while it is decoded), never below
# this many times the new size.
GAP = 2.0
# The same for decode="reduced" (docs/decisions/0011): 500x375 is decoded at half size for 224x224.
REDUCED_GAP = 0.8
# Bilinear takes four pixels for each new one. Up to 1.25 pixels a side it misses nothing visible;
# beyond that Pillow resizes what OpenCV would.
LEAST_SCALE = 0.8
ORIENTATION = 0x0112
# The EXIF orientations, for an array (height, width, …).
TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1),
    8: np.rot90,
}

# The markers of a JPEG's header: the first with a length, those after it without one, the start of
# the pixels, the frames of sequential and progressive files, and what may change how to show it.
FIRST, BARE, SCAN = 0xC0, range(0xD0, 0xDA), 0xDA
FRAMES, METADATA = (0xC0, 0xC1, 0xC2), (0xE1, 0xEE)
MARKER, FRAME = struct.Struct(">BBH"), struct.Struct(">BHHB")
JPEG_END = b"\xff\xd9"

Size = tuple[int, int]  # width, height
Box = tuple[float, float, float, float]  # left, top, right, bottom
# A thread's resized image, overwritten by its next one. Otherwise the system allocates and frees
# memory for each image, and threads wait for each other.
_buffers = threading.local()

# This module has a rule for unreadable EXIF and for images above half of MOST_PIXELS. Pillow's
# warnings would name no file.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class BrokenImage(ValueError):
    """The bytes are not a usable image; the message is a short reason to follow the file's name."""


@dataclass(frozen=True)
class Shape:
    """The shape that every image gets, as `pipeline.config.data_layout.Data` has checked it.

    Attributes:
        height: pixels.
        width: pixels.
        channels: 1 (grey) or 3 (colour).
        resize: "exact" refuses an image of another size; "stretch" resizes it, whatever its
            proportions; "crop" resizes it to cover the shape, and takes the middle; "pad" resizes
            it to fit in, and fills both sides with zeros.
        decode: of a larger JPEG: "full" decodes at a size from which the resize is as good as from
            the whole; "reduced" decodes at half, a quarter or an eighth of its size, if that is at
            least REDUCED_GAP times the new size: faster, and 2 levels off in the mean.
        alpha: "drop" ignores transparency; "white" or "black" is the colour below an image.
        white: the value of grey pixels with more than 8 bits that becomes 255; None: 65535.

    Raises:
        ConfigError: if OpenCV is needed and missing.
    """

    height: int
    width: int
    channels: int
    resize: str
    decode: str = "full"
    alpha: str = "drop"
    white: float | None = None

    def __post_init__(self) -> None:
        if self.may_use_opencv:
            opencv_version()

    @property
    def may_use_opencv(self) -> bool:
        """Whether OpenCV may decode a JPEG."""
        return self.decode == "reduced" and self.channels == 3

    @property
    def rules(self) -> dict[str, Any]:
        """What the pixels depend on beside the file, as JSON holds it."""
        opencv = {"OpenCV": opencv_version()} if self.may_use_opencv else {}
        return {"rules": RULES, "Pillow": PIL.__version__, **opencv, **asdict(self)}


def differing(known: Mapping[str, Any], here: Mapping[str, Any], where: str) -> str:
    """Return which `Shape.rules` differ, and how; "" if none does.

    >>> differing({"alpha": "white", "Pillow": "13"}, {"alpha": "drop", "Pillow": "13"}, "there")
    "alpha: 'white' there, 'drop' here"
    """
    names = [name for name in {**known, **here} if known.get(name) != here.get(name)]
    return "; ".join(
        f"{name}: {known.get(name)!r} {where}, {here.get(name)!r} here" for name in names
    )


def decode(content: bytes, shape: Shape, into: np.ndarray | None = None) -> np.ndarray:
    """Return the image in the bytes of a file: uint8 (height, width, channels).

    Args:
        into: takes the pixels, and is returned; None: a new array. A broken image writes nothing.

    Raises:
        BrokenImage: if it is empty, of another format, truncated, larger than MOST_PIXELS, of
            several pages, or (with "exact") of another size. Flipped bits in the pixels of a JPEG
            go unnoticed, since the format has no checksum.

    >>> file = io.BytesIO()
    >>> Image.new("RGBA", (40, 30), (255, 0, 0, 128)).save(file, "PNG")
    >>> decode(file.getvalue(), Shape(2, 2, 3, "crop")).tolist()
    [[[255, 0, 0], [255, 0, 0]], [[255, 0, 0], [255, 0, 0]]]
    """
    kind = _format(content)
    opencv = kind == "JPEG" and shape.may_use_opencv
    plain = plain_size(content) if opencv else None
    try:
        # Corrupt bytes make Pillow raise OSError, SyntaxError, ValueError, EOFError, struct.error,
        # zlib.error, IndexError and more.
        image = _open(content, kind) if plain is None else None
        original, orientation = (
            (plain or (0, 0), 1) if image is None else (image.size, _turn(image))
        )
        if original[0] * original[1] > MOST_PIXELS:
            raise BrokenImage(
                f"it has {original[0]}x{original[1]} pixels, more than {MOST_PIXELS:,}"
            )
        # From orientation 5 on the file's rows are the image's columns.
        wanted = shape.width, shape.height
        size, box = _geometry(original, wanted[::-1] if orientation >= 5 else wanted, shape.resize)
        least = _least_size(original, size, box, GAP if shape.decode == "full" else REDUCED_GAP)
        resized = None
        if opencv and (image is None or image.mode == "RGB"):
            resized = _by_opencv(content, original, least, box, size)
        if resized is None:
            resized = _resized(image or _open(content, kind), shape, least, box, size)
        resized = TURNS[orientation](resized) if orientation in TURNS else resized
    except (BrokenImage, MemoryError):
        raise
    except Exception as error:
        raise BrokenImage(f"it cannot be decoded: {error or type(error).__name__}") from error
    form = (shape.height, shape.width, shape.channels)
    pixels = np.zeros(form, np.uint8) if into is None else into
    if resized.shape != form:
        pixels[:] = 0
    top, left = (shape.height - resized.shape[0]) // 2, (shape.width - resized.shape[1]) // 2
    pixels[top : top + resized.shape[0], left : left + resized.shape[1]] = resized
    return pixels


def _open(content: bytes, kind: str) -> Image.Image:
    """Return an image with its header read. A PNG is decoded, since EXIF may follow its pixels, and
    a TIFF, which Pillow then turns upright itself.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(content), formats=(kind,))
    except Image.DecompressionBombError as error:
        raise BrokenImage(str(error)) from error
    except UnidentifiedImageError as error:
        raise BrokenImage(f"it is {kind} by its first bytes, and its header is corrupt") from error
    if kind != "JPEG" and getattr(image, "is_animated", False):
        raise BrokenImage(f"it has {getattr(image, 'n_frames', 2)} pages or frames; expected one")
    if kind in ("PNG", "TIFF") and image.width * image.height <= MOST_PIXELS:
        image.load()
    return image


def _resized(image: Image.Image, shape: Shape, least: Size, box: Box, size: Size) -> np.ndarray:
    """Return the box of an image in another size. A JPEG is not decoded below `least`."""
    width = image.width
    drafted = image.draft(None, least)
    reduced = 1.0 if drafted is None else drafted[1][2] / width
    image.load()
    image = image if shape.alpha == "drop" else laid_on(image, shape.alpha)
    image = eight_bits(image, shape.white)
    if shape.channels == 1:
        image = image.convert("L")
    left, top, right, bottom = (edge * reduced for edge in box)
    box = left, top, min(right, image.width), min(bottom, image.height)
    pixels = np.asarray(image.resize(size, FILTER, box, GAP))
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def laid_on(image: Image.Image, colour: str) -> Image.Image:
    """Return an image over a colour, mode RGB, where it is transparent; else the image itself.

    Args:
        image: of any mode; its palette or a colour of it may be transparent.
        colour: "white" or "black".

    >>> drawn = Image.new("RGBA", (2, 1), (0, 0, 0, 0))  # black, and fully transparent
    >>> drawn.putpixel((0, 0), (0, 0, 0, 255))
    >>> laid_on(drawn, "white").tobytes()
    b'\\x00\\x00\\x00\\xff\\xff\\xff'
    """
    if not image.has_transparency_data:
        return image
    over = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", over.size, colour), over).convert("RGB")


def eight_bits(image: Image.Image, white: float | None = None) -> Image.Image:
    """Return an image of any mode as grey or colour of 8 bits a channel, modes L or RGB.

    Args:
        image: of any mode.
        white: as in `Shape`.

    Raises:
        BrokenImage: if no rule says what the values mean.

    >>> deep = Image.fromarray(np.array([[0, 128, 129, 4095, 65535]], np.uint16))
    >>> list(eight_bits(deep).tobytes()), list(eight_bits(deep, 4095).tobytes())
    ([0, 0, 1, 16, 255], [0, 8, 8, 255, 255])
    """
    if image.mode in ("L", "RGB"):
        return image
    if image.mode in DEEP:
        values = np.asarray(image).astype(np.float64)
        low, high = values.min(), values.max()
        if not np.isfinite([low, high]).all():
            raise BrokenImage("some of its values are not finite")
        if white is None and (image.mode == "F" or low < 0 or high > 65535):
            raise BrokenImage(
                f"its values, {'floats' if image.mode == 'F' else 'whole numbers'} from {low:g} to "
                f"{high:g}, are not those of 16 bits; set data.white to the value that is white"
            )
        levels = np.clip(values * 255 / (white or 65535), 0, 255)
        return Image.fromarray(np.floor(levels + 0.5).astype(np.uint8))
    if image.mode in ("1", "LA"):
        return image.convert("L")
    if image.mode in ("P", "PA", "RGBA", "RGBX", "CMYK", "YCbCr"):
        image.info.pop("transparency", None)  # Pillow would warn that it is dropped
        return image.convert("RGB")
    raise BrokenImage(f"its pixels are of the kind {image.mode}, for which there is no rule")


def _format(content: bytes) -> str:
    """Return the format by the first bytes, whatever the file's name says."""
    if not content:
        raise BrokenImage("it is empty")
    head = content[:60].strip()
    if head[:1] in (b"<", b"{") or (head.isascii() and head.decode("ascii").isprintable()):
        raise BrokenImage(f"it is text, not an image: {head.decode('utf-8', 'replace')!r}")
    for kind, heads in HEADS.items():
        if content.startswith(heads) and (kind != "WEBP" or content[8:12] == b"WEBP"):
            return kind
    raise BrokenImage("it is neither PNG, JPEG, WebP, BMP, GIF nor TIFF by its first bytes")


def _turn(image: Image.Image) -> int:
    """Return the orientation in the file's EXIF, 1 (upright) if there is none."""
    if image.format == "TIFF":
        return 1
    try:
        orientation = image.getexif().get(ORIENTATION)
    except Exception:  # of corrupt EXIF; viewers show such images upright
        return 1
    return orientation if isinstance(orientation, int) and orientation in TURNS else 1


def _geometry(size: Size, wanted: Size, resize: str) -> tuple[Size, Box]:
    """Return the (width, height) to resize to, and the box of the image that is resized.

    >>> _geometry((400, 300), (100, 100), "crop"), _geometry((400, 300), (100, 100), "pad")
    (((100, 100), (50.0, 0.0, 350.0, 300.0)), ((100, 75), (0, 0, 400, 300)))
    """
    (width, height), (across, down) = size, wanted
    if resize == "exact" and size != wanted:
        raise BrokenImage(f"it has {width}x{height} pixels (width x height), not {across}x{down}")
    if resize == "crop":
        scale = max(across / width, down / height)
        kept = min(across / scale, width), min(down / scale, height)
        left, top = (width - kept[0]) / 2, (height - kept[1]) / 2
        return wanted, (left, top, left + kept[0], top + kept[1])
    if resize == "pad":
        scale = min(across / width, down / height)
        wanted = min(max(round(width * scale), 1), across), min(max(round(height * scale), 1), down)
    return wanted, (0, 0, width, height)


def _least_size(size: Size, wanted: Size, box: Box, gap: float) -> Size:
    """Return the least size of the whole image before its box is resized."""
    across, down = (
        gap * new / (end - begin) for new, begin, end in zip(wanted, box[:2], box[2:], strict=True)
    )
    return max(int(np.ceil(size[0] * across)), 1), max(int(np.ceil(size[1] * down)), 1)


def plain_size(content: bytes) -> Size | None:
    """Return width and height of a plain JPEG: three colours of 8 bits, no EXIF, no inks.

    Returns None for others. Pillow knows more, but holds the interpreter several times as long.

    >>> frame = b"\\xff\\xc0\\x00\\x11\\x08\\x01\\x77\\x01\\xf4\\x03" + bytes(9)
    >>> plain_size(b"\\xff\\xd8" + frame + b"\\xff\\xda" + bytes(9)), plain_size(b"\\xff\\xd8")
    ((500, 375), None)
    """
    place, size = 2, None
    while place + 10 <= len(content):
        sign, kind, length = MARKER.unpack_from(content, place)
        if sign != 0xFF or kind in METADATA or kind in BARE or not FIRST <= kind < 0xFF:
            return None
        if kind == SCAN:
            return size
        if kind in FRAMES:
            bits, height, width, colours = FRAME.unpack_from(content, place + 4)
            size = (width, height) if (bits, colours) == (8, 3) and width and height else None
        place += 2 + length
    return None


def _by_opencv(
    content: bytes, original: Size, least: Size, box: Box, size: Size
) -> np.ndarray | None:
    """Return the box of a colour JPEG in another size, in half of Pillow's time: decoded at a half,
    a quarter or an eighth of its size, and resized. None where Pillow has to do it, which also
    says what is wrong with a file.

    Args:
        original: size of the file's image.
        least: to decode at.

    Returns:
        RGB, uint8 (height, width, 3); this thread's next call may overwrite it.
    """
    import cv2

    reductions = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4}
    reductions[2] = cv2.IMREAD_REDUCED_COLOR_2
    largest = min(original[0] // least[0], original[1] // least[1])
    part = next((part for part in reductions if part <= largest), None)
    if part is None or not content.endswith(JPEG_END):
        return None
    left, top, right, bottom = (edge / part for edge in box)
    width, height = right - left, bottom - top
    across, down = size[0] / width, size[1] / height
    if min(across, down) < LEAST_SCALE:
        return None
    try:
        flags = reductions[part] | cv2.IMREAD_IGNORE_ORIENTATION
        whole = cv2.imdecode(np.frombuffer(content, np.uint8), flags)
    except cv2.error:
        return None
    if whole is None or whole.shape != (-(-original[1] // part), -(-original[0] // part), 3):
        return None
    if left % 1 or top % 1:
        matrix = np.array(
            [[1 / across, 0, left + 0.5 / across - 0.5], [0, 1 / down, top + 0.5 / down - 0.5]]
        )
        flags, border = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP, cv2.BORDER_REPLICATE
        resized = cv2.warpAffine(whole, matrix, size, flags=flags, borderMode=border)
    else:
        # Faster. The file may hold only a part of the last row or column. Given the scale, and not
        # the size, OpenCV moves nothing for it.
        boxed = whole[int(top) :, int(left) :][: math.ceil(height), : math.ceil(width)]
        resized = cv2.resize(boxed, None, getattr(_buffers, "resized", None), fx=across, fy=down)
        _buffers.resized = resized
    return np.asarray(cv2.cvtColor(resized[: size[1], : size[0]], cv2.COLOR_BGR2RGB))


@functools.cache
def opencv_version() -> str:
    """Return OpenCV's version. Raises `ConfigError` if it is missing."""
    try:
        import cv2
    except ImportError as error:
        raise ConfigError(
            f'data.decode="reduced" needs OpenCV, which cannot be imported here: {error}. Kaggle\'s'
            ' images have it.\nSet data.decode="full" in the config, or install it:\n'
            "pip install opencv-python-headless"
        ) from error
    return cv2.__version__
