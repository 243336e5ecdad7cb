"""Held-out outputs are those of every row, whatever stops the session, and are computed once."""

import jax
import numpy as np
import pytest

from pipeline.evaluate import held_out_outputs

INPUTS = np.random.default_rng(0).integers(0, 256, (50, 3), np.uint8)
ROWS = np.random.default_rng(1).permutation(50)[:37]


class Clock:
    """A session that ends after some looks at it."""

    def __init__(self, looks=10**6):
        self.looks, self.steps = looks, 0

    def progress(self):
        """Count what is done."""
        self.steps += 1

    def over(self, reserve):
        """Return a reason once it was asked often enough."""
        self.looks -= 1
        return "the end" if self.looks < 0 else None


def computed(folder, clock=None, run="a", devices=None, asked=None):
    """Return the outputs: three numbers of each row."""
    mesh = devices and jax.sharding.Mesh(np.array(jax.devices()[:devices]), ("batch",))

    def forward(batch):
        if asked is not None:
            asked.append(len(batch))
        return jax.numpy.asarray(batch, "float32") * 2

    return held_out_outputs.compute(
        forward, INPUTS, ROWS, mesh=mesh, batch=8, folder=folder, run=run, session=clock or Clock()
    )


@pytest.mark.parametrize("devices", [None, 4])
def test_each_row_has_its_outputs(tmp_path, devices):
    """And the watchdog hears of each batch."""
    clock = Clock()

    found = computed(tmp_path, clock, devices=devices)

    assert np.array_equal(found, INPUTS[ROWS] * np.float32(2)) and clock.steps == 5


@pytest.mark.parametrize("looks", range(4))
def test_a_session_that_ends_is_gone_on_with_where_it_stopped(tmp_path, looks):
    asked: list[int] = []
    assert computed(tmp_path, Clock(looks), asked=asked) is None

    assert np.array_equal(computed(tmp_path, asked=asked), INPUTS[ROWS] * np.float32(2))
    assert len(asked) == 5
    computed(tmp_path, asked=asked)
    assert len(asked) == 5  # all is kept


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(b"PK\x03"), None])
def test_what_other_weights_said_or_a_file_that_is_corrupt_is_not_used(tmp_path, spoil):
    computed(tmp_path)
    if spoil is not None:
        spoil(tmp_path / held_out_outputs.FILE)
    asked: list[int] = []

    computed(tmp_path, run="a" if spoil else "b", asked=asked)

    assert len(asked) == 5
