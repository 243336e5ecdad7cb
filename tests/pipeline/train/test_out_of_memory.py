"""A run for which the devices have too little memory."""

from dataclasses import replace

import jax
import pytest

from pipeline.errors import DeviceError
from pipeline.train import training
from pipeline.train.loop import Loop
from pipeline.train.step import TrainStep


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory", r"set micro_batch below \d+ in the config \(which"),
        ("INVALID_ARGUMENT: no", "INVALID_ARGUMENT: no"),
    ],
)
def test_memory_that_runs_out_after_the_first_call_names_the_edit(
    competition, tiny, tmp_path, monkeypatch, error, said
):
    """The edit changes no result. Any other error of the devices stays as it is."""
    train, calls = TrainStep.train, []

    def starved(self, *given):
        calls.append(1)
        if len(calls) == 2:
            raise jax.errors.JaxRuntimeError(error)
        return train(self, *given)

    monkeypatch.setattr(TrainStep, "train", starved)
    config, kind = (
        replace(tiny, batch=64, batchnorm_batch=2),
        (DeviceError, jax.errors.JaxRuntimeError),
    )
    with pytest.raises(kind, match=said) as found:
        training.train(config, competition, tmp_path / "out", show=str)

    assert isinstance(found.value, DeviceError) == ("to resume from the last" in str(found.value))


def test_a_micro_batch_that_fits_is_kept_for_later_folds_and_sessions(
    competition, tiny, tmp_path, monkeypatch
):
    """Otherwise each would first compile a step that does not fit, minutes on a TPU."""
    train, tried = TrainStep.train, []

    def starved(self, *given):
        tried.append(self.micro_batch)
        if self.micro_batch > 8:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return train(self, *given)

    monkeypatch.setattr(TrainStep, "train", starved)
    replicas = jax.device_count()
    config = replace(tiny, batch=16 * replicas, folds=2, epochs=2)
    outputs, evaluated = Loop.held_out_outputs, []

    def interrupted(loop, session):
        evaluated.append(loop.compiled.micro_batch)
        return outputs(loop, session) if len(evaluated) > 1 else None

    monkeypatch.setattr(Loop, "held_out_outputs", interrupted)
    for session, steps in enumerate((1, None, None)):
        lines = []
        # What says nothing of the memory may change between sessions.
        config = replace(config, session_hours=9.0 - session)
        training.train(config, competition, tmp_path / "out", max_steps=steps, show=lines.append)
        assert sum("retrying" in line for line in lines) == (steps == 1)
        assert any("which fit earlier in this run" in line for line in lines) == (steps is None)

    assert tried.count(16) == 1 and set(tried) == {16, 8}
    # A session ended in an evaluation; the last one had nothing else left of the first fold.
    assert len(evaluated) > 2 and set(evaluated) == {8}
