"""Decode image files to uint8 pixels, with the same rules in training and inference.

PNG, JPEG, WebP, BMP, GIF and TIFF are recognized by their first bytes. The rules are:

grey         modes 1 (0 and 255), L, LA, and I;16, I;16B, I and F with 16 or 32 bits, where `white`
             (65535 by default) is mapped to 255 and values are rounded
colour       RGB, RGBA, RGBX, P and PA (with the palette's colours), CMYK (with Pillow's formula,
             after Adobe's inverted inks are inverted back), YCbCr
16 bits      in colour, or with alpha, lose the low byte in Pillow, so the result differs from the
             rounded value by at most one level
errors       LAB, and also F and I beyond 16 bits unless `white` is set, because the white level is
             unknown
alpha        "drop" keeps the stored colours, like Keras (`load_img`), TensorFlow, torchvision and
             fastai. A palette's transparent colour is treated like any other. "white" and "black"
             put the image on a background of that colour
to grey      ITU-R 601 luma, (299 R + 587 G + 114 B) / 1000
to colour    the grey channel is repeated
orientation  all eight values of the EXIF tag are applied, and an unreadable tag is ignored
pages        multiple pages or frames are an error, but only the first image is used if a phone
             stored several in a JPEG
profiles     ICC profiles and gamma are ignored, as in the loaders above

For given versions of Pillow and OpenCV, the same bytes always result in the same pixels. If
decode="reduced", some JPEGs are decoded by OpenCV. With a different version of a JPEG decoder,
pixels may differ by one level.
"""

import io
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import PIL

# These imports register TIFF and WebP, so that Pillow does not import all of its parsers.
from PIL import Image, ImageOps, TiffImagePlugin, UnidentifiedImageError, WebPImagePlugin  # noqa: F401

from pipeline.config.data_layout import PIXELS, Data
from pipeline.errors import ConfigError

# Increase this number whenever pixels change, which invalidates caches.
RULES = 4
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
DEEP = ("I;16", "I;16B", "I", "F")  # modes of grey images with more than 8 bits
# Bilinear with antialiasing takes half as long as bicubic, and causes no ringing at edges.
FILTER = Image.Resampling.BILINEAR
# Much larger images are first reduced by an integer factor (2, 4 or 8 in the JPEG decoder), but not
# below this multiple of the new size (docs/decisions/0011).
GAPS = {"full": 2.0, "reduced": 0.8}
# OpenCV's bilinear filter has no antialiasing. This is not visible down to this scale. Below it,
# Pillow is used.
LEAST_SCALE = 0.8
ORIENTATION = 0x0112

Size = tuple[int, int]  # width, height
Box = tuple[float, float, float, float]  # left, top, right, bottom

# Corrupt EXIF and large images are handled below, and Pillow's warnings lack the file name.
warnings.filterwarnings("ignore", module=r"PIL\.")


class BrokenImage(ValueError):
    """The bytes are not a usable image. The message is a short reason without the file name."""


def rules(data: Data) -> dict[str, Any]:
    """Return the settings and versions that affect pixels, as JSON-serializable values.

    Raises:
        ConfigError: if OpenCV is required but not installed.
    """
    versions = {"Pillow": PIL.__version__}
    if _may_use_opencv(data):
        try:
            import cv2
        except ImportError as error:
            raise ConfigError(
                f'data.decode="reduced" requires OpenCV, but it cannot be imported: {error}.\nSet '
                'data.decode="full" in the config, or run: pip install opencv-python-headless'
            ) from error
        versions["OpenCV"] = cv2.__version__
    return {"rules": RULES, **versions, **{name: getattr(data, name) for name in PIXELS}}


def _may_use_opencv(data: Data) -> bool:
    return data.decode == "reduced" and data.channels == 3


def differing(known: Mapping[str, Any], here: Mapping[str, Any], where: str) -> str:
    """Describe the differences between two `rules`. Return "" if they are equal.

    >>> differing({"alpha": "white", "Pillow": "13"}, {"alpha": "drop", "Pillow": "13"}, "there")
    "alpha: 'white' there, 'drop' here"
    """
    names = [name for name in {**known, **here} if known.get(name) != here.get(name)]
    return "; ".join(
        f"{name}: {known.get(name)!r} {where}, {here.get(name)!r} here" for name in names
    )


