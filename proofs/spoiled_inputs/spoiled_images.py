"""Mutants of pictures: torn files, other formats, each mode of Pillow, the eight orientations, and
small files that claim to be huge.
"""

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from proofs.spoiled_inputs.mutants import REFUSED, VALID, Files, Mutant, Spoil

Change = Callable[[bytes, Random], bytes]
ORIENTATION = 0x0112
# What has to be done to an upright picture so that a viewer, who follows the tag, shows it upright
# again.
TURNED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def pictures() -> Iterator[Mutant]:
    """Yield what can be in the place of one picture, of all, and of one or several that are trained
    on.
    """
    for name, change in {**_torn(), **_strange()}.items():
        yield Mutant(
            "pictures",
            f"one is {name}",
            "digits",
            _test(change, 1),
            end=VALID,
            same=True,
            touched=1,
        )
    for name, change in KEEPING.items():
        yield Mutant(
            "pictures", f"all are {name}", "digits", _test(change, None), end=VALID, same=True
        )
    for name, change in LOSSY.items():
        yield Mutant("pictures", f"all are {name}", "digits", _test(change, None), end=VALID)
    for name in (
        "empty",
        "a web page",
        "20,000 x 20,000 by its header",
        "a PDF",
        "9 x 8",
        "cut at 1/2",
    ):
        change = {**_torn(), **_strange()}[name]
        yield Mutant(
            "pictures",
            f"all are {name}",
            "digits",
            _test(change, None),
            end=REFUSED,
            words=("test", "images"),
        )
        yield Mutant(
            "pictures",
            f"all but one are {name}, in the rerun",
            "digits",
            _test(change, -1),
            end=VALID,
            rerun=True,
        )
        yield Mutant(
            "pictures",
            f"all are {name}, in the rerun",
            "digits",
            _test(change, None),
            end=REFUSED,
            rerun=True,
            words=("images",),
        )
        yield Mutant(
            "pictures",
            f"one to train on is {name}",
            "digits",
            _train(change, 1),
            train=True,
            end=VALID,
        )
        yield Mutant(
            "pictures",
            f"a tenth to train on are {name}",
            "digits",
            _train(change, 16),
            train=True,
            end=REFUSED,
            words=("images",),
        )
    for number in range(3):
        yield Mutant(
            "pictures",
            f"one is missing ({number})",
            "digits",
            _gone(1),
            end=VALID,
            same=True,
            touched=1,
        )
    yield Mutant("pictures", "half are missing", "digits", _gone(15), end=REFUSED, words=("test",))
    yield Mutant(
        "pictures",
        "half are missing, in the rerun",
        "digits",
        _gone(15),
        end=VALID,
        same=True,
        touched=15,
        rerun=True,
    )
    yield Mutant("pictures", "one is a folder", "digits", _folder, end=VALID, same=True, touched=1)


def _torn() -> dict[str, Change]:
    cuts = {f"cut at {number}/8": partial(_cut, share=number / 8) for number in range(1, 8)}
    cuts["cut at 1/2"] = partial(_cut, share=0.5)
    flips = {f"another bit ({number})": _flipped for number in range(8)}
    return {
        **cuts,
        **flips,
        "cut before its end mark": lambda png, draw: png[:-12],
        "followed by bytes": lambda png, draw: png + draw.randbytes(99),
    }


def _strange() -> dict[str, Change]:
    return {
        "empty": lambda png, draw: b"",
        "a web page": lambda png, draw: b"<!DOCTYPE html><html><body>404</body></html>",
        "JSON": lambda png, draw: b'{"code": 404}',
        "text": lambda png, draw: b"not found\n",
        "a NUL": lambda png, draw: b"\0" * 100,
        **{f"noise ({number})": lambda png, draw: draw.randbytes(200) for number in range(3)},
        **{f"noise behind {name}": partial(_behind, head=head) for name, head in HEADS.items()},
        **{f"a {name}": partial(_as, kind=name) for name in ("ICO", "PPM", "PDF")},
        "20,000 x 20,000 by its header": partial(_claims, width=20_000, height=20_000),
        "2,147,483,647 wide by its header": partial(_claims, width=2**31 - 1, height=1),
        "0 x 0 by its header": partial(_claims, width=0, height=0),
        "20,000 x 20,000 of zeros in 400 kB": _bomb,
        "a PNG with a profile of 64 MB": _profile,
        "an animation": lambda png, draw: _png(
            _opened(png), save_all=True, append_images=[Image.new("L", (8, 8), 255)]
        ),
        "9 x 8": lambda png, draw: _png(_opened(png).resize((9, 8))),
        "1 x 1": lambda png, draw: _png(_opened(png).resize((1, 1))),
        "8 x 8,000": lambda png, draw: _png(_opened(png).resize((8, 8000))),
        "floats": lambda png, draw: _as(png, draw, kind="TIFF", mode="F"),
        "with EXIF that is torn": lambda png, draw: _png(
            _opened(png), exif=b"Exif\0\0II*\0\xff\xff\xff\x7f"
        ),
    }


