"""Sizes and modes of image files, and whether the alpha channel carries the picture."""

import hashlib
import io
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from pipeline.config.data_layout import ALPHAS
from pipeline.data import image_decoding
from pipeline.data.image_arrays import Part, Source, readable
from pipeline.errors import DataError, reading

GREY = {"1", "L", "LA", *image_decoding.DEEP}
MOST_SEEN = 200  # files with an alpha channel, or of more than 8 bits, that are decoded to see them
FLAT, CARRIED = 6.0, 4.0  # levels of contrast, and how many times as much of it alpha must add


@dataclass(frozen=True)
class Headers:
    """What the headers of image files hold.

    Attributes:
        sizes: number of files by (width, height) in pixels.
        modes: number of files by Pillow's name of the mode.
        formats: number of files by format.
        transparent: the files with an alpha channel or a transparent colour.
        deep: the grey files with more than 8 bits.
    """

    sizes: Counter[tuple[int, int]]
    modes: Counter[str]
    formats: Counter[str]
    transparent: list[Source] = field(default_factory=list)
    deep: list[Source] = field(default_factory=list)

    @property
    def grey(self) -> bool:
        """Whether no file has colours."""
        return set(self.modes) <= GREY

    def median(self) -> tuple[int, int]:
        """Return the median width and height."""
        width, height = np.median(list(self.sizes.elements()), axis=0)
        return round(width), round(height)

    def describe(self) -> str:
        """Return the headers in words."""
        if not self.sizes:
            return "none could be opened"
        every = np.array(list(self.sizes.elements()))
        (left, top), (right, bottom) = every.min(axis=0), every.max(axis=0)
        width, height = self.median()
        sizes = f"all {left}x{top} (width x height)"
        if len(self.sizes) > 1:
            sizes = (
                f"{left}x{top} to {right}x{bottom} (width x height), {len(self.sizes):,} sizes, "
                f"median {width}x{height}"
            )
        return "; ".join([sizes, _counts(self.formats), _counts(self.modes)])


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counter.most_common())


def headers(sources: Sequence[Source]) -> Headers:
    """Return what the headers of these files hold, without the files that cannot be opened."""
    found = Headers(Counter(), Counter(), Counter())
    for source in sources:
        try:
            with _opened(source) as image:
                found.sizes[image.size] += 1
                found.modes[image.mode] += 1
                found.formats[str(image.format)] += 1
                if image.has_transparency_data:
                    found.transparent.append(source)
                if image.mode in image_decoding.DEEP:
                    found.deep.append(source)
        except Exception:  # noqa: S112 - Pillow raises a dozen kinds; the decoder names them
            continue
    return found


def _opened(source: Source) -> Image.Image:
    file = io.BytesIO(readable(source)) if isinstance(source, Part) else source
    return Image.open(file, formats=image_decoding.FORMATS)


@dataclass(frozen=True)
class Alpha:
    """What is seen of images with an alpha channel, by the way in which it is read.

    Attributes:
        transparent: images with a pixel that is not opaque.
        contrast: standard deviation of the grey levels, 0 to 255, mean over these images, by
            `Data.alpha`.
    """

    transparent: int
    contrast: dict[str, float]

    @property
    def background(self) -> str:
        """The `Data.alpha` that shows the picture: "drop" unless the colours alone are flat."""
        shown = {name: value for name, value in self.contrast.items() if name != "drop"}
        best = max(shown, key=lambda name: shown[name])
        carried = shown[best] > max(CARRIED * self.contrast["drop"], FLAT)
        return best if carried else "drop"


def alpha(sources: Sequence[Source]) -> Alpha:
    """Return what is seen of these images, or of every n-th of them where there are many."""
    transparent, contrasts = 0, []
    for source in sources[:: max(len(sources) // MOST_SEEN, 1)]:
        try:
            with _opened(source) as image:
                image.load()
                over = image.convert("RGBA")
        except Exception:  # noqa: S112 - as in `headers`
            continue
        if np.asarray(over)[:, :, 3].min() == 255:
            continue
        transparent += 1
        ways = {colour: image_decoding.laid_on(over, colour) for colour in ("white", "black")}
        ways["drop"] = over.convert("RGB")
        contrasts.append({name: np.asarray(way.convert("L")).std() for name, way in ways.items()})
    mean = {name: float(np.mean([each[name] for each in contrasts] or 0)) for name in ALPHAS}
    return Alpha(transparent, mean)


def extremes(sources: Sequence[Source]) -> tuple[float, float] | None:
    """Return the least and the largest value of these images' pixels, or of every n-th where there
    are many; None if none can be read.
    """
    found = []
    for source in sources[:: max(len(sources) // MOST_SEEN, 1)]:
        try:
            with _opened(source) as image:
                values = np.asarray(image)
        except Exception:  # noqa: S112 - as in `headers`
            continue
        if np.isfinite(values).all():
            found.append((float(values.min()), float(values.max())))
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def digests(sources: Sequence[Source]) -> list[bytes | None]:
    """Return the sha256 of each file that has as many bytes as another, and None for the others,
    which are no duplicates, and for "", which is no file.

    Raises:
        DataError: if a file cannot be read.
    """
    first: Source = next((source for source in sources if source), "")
    where = str(first.path if isinstance(first, Part) else first)
    with reading(where, DataError, "Correct its permissions."):
        sizes = [_size(source) if source else None for source in sources]
        counts = Counter(sizes)
        return [
            hashlib.sha256(readable(source)).digest() if source and counts[size] > 1 else None
            for source, size in zip(sources, sizes, strict=True)
        ]


def _size(source: Source) -> int:
    return source.size if isinstance(source, Part) else os.stat(source).st_size  # noqa: PTH116
