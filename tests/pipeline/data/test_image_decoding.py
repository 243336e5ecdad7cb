"""One rule for the pixels of every file. An unusable file is refused with its reason."""

import hashlib
import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_image

from pipeline.config.data_layout import ALPHAS
from pipeline.data import reduced_jpeg
from pipeline.data.image_decoding import (
    DECODES,
    FILTER,
    HEADS,
    MOST_PIXELS,
    ORIENTATION,
    RESIZES,
    BrokenImage,
    Shape,
    _geometry,
    decode,
    eight_bits,
)
from pipeline.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
SIDES = st.integers(1, 40)


def written(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def exactly(content: bytes, height: int, width: int, channels: int = 3) -> np.ndarray:
    return decode(content, Shape(height, width, channels, "exact"))


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture(scope="module")
def photograph() -> Image.Image:
    return Image.fromarray(load_sample_image("china.jpg"))


def test_pixels_without_loss_come_out_as_they_are():
    """Grey as three equal channels, and black and white as 0 and 255."""
    pixels, grey, bits = noise(7, 5, 3), noise(7, 5), noise(7, 5) > 127
    webp = written(Image.fromarray(pixels), "WEBP", lossless=True)

    for content in (written(Image.fromarray(pixels)), webp):
        assert np.array_equal(exactly(content, 7, 5), pixels)
    for image, wanted in ((grey, grey), (bits, bits * 255)):
        assert (exactly(written(Image.fromarray(image)), 7, 5) == wanted[:, :, None]).all()
        assert (exactly(written(Image.fromarray(image)), 7, 5, 1)[:, :, 0] == wanted).all()


def test_colour_becomes_grey_by_luma():
    """ITU-R 601, within the rounding of integers."""
    pixels = noise(9, 8, 3)

    found = exactly(written(Image.fromarray(pixels)), 9, 8, 1)[:, :, 0]

    assert np.abs(found - pixels @ [0.299, 0.587, 0.114]).max() <= 0.51


def test_alpha_is_dropped_and_the_colours_below_it_stay():
    """As the loaders do with which the weights of others were trained."""
    pixels = noise(6, 6, 4)
    image, grey = Image.fromarray(pixels), pixels[:, :, :2].tobytes()

    for content in (written(image), written(image, "WEBP", lossless=True, exact=True)):
        assert np.array_equal(exactly(content, 6, 6), pixels[:, :, :3])
    found = exactly(written(Image.frombytes("LA", (6, 6), grey)), 6, 6, 1)
    assert np.array_equal(found[:, :, 0], pixels[:, :, 0])


@pytest.mark.parametrize("transparency", [None, 2, bytes([0, 128, 255, 7])])
def test_a_palette_gives_its_colours(transparency):
    """Whichever of them is transparent, and without a word."""
    colours = np.array([[9, 8, 7], [250, 0, 0], [0, 250, 0], [1, 2, 3]], np.uint8)
    places = noise(5, 6) % 4
    image = Image.frombytes("P", (6, 5), places.tobytes())
    image.putpalette(colours.tobytes())
    options = {} if transparency is None else {"transparency": transparency}

    assert np.array_equal(exactly(written(image, **options), 5, 6), colours[places])


@pytest.mark.parametrize(("background", "level"), [("white", 255), ("black", 0)])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_an_image_is_laid_on_a_colour_where_it_is_transparent(mode, background, level):
    """By the share of each pixel's alpha, within the rounding of integers; whatever has the alpha:
    a channel, a palette, or one colour of it.
    """
    pixels, options = noise(9, 7, 4), {}
    image = Image.fromarray(pixels)
    if mode == "LA":
        image = Image.frombytes("LA", (7, 9), pixels[:, :, [0, 3]].tobytes())
        pixels = pixels[:, :, [0, 0, 0, 3]]
    elif mode == "P":
        places, colours = noise(9, 7) % 4, noise(4, 4)
        image = Image.frombytes("P", (7, 9), places.tobytes())
        image.putpalette(colours[:, :3].tobytes())
        options["transparency"] = colours[:, 3].tobytes()
        pixels = colours[places]
    elif mode == "RGB":
        pixels[:, :, 3] = 255
        pixels[2:5, 3, :] = (7, 8, 9, 0)
        image, options["transparency"] = Image.fromarray(pixels[:, :, :3].copy()), (7, 8, 9)
    share = pixels[:, :, 3:] / 255

    found = decode(written(image, **options), Shape(9, 7, 3, "exact", alpha=background))

    assert np.abs(found - (share * pixels[:, :, :3] + (1 - share) * level)).max() <= 1


@pytest.mark.parametrize("kind", ["colour", "grey", "deep", "bits"])
def test_an_image_without_alpha_is_the_same_on_any_colour(kind):
    grey = noise(6, 5)
    deep, colour = grey.astype(np.uint16) * 257, noise(6, 5, 3)
    pixels = {"colour": colour, "grey": grey, "deep": deep, "bits": grey > 99}[kind]

    found = [Shape(6, 5, 1, "exact", alpha=alpha) for alpha in ALPHAS]

    assert len({decode(written(Image.fromarray(pixels)), form).tobytes() for form in found}) == 1


def test_16_bits_of_grey_are_divided_by_257_and_rounded():
    """Every value there is; clipped, nearly all of them would be white."""
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)

    found = exactly(written(Image.fromarray(values)), 256, 256, 1)[:, :, 0]

    assert np.array_equal(found, np.round(values / 257))


