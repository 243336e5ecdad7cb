"""Augmentation: all random changes of a config, in the order of one table.

To add one: a field in `pipeline.config.data_layout`, a stream, and a row in `CHANGES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pipeline.augment import geometry, mixup, rand_augment
from pipeline.augment.streams import Stream
from pipeline.config.data_layout import Data, Form, sizes
from pipeline.data import packed_inputs
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


# A competitor's function is no field of `Data`; `Augmentation.changed` applies it.
CUSTOM = Change((), Stream.CUSTOM, _draw_keys, lambda images, *_: images)
MIX = Change(("mixup", "cutmix"), Stream.MIXTURES, mixup.draw, mixup.mixed)
# In the order in which images change.
CHANGES = (
    Change(("crop_scale",), Stream.RESIZED_CROPS, geometry.draw_windows, geometry.enlarge),
    Change(("rotate",), Stream.QUARTER_TURNS, geometry.draw_quarters, geometry.turn),
    Change(("flip_vertical",), Stream.VERTICAL_FLIPS, geometry.draw_flips, geometry.flip_vertical),
    Change(("crop_padding", "flip"), Stream.CROPS, geometry.draw_crops, geometry.crop_and_flip),
    Change(("rand_augment",), Stream.RAND_AUGMENT, rand_augment.draw, rand_augment.operated),
    CUSTOM,
    MIX,
)


@dataclass(frozen=True)
class Augmentation:
    """The changes that a config names; a table has none.

    Attributes:
        data: of a config.
        seed: of the run.
        batch: images of a step, over all replicas.
        own: a custom function of an image and a key of JAX's random numbers; with target="own" of
            an image, its labels and a key.
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
        parts = [self._draw(change, step, self.batch) for change in self._changes]
        return np.concatenate([np.zeros((self.batch, 0), np.int32), *parts], axis=1)

    def applied(self, images: Any, draws: Any) -> tuple[Any, Any]:
        """Return the changed images of some places, and the share of each that is its own: float32
        (n,), or None if nothing is mixed.
        """
        shares = None
        for change, columns in self._columns.items():
            images = change.apply(images, draws[:, columns], self.data)
            if change is CUSTOM:
                (images,) = self.changed(images, draws)
            elif change is MIX:
                shares = mixup.shares(draws[:, columns], self.data)
        return images, shares

    def changed(self, inputs: Any, draws: Any, *labels: Any) -> tuple[Any, ...]:
        """Return inputs, and labels if there are some, changed by the custom function.

        Raises:
            ConfigError: if it returns something else.
        """
        custom: Any = self.own
        forms = self.data.own_inputs if len(self.data.own_inputs) > 1 else {}

        def change(example: Any, key: Any, *labels: Any) -> Any:
            if forms:
                named = packed_inputs.unpacked(example[None], forms)
                example = {name: part[0] for name, part in named.items()}
            result = custom(example, *labels, key)
            is_pair = isinstance(result, tuple) and len(result) == 2
            changed, *rest = result if labels and is_pair else (result,)
            if len(rest) != len(labels) or (forms and not isinstance(changed, dict)):
                raise ConfigError(
                    f"{_called(custom)} returns a {type(result).__name__};"
                    f" expected {'(inputs, labels)' if labels else 'a dict of the inputs'}.\n"
                    "Return them, changed or as they came."
                )
            if forms:
                for name, form in forms.items():
                    _check_form(custom, name, changed.get(name), form)
                changed = packed_inputs.packed({name: changed[name][None] for name in forms})[0]
            return changed, *rest

        numbers = jax.lax.bitcast_convert_type(draws[:, self._columns[CUSTOM]], jnp.uint32)
        keys = jax.random.wrap_key_data(numbers, impl="threefry2x32")
        results: tuple[Any, ...] = jax.vmap(change)(inputs, keys, *labels)
        return results

    @cached_property
    def _changes(self) -> tuple[Change, ...]:
        """The rows of the table that are switched on."""
        return tuple(
            change
            for change in CHANGES
            if any(getattr(self.data, name) for name in change.fields)
            or (change is CUSTOM and self.own)
        )

    @cached_property
    def _columns(self) -> dict[Change, slice]:
        """Where the numbers of each change are in a row of `draws`."""
        widths = [self._draw(change, 0, 1).shape[1] for change in self._changes]
        ends = list(accumulate(widths, initial=0))
        return dict(zip(self._changes, map(slice, ends, ends[1:]), strict=True))

    def _draw(self, change: Change, step: int, images: int) -> np.ndarray:
        random = np.random.default_rng((self.seed, change.stream, step))
        return change.draw(random, images, self.data)


def _called(custom: Callable[..., Any]) -> str:
    return f"augment={getattr(custom, '__name__', custom)!r}"


def _check_form(custom: Callable[..., Any], name: str, found: Any, form: Form) -> None:
    """Raise `ConfigError` for an input of another form: its bytes would be other numbers."""
    kind, shape = (str(getattr(found, part, "nothing")) for part in ("dtype", "shape"))
    if (kind, shape) != (form[0], str(sizes(form))):
        raise ConfigError(
            f"{_called(custom)} returns {kind} {shape} for the input {name!r}; expected {form[0]}"
            f" {sizes(form)}.\nReturn .astype({form[0]!r}) of it, in its own size."
        )
