"""Augmentation: all random changes of a config, as numbers for each place of a batch."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from pipeline.augmentation import crop_and_flip, mixup, rand_augment
from pipeline.config.data_layout import Data


@dataclass(frozen=True)
class Augmentation:
    """The changes that `data` names; a table has none.

    Attributes:
        data: of a config.
        seed: of the run.
        batch: images of a step, over all replicas.
    """

    data: Data
    seed: int
    batch: int

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with others, and so their labels."""
        return bool(self.data.mixup or self.data.cutmix)

    def draws(self, step: int) -> np.ndarray:
        """Return the numbers of a step's places: int32 (batch, k), k = 0 without changes."""
        data, given = self.data, (self.seed, step, self.batch)
        parts = [np.zeros((self.batch, 0), np.int32)]
        if self._moves:
            parts.append(crop_and_flip.draws(*given, data.crop_padding, flip=data.flip))
        if data.rand_augment:
            changes = data.rand_augment, data.rand_magnitude
            parts.append(rand_augment.draws(*given, data.shape, *changes))
        if self.mixes:
            parts.append(mixup.draws(*given, data.shape, data.mixup, data.cutmix))
        return np.concatenate(parts, axis=1)

    def applied(self, images: Any, draws: Any) -> tuple[Any, Any]:
        """Return the changed images of some places, and the share of each that is its own: float32
        (n,), or None if nothing is mixed.
        """
        own, widths = None, (3 * self._moves, rand_augment.COLUMNS * self.data.rand_augment)
        moves, operations, mixes = jnp.split(draws, np.cumsum(widths), axis=1)
        if self._moves:
            images = crop_and_flip.applied(images, moves, self.data.crop_padding)
        if self.data.rand_augment:
            images = rand_augment.applied(images, operations)
        if self.mixes:
            images, own = mixup.applied(images, mixes)
        return images, own

    @property
    def _moves(self) -> bool:
        return bool(self.data.crop_padding or self.data.flip)
