"""Image: from the bytes of a file to uint8 pixels, by one rule for training and inference.

PNG, JPEG and WebP, and no other format: each parser more is one more way in. What a file holds comes out as follows.

grey         1 (black and white: 0 and 255), L, LA; I;16, I;16B and I, which are 16 bits: divided by 257 and rounded, never clipped
colour       RGB, RGBA, P and PA (the palette's colours), CMYK (Pillow's formula; Adobe's inverted inks are turned back), YCbCr
16 bits      of a colour, or with alpha: Pillow keeps the high byte, at most one level from the rounded value
F            refused, and I beyond 16 bits: nothing says which value is white. None of the three formats holds such pixels
alpha        dropped, and the colours below it are as stored: as Keras (`load_img`), TensorFlow, torchvision and fastai do, so that weights
             and results from there hold here. A palette's transparent colour is a colour like the others
to grey      ITU-R 601 luma, (299 R + 587 G + 114 B) / 1000. To colour: three equal channels
orientation  that of the EXIF tag, all eight; one that cannot be read counts as upright
animations   the first frame
profiles     ICC profiles and gamma are ignored, as everywhere above

Equal bytes give equal pixels with one version of Pillow. Of a JPEG another version's decoder may differ by a level.
"""

import io
import warnings
from dataclasses import dataclass

import numpy as np

# WebP is registered by its import; Pillow would look for it by importing every parser that it has.
from PIL import Image, UnidentifiedImageError, WebPImagePlugin  # noqa: F401

from pipeline.errors import ConfigError

# Raised with every change of what comes out, so that no cache keeps the pixels of another rule.
RULES = 1
ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
RESIZES = ("exact", "stretch", "crop", "pad")
DECODES = ("full", "reduced")
# What the header may say: 0.7 GB once decoded. It is where Pillow itself refuses, unless somebody has changed that for the process.
MOST_PIXELS = 178_956_970
# Bilinear over all pixels that a new one covers, so that nothing is aliased: half the work of bicubic, and no ringing at edges, which
# uint8 would clip.
FILTER = Image.Resampling.BILINEAR
# What is much larger is first reduced by a whole number (JPEG: while it is decoded), never below this many times the new size.
GAP = 2.0
# The same where the config asks for speed (docs/decisions/0011): 500x375 is then decoded at half its size for 224x224.
REDUCED_GAP = 0.8
ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Of EXIF that cannot be read and of images above half of MOST_PIXELS, on which this module has a rule; said once a process, they would name no file.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class BrokenImage(ValueError):
    """The bytes are no image that can be used; the message is the reason, short, to be put behind the file's name."""


@dataclass(frozen=True)
class Shape:
    """The form that every image gets.

    Attributes:
        height, width: pixels. channels: 1 (grey) or 3 (colour).
        resize: "exact" refuses an image of another size; "stretch" resizes to it, whatever becomes of the proportions; "crop" resizes so that it is
            covered and takes the middle; "pad" resizes so that the image fits in, and fills with zeros on both sides.
        decode: of a JPEG that is to become smaller: "full" decodes it at a size from which the resize is as good as from the whole, "reduced" at
            half, a quarter or an eighth of its size as long as that is REDUCED_GAP times the new size: faster, and 2 levels off in the mean.

    Raises:
        ConfigError: if a value is none of these.
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


def decode(content: bytes, shape: Shape) -> np.ndarray:
    """Return the image in the bytes of a file: uint8 (height, width, channels), by the rules above.

    Raises:
        BrokenImage: if it is empty, of another format, cut off, larger than MOST_PIXELS, or (with "exact") of another size. Flipped
            bits within the pixels of a JPEG are not seen, since the format has no checksum.

    >>> file = io.BytesIO()
    >>> Image.new("RGBA", (40, 30), (255, 0, 0, 128)).save(file, "PNG")
    >>> decode(file.getvalue(), Shape(2, 2, 3, "crop")).tolist()
    [[[255, 0, 0], [255, 0, 0]], [[255, 0, 0], [255, 0, 0]]]
    """
    kind = _format(content)
    try:
        # What torn bytes make Pillow raise: OSError, SyntaxError, ValueError, EOFError, struct.error, zlib.error, IndexError and more.
        try:
            image: Image.Image = Image.open(io.BytesIO(content), formats=(kind,))
        except Image.DecompressionBombError as error:
            raise BrokenImage(str(error)) from error
        except UnidentifiedImageError as error:
            raise BrokenImage(f"it is called {kind} by its first bytes, and its header is torn") from error
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise BrokenImage(f"it has {width}x{height} pixels, more than {MOST_PIXELS:,}")
        if kind == "PNG":
            image.load()  # its EXIF may stand behind its pixels
        turn = _turn(image)
        lying = 5 <= turn <= 8  # the file's rows are the image's columns
        wanted = (shape.height, shape.width) if lying else (shape.width, shape.height)
        size, box = _geometry((width, height), wanted, shape.resize)
        drafted = image.draft(None, _enough((width, height), size, box, GAP if shape.decode == "full" else REDUCED_GAP))
        image.load()
        reduced = 1.0 if drafted is None else drafted[1][2] / width
        image = eight_bits(image)
        if shape.channels == 1:
            image = image.convert("L")
        left, top, right, bottom = (place * reduced for place in box)
        image = image.resize(size, FILTER, (left, top, min(right, image.width), min(bottom, image.height)), GAP)
        if turn in TURNS:
            image = image.transpose(TURNS[turn])
    except (BrokenImage, MemoryError):
        raise
    except Exception as error:
        raise BrokenImage(f"it cannot be decoded: {error or type(error).__name__}") from error
    found = np.asarray(image)
    found = found if found.ndim == 3 else found[:, :, None]
    if found.shape == (shape.height, shape.width, shape.channels):
        return found  # not to be written to, as Pillow has it
    pixels = np.zeros((shape.height, shape.width, shape.channels), np.uint8)
    down, along = (shape.height - image.height) // 2, (shape.width - image.width) // 2
    pixels[down : down + image.height, along : along + image.width] = found
    return pixels


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
            raise BrokenImage(f"its values, {values.min()} to {values.max()}, are not those of 16 bits")
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
    except Exception:  # torn EXIF, of which Pillow raises a dozen kinds: viewers show such images upright
        return 1
    return found if isinstance(found, int) else 1


def _geometry(
    size: tuple[int, int], wanted: tuple[int, int], resize: str
) -> tuple[tuple[int, int], tuple[float, float, float, float]]:
    """Return (width, height) to resize to, and the part (left, top, right, bottom) of the image that is resized.

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
    size: tuple[int, int], wanted: tuple[int, int], box: tuple[float, float, float, float], gap: float
) -> tuple[int, int]:
    """Return the (width, height) below which the whole image must not be reduced before it is resized."""
    across, down = (gap * new / (end - begin) for new, begin, end in zip(wanted, box[:2], box[2:], strict=True))
    return max(int(np.ceil(size[0] * across)), 1), max(int(np.ceil(size[1] * down)), 1)
