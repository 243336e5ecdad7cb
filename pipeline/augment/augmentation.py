"""Augmentation: all random changes of a config, in the order of one table.

To add one: a field in `pipeline.config.data_layout.Data` with the mark `AUGMENTS`, a stream in
`pipeline.augment.streams`, and a row in `CHANGES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.augment import geometry, mixup, rand_augment
from pipeline.augment.streams import Stream
from pipeline.config import Data
from pipeline.data import custom_readers
from pipeline.errors import ConfigError


class Change(NamedTuple):
    """A row of the table: one kind of change.

    Attributes:
        fields: of `Data`; one that is set switches the change on.
        stream: of its random numbers.
        draw: on the host; takes a generator, the number of images n and the data, and returns
            int32 (n, k).
        apply: on the devices; takes images, uint8 (n, height, width, channels), what was drawn and
            the data, and returns changed images.
    """

    fields: tuple[str, ...]
    stream: Stream
    draw: Callable[[np.random.Generator, int, Data], np.ndarray]
    apply: Callable[[Any, Any, Data], Any]


def _draw_keys(random: np.random.Generator, batch: int, data: Data) -> np.ndarray:
    """Return int32 (batch, 2): a key of JAX's random numbers for each image."""
    return random.integers(-(2**31), 2**31, (batch, 2), np.int32)


# A competitor's functions are no fields of `Data`: `Augmentation.changed` and `mixed` apply them.
CUSTOM = Change((), Stream.CUSTOM, _draw_keys, lambda images, *_: images)
CUSTOM_MIX = Change((), Stream.CUSTOM_MIXTURES, _draw_keys, lambda images, *_: images)
MIX = Change(("mixup", "cutmix"), Stream.MIXTURES, mixup.draw, mixup.mixed)
# In the order in which images change: what moves pixels, then their values, then mixes.
CHANGES = (
    Change(("crop_scale",), Stream.RESIZED_CROPS, geometry.draw_windows, geometry.enlarge),
    Change(("rotate",), Stream.QUARTER_TURNS, geometry.draw_quarters, geometry.turn),
    Change(("flip_vertical",), Stream.VERTICAL_FLIPS, geometry.draw_flips, geometry.flip_vertical),
    Change(("crop_padding", "flip"), Stream.CROPS, geometry.draw_crops, geometry.crop_and_flip),
    Change(("rand_augment",), Stream.RAND_AUGMENT, rand_augment.draw, rand_augment.operated),
    CUSTOM,
    MIX,
    CUSTOM_MIX,
)


SAME = "Return what it is given, changed, each of its own size and type: .astype(image.dtype)."


