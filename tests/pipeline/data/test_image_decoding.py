"""The same rules for every image file. An unusable file is refused with its reason."""

import hashlib
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from sklearn.datasets import load_sample_image

from pipeline.config.data_layout import ALPHAS, RESIZES, Data
from pipeline.data import image_decoding
from pipeline.data.image_decoding import FORMATS, BrokenImage, decode
from pipeline.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
SIDES = st.integers(1, 40)


def written(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def form(height: int, width: int, channels: int, resize: str, how: str = "full", **more) -> Data:
    return Data(height=height, width=width, channels=channels, resize=resize, decode=how, **more)


def exactly(content: bytes, height: int, width: int, channels: int = 3, **more: str) -> np.ndarray:
    return decode(content, form(height, width, channels, "exact", **more))


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture(scope="module")
def photograph() -> Image.Image:
    return Image.fromarray(load_sample_image("china.jpg"))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_pixels_without_loss_come_out_as_they_are(alpha):
    """Grey becomes three equal channels, and black and white 0 and 255."""
    pixels, grey, bits = noise(7, 5, 3), noise(7, 5), noise(7, 5) > 127
    webp = written(Image.fromarray(pixels), "WEBP", lossless=True)
    deep = grey.astype(np.uint16) * 257

    for content in (written(Image.fromarray(pixels)), webp):
        assert np.array_equal(exactly(content, 7, 5, alpha=alpha), pixels)
    for image, wanted in ((grey, grey), (bits, bits * 255), (deep, grey)):
        content = written(Image.fromarray(image))
        assert (exactly(content, 7, 5, alpha=alpha) == wanted[:, :, None]).all()
        assert (exactly(content, 7, 5, 1, alpha=alpha)[:, :, 0] == wanted).all()


def test_alpha_is_dropped_and_the_colours_below_it_stay():
    """As in the loaders that published weights were trained with."""
    pixels = noise(6, 6, 4)
    image, grey = Image.fromarray(pixels), pixels[:, :, :2].tobytes()

    for content in (written(image), written(image, "WEBP", lossless=True, exact=True)):
        assert np.array_equal(exactly(content, 6, 6), pixels[:, :, :3])
    found = exactly(written(Image.frombytes("LA", (6, 6), grey)), 6, 6, 1)
    assert np.array_equal(found[:, :, 0], pixels[:, :, 0])


@pytest.mark.parametrize("transparency", [None, 2, bytes([0, 128, 255, 7])])
def test_a_palette_gives_its_colours(transparency):
    """Whichever of them is transparent, without a warning."""
    colours = np.array([[9, 8, 7], [250, 0, 0], [0, 250, 0], [1, 2, 3]], np.uint8)
    places = noise(5, 6) % 4
    image = Image.frombytes("P", (6, 5), places.tobytes())
    image.putpalette(colours.tobytes())
    options = {} if transparency is None else {"transparency": transparency}

    assert np.array_equal(exactly(written(image, **options), 5, 6), colours[places])


@pytest.mark.parametrize("background", ["white", "black"])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_an_image_is_laid_on_a_colour_where_it_is_transparent(mode, background):
    """By each pixel's alpha, from a channel, a palette, or one colour of it."""
    image = Image.fromarray(noise(9, 7, 4))
    image = image.quantize(9) if mode == "P" else image.convert(mode)
    content = written(image, **({"transparency": image.getpixel((3, 4))} if mode == "RGB" else {}))
    shown = Image.open(io.BytesIO(content)).convert("RGBA")

    found = decode(content, form(9, 7, 3, "exact", alpha=background))

    wanted = Image.alpha_composite(Image.new("RGBA", (7, 9), background), shown).convert("RGB")
    assert np.abs(found.astype(int) - np.asarray(wanted)).max() <= 1  # by rounding
    assert not np.array_equal(found, np.asarray(shown)[:, :, :3])


@pytest.mark.parametrize(("mode", "kind"), [("I;16", "<u2"), ("I;16B", ">u2"), ("I", "<i4")])
def test_16_bits_of_grey_are_divided_by_257_and_rounded(mode, kind):
    """All values, in each mode: the mode of a file depends on Pillow's version."""
    values = np.arange(65536, dtype=kind)

    image = image_decoding.eight_bits(Image.frombytes(mode, (256, 256), values.tobytes()))

    assert np.array_equal(np.asarray(image).ravel(), np.round(values / 257))


FLOATS = Image.fromarray(np.array([[-1, 0.2, 7]], np.float32))
LARGE = Image.fromarray(np.array([[0, 70000]], np.int32))


@pytest.mark.parametrize(
    ("image", "white", "said"),
    [
        (FLOATS, None, r"floats from -1 to 7, .* set data\.white"),
        (LARGE, None, r"0 to 70000, are not 16-bit integers; set data\.white"),
        (Image.fromarray(np.array([[0, np.nan]], np.float32)), 1.0, "floats from nan to nan"),
    ],
)
def test_values_with_an_unknown_white_level_are_refused(image, white, said):
    with pytest.raises(BrokenImage, match=said):
        image_decoding.eight_bits(image, white)


def test_data_white_sets_the_white_level():
    assert list(image_decoding.eight_bits(FLOATS, 1.0).tobytes()) == [0, 51, 255]
    assert list(image_decoding.eight_bits(LARGE, 70000).tobytes()) == [0, 255]


@pytest.mark.parametrize(("mode", "kind"), [("CMYK", "JPEG"), ("CMYK", "TIFF"), ("YCbCr", "TIFF")])
def test_rare_modes_are_colours(mode, kind):
    """Also of a JPEG in CMYK, with inverted inks by Adobe's marker, as Pillow writes it."""
    image = Image.new("RGB", (16, 16), (40, 90, 200))

    found = exactly(written(image.convert(mode), kind, quality=95), 16, 16)

    assert np.abs(found.astype(int) - [40, 90, 200]).max() <= 3


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])  # Pillow turns a TIFF itself
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_stands_upright(kind, orientation):
    """All eight orientations of EXIF, in each format, for an F, whose eight forms all differ."""
    pixels = np.zeros((48, 32, 3), np.uint8)
    pixels[8:40, 8:12] = pixels[8:12, 8:24] = pixels[20:24, 8:20] = 255
    drawn = Image.fromarray(pixels)
    drawn.getexif()[image_decoding.ORIENTATION] = orientation
    content = written(drawn, kind, exif=drawn.getexif(), quality=100)
    upright = ImageOps.exif_transpose(drawn)
    plain, (width, height) = written(upright, kind, quality=100), upright.size

    for data in [form(height, width, 3, "exact"), *(form(24, 12, 3, way) for way in RESIZES[1:])]:
        assert np.abs(decode(content, data).astype(int) - decode(plain, data)).max() < 40


