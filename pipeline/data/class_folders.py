"""Images in a folder for each label (train/cats/1.jpg): paths become ids and labels."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from pipeline.config.data_layout import ENDINGS, Data
from pipeline.data.tfrecords import several
from pipeline.errors import DataError

DEPTH = 6  # levels of folders that are read: links may lead in a circle


def read(
    folder: Path, data: Data, show: Callable[[str], None] | None = None
) -> tuple[list[str], pd.DataFrame]:
    """Return the path of each image below `data.train_images`, and its row of ids and labels.

    The label is the first folder below `train_images`. The id is the path below `folder`, ending
    included, so no two images have the same one. Images beside the folders of labels have no label
    and are not read. Files with other endings than those of images are not read either.

    Args:
        folder: of the competition.
        data: with `train_images`, and the names of the two columns.
        show: takes a line that counts and names what is not read, if there is any.

    Returns:
        n paths, and a table of texts with the columns `id_column` and `label_column`, in the order
        of the paths.

    Raises:
        DataError: if a folder cannot be read, or holds no folder with images.
    """
    rows: list[tuple[str, str]] = []
    loose, skipped = list[str](), list[str]()
    for place in several(data.train_images):
        before = len(rows)
        for inside, names in walk(folder / place):
            if not inside.parts:
                loose += images(names)
                continue
            below = os.path.normpath(f"{place}/{inside}")
            rows += [(f"{below}/{name}", inside.parts[0]) for name in images(names)]
            skipped += [f"{inside}/{name}" for name in others(names)]
        if len(rows) == before:
            raise DataError(
                f"{folder / place} holds no folder with images; expected a folder for each label, "
                "as train/cats/1.jpg, since data.train_csv is None.\n"
                "Set data.train_images or data.train_csv in the config, or complete the download."
            )
    left_out = [described(skipped)] if skipped else []
    if loose:
        left_out.append(f"{len(loose):,} images in no folder of a label, for example {loose[0]}")
    if left_out and show is not None:
        show(f"Not read from {', '.join(several(data.train_images))}: {'; '.join(left_out)}")
    table = pd.DataFrame(rows, columns=[data.id_column, *data.labels], dtype=object)
    return [os.path.join(folder, path) for path, _ in rows], table  # noqa: PTH118


def images(names: Iterable[str]) -> list[str]:
    """Return the names of image files among these."""
    return [name for name in names if name.lower().endswith(ENDINGS)]


def others(names: Iterable[str]) -> list[str]:
    """Return the names of files that are no images."""
    return [name for name in names if not name.lower().endswith(ENDINGS)]


def described(names: Sequence[str]) -> str:
    """Return what files that are no images are, by their endings.

    >>> described(["cats/a.txt", "cats/b.dcm", "cats/c.txt"])
    '3 files with other endings (2 .txt, 1 .dcm), for example cats/a.txt'
    """
    counts = Counter(os.path.splitext(name)[1] or "without one" for name in names)  # noqa: PTH122
    listed = ", ".join(f"{count:,} {ending}" for ending, count in counts.most_common(6))
    more = ", …" if len(counts) > 6 else ""
    return f"{len(names):,} files with other endings ({listed}{more}), for example {names[0]}"


def walk(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder's path below `folder`, "." for itself, and the names of its files, sorted.

    Hidden files and folders, and folders of archivers such as __MACOSX, are skipped.

    Raises:
        DataError: if a folder cannot be read.
    """

    def stop(error: OSError) -> None:
        raise DataError(
            f"Could not read {error.filename}: {error.strerror}; expected folders that this user "
            "may read.\nCorrect its permissions, or complete the download."
        ) from error

    for place, below, names in os.walk(folder, onerror=stop, followlinks=True):
        inside = Path(place).relative_to(folder)
        deep = len(inside.parts) >= DEPTH
        below[:] = sorted(name for name in below if not (deep or name.startswith((".", "__"))))
        yield inside, sorted(name for name in names if not name.startswith("."))
