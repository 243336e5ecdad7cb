"""A run for which the devices have too little memory."""

import jax
import pytest

from pipeline.errors import DeviceError
from pipeline.training import out_of_memory


class Small:
    """What the text names of a step."""

    micro_batch = 64


def test_memory_that_runs_out_after_the_first_call_says_which_edit_changes_no_result():
    with (
        pytest.raises(DeviceError, match="out of memory after a call that did fit") as found,
        out_of_memory.later_calls(Small()),
    ):
        jax.numpy.ones((1 << 50,), "float32").block_until_ready()

    assert "set a micro_batch below 64 in the config, which changes no result" in str(found.value)
    assert "resumes from the last checkpoint" in str(found.value)


def test_another_refusal_of_the_devices_stays_what_it_is():
    with (
        pytest.raises(jax.errors.JaxRuntimeError, match="INVALID_ARGUMENT: no"),
        out_of_memory.later_calls(Small()),
    ):
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no")