@pytest.mark.filterwarnings("ignore")  # the module's own filter is not in force below pytest
@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0torn",
        b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x02\0\0\0\x01x\0\0\0",
    ],
)
def test_exif_that_cannot_be_read_counts_as_upright(exif):
    """Every viewer shows such images."""
    image = Image.fromarray(noise(16, 24, 3))

    found = exactly(written(image, "JPEG", exif=exif), 16, 24)

    assert np.array_equal(found, exactly(written(image, "JPEG"), 16, 24))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "TIFF"])
def test_several_pages_or_frames_are_refused(kind):
    frames = [Image.fromarray(noise(8, 8, 3) // (index + 1)) for index in range(3)]
    content = written(frames[0], kind, save_all=True, append_images=frames[1:])

    with pytest.raises(BrokenImage, match="3 pages or frames; expected one"):
        exactly(content, 8, 8)


def test_the_first_of_a_phone_s_pictures_is_used():
    """Phones write a JPEG with a second one behind it (MPO)."""
    first, second = (Image.fromarray(noise(16, 16, 3) // part) for part in (1, 2))

    found = exactly(written(first, "MPO", save_all=True, append_images=[second]), 16, 16)

    assert np.array_equal(found, exactly(written(first, "JPEG"), 16, 16))


@given(SIDES, SIDES, SIDES, SIDES, st.data())
def test_every_image_gets_the_requested_size(height, width, down, across, data):
    """A white image stays white, except for the padding: bars of zeros on two sides, of equal width
    or one more at the end.
    """
    resize, channels = data.draw(st.sampled_from(RESIZES[1:])), data.draw(st.sampled_from([1, 3]))
    kind, how = data.draw(st.sampled_from([("PNG", "full"), ("JPEG", "reduced")]))
    content = written(Image.new("RGB", (width, height), "white"), kind)

    found = decode(content, form(down, across, channels, resize, how))

    assert (found.shape, found.dtype) == ((down, across, channels), np.uint8)
    if resize != "pad":
        assert found.min() == 255
    else:
        rows, columns = found.min(2).max(1), found.min(2).max(0)
        assert set(rows) | set(columns) <= {0, 255}
        assert rows.all() or columns.all()
        for line in (rows, columns):
            first, last = np.flatnonzero(line)[[0, -1]]
            assert len(line) - 1 - last - first in (0, 1)


@pytest.mark.parametrize("resize", RESIZES[1:])
def test_a_jpeg_that_is_decoded_smaller_is_close_to_the_whole_one(photograph, resize):
    """Within a few levels of the whole decode."""
    content = written(photograph, "JPEG", quality=90)
    png = written(Image.open(io.BytesIO(content)).convert("RGB"), compress_level=0)

    small, plain = (decode(one, form(96, 96, 3, resize)).astype(int) for one in (content, png))

    assert np.abs(small - plain).max() <= 12
    assert np.abs(small - plain).mean() < 1


def test_a_reduced_decode_is_close_to_the_full_one_but_not_equal(photograph):
    """For a JPEG of more than 1.6 times the new size; smaller ones and PNGs give the same."""
    wide = photograph.resize((500, 375))
    jpeg, png = written(wide, "JPEG", quality=90), written(wide)

    def both(content, size):
        forms = (form(size, size, 3, "stretch", how) for how in ("full", "reduced"))
        return [decode(content, each).astype(int) for each in forms]

    full, reduced = both(jpeg, 224)
    moved = np.abs(np.diff(full, axis=1)).mean()
    assert 0 < np.abs(full - reduced).mean() < moved / 2  # less than half a pixel's displacement
    assert abs((full - reduced).mean()) < 0.5  # the light shifts by less than a level's rounding
    assert np.array_equal(*both(png, 224)) and np.array_equal(*both(jpeg, 320))


@given(
    st.integers(1, 400), st.integers(1, 400), SIDES, SIDES, st.sampled_from(RESIZES[1:]),
    st.integers(1, 8),
)  # fmt: skip
def test_a_jpeg_that_opencv_decodes_is_the_one_that_pillow_decodes(
    height, width, down, across, resize, orientation
):
    """The same box and orientation for any sizes, except for the interpolation; slopes have no
    edges.
    """
    rows, columns = np.mgrid[0:height, 0:width]
    slopes = np.stack([rows * 255 / height, columns * 255 / width, 0 * rows + 99.0], -1)
    image, exif = Image.fromarray(slopes.astype(np.uint8)), Image.Exif()
    exif[image_decoding.ORIENTATION] = orientation
    content = written(image, "JPEG", quality=95, subsampling=0, exif=exif)
    data = form(down, across, 3, resize, "reduced")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_decoding, "_by_opencv", lambda *_: None)
        pillows = decode(content, data).astype(int)

    # The slope over half a pixel of the smaller side, and eight levels for JPEG.
    turned = (width, height) if orientation < 5 else (height, width)
    size, _ = image_decoding._geometry(turned, (across, down), resize)
    assert np.abs(decode(content, data) - pillows).max() <= 255 / min(size) / 2 + 8


@pytest.mark.parametrize("kind", FORMATS)
def test_a_truncated_file_is_refused(photograph, kind):
    """At any place, except after the last pixel."""
    content = written(photograph.crop((100, 100, 164, 148)), kind)
    whole, ends = exactly(content, 48, 64), [*range(0, len(content), 64), len(content) - 1]
    refused = 0

    for end in ends:
        try:
            assert np.array_equal(exactly(content[:end], 48, 64), whole)
        except BrokenImage:
            refused += 1

    assert refused >= len(ends) - 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"<html>403 Forbidden</html>", "text, not an image: '<html>403"),
        (b"version https://git-lfs.github.com/spec/v1", "text, not an image: 'version https"),
        (b"\0" * 999, "do not match any of PNG, JPEG, WEBP, BMP, GIF, TIFF"),
        (b"\x89PNG\r\n\x1a\n", "or its header is corrupt"),
        (b"RIFF\x10\0\0\0WEBPVP8 " + bytes(40), "decode"),
        (written(Image.new("L", (16, 16)), "PPM"), "not match any of"),
    ],
)
def test_an_unusable_file_has_a_precise_reason(content, said):
    with pytest.raises(BrokenImage, match=said):
        exactly(content, 8, 8)


