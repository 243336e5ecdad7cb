"""Hypothesis strategies for pictures: corrupt files, and other formats and shapes."""

import io
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

from hypothesis import strategies as st
from PIL import Image

from tests.hostile.bench import cut
from tests.hostile.mutants import RANDOM, REFUSED, VALID, Mutant

Change = Callable[[bytes, Random], bytes | None]
PARTS = ("test/", "test/", "test/", "train/")  # a training takes seconds


def _saved(image: Image.Image, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


def _flipped(png: bytes, random: Random) -> bytes:
    place = random.randrange(len(png))
    return png[:place] + bytes([png[place] ^ 1 << random.randrange(8)]) + png[place + 1 :]


def _as(png: bytes, random: Random, kind: str, mode: str = "L") -> bytes:
    return _saved(Image.open(io.BytesIO(png)).convert(mode), kind)


def _resized(png: bytes, random: Random, size: tuple[int, int]) -> bytes:
    return _saved(Image.open(io.BytesIO(png)).resize(size))


# In the place of one picture, any of these is left out or read; never a reason to end.
STRANGE: dict[str, Change] = {
    "cut off": lambda png, random: png[: random.randrange(len(png))],
    "another bit": _flipped,
    "empty": lambda png, random: b"",
    "a web page": lambda png, random: b"<!DOCTYPE html><html><body>404</body></html>",
    **{
        f"noise behind {head!r}": partial(
            lambda png, random, head: head + random.randbytes(300), head=head
        )
        for head in (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"BM", b"GIF89a", b"II*\0")
    },
    "a PDF": partial(_as, kind="PDF"),
    "a TIFF of floats": partial(_as, kind="TIFF", mode="F"),
    "9 x 8": partial(_resized, size=(9, 8)),
    "missing": lambda png, random: None,
}
# Of more than one picture.
HOPELESS = ("empty", "a web page", "a PDF", "9 x 8", "missing")


@st.composite
def pictures(draw: Any, subjects: Sequence[str]) -> Mutant:
    """One picture, some, or all are something else, or are missing."""
    files, random, part = dict(cut("digits")), draw(RANDOM), draw(st.sampled_from(PARTS))
    names = [name for name in files if name.startswith(part)]
    train, every = part == "train/", len(names)
    rerun = draw(st.booleans()) and not train
    # One in ten may be left out; in a scored rerun, all but one.
    count = draw(st.sampled_from([1, every // 2] if train else [1, every // 2, every - 1, every]))
    what = draw(st.sampled_from(list(STRANGE) if count == 1 else HOPELESS))
    for name in random.sample(names, count):
        content = STRANGE[what](files.pop(name), random)
        files |= {} if content is None else {name: content}
    return Mutant(
        f"{count} of {part} are {what}",
        "digits",
        files,
        end=VALID if count == 1 or (rerun and count < every) else REFUSED,
        same=not train,
        touched=count,
        train=train,
        rerun=rerun,
        places=(("images", "test"),),
    )
