"""Augmentation: all random changes of a config, as numbers for each place of a batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.augment import crop_and_flip, mixup, rand_augment, resized_crop, turns
from pipeline.config.data_layout import Data, Form, sizes
from pipeline.data import packed_inputs
from pipeline.errors import ConfigError

OWN_STREAM = 8  # of random numbers from one seed (`pipeline.data.dataset.ORDER`)
KEY = 2  # numbers of a key


@dataclass(frozen=True)
class Augmentation:
    """The changes that `data` names; a table has none.

    Attributes:
        data: of a config.
        seed: of the run.
        batch: images of a step, over all replicas.
        own: a competitor's function of an image and a key of JAX's random numbers; with
            target="own" of an image, its labels and a key.
    """

    data: Data
    seed: int
    batch: int
    own: Callable[..., Any] | None = None

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
        if data.crop_scale:
            parts.append(resized_crop.draws(*given, data.shape, data.crop_scale))
        if self._turns:
            parts.append(turns.draws(*given, flip=data.flip_vertical, rotate=data.rotate))
        if self.own:
            random = np.random.default_rng((self.seed, OWN_STREAM, step))
            parts.append(random.integers(-(2**31), 2**31, (self.batch, KEY), np.int32))
        return np.concatenate(parts, axis=1)

    def applied(self, images: Any, draws: Any) -> tuple[Any, Any]:
        """Return the changed images of some places, and the share of each that is its own: float32
        (n,), or None if nothing is mixed.
        """
        own, widths = None, (3 * self._moves, rand_augment.COLUMNS * self.data.rand_augment)
        moves, operations, mixes = jnp.split(draws, np.cumsum(widths), axis=1)
        place = sum(widths) + mixup.COLUMNS * self.mixes
        if self.data.crop_scale:
            images = resized_crop.applied(images, draws[:, place:])
            place += resized_crop.COLUMNS
        if self._turns:
            images = turns.applied(images, draws[:, place:])
        if self._moves:
            images = crop_and_flip.applied(images, moves, self.data.crop_padding)
        if self.data.rand_augment:
            images = rand_augment.applied(images, operations)
        if self.own:
            images = self.changed(images, draws)[0]
        if self.mixes:
            images, own = mixup.applied(images, mixes)
        return images, own

    def changed(self, inputs: Any, draws: Any, *labels: Any) -> tuple[Any, ...]:
        """Return inputs, and labels if they are given, changed by the competitor's function."""
        own: Any = self.own
        forms, keys = self.data.own_inputs, _keys(draws[:, -KEY:])

        def one(given: Any, key: Any, *labels: Any) -> Any:
            if len(forms) > 1:
                named = packed_inputs.unpacked(given[None], forms)
                given = {name: part[0] for name, part in named.items()}
            found = own(given, *labels, key)
            several = isinstance(found, tuple) and len(found) == 2
            changed, *rest = found if labels and several else (found,)
            if len(rest) != len(labels) or (len(forms) > 1 and not isinstance(changed, dict)):
                raise ConfigError(
                    f"augment={getattr(own, '__name__', own)!r} returns a {type(found).__name__};"
                    f" expected {'(inputs, labels)' if labels else 'a dict of the inputs'}.\n"
                    "Return them, changed or as they came."
                )
            if len(forms) > 1:
                for name, form in forms.items():
                    _check_form(own, name, changed.get(name), form)
                named = {name: changed[name][None] for name in forms}
                changed = packed_inputs.packed(named)[0]
            return changed, *rest

        changed: tuple[Any, ...] = jax.vmap(one)(inputs, keys, *labels)
        return changed

    @property
    def _turns(self) -> bool:
        return self.data.flip_vertical or self.data.rotate

    @property
    def _moves(self) -> bool:
        return bool(self.data.crop_padding or self.data.flip)


def _keys(numbers: Any) -> Any:
    words = jax.lax.bitcast_convert_type(numbers, jnp.uint32)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _check_form(own: Any, name: str, found: Any, form: Form) -> None:
    """Raise `ConfigError` for an input of another form: its bytes would be other numbers."""
    kind, shape = (str(getattr(found, part, "nothing")) for part in ("dtype", "shape"))
    if (kind, shape) != (form[0], str(sizes(form))):
        raise ConfigError(
            f"augment={getattr(own, '__name__', own)!r} returns {kind} {shape} for the input"
            f" {name!r}; expected {form[0]} {sizes(form)}.\nReturn .astype({form[0]!r}) of it, in"
            " its own size."
        )