@settings(max_examples=150)
@given(
    st.sampled_from(list(FORMATS)),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_whatever_is_in_a_file_is_an_image_or_broken(kind, changes):
    """No byte causes another exception, and equal bytes give equal pixels."""
    content = bytearray(written(Image.fromarray(noise(24, 24, 3)), kind))
    for place, value in changes:
        content[place % len(content)] = value

    for how in ("full", "reduced"):
        data = form(10, 10, 3, "crop", how)  # OpenCV decodes at half the size
        try:
            found = decode(bytes(content), data)
        except BrokenImage as error:
            assert str(error)
        else:
            assert found.shape == (10, 10, 3)
            assert np.array_equal(found, decode(bytes(content), data))


@pytest.mark.parametrize("end", [-1, -100, 3000])
def test_a_truncated_jpeg_is_refused_with_opencv_too(photograph, end):
    """OpenCV would pad it without a warning."""
    whole = written(photograph, "JPEG", quality=90)

    with pytest.raises(BrokenImage, match="truncated"):
        decode(whole[:end], form(200, 280, 3, "stretch", "reduced"))


def test_missing_opencv_is_reported_if_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    image_decoding.rules(form(8, 8, 3, "crop"))
    with pytest.raises(ConfigError, match="opencv-python-headless"):
        image_decoding.rules(form(8, 8, 3, "crop", "reduced"))


def test_the_pixels_are_those_of_every_other_machine():
    """And of every supported Pillow version, for lossless files."""
    rows, columns = np.mgrid[0:90, 0:130]
    pixels = np.stack([rows * 2, columns * 3 % 256, (rows * columns) % 256], -1).astype(np.uint8)
    content = written(Image.fromarray(pixels))
    forms = [form(32, 32, number, way) for way in RESIZES[1:] for number in (1, 3)]

    found = b"".join(decode(content, each).tobytes() for each in forms)

    assert hashlib.sha256(found).hexdigest()[:16] == "95c36bd779957048"
