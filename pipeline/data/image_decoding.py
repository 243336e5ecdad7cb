"""From the bytes of an image file to uint8 pixels, by the same rules in training and inference.

PNG, JPEG, WebP, BMP, GIF and TIFF, recognized by their first bytes. The rules:

grey         modes 1 (0 and 255), L, LA; I;16, I;16B, I and F, with 16 or 32 bits: `white` (65535
             by default) becomes 255, and values are rounded
colour       RGB, RGBA, RGBX, P and PA (the palette's colours), CMYK (Pillow's formula; Adobe's
             inverted inks are inverted back), YCbCr
16 bits      per colour, or with alpha: Pillow keeps the high byte, at most one level from the
             rounded value
refused      F, and I beyond 16 bits, without `white`, since the white level is unknown; LAB
alpha        "drop" ignores it and keeps the stored colours, as Keras (`load_img`), TensorFlow,
             torchvision and fastai do. A palette's transparent colour is an ordinary colour.
             "white" and "black" put the image on that background
to grey      ITU-R 601 luma, (299 R + 587 G + 114 B) / 1000. To colour: three equal channels
orientation  by the EXIF tag, all eight values; upright if it is unreadable
pages        several pages or frames are refused. If a phone stored more pictures in a JPEG, the
             first one counts
profiles     ICC profiles and gamma are ignored, as in the loaders above

Equal bytes give equal pixels with the same version of Pillow, and of OpenCV, which decodes some
JPEGs with decode="reduced". JPEG decoders of different versions may differ by a level.
"""

import io
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import PIL

# These imports register TIFF and WebP. Without them Pillow would import every parser it has.
from PIL import Image, ImageOps, TiffImagePlugin, UnidentifiedImageError, WebPImagePlugin  # noqa: F401

from pipeline.config.data_layout import PIXELS, Data
from pipeline.errors import ConfigError

# Increase this with every change of the pixels: it invalidates caches.
RULES = 4
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
DEEP = ("I;16", "I;16B", "I", "F")  # modes of grey pixels with more than 8 bits
# Bilinear with antialiasing: half the work of bicubic, and no ringing at edges.
FILTER = Image.Resampling.BILINEAR
# Much larger images are first reduced by an integer factor (JPEGs by 2, 4 or 8 in the decoder), but
# not below this multiple of the new size (docs/decisions/0011).
GAPS = {"full": 2.0, "reduced": 0.8}
# OpenCV's bilinear has no antialiasing, which is invisible down to this scale; below it Pillow
# resizes.
LEAST_SCALE = 0.8
ORIENTATION = 0x0112

Size = tuple[int, int]  # width, height
Box = tuple[float, float, float, float]  # left, top, right, bottom

# For corrupt EXIF and large images, which are handled here; the warnings would name no file.
warnings.filterwarnings("ignore", module=r"PIL\.")


class BrokenImage(ValueError):
    """The bytes are not a usable image; the message is a short reason, to follow a file name."""


def rules(data: Data) -> dict[str, Any]:
    """Return everything that the pixels depend on beside the file, for JSON.

    Raises:
        ConfigError: if OpenCV is needed and missing.
    """
    versions = {"Pillow": PIL.__version__}
    if _may_use_opencv(data):
        try:
            import cv2
        except ImportError as error:
            raise ConfigError(
                f'data.decode="reduced" needs OpenCV, which cannot be imported here: {error}.\nSet '
                'data.decode="full" in the config, or: pip install opencv-python-headless'
            ) from error
        versions["OpenCV"] = cv2.__version__
    return {"rules": RULES, **versions, **{name: getattr(data, name) for name in PIXELS}}


def _may_use_opencv(data: Data) -> bool:
    return data.decode == "reduced" and data.channels == 3


def differing(known: Mapping[str, Any], here: Mapping[str, Any], where: str) -> str:
    """Return the differences between two `rules` as text; "" if there are none.

    >>> differing({"alpha": "white", "Pillow": "13"}, {"alpha": "drop", "Pillow": "13"}, "there")
    "alpha: 'white' there, 'drop' here"
    """
    names = [name for name in {**known, **here} if known.get(name) != here.get(name)]
    return "; ".join(
        f"{name}: {known.get(name)!r} {where}, {here.get(name)!r} here" for name in names
    )


