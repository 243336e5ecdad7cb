"""Apply random changes to images, in the order of `CHANGES`."""

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
    """One kind of change.

    Attributes:
        fields: fields of `Data`, any of which enables the change.
        draw: host function that takes a generator, the number of images n and the data, and returns
            random numbers, int32 (n, k).
        apply: device function that takes images, uint8 (n, height, width, channels), the random
            numbers and the data, and returns augmented images.
    """

    fields: tuple[str, ...]
    stream: Stream
    draw: Callable[[np.random.Generator, int, Data], np.ndarray]
    apply: Callable[[Any, Any, Data], Any]


def _draw_keys(random: np.random.Generator, batch: int, data: Data) -> np.ndarray:
    return random.integers(-(2**31), 2**31, (batch, 2), np.int32)


# Custom functions, which are applied by `Augmentation.changed` and `mixed`.
CUSTOM = Change((), Stream.CUSTOM, _draw_keys, lambda images, *_: images)
CUSTOM_MIX = Change((), Stream.CUSTOM_MIXTURES, _draw_keys, lambda images, *_: images)
MIX = Change(("mixup", "cutmix"), Stream.MIXTURES, mixup.draw, mixup.mixed)
# Applied in this order: pixels are moved, then their values are changed, then images are mixed.
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


SAME = "Return the changed arguments with the same shapes and types: use .astype(image.dtype)."


@dataclass(frozen=True)
class Augmentation:
    """The random changes that a config makes to images. Tables are not changed.

    Attributes:
        batch: images per step over all replicas.
        custom: function of an image and a JAX random key, or of an image, its labels and a key if
            target="custom".
        custom_mix: function of a group's images, their labels and a key.
    """

    data: Data
    seed: int
    batch: int
    custom: Callable[..., Any] | None = None
    custom_mix: Callable[..., Any] | None = None

    @property
    def mixes(self) -> bool:
        return MIX in self._columns

    def draws(self, step: int) -> np.ndarray:
        """Draw k random numbers for each position in a step's batch, int32 (batch, k).

        Steps are counted from 0. Without any changes, k is 0.
        """
        parts = [self._draw(change, step, self.batch) for change in self._columns]
        return np.concatenate([np.zeros((self.batch, 0), np.int32), *parts], axis=1)

    def applied(self, images: Any, draws: Any) -> tuple[Any, Any]:
        """Return augmented images, and the weight of each in its mixture, float32 (n,).

        The weights are None if images are not mixed.
        """
        for change, columns in self._columns.items():
            if change is CUSTOM:
                (images,) = self.changed(images, draws)
            elif change is not CUSTOM_MIX:
                images = change.apply(images, draws[:, columns], self.data)
        shares = mixup.shares(draws[:, self._columns[MIX]], self.data) if self.mixes else None
        return images, shares

    def changed(self, inputs: Any, draws: Any, *labels: Any) -> tuple[Any, ...]:
        """Apply the custom function to the inputs, and to the labels if they are given."""
        custom: Any = self.custom
        several = len(self.data.forms) > 1
        if several:
            inputs = custom_readers.unpacked(inputs, self.data.forms)

        def change(example: Any, key: Any, *labels: Any) -> Any:
            given = (example, *labels) if labels else example
            result = custom(example, *labels, key)
            theirs, ours = (jax.tree.map(_form, each) for each in (result, given))
            if theirs != ours:
                raise ConfigError(f"{_called(custom)} returned {theirs}; expected {ours}.\n{SAME}")
            return result if labels else (result,)

        changed, *rest = jax.vmap(change)(inputs, _keys(draws[:, self._columns[CUSTOM]]), *labels)
        if several:
            named = {name: changed[name] for name in self.data.forms}
            changed = custom_readers.pack(named, jnp.concatenate)
        return changed, *rest

    def mixed(self, images: Any, labels: Any, draws: Any) -> tuple[Any, Any, Any]:
        """Apply the custom function that mixes a group, and return images, labels and mixtures.

        The mixtures are None or a pair: the index of each image's partner in the group, int32 (n,),
        and each image's own weight, float32 (n,).
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
                f"it returned {', '.join(shapes)}; expected images ({mixtures[0]}) and labels"
                f" ({_form(labels)}), or images, the index of each image's partner ({mixtures[1]})"
                f" and the weight of the image itself ({mixtures[2]})"
            )
        return (*given, None)

    @cached_property
    def _columns(self) -> dict[Change, slice]:
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
    bits = jax.lax.bitcast_convert_type(numbers, jnp.uint32)
    return jax.random.wrap_key_data(bits, impl="threefry2x32")


def _form(array: Any) -> str:
    return f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}"


def _called(custom: Callable[..., Any]) -> str:
    code = getattr(custom, "__code__", None)
    where = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
    return f"augment={getattr(custom, '__name__', custom)!r}{where}"
