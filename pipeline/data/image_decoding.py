"""Image: from the bytes of a file to uint8 pixels, by one rule for training and inference.

PNG, JPEG and WebP, and no other format: each parser more is one more way in. What a file holds
comes out as follows.

grey         1 (black and white: 0 and 255), L, LA; I;16, I;16B and I, which are 16 bits: divided by 257 and rounded, never clipped
colour       RGB, RGBA, P and PA (the palette's colours), CMYK (Pillow's formula; Adobe's inverted inks are turned back), YCbCr
16 bits      of a colour, or with alpha: Pillow keeps the high byte, at most one level from the rounded value
F            refused, and I beyond 16 bits: nothing says which value is white. None of the three formats holds such pixels
alpha        dropped, and the colours below it are as stored: as Keras (`load_img`), TensorFlow, torchvision and fastai do, so that weights
             and results from there hold here. A palette's transparent colour is a colour like the
             others
to grey      ITU-R 601 luma, (299 R + 587 G + 114 B) / 1000. To colour: three equal channels
orientation  that of the EXIF tag, all eight; one that cannot be read counts as upright
animations   the first frame
profiles     ICC profiles and gamma are ignored, as everywhere above

Equal bytes give equal pixels with one version of Pillow, and of OpenCV, which decodes some JPEGs
where the config asks for speed. Of a JPEG another version's decoder may differ by a level.
"""

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import PIL

# WebP is registered by its import; Pillow would look for it by importing every parser that it has.
from PIL import Image, UnidentifiedImageError, WebPImagePlugin  # noqa: F401

from pipeline.data import reduced_jpeg
from pipeline.errors import ConfigError

# Raised with every change of what comes out, so that no cache keeps the pixels of another rule; of
# OpenCV the version counts as well.
RULES = 1
ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".PNG", ".JPG", ".JPEG", ".WEBP")
RESIZES = ("exact", "stretch", "crop", "pad")
DECODES = ("full", "reduced")
# What the header may say: 0.7 GB once decoded. It is where Pillow itself refuses, unless somebody
# has changed that for the process.
MOST_PIXELS = 178_956_970
# Bilinear over all pixels that a new one covers, so that nothing is aliased: half the work of
# bicubic, and no ringing at edges, which uint8 would clip.
FILTER = Image.Resampling.BILINEAR
# What is much larger is first reduced by a whole number (JPEG: while it is decoded), never below
# this many times the new size.
GAP = 2.0
# The same where the config asks for speed (docs/decisions/0011): 500x375 is then decoded at half
# its size for 224x224.
REDUCED_GAP = 0.8
ORIENTATION = 0x0112
# What each orientation asks for, of an array (height, width, …).
TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.rot90(pixels, 2).swapaxes(0, 1),
    8: np.rot90,
}

# Of EXIF that cannot be read and of images above half of MOST_PIXELS, on which this module has a
# rule; said once a process, they would name no file.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class BrokenImage(ValueError):
    """The bytes are no image that can be used; the message is the reason, short, to be put behind
    the file's name.
    """


@dataclass(frozen=True)
class Shape:
    """The form that every image gets.

    Attributes:
        height, width: pixels. channels: 1 (grey) or 3 (colour).
        resize: "exact" refuses an image of another size; "stretch" resizes to it, whatever becomes
            of the proportions; "crop" resizes so that it is covered and takes the middle; "pad"
            resizes so that the image fits in, and fills with zeros on both sides.
        decode: of a JPEG that is to become smaller: "full" decodes it at a size from which the
            resize is as good as from the whole, "reduced" at half, a quarter or an eighth of its
            size as long as that is REDUCED_GAP times the new size: faster, and 2 levels off in the
            mean.

    Raises:
        ConfigError: if a value is none of these, or OpenCV is needed for it and not there.
    """

    height: int
    width: int
    channels: int
    resize: str
    decode: str = "full"

    def __post_init__(self) -> None:
        known = self.resize in RESIZES and self.decode in DECODES
        if not known or self.channels not in (1, 3) or min(self.height, self.width) < 1:
            raise ConfigError(
                f"Images cannot get the form {self}; expected height and width of 1 or more, 1 or 3 channels, and resize one of "
                f"{', '.join(RESIZES)}, and decode one of {', '.join(DECODES)}.\nCorrect them in the config."
            )
        if self.quick:
            reduced_jpeg.library()

    @property
    def quick(self) -> bool:
        """Whether OpenCV may decode a JPEG."""
        return self.decode == "reduced" and self.channels == 3

    @property
    def rules(self) -> str:
        """What an image of this form depends on beside its file: equal texts, equal pixels."""
        return (
            f"{RULES} {PIL.__version__}{f' {reduced_jpeg.library()}' if self.quick else ''} {self}"
        )


