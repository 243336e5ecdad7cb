"""Loop: the steps of a run, and the state they carry along, from a checkpoint to the next.

The step is one jitted function over Keras' stateless API, written for the whole batch: BatchNorm sees all of it, whatever the number
of replicas, and XLA splits the work where the batch is split. Only the step counter moves: the batch and its augmentation are functions of
(seed, step), and so is dropout, whose generator starts from the seed and lies in the state.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from pipeline import checkpoint, data, learning_rate, model
from pipeline import state as states
from pipeline.config import Config
from pipeline.errors import CheckpointError, DivergedError
from pipeline.learning_rate import Applied
from pipeline.progress import HISTORY, LINES, Progress

# What a config may say otherwise when a run goes on: nothing that training reads. The images themselves are compared by content.
FREE = {"handoff", "progress_seconds", "checkpoint_seconds"} | {
    f"data.{name}" for name in ("train_csv", "train_images", "test_images", "sample_submission")
}


class Loop:
    """The loop over steps. Made after the distribution and the dtype policy are set, since it builds the model.

    Args:
        config, applied: the run and its numbers. batches: of training.
        validation: uint8 (v, height, width, channels) and int32 (v,).
        output: gets checkpoints/, progress.jsonl and history.csv. show: takes each line of text.
        seconds: is added to, by phase.
    """

    def __init__(
        self,
        config: Config,
        applied: Applied,
        batches: data.Batches,
        validation: tuple[np.ndarray, np.ndarray],
        output: Path,
        show: Callable[[str], None],
        seconds: dict[str, float],
    ) -> None:
        self.config, self.applied, self.batches, self.validation = config, applied, batches, validation
        self.output, self.show, self.seconds = output, show, seconds
        # Keras keeps it for each thread apart, and batches are put on the devices by another one: asked there, it would say None, and
        # every device would compute the whole batch.
        self._distribution = keras.distribution.distribution()
        self.model = model.build(config, applied.batchnorm_momentum)
        self.optimizer = learning_rate.optimizer(applied)
        self.optimizer.build(self.model.trainable_variables)
        self.step, self._began = 0, 0.0
        self.run_id = f"{config.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        self.metrics: dict[str, float] = {}
        self.state = states.initial(self.model, self.optimizer, average=applied.ema_momentum is not None)
        # Where the optimizer's variables count the steps: the average needs it.
        self._iterations = [v is self.optimizer.iterations for v in self.optimizer.variables].index(True)
        # The state is replaced in each step, so XLA may write the new one over the old; it stays where it is, on all devices.
        places = jax.tree.map(lambda leaf: leaf.sharding, self.state.tree)
        self._train_step = jax.jit(self._step, donate_argnums=0, out_shardings=places)
        self._evaluate_step = jax.jit(self._evaluate)

    def go(self, origin: dict[str, Any], *, max_steps: int | None, fresh: bool) -> str:
        """Run to the end or to step `max_steps` of the run, and return "complete" or "partial".

        Args:
            origin: what the run is made from: "config" and "data", which must be those of the checkpoint that it goes on from, and
                "precision" and "devices", which may be others and are told.
            max_steps: None to run to the end. fresh: set earlier checkpoints aside, with the history that belongs to them.
        """
        folder = self.output / "checkpoints"
        if fresh:
            checkpoint.set_aside(folder, [self.output / name for name in (HISTORY, LINES)])
        origin = self._resume(folder, origin)
        saved_step = self.step
        last = min(self.applied.total_steps, max_steps or self.applied.total_steps)
        progress = Progress(
            self.output,
            seconds=self.config.progress_seconds,
            step=self.step,
            total_steps=self.applied.total_steps,
            batch=self.config.batch,
            show=self.show,
        )
        saved, first = time.monotonic(), True
        epoch = self._epoch(self.step)
        begun = self._began = time.monotonic()
        for images, labels in self._feed(self.step, last):
            self.state.tree = self._train_step(self.state.tree, images, labels)
            self.step += 1
            if first:
                jax.block_until_ready(self.state.tree)  # type: ignore[no-untyped-call]
                self.seconds["compile"] = time.monotonic() - begun
                progress.restart_clock(self.step)
                first = False
            if self._epoch(self.step) != epoch:
                epoch = self._epoch(self.step)
                self._end_epoch(epoch, progress)
            elif progress.due():
                progress.line(self.step, {"epoch": self.step * self.config.batch / len(self.batches), **self._means()})
            if time.monotonic() - saved >= self.config.checkpoint_seconds:
                self._save(folder, origin)
                saved, saved_step = time.monotonic(), self.step
        self.seconds["train"] = time.monotonic() - begun - self.seconds.get("compile", 0.0)
        if self.step != saved_step:
            self._save(folder, origin)
        return "complete" if self.step == self.applied.total_steps else "partial"

    def final_weights(self) -> dict[str, np.ndarray]:
        """Return the weights to infer with, by name: the averages where there are any."""
        values: dict[str, np.ndarray] = {}
        for variables, arrays in zip(
            (self.model.trainable_variables, self.model.non_trainable_variables), self.state.inferring(), strict=True
        ):
            values.update((v.path, np.asarray(a)) for v, a in zip(variables, arrays, strict=True))
        return {weight.path: values[weight.path] for weight in self.model.weights}

    def _epoch(self, step: int) -> int:
        """Return how many whole epochs the first `step` steps hold. The last step may reach beyond the last epoch."""
        return min(step * self.config.batch // len(self.batches), self.config.epochs)

    def _end_epoch(self, epoch: int, progress: Progress) -> None:
        """Validate after the step in which epoch number `epoch` ended, and write its row; one step may end several epochs."""
        means = self._means()
        begun = time.monotonic()
        loss, accuracy = self._validate()
        self.seconds["validate"] = self.seconds.get("validate", 0.0) + time.monotonic() - begun
        if not np.isfinite(loss):
            raise self._diverged(f"The validation loss is {loss}")
        self.metrics = {
            "loss": means["loss"],
            "accuracy": means["accuracy"],
            "validation_loss": loss,
            "validation_accuracy": accuracy,
        }
        # Keras takes the rate of step s, counted from 1, at s - 1.
        rate = float(learning_rate.schedule(self.applied)(self.step - 1))
        row = {
            "epoch": epoch,
            "step": self.step,
            **self.metrics,
            "learning_rate": rate,
            "images_per_second": progress.images_per_second(self.step),
            "seconds": time.monotonic() - self._began,
        }
        progress.epoch(row)
        if progress.due() or epoch == self.config.epochs:
            progress.line(self.step, {"epoch": epoch, **self.metrics})
        *rest, totals = self.state.tree
        self.state.tree = (*rest, jax.tree.map(jnp.zeros_like, totals))

    def _means(self) -> dict[str, float]:
        """Return the epoch's means so far; waits for the device."""
        loss, correct, count = (float(value) for value in self.state.tree[-1])
        mean = loss / max(count, 1)
        if not np.isfinite(mean):
            raise self._diverged(f"The loss is {mean}")
        return {"loss": mean, "accuracy": correct / max(count, 1)}

    def _diverged(self, what: str) -> DivergedError:
        given, applied = self.config.optimizer.base_rate, self.applied.peak_rate
        return DivergedError(f"{what} at step {self.step} (optimizer.base_rate={given:g}, applied {applied:g})")

    # -- the two compiled functions

    def _loss(self, trainable: Any, other: Any, images: Any, labels: Any) -> tuple[Any, Any]:
        logits, other = self.model.stateless_call(trainable, other, images, training=True)
        logits = logits.astype(jnp.float32)
        losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return losses.mean(), (other, logits)

    def _step(self, state: Any, images: Any, labels: Any) -> Any:
        trainable, other, optimizer, average, totals = state
        (loss, (other, logits)), gradients = jax.value_and_grad(self._loss, has_aux=True)(
            trainable, other, images, labels
        )
        done = optimizer[self._iterations]
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        if self.applied.ema_momentum is not None:
            # The average begins at random weights, and a long one would keep them to the end of a short run: TensorFlow's rule
            # for ExponentialMovingAverage(num_updates) lets it forget them first.
            momentum = jnp.minimum(self.applied.ema_momentum, (1.0 + done) / (10.0 + done))
            now = states.averaged(trainable, other)
            average = [momentum * a + (1 - momentum) * v for a, v in zip(average, now, strict=True)]
        number = labels.shape[0]
        correct = (logits.argmax(axis=-1) == labels).sum()
        totals = (totals[0] + loss * number, totals[1] + correct, totals[2] + number)
        return trainable, other, optimizer, average, totals

    def _evaluate(self, trainable: Any, other: Any, images: Any, labels: Any, real: Any) -> tuple[Any, Any]:
        logits, _ = self.model.stateless_call(trainable, other, images, training=False)
        logits = logits.astype(jnp.float32)
        counts = jnp.arange(labels.shape[0]) < real
        losses = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return (losses * counts).sum(), ((logits.argmax(axis=-1) == labels) & counts).sum()

    def _validate(self) -> tuple[float, float]:
        trainable, other = self.state.inferring()
        pixels, labels = self.validation
        sums = np.zeros(2)
        for start, (images, real) in zip(
            range(0, len(pixels), self.config.batch), data.padded(pixels, self.config.batch), strict=True
        ):
            expected = np.zeros(self.config.batch, np.int32)
            expected[:real] = labels[start : start + real]
            found = self._evaluate_step(trainable, other, *self._put(images, expected), real)
            sums += np.array([float(value) for value in found])
        return float(sums[0] / len(pixels)), float(sums[1] / len(pixels))

    # -- arrays in and out

    def _feed(self, start: int, stop: int) -> Iterator[tuple[Any, Any]]:
        """Yield the batches of steps start … stop, made and sent to the devices while the step before runs."""
        with ThreadPoolExecutor(1, "batches") as pool:
            waiting = [pool.submit(self._batch, step) for step in range(start, min(start + 2, stop))]
            for step in range(start, stop):
                ready = waiting.pop(0).result()
                if step + 2 < stop:
                    waiting.append(pool.submit(self._batch, step + 2))
                yield ready

    def _batch(self, step: int) -> tuple[Any, Any]:
        return self._put(*self.batches.at(step))

    def _put(self, images: np.ndarray, labels: np.ndarray) -> tuple[Any, Any]:
        if self._distribution is None:
            return jax.device_put(images), jax.device_put(labels)
        return tuple(
            jax.device_put(array, self._distribution.get_data_layout(array.shape).backend_layout)
            for array in (images, labels)
        )

    def _save(self, folder: Path, origin: dict[str, Any]) -> None:
        begun = time.monotonic()
        arrays = self.state.arrays()
        wrong = states.not_finite(arrays)
        if wrong:
            shown = ", ".join(wrong[:3])
            raise self._diverged(
                f"{len(wrong)} of {len(arrays)} arrays of the state are not finite, for example {shown},"
            )
        details = {"run_id": self.run_id, "origin": origin, "metrics": self.metrics}
        checkpoint.save(folder, self.step, arrays, details)
        self.seconds["checkpoints"] = self.seconds.get("checkpoints", 0.0) + time.monotonic() - begun

    def _resume(self, folder: Path, origin: dict[str, Any]) -> dict[str, Any]:
        """Go on from the newest checkpoint, if there is one, and return the origin of the run: how it began."""
        found = checkpoint.latest(folder)
        if found is None:
            return origin
        try:
            theirs, run_id, metrics = (
                found.details["origin"],
                str(found.details["run_id"]),
                dict(found.details["metrics"]),
            )
            changed = _changes(theirs["config"], origin["config"])
            if theirs["data"] != origin["data"]:
                changed.append("the images or labels")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"{folder} holds step {found.step} of no run of this project: {type(error).__name__}: {error}.\n"
                "Expected what `train` writes. Choose another --output, or begin again with --fresh."
            ) from error
        if changed:
            raise CheckpointError(
                f"{folder} holds step {found.step} of another run; changed since: {'; '.join(changed)}.\n"
                "Undo the change to go on, choose another --output, or begin again with --fresh (which sets the old checkpoints aside)."
            )
        wrong = self.state.differing(found.arrays)
        if wrong:
            raise CheckpointError(
                f"{folder} holds step {found.step} of a different model or optimizer, for example in {', '.join(wrong[:3])}.\n"
                "Use the code that began the run, or begin again with --fresh."
            )
        self.state = self.state.restored(found.arrays)
        self.step, self.run_id, self.metrics = found.step, run_id, metrics
        self.show(f"Going on from step {found.step} of {self.applied.total_steps}, run {run_id}")
        began = {name: theirs.get(name, origin[name]) for name in ("precision", "devices")}
        if began != {name: origin[name] for name in began}:
            self.show(
                f"The run goes on in {origin['precision']} on {origin['devices']}; it began in {began['precision']} on {began['devices']}"
            )
        return {**origin, **began}


def _changes(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return in what two configs differ that training depends on, a text for each value."""
    before, now = _flat(theirs), _flat(ours)
    return [
        f"{name}: {before.get(name)!r} then, {now.get(name)!r} now"
        for name in sorted((before.keys() | now.keys()) - FREE)
        if before.get(name) != now.get(name)
    ]


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config's values by full name, for example "data.height"."""
    flat = {}
    for name, value in config.items():
        flat.update(
            {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        )
    return flat
