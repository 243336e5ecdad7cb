"""Preparation: the training images, decoded in a session that needs no accelerator.

They are kept in shards, each whole or not there. A session that ends early leaves those that are
done, and the next one takes them. A training that has this output among its inputs decodes nothing
else (`pipeline.data.parallel_decoding.read`).
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from formats import atomic_file, checksums
from pipeline.config import Config
from pipeline.config.data_layout import CACHED_ABOVE
from pipeline.data import dataset, image_files, parallel_decoding
from pipeline.errors import ConfigError
from pipeline.runtime.mounts import PREPARED
from pipeline.train.session import Session

# Kaggle keeps 20 GB of a session, of which some is left to the notebook; and 500 files, which
# shards never are.
MOST_BYTES = 19.5e9
HOURS = 12.0  # of a session on its CPU


def prepare(
    config: Config,
    folder: Path,
    output: Path,
    *,
    earlier: Sequence[Path] = (),
    show: Callable[[str], None] = print,
) -> str:
    """Decode the training images into `output`; return "complete", or "partial" if time was short.

    Args:
        config: the run that will train on them.
        folder: the competition, as Kaggle mounts it.
        output: gets the marker `mounts.PREPARED` and the shards; those that are there stay.
        earlier: folders with shards of earlier sessions, which are copied.
        show: takes each line of text, and a line of JSON for each shard.

    Raises:
        ConfigError: if nothing has to be decoded, or Kaggle would not keep all of it.
        DataError: if an image is missing or cannot be read.
        DiskError: if a shard cannot be written.
    """
    require_images(config)
    paths, form = dataset.training_images(folder, config), image_files.shape(config.data)
    _require_room(config, len(paths))
    count = len(parallel_decoding.shards(len(paths), form))
    marker = {"rules": form.rules, "images": len(paths), "shards": count}
    atomic_file.write(output / PREPARED, checksums.sealed(marker))
    size = f"{form.height}x{form.width}x{form.channels}"
    show(f"Decoding {len(paths):,} images to {size}, in {count} shards")
    decoded, longest, begun = 0, 0.0, time.monotonic()
    hours = min(config.session_hours or HOURS, HOURS)
    with Session(hours, output) as session:

        def alive(line: str) -> None:
            session.progress()
            show(line)

        for number in range(1, count + 1):
            if why := session.over(longest):
                show(f"Stopped: {why}. {number - 1} of {count} shards are kept; to resume, type:")
                show(f"invoke push-prepare --config {config.name}")
                return "partial"
            before = time.monotonic()
            decoded += parallel_decoding.keep(
                paths, form, number, output, base=folder, earlier=earlier, show=alive
            )
            session.progress()
            now = time.monotonic()
            longest = max(longest, now - before)
            left = (now - begun) / number * (count - number)
            line = {"step": number, "steps": count, "eta_seconds": round(left, 1)}
            show(json.dumps({**line, "decoded": decoded}))
    show(f"Prepared {len(paths):,} images: {decoded:,} decoded here, the others taken as they were")
    return "complete"


def require_images(config: Config) -> None:
    """Raise `ConfigError` if a config has no images whose decoding takes time."""
    if not config.data.decoding:
        data = config.data
        size = f" of {data.height}x{data.width}" if data.height else ""
        raise ConfigError(
            f'{config.name} has nothing to prepare: kind="{data.kind}"{size}; expected image files'
            f" (images or tfrecords) that are decoded to more than {CACHED_ABOVE} pixels a side.\n"
            "Train without a preparation:\n"
            f"invoke push-train --config {config.name}"
        )


def _require_room(config: Config, number: int) -> None:
    """Raise `ConfigError` unless Kaggle keeps that many images."""
    data = config.data
    size = int(np.prod((number, data.height, data.width, data.channels), dtype=object))
    if size > MOST_BYTES:
        share = (MOST_BYTES / size) ** 0.5
        raise ConfigError(
            f"{number:,} images of {data.height}x{data.width}x{data.channels} are"
            f" {size / 1e9:.1f} GB; expected {MOST_BYTES / 1e9:g} GB at most, since Kaggle keeps no"
            " more of a session.\n"
            f"Set height={int(data.height * share)} and width={int(data.width * share)} in the"
            f" config {config.name}, or train without a preparation:\n"
            f"invoke push-train --config {config.name}"
        )