HEADS = {
    "a PNG's first bytes": b"\x89PNG\r\n\x1a\n",
    "a JPEG's": b"\xff\xd8\xff\xe0",
    "a WebP's": b"RIFF\x00\x01\x00\x00WEBPVP8 ",
    "a BMP's": b"BM",
    "a GIF's": b"GIF89a",
    "a TIFF's": b"II*\x00",
}


def _opened(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png))


def _png(image: Image.Image, **options: Any) -> bytes:
    return _saved(image, "PNG", **options)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _cut(png: bytes, draw: Random, *, share: float) -> bytes:
    return png[: int(len(png) * share)]


def _flipped(png: bytes, draw: Random) -> bytes:
    place = draw.randrange(len(png))
    return png[:place] + bytes([png[place] ^ 1 << draw.randrange(8)]) + png[place + 1 :]


def _behind(png: bytes, draw: Random, *, head: bytes) -> bytes:
    return head + draw.randbytes(300)


def _as(png: bytes, draw: Random, *, kind: str, mode: str = "L") -> bytes:
    return _saved(_opened(png).convert(mode), kind)


def _chunk(name: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
    )


def _claims(png: bytes, draw: Random, *, width: int, height: int) -> bytes:
    return (
        png[:8] + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) + png[33:]
    )


def _bomb(png: bytes, draw: Random) -> bytes:
    packed = zlib.compressobj(9)
    rows = b"".join(packed.compress(b"\0" * 20_001 * 100) for _ in range(200)) + packed.flush()
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0))
    return png[:8] + head + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def _profile(png: bytes, draw: Random) -> bytes:
    return png[:33] + _chunk(b"iCCP", b"x\0\0" + zlib.compress(b"\0" * 2**26, 9)) + png[33:]


def _oriented(png: bytes, draw: Random, *, tag: int, kind: str) -> bytes:
    image = _opened(png)
    exif = Image.Exif()
    exif[ORIENTATION] = tag
    turn = TURNED[tag]
    image = image if turn is None else image.transpose(turn)
    return _saved(image, kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))


def _sixteen(png: bytes, draw: Random) -> bytes:
    return _png(Image.fromarray(np.asarray(_opened(png)).astype(np.uint16) * 257))


def _seen_through(png: bytes, draw: Random) -> bytes:
    image = _opened(png).convert("RGBA")
    image.putalpha(Image.fromarray(np.frombuffer(draw.randbytes(64), np.uint8).reshape(8, 8)))
    return _png(image)


# The same pixels in another form: what is predicted must not change.
KEEPING: dict[str, Change] = {
    **{
        f"{mode}": partial(lambda png, draw, mode: _png(_opened(png).convert(mode)), mode=mode)
        for mode in ("RGB", "LA", "P")
    },
    "RGBA, half of it seen through": _seen_through,
    "16 bits": _sixteen,
    **{f"{kind} called .png": partial(_as, kind=kind) for kind in ("GIF", "BMP", "TIFF")},
    "WebP called .png": lambda png, draw: _saved(
        _opened(png).convert("RGB"), "WEBP", lossless=True
    ),
    **{f"turned as tag {tag} says": partial(_oriented, tag=tag, kind="PNG") for tag in TURNED},
    "interlaced or not, by Pillow's own": lambda png, draw: _png(_opened(png), optimize=True),
}
LOSSY: dict[str, Change] = {
    **{
        f"{mode} in a JPEG called .png": partial(
            lambda png, draw, mode: _saved(_opened(png).convert(mode), "JPEG"), mode=mode
        )
        for mode in ("L", "RGB", "CMYK")
    },
    **{f"JPEG with tag {tag}": partial(_oriented, tag=tag, kind="JPEG") for tag in (3, 6, 8)},
    "black and white": lambda png, draw: _png(_opened(png).convert("1")),
}


def _test(change: Change, count: int | None) -> Spoil:
    """Return what changes so many pictures of the test set; None: all; -1: all but one."""
    return partial(_changed, folder="test/", change=change, count=count)


def _train(change: Change, count: int) -> Spoil:
    return partial(_changed, folder="train/", change=change, count=count)


def _changed(files: Files, draw: Random, folder: str, change: Change, count: int | None) -> None:
    there = sorted(name for name in files if name.startswith(folder))
    for name in draw.sample(
        there, len(there) if count is None else count if count > 0 else len(there) + count
    ):
        files[name] = change(files[name], draw)


def _gone(count: int) -> Spoil:
    def spoil(files: Files, draw: Random) -> None:
        for name in draw.sample(sorted(name for name in files if name.startswith("test/")), count):
            del files[name]

    return spoil


def _folder(files: Files, draw: Random) -> None:
    name = draw.choice(sorted(name for name in files if name.startswith("test/")))
    files[f"{name}/inside.png"] = files.pop(name)
