"""Decode the training images in a session without an accelerator.

Decoded images are saved in shards. If a session stops early, complete shards are kept, and the next
session continues. Training uses the shards of a mounted output (`pipeline.data.image_arrays.read`).
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from formats import atomic_file, checksums
from pipeline.config import Config
from pipeline.config.data_layout import CACHED_ABOVE
from pipeline.data import dataset, image_arrays, image_decoding
from pipeline.errors import ConfigError
from pipeline.runtime.mounts import PREPARED
from pipeline.train.session import Session

MOST_BYTES = 19.5e9  # Kaggle keeps 20 GB from a session
HOURS = 12.0  # duration of a CPU session


def prepare(
    config: Config,
    folder: Path,
    output: Path,
    *,
    earlier: Sequence[Path] = (),
    show: Callable[[str], None] = print,
) -> str:
    """Decode the training images into `output`. Return "complete", or "partial" if time ran out.

    Args:
        output: folder for the marker `mounts.PREPARED` and the shards. Existing shards are kept.
        earlier: folders with shards from earlier sessions, which are copied.

    Raises:
        ConfigError: if images do not have to be decoded, or if they exceed Kaggle's limit.
        DataError: if an image is missing or cannot be read.
        DiskError: if a shard cannot be written.
    """
    require_images(config)
    sources, data = dataset.training_images(folder, config), config.data
    size = math.prod((len(sources), *data.shape))
    if size > MOST_BYTES:
        share = (MOST_BYTES / size) ** 0.5
        raise ConfigError(
            f"{len(sources):,} images of {data.height}x{data.width} pixels take {size / 1e9:.1f} "
            f"GB, but Kaggle keeps at most {MOST_BYTES / 1e9:g} GB from a "
            f"session.\nSet height={int(data.height * share)} and width={int(data.width * share)} "
            f"in the config {config.name}, or train without preparing images:\n"
            f"invoke push-train --config {config.name}"
        )
    shards, folders = image_arrays.shards(sources, data, folder), [output, *earlier]
    atomic_file.write(output / PREPARED, checksums.sealed({"rules": image_decoding.rules(data)}))
    show(f"Decoding {len(sources):,} images, {size / 1e9:.1f} GB, in {len(shards)} shards")
    decoded, longest, begun = 0, 0.0, time.monotonic()
    with Session(min(config.session_hours or HOURS, HOURS), output) as session:
        for number, (name, part) in enumerate(shards.items(), 1):
            if why := session.over(longest):
                show(f"Stopped: {why}. {number - 1} of {len(shards)} shards are saved. To resume:")
                show(f"invoke push-prepare --config {config.name}")
                return "partial"
            before = time.monotonic()
            kept = image_arrays.shard(sources[part], data, name, folders, show)
            decoded += 0 if kept.folder else len(kept.pixels)
            if kept.folder != output:
                image_arrays.save(output, name, kept)
            longest = max(longest, time.monotonic() - before)
            left = (time.monotonic() - begun) / number * (len(shards) - number)
            line = {"step": number, "steps": len(shards), "eta_seconds": round(left, 1)}
            show(json.dumps({**line, "decoded": decoded}))
            session.progress()
    show(f"Prepared {len(sources):,} images, {decoded:,} of which were decoded in this session")
    return "complete"


def require_images(config: Config) -> None:
    if not config.data.decoding:
        raise ConfigError(
            f'{config.name} has kind="{config.data.kind}" and height={config.data.height}, so '
            "there is nothing to prepare. Only image files (images or tfrecords) that are decoded "
            f"to more than {CACHED_ABOVE} pixels per side are prepared.\n"
            f"Train without preparing images:\ninvoke push-train --config {config.name}"
        )