@pytest.mark.parametrize(("mode", "kind"), [("I;16", "<u2"), ("I;16B", ">u2"), ("I", "<i4")])
def test_16_bits_are_the_same_in_each_of_pillow_s_modes(mode, kind):
    """Which of them a file becomes has changed with Pillow's versions."""
    values = np.array([[0, 128, 129, 30000, 65535]], kind)

    image = Image.frombytes(mode, (5, 1), values.tobytes())

    assert list(eight_bits(image).tobytes()) == [0, 0, 1, 117, 255]


def test_inks_become_colours():
    """Of a JPEG in CMYK, which Adobe's marker says is inverted, as Pillow writes it."""
    inks = written(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=95)

    red, green, blue = exactly(inks, 16, 16).reshape(-1, 3).mean(0)

    assert red > 245 and max(green, blue) < 10


FLOATS = Image.fromarray(np.array([[-1, 0.2, 7]], np.float32))
LARGE = Image.fromarray(np.array([[0, 70000]], np.int32))


@pytest.mark.parametrize(
    ("image", "white", "said"),
    [
        (Image.new("LAB", (2, 2)), None, "kind LAB"),
        (FLOATS, None, r"floats from -1 to 7, .* set data\.white"),
        (LARGE, None, r"0 to 70000, are not those of 16 bits; set data\.white"),
        (Image.fromarray(np.array([[0, np.nan]], np.float32)), 1.0, "not finite"),
    ],
)
def test_values_of_which_nothing_says_what_is_white_are_refused(image, white, said):
    with pytest.raises(BrokenImage, match=said):
        eight_bits(image, white)


def test_the_value_of_the_config_is_white():
    assert list(eight_bits(FLOATS, 1.0).tobytes()) == [0, 51, 255]
    assert list(eight_bits(LARGE, 70000).tobytes()) == [0, 255]


