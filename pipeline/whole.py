"""Whole: a file that is there with all of its bytes, or as it was before."""

import os
import tempfile
from pathlib import Path

from pipeline.errors import writing


def write(path: Path, content: bytes) -> Path:
    """Write the file in one rename and return its path; a kill at any moment leaves the older one, or none.

    Raises:
        DiskError: if it cannot be written.
    """
    with writing(path):
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)  # mkstemp lets nobody else read it
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
    return path
