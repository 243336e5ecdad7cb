"""Batches are the same in each way, on any number of devices; the way is the one that fits."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pipeline.data import row_gathering
from pipeline.data.dataset import Batches
from pipeline.data.row_gathering import Gatherer, take
from pipeline.runtime import replicas
from pipeline.train import feed as feeding
from pipeline.train.feed import Feed

IMAGES = np.random.default_rng(0).integers(0, 256, (50, 6, 5, 3), np.uint8)
ROWS = np.random.default_rng(1).permutation(50)[:37]


class Drawing:
    """The part of a step that a feed uses."""

    def __init__(self, devices, steps_per_call=1):
        self.steps_per_call = steps_per_call
        self.mesh = devices and jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("batch",))
        self.augmentation = self

    def draws(self, step):
        """Return a number for each place."""
        return np.full((16, 1), step, np.int32)


def fed(way, devices, calls=1, monkeypatch=None):
    """Return the images, labels and draws of each call over two epochs, as a step gets them."""
    step = Drawing(devices, calls)
    batches = Batches(IMAGES, np.arange(50), batch=16, seed=3, rows=ROWS)
    spans = [(first, min(calls, 5 - first)) for first in range(0, 5, calls)]
    found = []
    with Feed(batches, step, way) as feed:
        for given, number in feed.calls(iter(spans)):
            images, *rest = given
            if feed.held:
                images = np.stack([seen(step, feed.held[0], images[n]) for n in range(number)])
            found.append([np.asarray(array)[:number].copy() for array in (images, *rest)])
            feed.ended(spans[len(found) - 1][0] + number)
    return found


def seen(step, held, rows):
    """Return the images of some rows, as the devices gather them."""
    if step.mesh is None:
        return np.asarray(held)[np.asarray(rows)]
    split, every = (jax.sharding.PartitionSpec(*axes) for axes in (("batch",), ()))
    body = jax.shard_map(
        replicas.gathered, mesh=step.mesh, in_specs=(split, every), out_specs=split, check_vma=False
    )
    return np.asarray(jax.jit(body)(held, rows))


def same(ones, others):
    return all(
        np.array_equal(a, b) for one, other in zip(ones, others, strict=True)
        for a, b in zip(one, other, strict=True)
    )  # fmt: skip


@pytest.mark.parametrize("devices", [None, 2, 4, 8])
def test_devices_that_hold_the_images_see_the_batches_of_the_host(devices):
    """37 images do not split evenly over them."""
    assert same(fed("device", devices), fed("host", None))


def test_each_step_of_a_call_has_its_own_images_labels_and_draws():
    for (images, labels, draws), first in zip(fed("host", None, 3), (0, 3), strict=True):
        assert np.array_equal(images, IMAGES[labels])  # a label is the number of its image
        assert draws[:, 0, 0].tolist() == [first + place for place in range(len(images))]


@pytest.mark.parametrize("calls", [1, 3])
def test_threads_and_buffers_that_are_used_again_give_the_same_batches(monkeypatch, calls):
    plain = fed("host", None, calls)

    monkeypatch.setattr(feeding, "THREADED", 0)
    monkeypatch.setattr(row_gathering, "PART", 100)

    assert same(fed("host", None, calls), plain)
    assert same(fed("host", 4, calls), plain)


def test_rows_are_copied_from_arrays_in_any_order_of_axes_or_the_error_is_heard():
    into = np.zeros((len(ROWS), 6, 5, 3), np.uint8)
    with Gatherer(IMAGES) as gatherer, pytest.raises(ValueError, match="output array"):
        gatherer.begin(ROWS, np.zeros((1, 1), np.uint8))[0].result()
    for order in ("C", "F"):
        take(np.asarray(IMAGES, order=order), ROWS, into)
        assert np.array_equal(into, IMAGES[ROWS])


@pytest.mark.parametrize(
    ("platform", "limit", "size", "expected"),
    [
        ("cpu", None, 10**6, "host"),
        ("tpu", 16 * 10**9, 32 * 10**9, "device"),
        ("tpu", 16 * 10**9, 33 * 10**9, "host"),
        ("gpu", None, 10**6, "host"),
    ],
    ids=["a CPU's memory is the host's", "a quarter of 8 cores", "more than that", "unknown"],
)
def test_images_lie_on_the_devices_if_they_fit_into_a_quarter_of_the_memory(
    monkeypatch, platform, limit, size, expected
):
    stats = limit and {"bytes_limit": limit}
    device = SimpleNamespace(platform=platform, memory_stats=lambda: stats)
    monkeypatch.setattr(feeding.jax, "devices", lambda: [device])
    images = SimpleNamespace(nbytes=size)

    assert feeding.way("auto", images, 8) == expected
    assert feeding.way("device", images, 8) == "device"
