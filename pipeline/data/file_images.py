"""File images: pictures that are decoded each time that they are asked for, like an array of them.

For a set that neither memory nor a cache on the disk can hold. Each epoch decodes it again, by
every CPU. What is needed of all of them before the first epoch is kept from one look at each.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from pipeline.data import duplicates, parallel_decoding
from pipeline.data.decoded_images import Show
from pipeline.data.image_decoding import Shape

BLOCK = 1 << 26  # bytes of images that are looked at together before the first epoch


class FileImages:
    """Images in files, uint8 (n, height, width, channels), with what else is used of an array.

    Args:
        paths: n files, or parts of files.
        form: that all images get.
        row_digests, thumbnails: what `pipeline.data.duplicates` needs of their pixels; None: they
            are decoded for it.

    Attributes:
        shape, dtype, ndim, nbytes: as if they were in memory.
    """

    dtype, ndim = np.dtype(np.uint8), 4

    def __init__(
        self,
        paths: parallel_decoding.Paths,
        form: Shape,
        row_digests: list[bytes] | None = None,
        thumbnails: np.ndarray | None = None,
    ) -> None:
        self._paths, self._form = list(paths), form
        self.row_digests, self.thumbnails = row_digests, thumbnails
        self.shape = (len(self._paths), form.height, form.width, form.channels)
        self.nbytes = int(np.prod(self.shape, dtype=object))
        self._pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="decode")

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return one image, or those of a slice or of an array of rows."""
        chosen = np.arange(len(self))[rows]
        flat = np.atleast_1d(chosen)
        pixels = np.zeros((len(flat), *self.shape[1:]), np.uint8)
        for future in self.begin(self._pool, flat, pixels):
            future.result()
        return pixels if np.ndim(chosen) else pixels[0]

    def subset(self, rows: np.ndarray) -> "FileImages":
        """Return some of the images, still in their files."""
        digests, thumbs = self.row_digests, self.thumbnails
        return FileImages(
            [self._paths[row] for row in rows],
            self._form,
            None if digests is None else [digests[row] for row in rows],
            None if thumbs is None else thumbs[rows],
        )

    def begin(
        self, pool: ThreadPoolExecutor, rows: np.ndarray, into: np.ndarray
    ) -> Sequence[Future[list[str]]]:
        """Begin to decode rows, and return what to wait for.

        Raises:
            DataError: by a future, if an image cannot be decoded any more.
        """
        sources = parallel_decoding.as_sources([self._paths[row] for row in rows])
        return parallel_decoding.begin_decoding(pool, sources, self._form, into, strict=True)


def checked(
    paths: parallel_decoding.Paths,
    form: Shape,
    show: Show,
    most: float,
    why: str,
    *,
    thumbnails: bool = False,
) -> tuple[FileImages, dict[int, str]]:
    """Return the images, and the reason for each broken one, after decoding each once; or until
    more than `most` are broken.

    Args:
        why: they stay in their files; it is shown.
        thumbnails: keep these too, for `pipeline.data.duplicates`.
    """
    images, broken, shown = FileImages(paths, form), dict[int, str](), time.monotonic()
    digests, thumbnails_of_blocks = list[bytes](), list[np.ndarray]()
    show(
        f"{len(images):,} images ({images.nbytes / 1e6:,.0f} MB) are decoded as the run goes: {why}"
    )
    size = max(BLOCK * len(images) // max(images.nbytes, 1), 1)
    for first, block, reasons in parallel_decoding.blocks(paths, form, size):
        broken |= reasons
        if len(broken) > most:
            return images, broken
        digests += duplicates.row_digests(block)
        if thumbnails:
            thumbnails_of_blocks.append(duplicates.thumbnails(block))
        if time.monotonic() - shown > parallel_decoding.SHOW_SECONDS:
            shown = time.monotonic()
            show(f"Looked at {first + size:,} of {len(images):,} images")
    images.row_digests = digests
    images.thumbnails = np.concatenate(thumbnails_of_blocks) if thumbnails_of_blocks else None
    return images, broken


def some(images: Any, rows: np.ndarray) -> Any:
    """Return some rows: a copy of an array's, or files that are not decoded yet."""
    return images.subset(rows) if isinstance(images, FileImages) else images[rows]
