"""Whole: a file that is there with all of its bytes, or as it was before."""

import os
from pathlib import Path

from pipeline.errors import writing


def write(path: Path, content: bytes) -> Path:
    """Write the file in one rename and return its path; a kill at any moment leaves the older one,
    or none.

    Raises:
        DiskError: if it cannot be written.
    """
    fresh = path.with_name(
        f".{path.name}-writing"
    )  # always the same, so that many kills leave one of them
    with writing(path):
        try:
            with fresh.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    return path
