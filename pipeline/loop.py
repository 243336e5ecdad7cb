"""Loop: the steps of a run, and the state they carry along, from a checkpoint to the next.

The step is one jitted function over Keras' stateless API, so BatchNorm sees the whole batch, whatever the number of replicas, and
one all-reduce a step is what XLA makes of it. Only the step counter moves: the batch, its augmentation and dropout are functions
of (seed, step).
"""

import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from pipeline import checkpoint, data, learning_rate, model
from pipeline.config import Config
from pipeline.errors import CheckpointError, PipelineError
from pipeline.learning_rate import Applied
from pipeline.progress import Progress


@dataclass
class State:
    """Everything that a step changes. The leaves are JAX arrays; `names` gives each its place in a checkpoint."""

    tree: tuple[Any, ...]
    names: list[str]

    def arrays(self) -> dict[str, np.ndarray]:
        """Return every leaf by name, copied from the devices."""
        return dict(zip(self.names, map(np.asarray, jax.tree.leaves(self.tree)), strict=True))


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
        self.model = model.build(config, applied.batchnorm_momentum)
        self.optimizer = learning_rate.optimizer(applied)
        self.optimizer.build(self.model.trainable_variables)
        self.step, self._began = 0, 0.0
        self.run_id = f"{config.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        self.metrics: dict[str, float] = {}
        self.state = self._initial_state()
        # The state is replaced in each step, so XLA may write the new one over the old.
        self._train_step = jax.jit(self._step, donate_argnums=0)
        self._evaluate_step = jax.jit(self._evaluate)

    def go(self, origin: dict[str, Any], *, max_steps: int | None, fresh: bool) -> str:
        """Run to the end or to `max_steps`, and return "complete" or "partial"."""
        folder = self.output / "checkpoints"
        if fresh:
            checkpoint.set_aside(folder)
        self._resume(folder, origin)
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
                self._end_epoch(epoch, progress)
                epoch = self._epoch(self.step)
            elif progress.due():
                progress.line(self.step, {"epoch": self.step * self.config.batch / len(self.batches), **self._means()})
            if time.monotonic() - saved >= self.config.checkpoint_seconds:
                self._save(folder, origin)
                saved = time.monotonic()
        self.seconds["train"] = time.monotonic() - begun - self.seconds.get("compile", 0.0)
        if epoch < self.config.epochs and self.step == self.applied.total_steps:
            self._end_epoch(epoch, progress)
        if self.step > 0:
            self._save(folder, origin)
        return "complete" if self.step == self.applied.total_steps else "partial"

    def final_weights(self) -> dict[str, np.ndarray]:
        """Return the weights to infer with, by name: the average's where there is one."""
        trainable, other, _, average, _ = self.state.tree
        values: dict[str, np.ndarray] = {}
        for variables, arrays in (
            (self.model.trainable_variables, average or trainable),
            (self.model.non_trainable_variables, other),
        ):
            values.update((v.path, np.asarray(a)) for v, a in zip(variables, arrays, strict=True))
        return {weight.path: values[weight.path] for weight in self.model.weights}

    def _epoch(self, step: int) -> int:
        """Return how many whole epochs the first `step` steps hold."""
        return step * self.config.batch // len(self.batches)

    def _end_epoch(self, epoch: int, progress: Progress) -> None:
        means = self._means()
        begun = time.monotonic()
        loss, accuracy = self._validate()
        self.seconds["validate"] = self.seconds.get("validate", 0.0) + time.monotonic() - begun
        self.metrics = {
            "loss": means["loss"],
            "accuracy": means["accuracy"],
            "validation_loss": loss,
            "validation_accuracy": accuracy,
        }
        rate = float(learning_rate.schedule(self.applied)(self.step))
        row = {
            "epoch": epoch + 1,
            "step": self.step,
            **self.metrics,
            "learning_rate": rate,
            "images_per_second": progress.images_per_second(self.step),
            "seconds": time.monotonic() - self._began,
        }
        progress.epoch(row)
        if progress.due() or epoch + 1 == self.config.epochs:
            progress.line(self.step, {"epoch": epoch + 1, **self.metrics})
        *rest, totals = self.state.tree
        self.state.tree = (*rest, jax.tree.map(jnp.zeros_like, totals))

    def _means(self) -> dict[str, float]:
        """Return the epoch's means so far; waits for the device."""
        loss, correct, count = (float(value) for value in self.state.tree[-1])
        mean = loss / max(count, 1)
        if not np.isfinite(mean):
            raise PipelineError(
                f"The loss is {mean} at step {self.step}; expected a finite number. Nothing of this state was saved.\n"
                f"Lower optimizer.base_rate (now {self.config.optimizer.base_rate:g}, applied {self.applied.peak_rate:g}), or raise warmup_epochs; "
                "the same command goes on from the last checkpoint, --fresh begins again."
            )
        return {"loss": mean, "accuracy": correct / max(count, 1)}

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
        trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
        momentum = self.applied.ema_momentum
        if momentum is not None:
            average = [momentum * a + (1 - momentum) * t for a, t in zip(average, trainable, strict=True)]
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
        trainable, other, _, average, _ = self.state.tree
        pixels, labels = self.validation
        sums = np.zeros(2)
        for start, (images, real) in zip(
            range(0, len(pixels), self.config.batch), data.padded(pixels, self.config.batch), strict=True
        ):
            expected = np.zeros(self.config.batch, np.int32)
            expected[:real] = labels[start : start + real]
            found = self._evaluate_step(average or trainable, other, *self._put(images, expected), real)
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
        distribution = keras.distribution.distribution()
        if distribution is None:
            return jax.device_put(images), jax.device_put(labels)
        return tuple(
            jax.device_put(array, distribution.get_data_layout(array.shape).backend_layout)
            for array in (images, labels)
        )

    def _initial_state(self) -> State:
        trainable, other, optimizer = (
            [v.value for v in variables]
            for variables in (
                self.model.trainable_variables,
                self.model.non_trainable_variables,
                self.optimizer.variables,
            )
        )
        names = [f"trainable/{v.path}" for v in self.model.trainable_variables]
        # Keras counts seed generators and optimizers up within a session (adam_2/…): their places are what stays the same.
        for group, variables in (
            ("other", self.model.non_trainable_variables),
            ("optimizer", self.optimizer.variables),
        ):
            names += [f"{group}/{place}/{v.path.split('/')[-1]}" for place, v in enumerate(variables)]
        average = []
        if self.applied.ema_momentum is not None:
            names += [f"average/{v.path}" for v in self.model.trainable_variables]
            average = [jnp.array(value) for value in trainable]
        names += ["totals/loss", "totals/correct", "totals/count"]
        place = trainable[0].sharding
        if isinstance(place, jax.sharding.NamedSharding):
            place = jax.sharding.NamedSharding(place.mesh, jax.sharding.PartitionSpec())  # type: ignore[no-untyped-call]
        # On all devices, like the weights: what a checkpoint brings back is put where its leaf was.
        totals = tuple(jax.device_put(jnp.zeros((), kind), place) for kind in (jnp.float32, jnp.int32, jnp.int32))
        return State((trainable, other, optimizer, average, totals), names)

    def _save(self, folder: Path, origin: dict[str, Any]) -> None:
        begun = time.monotonic()
        self._means()  # refuses a state that is not finite
        details = {"run_id": self.run_id, "origin": origin, "metrics": self.metrics}
        checkpoint.save(folder, self.step, self.state.arrays(), details)
        self.seconds["checkpoints"] = self.seconds.get("checkpoints", 0.0) + time.monotonic() - begun

    def _resume(self, folder: Path, origin: dict[str, Any]) -> None:
        found = checkpoint.latest(folder)
        if found is None:
            return
        theirs = found.details["origin"]
        if theirs != origin:
            differing = sorted(
                key
                for key in origin["config"].keys() | theirs["config"].keys()
                if origin["config"].get(key) != theirs["config"].get(key)
            )
            changed = [
                f"{key}: {theirs['config'].get(key)!r} then, {origin['config'].get(key)!r} now" for key in differing
            ]
            if theirs["data"] != origin["data"]:
                changed.append("the images or labels")
            raise CheckpointError(
                f"{folder} holds step {found.step} of another run; changed since: {'; '.join(changed)}.\n"
                "Undo the change to go on, choose another --output, or begin again with --fresh (which sets the old checkpoints aside)."
            )
        leaves, structure = jax.tree.flatten(self.state.tree)
        wrong = [
            name
            for name, leaf in zip(self.state.names, leaves, strict=True)
            if name not in found.arrays
            or found.arrays[name].shape != leaf.shape
            or found.arrays[name].dtype != leaf.dtype
        ]
        if wrong or len(found.arrays) != len(leaves):
            raise CheckpointError(
                f"{folder} holds step {found.step} of a different model or optimizer, "
                f"for example in {', '.join(wrong[:3]) or 'its number of arrays'}.\n"
                "Use the code that began the run, or begin again with --fresh."
            )
        restored = [
            jax.device_put(found.arrays[name], leaf.sharding)
            for name, leaf in zip(self.state.names, leaves, strict=True)
        ]
        self.state = replace(self.state, tree=jax.tree.unflatten(structure, restored))
        self.step, self.run_id, self.metrics = found.step, found.details["run_id"], dict(found.details["metrics"])
        self.show(f"Going on from step {found.step} of {self.applied.total_steps}, run {self.run_id}")