@dataclass(frozen=True)
class Augmentation:
    """The changes that a config names; a table has none.

    Attributes:
        data: of a config.
        seed: of the run.
        batch: images of a step, over all replicas.
        custom: a function of an image and a key of JAX's random numbers; with target="custom" of an
            image, its labels and a key.
        custom_mix: a function of a group's images, their labels and a key.
    """

    data: Data
    seed: int
    batch: int
    custom: Callable[..., Any] | None = None
    custom_mix: Callable[..., Any] | None = None

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with others, and so their labels."""
        return MIX in self._columns

    def draws(self, step: int) -> np.ndarray:
        """Return the numbers of a step's places: int32 (batch, k), k = 0 without changes.

        Args:
            step: of the run, from 0; it counts on over all epochs, so each draws other numbers.
        """
        parts = [self._draw(change, step, self.batch) for change in self._columns]
        return np.concatenate([np.zeros((self.batch, 0), np.int32), *parts], axis=1)

    def applied(self, images: Any, draws: Any) -> tuple[Any, Any]:
        """Return the changed images of some places, and the share of each that is its own: float32
        (n,), or None if nothing is mixed.
        """
        for change, columns in self._columns.items():
            if change is CUSTOM:
                (images,) = self.changed(images, draws)
            elif change is not CUSTOM_MIX:
                images = change.apply(images, draws[:, columns], self.data)
        shares = mixup.shares(draws[:, self._columns[MIX]], self.data) if self.mixes else None
        return images, shares

    def changed(self, inputs: Any, draws: Any, *labels: Any) -> tuple[Any, ...]:
        """Return inputs, and labels if there are some, changed by the custom function.

        Raises:
            ConfigError: if it returns other names, types or shapes than it is given.
        """
        custom: Any = self.custom
        several = len(self.data.forms) > 1
        if several:
            inputs = custom_readers.unpacked(inputs, self.data.forms)

        def change(example: Any, key: Any, *labels: Any) -> Any:
            given = (example, *labels) if labels else example
            result = custom(example, *labels, key)
            theirs, ours = (jax.tree.map(_form, each) for each in (result, given))
            if theirs != ours:
                raise ConfigError(f"{_called(custom)} returns {theirs}; expected {ours}.\n{SAME}")
            return result if labels else (result,)

        changed, *rest = jax.vmap(change)(inputs, _keys(draws[:, self._columns[CUSTOM]]), *labels)
        if several:
            named = {name: changed[name] for name in self.data.forms}
            changed = custom_readers.pack(named, jnp.concatenate)
        return changed, *rest

    def mixed(self, images: Any, labels: Any, draws: Any) -> tuple[Any, Any, Any]:
        """Return a group as the custom function mixes it: images, labels, and what each image is
        mixed with: (places in the group, int32 (n,); the share that is its own, float32 (n,)), or
        None.

        Args:
            labels: arrays (n, …).

        Raises:
            TypeError: if it returns something else.
        """
        custom: Any = self.custom_mix
        key, number = _keys(draws[0, self._columns[CUSTOM_MIX]]), len(labels)
        several = len(self.data.forms) > 1
        if several:
            images = custom_readers.unpacked(images, self.data.forms)
        result = custom(images, labels, key)
        given = tuple(result) if isinstance(result, tuple | list) else (result,)
        shapes = [str(jax.tree.map(_form, each)) for each in given]
        mixtures = [str(jax.tree.map(_form, images)), f"int32 ({number},)", f"float32 ({number},)"]
        if several and shapes[:1] == mixtures[:1]:
            named = {name: given[0][name] for name in self.data.forms}
            given = custom_readers.pack(named, jnp.concatenate), *given[1:]
        if shapes == mixtures:
            return given[0], labels, given[1:]
        if shapes != [mixtures[0], _form(labels)]:
            raise TypeError(
                f"it returns {', '.join(shapes)}; expected the images, {mixtures[0]}, and the"
                f" labels, {_form(labels)}; or the images, the place of what each is mixed with,"
                f" {mixtures[1]}, and the share that is its own, {mixtures[2]}"
            )
        return (*given, None)

    @cached_property
    def _columns(self) -> dict[Change, slice]:
        """The rows of the table that are switched on: where their numbers are in a row of draws."""
        columns, end = {}, 0
        for change in CHANGES:
            named = any(getattr(self.data, field) for field in change.fields)
            own = {CUSTOM: self.custom, CUSTOM_MIX: self.custom_mix}.get(change)
            if named or own:
                start, end = end, end + self._draw(change, 0, 1).shape[1]
                columns[change] = slice(start, end)
        return columns

    def _draw(self, change: Change, step: int, images: int) -> np.ndarray:
        random = np.random.default_rng((self.seed, change.stream, step))
        return change.draw(random, images, self.data)


def _keys(numbers: Any) -> Any:
    """Return keys of JAX of what `_draw_keys` drew."""
    bits = jax.lax.bitcast_convert_type(numbers, jnp.uint32)
    return jax.random.wrap_key_data(bits, impl="threefry2x32")


def _form(array: Any) -> str:
    return f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}"


def _called(custom: Callable[..., Any]) -> str:
    code = getattr(custom, "__code__", None)
    where = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
    return f"augment={getattr(custom, '__name__', custom)!r}{where}"