def test_rare_modes_are_colours():
    image = Image.new("RGB", (2, 2), (40, 90, 200))
    palette = image.convert("P", palette=1)

    found = np.asarray(eight_bits(image.convert("YCbCr"))).astype(int)

    assert np.abs(found - [40, 90, 200]).max() <= 2
    assert np.array_equal(eight_bits(palette.convert("PA")), palette.convert("RGB"))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])  # Pillow turns a TIFF itself
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_stands_upright(kind, orientation):
    """All eight ways of EXIF, in each format; the first letter of what is drawn is F, so that no
    two look alike.
    """
    upright = np.zeros((48, 32, 3), np.uint8)
    upright[8:40, 8:12] = upright[8:12, 8:24] = upright[20:24, 8:20] = 255
    turned = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: upright.transpose(1, 0, 2)[::-1],
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: upright.transpose(1, 0, 2)[:, ::-1],
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = written(Image.fromarray(np.ascontiguousarray(turned)), kind, exif=exif, quality=100)

    plain = written(Image.fromarray(upright), kind, quality=100)
    forms = [Shape(48, 32, 3, "exact"), *(Shape(24, 12, 3, resize) for resize in RESIZES[1:])]
    for form in forms:
        assert np.abs(decode(content, form).astype(int) - decode(plain, form)).max() < 40


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
    """The pixels are whole, and every viewer shows them."""
    image = Image.fromarray(noise(16, 24, 3))

    found = exactly(written(image, "JPEG", exif=exif), 16, 24)

    assert np.array_equal(found, exactly(written(image, "JPEG"), 16, 24))


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "TIFF"])
def test_several_pages_or_frames_are_refused(kind):
    """Nothing says which of them is meant."""
    frames = [Image.fromarray(noise(8, 8, 3) // (index + 1)) for index in range(3)]
    content = written(frames[0], kind, save_all=True, append_images=frames[1:])

    with pytest.raises(BrokenImage, match="3 pages or frames; expected one"):
        exactly(content, 8, 8)


def test_the_first_picture_of_a_camera_s_many_is_taken():
    """Phones write a JPEG with a second one behind it (MPO)."""
    first, second = (Image.fromarray(noise(16, 16, 3) // part) for part in (1, 2))

    found = exactly(written(first, "MPO", save_all=True, append_images=[second]), 16, 16)

    assert np.array_equal(found, exactly(written(first, "JPEG"), 16, 16))


@given(SIDES, SIDES, SIDES, SIDES, st.data())
def test_every_size_becomes_the_one_that_was_asked_for(height, width, down, across, data):
    """A white image stays white, but for what pads it: bars of zeros on two sides, equal or one
    more at the end.
    """
    resize, channels = data.draw(st.sampled_from(RESIZES[1:])), data.draw(st.sampled_from([1, 3]))
    kind, how = data.draw(st.sampled_from([("PNG", "full"), ("JPEG", "reduced")]))
    content = written(Image.new("RGB", (width, height), "white"), kind)

    found = decode(content, Shape(down, across, channels, resize, how))

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


def test_a_crop_keeps_the_middle():
    """Of a flag of three stripes the one in the middle, whichever way it lies."""
    stripes = np.array([[[250, 0, 0], [0, 250, 0], [0, 0, 250]]], np.uint8)
    flag = stripes.repeat(30, axis=1).repeat(30, axis=0)

    for pixels in (flag, flag.transpose(1, 0, 2)):
        middle = decode(written(Image.fromarray(pixels)), Shape(10, 10, 3, "crop"))
        assert np.array_equal(middle[2:-2, 2:-2].reshape(-1, 3), [[0, 250, 0]] * 36)


def test_exact_refuses_another_size_and_says_which():
    """And resizes nothing."""
    with pytest.raises(BrokenImage, match=r"9x8 pixels \(width x height\), not 8x8"):
        exactly(written(Image.new("L", (9, 8))), 8, 8)


@pytest.mark.parametrize("resize", RESIZES[1:])
def test_a_jpeg_that_is_decoded_smaller_is_close_to_the_whole_one(photograph, resize):
    """Within a few levels of the whole decode, resized in one step."""
    content = written(photograph, "JPEG", quality=90)
    with Image.open(io.BytesIO(content)) as whole:
        png = written(whole.convert("RGB"), compress_level=0)
        fair = np.asarray(whole.resize((96, 96), FILTER)).astype(int)
    plain = decode(png, Shape(96, 96, 3, resize)).astype(int)

    small = decode(content, Shape(96, 96, 3, resize)).astype(int)

    assert np.abs(small - plain).max() <= 12
    assert np.abs(small - plain).mean() < 1
    if resize == "stretch":
        assert np.abs(small - fair).mean() < 1


def test_a_reduced_decode_is_near_to_the_whole_one_and_another(photograph):
    """Of a JPEG that is more than 1.6 times the size; what is smaller, and what has no such decode,
    comes out the same.
    """
    wide = photograph.resize((500, 375))
    content = written(wide, "JPEG", quality=90)

    forms = (Shape(224, 224, 3, "stretch", how) for how in DECODES)
    full, reduced = (decode(content, form).astype(int) for form in forms)

    moved = np.abs(np.diff(full, axis=1)).mean()
    assert 0 < np.abs(full - reduced).mean() < moved / 2  # less than half a pixel's displacement
    assert abs((full - reduced).mean()) < 0.5  # the light shifts by less than a level's rounding
    for other, size in ((written(wide), 224), (content, 320)):
        full, reduced = (decode(other, Shape(size, size, 3, "stretch", how)) for how in DECODES)
        assert np.array_equal(full, reduced)


@pytest.mark.parametrize("resize", RESIZES[1:])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_opencv_shows_the_same_part_as_upright_as_pillow(
    photograph, resize, orientation, monkeypatch
):
    """Of odd sizes, so that the last rows and columns of the smaller image are in the file only in
    part.
    """
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    content = written(photograph.resize((499, 373)), "JPEG", quality=90, exif=exif)
    form = Shape(200, 220, 3, resize, "reduced")

    found = decode(content, form).astype(int)

    monkeypatch.setattr(reduced_jpeg, "decode", lambda *_: None)
    pillows = decode(content, form).astype(int)
    apart, moved = np.abs(found - pillows), np.abs(np.diff(pillows, axis=1))
    # There it is more than 1.25 pixels for a new one.
    assert np.array_equal(found, pillows) == (resize == "pad" and orientation >= 5)
    # Both differ by less than if one of them were moved by a quarter of a pixel.
    assert apart.mean() < moved.mean() / 4 and apart.max() < moved.max() / 4


@given(st.integers(1, 400), st.integers(1, 400), SIDES, SIDES, st.sampled_from(RESIZES[1:]))
def test_a_jpeg_that_opencv_decodes_is_the_one_that_pillow_decodes(
    height, width, down, across, resize
):
    """But for the way to interpolate, for slopes without edges, whatever the sizes."""
    rows, columns = np.mgrid[0:height, 0:width]
    slopes = np.stack([rows * 255 / height, columns * 255 / width, 0 * rows + 99.0], -1)
    content = written(Image.fromarray(slopes.astype(np.uint8)), "JPEG", quality=95, subsampling=0)
    form = Shape(down, across, 3, resize, "reduced")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduced_jpeg, "decode", lambda *_: None)
        pillows = decode(content, form).astype(int)

    # The slope over half a pixel of the smaller side, and eight levels for JPEG.
    size, _ = _geometry((width, height), (across, down), resize)
    assert np.abs(decode(content, form) - pillows).max() <= 255 / min(size) / 2 + 8


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("JPEG", {"quality": 60}),
        ("JPEG", {"progressive": True}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("GIF", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
    ],
)
def test_a_file_that_is_cut_off_is_refused(photograph, kind, options):
    """Wherever; but for ends behind the last pixel, without which it is the same image."""
    content = written(photograph.crop((100, 100, 164, 148)), kind, **options)
    whole = exactly(content, 48, 64)
    refused = 0

    for end in [*range(0, len(content), 64), len(content) - 1, len(content) - 2]:
        try:
            assert np.array_equal(exactly(content[:end], 48, 64), whole)
        except BrokenImage:
            refused += 1

    assert refused >= len(content) // 64 - 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"<html>403 Forbidden</html>", "text, not an image: '<html>403"),
        (b'{"error": "no such file"}', "text"),
        (b"version https://git-lfs.github.com/spec/v1", "text, not an image: 'version https"),
        (b"\0" * 999, "neither PNG, JPEG, WebP, BMP, GIF nor TIFF"),
        (b"\x89PNG\r\n\x1a\n", "PNG by its first bytes"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "JPEG"),
        (b"RIFF\x10\0\0\0WEBPVP8 " + bytes(40), "decode"),
        (written(Image.new("L", (16, 16)), "PPM"), "neither"),
        (written(Image.new("L", (16, 16)), "ICO"), "neither"),
    ],
)
def test_what_is_no_image_is_called_what_it_is(content, said):
    """The reason stands behind the file's name in a report."""
    with pytest.raises(BrokenImage, match=said):
        exactly(content, 8, 8)


def test_a_bomb_is_refused_by_its_header():
    """Before any pixel is decoded: 20,000 x 20,000 in 69 bytes, and one beyond the limit."""
    for width, height in ((20_000, 20_000), (13_378, 13_377)):
        assert width * height > MOST_PIXELS
        content = bytearray(written(Image.new("L", (1, 1))))
        content[16:24] = struct.pack(">II", width, height)
        content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
        with pytest.raises(BrokenImage, match="pixels"):
            decode(bytes(content), Shape(8, 8, 1, "stretch"))


@settings(max_examples=150)
@given(
    st.sampled_from(list(HEADS)),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_whatever_is_in_a_file_is_an_image_or_broken(kind, changes):
    """No byte makes it raise anything else, and equal bytes give equal pixels."""
    content = bytearray(written(Image.fromarray(noise(24, 24, 3)), kind))
    for place, value in changes:
        content[place % len(content)] = value

    for how in DECODES:
        form = Shape(10, 10, 3, "crop", how)  # OpenCV decodes at half the size
        try:
            found = decode(bytes(content), form)
        except BrokenImage as error:
            assert str(error)
        else:
            assert found.shape == (10, 10, 3)
            assert np.array_equal(found, decode(bytes(content), form))


@pytest.mark.parametrize("end", [-1, -2, -100, 3000])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_jpeg_that_is_cut_off_is_what_pillow_makes_of_it(photograph, end, progressive):
    """OpenCV would fill it up without a word."""
    whole = written(photograph, "JPEG", quality=90, progressive=progressive)

    with pytest.raises(BrokenImage, match="truncated"):
        decode(whole[:end], Shape(200, 280, 3, "stretch", "reduced"))


TURNED = Image.Exif()
TURNED[ORIENTATION] = 6


@pytest.mark.parametrize(
    ("mode", "options", "known"),
    [
        ("RGB", {}, True),
        ("RGB", {"progressive": True}, True),
        ("RGB", {"subsampling": 0, "optimize": True}, True),
        ("RGB", {"comment": b"x" * 300, "dpi": (300, 300)}, True),
        ("L", {}, False),
        ("CMYK", {}, False),
        ("RGB", {"exif": TURNED}, False),
    ],
)
def test_the_size_of_a_plain_jpeg_is_known_without_pillow(mode, options, known):
    """Greys, inks, and what has EXIF are left to Pillow."""
    content = written(Image.new(mode, (70, 30)), "JPEG", **options)

    assert reduced_jpeg.plain_size(content) == ((70, 30) if known else None)


@given(st.binary(max_size=60), st.integers(0, 700))
def test_no_header_makes_the_look_for_a_size_fail(content, end):
    """Whatever it holds, and wherever it ends."""
    whole = written(Image.new("RGB", (70, 30)), "JPEG")

    mixed = whole[: end % 200 + 2] + content + whole[end % 200 :]
    for torn in (b"\xff\xd8" + content, whole[:end], mixed):
        assert reduced_jpeg.plain_size(torn) is None or min(reduced_jpeg.plain_size(torn)) > 0


def test_a_header_that_lies_about_the_size_is_left_to_pillow(photograph):
    """Pixels that are not there would come out as zeros."""
    content = written(photograph.resize((400, 300)), "JPEG")

    for width in (400, 402):
        box, size = (0, 0, width, 300), (width // 2, 150)
        found = reduced_jpeg.decode(content, (width, 300), (200, 150), box, size)
        assert (found is None) == (width == 402)


def test_without_opencv_a_config_that_needs_it_is_refused():
    """And one that does not need it never looks."""
    code = (
        "import sys; sys.modules['cv2'] = None\n"
        "from pipeline.data.image_decoding import Shape\n"
        "Shape(8, 8, 3, 'crop'); print('full')\nShape(8, 8, 3, 'crop', 'reduced')"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert done.stdout == "full\n"
    assert "ConfigError" in done.stderr and "opencv-python-headless" in done.stderr


def test_an_opencv_that_gives_other_colours_is_refused(monkeypatch):
    """A version in which the numbers mean something else would turn red into blue, in training or
    in inference alone.
    """
    monkeypatch.setattr(reduced_jpeg, "RGB", 1)

    with pytest.raises(ConfigError, match="expected a decoder that gives RGB"):
        reduced_jpeg.opencv_version.__wrapped__()


@pytest.mark.parametrize("wrong", [{"resize": "fit"}, {"channels": 4}, {"height": 0}])
def test_a_form_that_cannot_be_is_an_error_of_the_config(wrong):
    """With what it may be."""
    with pytest.raises(ConfigError, match="stretch"):
        Shape(**{"height": 8, "width": 8, "channels": 3, "resize": "crop", **wrong})


GOLDEN = {
    ("exact", 3): "50f7ff7996a2c593",
    ("stretch", 1): "2b0e3957e3393fbe",
    ("stretch", 3): "bf636028ecc68a2b",
    ("crop", 3): "4748fcf0d06b49d1",
    ("pad", 3): "5af66a5d253e2c7d",
}


@pytest.mark.parametrize(("resize", "channels"), GOLDEN)
def test_the_pixels_are_those_of_every_other_machine(resize, channels):
    """And of every supported version of Pillow, for lossless files: integers alone compute them."""
    rows, columns = np.mgrid[0:90, 0:130]
    pixels = np.stack([rows * 2, columns * 3 % 256, (rows * columns) % 256], -1).astype(np.uint8)
    size = (90, 130) if resize == "exact" else (32, 32)

    found = decode(written(Image.fromarray(pixels)), Shape(*size, channels, resize))

    assert hashlib.sha256(found.tobytes()).hexdigest()[:16] == GOLDEN[resize, channels]


def test_no_other_parser_is_imported():
    """Not even to look whether it fits."""
    code = (
        "import io, sys; from PIL import Image\n"
        "from pipeline.data.image_decoding import Shape, decode\n"
        "for kind in ('PNG', 'JPEG', 'WEBP', 'BMP', 'GIF', 'TIFF'):\n"
        "    file = io.BytesIO(); Image.new('RGB', (4, 4)).save(file, kind)\n"
        "    decode(file.getvalue(), Shape(4, 4, 3, 'exact'))\n"
        "others = ('Psd', 'Eps', 'Fli', 'Pcx', 'Icns', 'Jpeg2K')\n"
        "print(any(f'PIL.{name}ImagePlugin' in sys.modules for name in others))"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