def decode(content: bytes, data: Data) -> np.ndarray:
    """Return the image in the bytes of a file: uint8 (height, width, channels).

    Args:
        content: of the file.
        data: with the fields `PIXELS`: height, width, channels, resize, decode, alpha, white.

    Raises:
        BrokenImage: if it is empty, truncated, in another format, has several pages, is larger than
            Pillow allows (179 million pixels), or (with "exact") has another size. Flipped bits in
            a JPEG may go unnoticed, since the format has no checksum.

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
            f"its first bytes are none of {', '.join(FORMATS)}, or its header is corrupt"
        ) from error
    except Exception as error:  # Pillow raises a dozen kinds for corrupt bytes
        raise BrokenImage(f"it cannot be decoded: {error or type(error).__name__}") from error
    if resized.shape == data.shape:
        return resized
    pixels, (height, width) = np.zeros(data.shape, np.uint8), resized.shape[:2]
    top, left = (data.height - height) // 2, (data.width - width) // 2
    pixels[top : top + height, left : left + width] = resized.reshape(height, width, -1)
    return pixels


def _upright(content: bytes, data: Data) -> np.ndarray:
    """Return the resized image with its orientation applied: grey (h, w) or (h, w, 3)."""
    image = _opened(content)
    try:
        orientation = image.getexif().get(ORIENTATION)
    except Exception:  # corrupt EXIF; viewers show such images upright
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
    """Return an image; a JPEG is not decoded yet, since that may be at a smaller size."""
    if not content:
        raise BrokenImage("it is empty")
    head = content[:60].strip()
    if head[:1] in (b"<", b"{") or (head.isascii() and head.decode("ascii").isprintable()):
        raise BrokenImage(f"it is text, not an image: {head.decode('utf-8', 'replace')!r}")
    image: Image.Image = Image.open(io.BytesIO(content), formats=FORMATS)
    if image.format in ("JPEG", "MPO"):  # phones write a second picture after the first
        return image
    if (frames := getattr(image, "n_frames", 1)) > 1:
        raise BrokenImage(f"it has {frames} pages or frames; expected one")
    image.load()  # EXIF may follow the pixels of a PNG; Pillow turns a TIFF upright itself
    return image


def _by_pillow(image: Image.Image, data: Data, part: int, box: Box, size: Size) -> Image.Image:
    """Return the resized box of an image. A JPEG is decoded at 1/`part` of its size."""
    if image.draft(None, (image.width // part, image.height // part)):
        box = box[0] / part, box[1] / part, box[2] / part, box[3] / part
    image = image if data.alpha == "drop" else laid_on(image, data.alpha)
    image = eight_bits(image, data.white)
    if data.channels == 1:
        image = image.convert("L")
    return image.resize(size, FILTER, box, GAPS["full"])


def _by_opencv(content: bytes, part: int, box: Box, size: Size) -> np.ndarray | None:
    """Return the resized box of a colour JPEG, in half of Pillow's time; None if it is left to
    Pillow, which also reports errors in a file.
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
    # The last row or column may be a partial one. Given the scale instead of the size, OpenCV does
    # not shift the others for it.
    boxed = whole[round(top) :, round(left) :][: math.ceil(height), : math.ceil(width)]
    resized = cv2.resize(boxed, None, fx=across, fy=down)[: size[1], : size[0]]
    return np.asarray(cv2.cvtColor(resized, cv2.COLOR_BGR2RGB))


def laid_on(image: Image.Image, colour: str) -> Image.Image:
    """Return an image with transparency on a background, mode RGB, and any other image unchanged.

    Args:
        image: of any mode; the transparency may be in a channel, the palette or a colour.
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
    """Return an image of any mode with 8 bits per channel, mode L or RGB.

    Args:
        image: of any mode.
        white: as in `Data`.

    Raises:
        BrokenImage: if the white level is unknown.
        ValueError: if Pillow does not convert this mode.

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
                f"{high:g}, are not 16-bit integers; set data.white to the value that is white"
            )
        levels = np.clip(values * 255 / (white or 65535), 0, 255)
        return Image.fromarray(np.floor(levels + 0.5).astype(np.uint8))
    if image.mode in ("1", "LA"):
        return image.convert("L")
    image.info.pop("transparency", None)  # Pillow would warn that it is dropped
    return image.convert("RGB")


def _geometry(size: Size, wanted: Size, resize: str) -> tuple[Size, Box]:
    """Return the new (width, height), and the box of the image to resize.

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