def decode(content: bytes, shape: Shape, into: np.ndarray | None = None) -> np.ndarray:
    """Return the image in the bytes of a file: uint8 (height, width, channels), by the rules above.

    Args:
        into: takes the image, and is returned; None: an array of its own. Of a broken image nothing
            is written.

    Raises:
        BrokenImage: if it is empty, of another format, cut off, larger than MOST_PIXELS, or (with
            "exact") of another size. Flipped bits within the pixels of a JPEG are not seen, since
            the format has no checksum.

    >>> file = io.BytesIO()
    >>> Image.new("RGBA", (40, 30), (255, 0, 0, 128)).save(file, "PNG")
    >>> decode(file.getvalue(), Shape(2, 2, 3, "crop")).tolist()
    [[[255, 0, 0], [255, 0, 0]], [[255, 0, 0], [255, 0, 0]]]
    """
    kind = _format(content)
    quick = kind == "JPEG" and shape.quick
    known = reduced_jpeg.plain(content) if quick else None
    try:
        # What torn bytes make Pillow raise: OSError, SyntaxError, ValueError, EOFError,
        # struct.error, zlib.error, IndexError and more.
        image = _opened(content, kind) if known is None else None
        given, turn = (known or (0, 0), 1) if image is None else (image.size, _turn(image))
        if given[0] * given[1] > MOST_PIXELS:
            raise BrokenImage(f"it has {given[0]}x{given[1]} pixels, more than {MOST_PIXELS:,}")
        lying = 5 <= turn <= 8  # the file's rows are the image's columns
        wanted = (shape.height, shape.width) if lying else (shape.width, shape.height)
        size, box = _geometry(given, wanted, shape.resize)
        least = _enough(given, size, box, GAP if shape.decode == "full" else REDUCED_GAP)
        found = None
        if quick and (image is None or image.mode == "RGB"):
            found = reduced_jpeg.reduced(content, given, least, box, size)
        if found is None:
            found = _resized(image or _opened(content, kind), shape, least, box, size)
        found = TURNS[turn](found) if turn in TURNS else found
    except (BrokenImage, MemoryError):
        raise
    except Exception as error:
        raise BrokenImage(f"it cannot be decoded: {error or type(error).__name__}") from error
    form = (shape.height, shape.width, shape.channels)
    pixels = np.zeros(form, np.uint8) if into is None else into
    if found.shape != form:
        pixels[:] = 0
    down, along = (shape.height - found.shape[0]) // 2, (shape.width - found.shape[1]) // 2
    pixels[down : down + found.shape[0], along : along + found.shape[1]] = found
    return pixels


def _opened(content: bytes, kind: str) -> Image.Image:
    """Return an image of which Pillow has read the header; of a PNG all, since its EXIF may stand
    behind its pixels.
    """
    try:
        image: Image.Image = Image.open(io.BytesIO(content), formats=(kind,))
    except Image.DecompressionBombError as error:
        raise BrokenImage(str(error)) from error
    except UnidentifiedImageError as error:
        raise BrokenImage(
            f"it is called {kind} by its first bytes, and its header is torn"
        ) from error
    if kind == "PNG" and image.width * image.height <= MOST_PIXELS:
        image.load()
    return image


def _resized(
    image: Image.Image,
    shape: Shape,
    least: tuple[int, int],
    box: reduced_jpeg.Box,
    size: tuple[int, int],
) -> np.ndarray:
    """Return a part of an image in another size; of a JPEG it is decoded smaller, but not below
    `least`.
    """
    width = image.width
    drafted = image.draft(None, least)
    reduced = 1.0 if drafted is None else drafted[1][2] / width
    image.load()
    image = eight_bits(image)
    if shape.channels == 1:
        image = image.convert("L")
    left, top, right, bottom = (place * reduced for place in box)
    image = image.resize(
        size, FILTER, (left, top, min(right, image.width), min(bottom, image.height)), GAP
    )
    found = np.asarray(image)
    return found if found.ndim == 3 else found[:, :, None]


def eight_bits(image: Image.Image) -> Image.Image:
    """Return an image of any mode as grey or colour of 8 bits a channel, modes L or RGB.

    Raises:
        BrokenImage: if no rule says what the values mean.

    >>> eight_bits(Image.fromarray(np.array([[0, 128, 129, 257, 65535]], np.uint16))).tobytes()
    b'\\x00\\x00\\x01\\x01\\xff'
    """
    if image.mode in ("L", "RGB"):
        return image
    if image.mode in ("I;16", "I;16B", "I"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise BrokenImage(
                f"its values, {values.min()} to {values.max()}, are not those of 16 bits"
            )
        return Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.mode in ("1", "LA"):
        return image.convert("L")
    if image.mode in ("P", "PA", "RGBA", "CMYK", "YCbCr"):
        image.info.pop("transparency", None)  # Pillow would warn that it goes, and it goes
        return image.convert("RGB")
    raise BrokenImage(f"its pixels are of the kind {image.mode}, for which there is no rule")


def _format(content: bytes) -> str:
    """Return the format that the first bytes tell, whatever the file is called."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if content.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "WEBP"
    if not content:
        raise BrokenImage("it is empty")
    head = content[:60].strip()
    if head[:1] in (b"<", b"{") or (head.isascii() and head.decode("ascii").isprintable()):
        raise BrokenImage(f"it is text, not an image: {head.decode('utf-8', 'replace')!r}")
    raise BrokenImage("it is neither PNG, JPEG nor WebP by its first bytes")


def _turn(image: Image.Image) -> int:
    """Return the orientation that the file's EXIF tells, 1 where it tells none."""
    try:
        found = image.getexif().get(ORIENTATION)
    except (
        Exception
    ):  # torn EXIF, of which Pillow raises a dozen kinds: viewers show such images upright
        return 1
    return found if isinstance(found, int) else 1


def _geometry(
    size: tuple[int, int], wanted: tuple[int, int], resize: str
) -> tuple[tuple[int, int], reduced_jpeg.Box]:
    """Return (width, height) to resize to, and the part (left, top, right, bottom) of the image
    that is resized.

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


def _enough(
    size: tuple[int, int], wanted: tuple[int, int], box: reduced_jpeg.Box, gap: float
) -> tuple[int, int]:
    """Return the (width, height) below which the whole image must not be reduced before it is
    resized.
    """
    across, down = (
        gap * new / (end - begin) for new, begin, end in zip(wanted, box[:2], box[2:], strict=True)
    )
    return max(int(np.ceil(size[0] * across)), 1), max(int(np.ceil(size[1] * down)), 1)