def decode(content: bytes, data: Data) -> np.ndarray:
    """Decode an image file to uint8 (height, width, channels).

    Args:
        data: uses the fields in `PIXELS` (height, width, channels, resize, decode, alpha, white).

    Raises:
        BrokenImage: if the file is empty, truncated or in an unsupported format, contains several
            pages, exceeds Pillow's limit (179 million pixels), or has a different size and
            resize="exact". Flipped bits in a JPEG may go unnoticed, because the format does not
            have a checksum.

    >>> file = io.BytesIO()
    >>> Image.new("RGBA", (40, 30), (255, 0, 0, 128)).save(file, "PNG")
    >>> data = Data(height=2, width=2, channels=3, resize="crop")
    >>> decode(file.getvalue(), data).tolist()
    [[[255, 0, 0], [255, 0, 0]], [[255, 0, 0], [255, 0, 0]]]
    """
    try:
        resized = _upright(content, data)
    except (BrokenImage, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise BrokenImage(
            f"its first bytes do not match any of {', '.join(FORMATS)}, or its header is corrupt"
        ) from error
    except Exception as error:  # Pillow raises many types for corrupt bytes
        raise BrokenImage(f"it cannot be decoded: {error or type(error).__name__}") from error
    if resized.shape == data.shape:
        return resized
    pixels, (height, width) = np.zeros(data.shape, np.uint8), resized.shape[:2]
    top, left = (data.height - height) // 2, (data.width - width) // 2
    pixels[top : top + height, left : left + width] = resized.reshape(height, width, -1)
    return pixels


def _upright(content: bytes, data: Data) -> np.ndarray:
    """Return the resized, upright image. Its shape is (h, w) for grey and (h, w, 3) for colour."""
    image = _opened(content)
    try:
        orientation = image.getexif().get(ORIENTATION)
    except Exception:  # corrupt EXIF, which viewers ignore as well
        orientation = 1
    sideways = orientation in (5, 6, 7, 8)
    wanted = (data.height, data.width) if sideways else (data.width, data.height)
    size, box = _geometry(image.size, wanted, data.resize)
    most = min((box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1]) / GAPS[data.decode]
    part = next((part for part in (8, 4, 2) if part <= min(most, *image.size)), 1)
    quick = part > 1 and _may_use_opencv(data) and (image.format, image.mode) == ("JPEG", "RGB")
    resized = _by_opencv(content, part, box, size) if quick else None
    if resized is None:
        resized = np.asarray(_by_pillow(image, data, part, box, size))
    if orientation in (None, 1):
        return resized
    turned = Image.fromarray(resized)
    turned.getexif()[ORIENTATION] = orientation
    return np.asarray(ImageOps.exif_transpose(turned))


def _opened(content: bytes) -> Image.Image:
    if not content:
        raise BrokenImage("it is empty")
    head = content[:60].strip()
    if head[:1] in (b"<", b"{") or (head.isascii() and head.decode("ascii").isprintable()):
        raise BrokenImage(f"it is text, not an image: {head.decode('utf-8', 'replace')!r}")
    image: Image.Image = Image.open(io.BytesIO(content), formats=FORMATS)
    if image.format in ("JPEG", "MPO"):  # phones store a second image after the first
        return image  # not decoded yet, because it may be decoded at a smaller size
    if (frames := getattr(image, "n_frames", 1)) > 1:
        raise BrokenImage(f"it has {frames} pages or frames; expected one")
    image.load()  # a PNG's EXIF can follow its pixels, and Pillow applies a TIFF's orientation
    return image


def _by_pillow(image: Image.Image, data: Data, part: int, box: Box, size: Size) -> Image.Image:
    """Return a resized region. JPEGs are decoded at a size that is smaller by the factor `part`."""
    if image.draft(None, (image.width // part, image.height // part)):
        box = box[0] / part, box[1] / part, box[2] / part, box[3] / part
    image = image if data.alpha == "drop" else laid_on(image, data.alpha)
    image = eight_bits(image, data.white)
    if data.channels == 1:
        image = image.convert("L")
    return image.resize(size, FILTER, box, GAPS["full"])


def _by_opencv(content: bytes, part: int, box: Box, size: Size) -> np.ndarray | None:
    """Return a resized region of a colour JPEG, twice as fast as Pillow.

    Return None if Pillow must be used, for example because it reports errors in the file.
    """
    import cv2

    left, top, right, bottom = (edge / part for edge in box)
    width, height = right - left, bottom - top
    across, down = size[0] / width, size[1] / height
    # OpenCV would pad a truncated file.
    if min(across, down) < LEAST_SCALE or not content.endswith(b"\xff\xd9"):
        return None
    flags = getattr(cv2, f"IMREAD_REDUCED_COLOR_{part}") | cv2.IMREAD_IGNORE_ORIENTATION
    whole = cv2.imdecode(np.frombuffer(content, np.uint8), flags)
    if whole is None:
        return None
    # The last row or column may be incomplete. OpenCV shifts all others if it is given a size
    # instead of a scale.
    boxed = whole[round(top) :, round(left) :][: math.ceil(height), : math.ceil(width)]
    resized = cv2.resize(boxed, None, fx=across, fy=down)[: size[1], : size[0]]
    return np.asarray(cv2.cvtColor(resized, cv2.COLOR_BGR2RGB))


def laid_on(image: Image.Image, colour: str) -> Image.Image:
    """Place a transparent image on a background, in mode RGB. Return other images unchanged.

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
    """Convert an image to 8 bits per channel, in mode L or RGB.

    Raises:
        BrokenImage: if the white level is unknown.

    >>> deep = Image.fromarray(np.array([[0, 128, 129, 4095, 65535]], np.uint16))
    >>> list(eight_bits(deep).tobytes()), list(eight_bits(deep, 4095).tobytes())
    ([0, 0, 1, 16, 255], [0, 8, 8, 255, 255])
    """
    if image.mode in ("L", "RGB"):
        return image
    if image.mode in DEEP:
        values = np.asarray(image).astype(np.float64)
        low, high = values.min(), values.max()
        deep = image.mode != "F" and low >= 0 and high <= 65535
        if not (deep or white) or not np.isfinite(high - low):
            raise BrokenImage(
                f"its values, {'floats' if image.mode == 'F' else 'integers'} from {low:g} to "
                f"{high:g}, are not 16-bit integers; set data.white to the value of white"
            )
        levels = np.clip(values * 255 / (white or 65535), 0, 255)
        return Image.fromarray(np.floor(levels + 0.5).astype(np.uint8))
    if image.mode in ("1", "LA"):
        return image.convert("L")
    image.info.pop("transparency", None)  # avoids a warning by Pillow
    return image.convert("RGB")


def _geometry(size: Size, wanted: Size, resize: str) -> tuple[Size, Box]:
    """Return the new (width, height) and the region of the image to resize.

    >>> _geometry((400, 300), (100, 100), "crop"), _geometry((400, 300), (100, 100), "pad")
    (((100, 100), (50.0, 0.0, 350.0, 300.0)), ((100, 75), (0, 0, 400, 300)))
    """
    (width, height), (across, down) = size, wanted
    if resize == "exact" and size != wanted:
        raise BrokenImage(
            f"it has {width}x{height} pixels (width x height), not {across}x{down};"
            " use resize='stretch', 'crop' or 'pad'"
        )
    if resize == "crop":
        scale = max(across / width, down / height)
        kept = min(across / scale, width), min(down / scale, height)
        left, top = (width - kept[0]) / 2, (height - kept[1]) / 2
        return wanted, (left, top, min(left + kept[0], width), min(top + kept[1], height))
    if resize == "pad":
        scale = min(across / width, down / height)
        wanted = min(max(round(width * scale), 1), across), min(max(round(height * scale), 1), down)
    return wanted, (0, 0, width, height)
