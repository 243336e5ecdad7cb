"""Loop: the steps of a run, and the state they carry along, from a checkpoint to the next.

Only the step counter moves: the batch and its augmentation are functions of (seed, step), and so is
dropout, whose generator starts from the seed and lies in the state. The host runs a few calls ahead
of the devices and never waits for the one it has just made.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from pipeline.config import Config
from pipeline.config.compatibility import changes
from pipeline.data import dataset
from pipeline.data.labels import FIGURE
from pipeline.data.padded_batches import padded
from pipeline.errors import CheckpointError, DivergedError
from pipeline.models import architectures, backbones, weight_names
from pipeline.session import checkpoint
from pipeline.session.checkpoint_writer import Saver
from pipeline.session.progress_log import HISTORY, LINES, Fold, Progress
from pipeline.session.time_limit import Session
from pipeline.training import learning_rate, out_of_memory
from pipeline.training import train_state as states
from pipeline.training.async_dispatch import Calls
from pipeline.training.learning_rate import Applied
from pipeline.training.train_step import Step

# What a run leaves beside its checkpoints, and must not stand beside those of another.
LEFT = (HISTORY, LINES, "artifact", "validation.csv", "validation.npz", "examples.npz")
BEST = "best/"


class Loop:
    """The loop over steps. Made after the distribution and the dtype policy are set, since it
    builds the model.

    Args:
        config, applied: the run and its numbers. batches: of training.
        validation: inputs (v, …) and labels (v,) or (v, k).
        output: gets checkpoints/, progress.jsonl and history.csv. show: takes each line of text.
        seconds: is added to, by phase.
        fold: which part of a run this is; None: all of it.
    """

    def __init__(
        self,
        config: Config,
        applied: Applied,
        batches: dataset.Batches,
        validation: tuple[np.ndarray, np.ndarray],
        output: Path,
        show: Callable[[str], None],
        seconds: dict[str, float],
        fold: Fold | None = None,
    ) -> None:
        self.config, self.applied, self.batches, self.validation = (
            config,
            applied,
            batches,
            validation,
        )
        self.output, self.show, self.seconds, self.fold = output, show, seconds, fold
        self.model = architectures.build(config, applied.batchnorm_momentum)
        self.pretrained = backbones.load_published(self.model, config)
        self.optimizer = learning_rate.optimizer(applied)
        self.optimizer.build(self.model.trainable_variables)
        self.step, self._began, self._used = 0, 0.0, 0.0  # seconds of the sessions before
        self.run_id = f"{config.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        self.metrics: dict[str, float] = {}
        self.best: dict[str, Any] = {}  # epoch, metrics, and how many epochs have come since
        self._best_weights: dict[str, np.ndarray] = {}
        self._validating = 0.0  # seconds that it took the last time
        self._figure = FIGURE[config.target]
        counted, average = (
            self._figure == "accuracy" and config.target != "multilabel",
            applied.ema_momentum is not None,
        )
        self.state = states.initial(self.model, self.optimizer, average=average, counted=counted)
        # Keras keeps the distribution for each thread apart, and batches are put on the devices by
        # another one: asked there, it would say None, and every device would compute the whole
        # batch.
        self.compiled = Step(
            config,
            applied,
            self.model,
            self.optimizer,
            self.state.tree,
            keras.distribution.distribution(),
        )

    def go(
        self, origin: dict[str, Any], session: Session, *, max_steps: int | None, fresh: bool
    ) -> str:
        """Run to the end, to step `max_steps` of the run, or to the end of the session; return
        "complete" or "partial".

        Args:
            origin: what the run is made from: "config" and "data", which must be those of the
                checkpoint that it goes on from, and "precision", "devices" and "code", which may be
                others and are told.
            session: says when to stop, and is told of progress.
            max_steps: None to run to the end. fresh: set earlier checkpoints aside, with what else
                that run left.
        """
        folder = self.output / "checkpoints"
        if fresh:
            checkpoint.set_aside(folder, [self.output / name for name in LEFT])
        with checkpoint.writer(folder), out_of_memory.later_calls(self.compiled):
            return self._run(folder, origin, session, max_steps)

    def _run(
        self, folder: Path, origin: dict[str, Any], session: Session, max_steps: int | None
    ) -> str:
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
            fold=self.fold,
            figure=self._figure,
        )
        begun = self._began = time.monotonic()
        epoch, stop, first = self._epoch(self.step), None, True
        calls = Calls(several=self.compiled.replicas > 1 and jax.devices()[0].platform == "cpu")
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state.tree))
        with Saver(self.config.checkpoint_seconds, size) as saver:
            for images, labels, number in self._feed(self.step, last):
                if self.ended:
                    break
                if first:
                    first = False
                    self.state, totals = out_of_memory.first_call(
                        self.compiled, self.state, (images, labels, number), self.show
                    )
                    self.seconds["compile"] = time.monotonic() - begun
                    progress.restart_clock(self.step + number)
                    calls.restart()
                else:
                    self.state.tree, totals = self.compiled.train(
                        self.state.tree, images, labels, number
                    )
                self.step += number
                calls.add(self.step, totals)
                for done, ready in calls.ended(images.nbytes + labels.nbytes):
                    session.progress()
                    if progress.due():
                        self._line(progress, done, ready)
                if self._epoch(self.step) != epoch:
                    epoch = self._epoch(self.step)
                    self._end_epoch(epoch, progress, totals)
                    calls.restart()
                    session.progress()
                # Who goes on has to end the calls that are under way, and perhaps to validate,
                # before it can save.
                stop = session.over(saver.reserve() + calls.seconds + self._validating)
                if stop:
                    break
                if saver.due():
                    self._save(folder, origin, saver)
                    saved_step = self.step
            newest = calls.last()
            if newest:  # no epoch ended with the last step
                self._line(progress, *newest)
            self.seconds["train"] = time.monotonic() - begun - self.seconds.get("compile", 0.0)
            if self.step != saved_step:
                self._save(folder, origin, saver)
            saver.wait()
            self.seconds["checkpoints"] = saver.seconds
        if self.step == self.applied.total_steps or self.ended:
            return "complete"
        on = (
            "the same command again"
            if stop
            else "the same command without --max-steps, or a larger one,"
        )
        why = stop or "max_steps is reached"
        self.show(
            f"Stopped at step {self.step} of {self.applied.total_steps}: {why}. The state is saved; {on} goes on from there."
        )
        return "partial"

    @property
    def ended(self) -> bool:
        """Whether `patience` epochs have passed without a better one."""
        return (
            self.config.patience is not None
            and self.best.get("epochs_since", 0) >= self.config.patience
        )

    def final_weights(self) -> dict[str, np.ndarray]:
        """Return the weights to infer with, by name: the averages where there are any, of the best
        epoch if the config keeps that.
        """
        if self.config.keep == "best" and self._best_weights:
            return self._best_weights
        values: dict[str, np.ndarray] = {}
        for variables, arrays in zip(
            (self.model.trainable_variables, self.model.non_trainable_variables),
            self.state.inferring(),
            strict=True,
        ):
            values.update(
                (weight_names.weight(v), np.asarray(a))
                for v, a in zip(variables, arrays, strict=True)
            )
        return {name: values[name] for name in map(weight_names.weight, self.model.weights)}

    def _epoch(self, step: int) -> int:
        """Return how many whole epochs the first `step` steps hold. The last step may reach beyond
        the last epoch.
        """
        return min(step * self.config.batch // len(self.batches), self.config.epochs)

    def _line(self, progress: Progress, step: int, totals: Any) -> None:
        epochs = step * self.config.batch / len(self.batches)
        progress.line(step, {"epoch": epochs, **self._means(totals, step)})

    def _end_epoch(self, epoch: int, progress: Progress, totals: Any) -> None:
        """Validate after the step in which epoch number `epoch` ended, and write its row; one step
        may end several epochs.
        """
        means = self._means(totals, self.step)
        begun = time.monotonic()
        loss, figure = self._validate()
        self._validating = time.monotonic() - begun
        self.seconds["validate"] = self.seconds.get("validate", 0.0) + self._validating
        if not np.isfinite(loss):
            raise self._diverged(f"The validation loss is {loss}", self.step)
        self.metrics = {
            "loss": means["loss"],
            self._figure: means[self._figure],
            "validation_loss": loss,
            f"validation_{self._figure}": figure,
        }
        row = {
            "epoch": epoch,
            "step": self.step,
            **self.metrics,
            "learning_rate": float(totals[3]),
            "images_per_second": progress.images_per_second(self.step),
            "seconds": time.monotonic() - self._began,
        }
        progress.epoch(row)
        if progress.due() or epoch == self.config.epochs:
            progress.line(self.step, {"epoch": epoch, **self.metrics})
        self._compare(epoch)
        *rest, totals = self.state.tree
        # Put there, not computed: that would be one more program to compile.
        nothing = [jax.device_put(np.zeros((), total.dtype), total.sharding) for total in totals]
        self.state.tree = (*rest, tuple(nothing))

    def _compare(self, epoch: int) -> None:
        """Keep what the best epoch gave: the most right answers, and of equals the smallest loss;
        of several labels and numbers that alone.

        Where labels are rare, a model that never says yes is right in most of them.
        """

        def order(metrics: dict[str, float]) -> tuple[float, float]:
            right = (
                metrics["validation_accuracy"]
                if self.config.target in ("classes", "ordinal")
                else 0.0
            )
            return right, -metrics["validation_loss"]

        if self.best and order(self.metrics) <= order(self.best["metrics"]):
            self.best["epochs_since"] += 1
            return
        self.best = {
            "epoch": epoch,
            "step": self.step,
            "metrics": dict(self.metrics),
            "epochs_since": 0,
        }
        if self.config.keep == "best":
            self._best_weights = {}
            self._best_weights = self.final_weights()

    def _means(self, totals: Any, step: int) -> dict[str, float]:
        """Return the epoch's means up to `step`; waits for the devices to get there."""
        loss, figure, count = (float(value) for value in totals[:3])
        mean = loss / max(count, 1)
        if not np.isfinite(mean):
            raise self._diverged(f"The loss is {mean}", step)
        return {"loss": mean, self._figure: figure / max(count, 1)}

    def _diverged(self, what: str, step: int) -> DivergedError:
        given, applied = self.config.optimizer.base_rate, self.applied.peak_rate
        return DivergedError(
            f"{what} at step {step} (optimizer.base_rate={given:g}, applied {applied:g})"
        )

    def _validate(self) -> tuple[float, float]:
        trainable, other = self.state.inferring()
        inputs, labels = self.validation
        size = (
            self.compiled.micro_batch * self.compiled.replicas
        )  # what fitted with gradients fits without
        sums = []
        for start, (images, real) in zip(
            range(0, len(inputs), size), padded(inputs, size), strict=True
        ):
            expected = np.zeros((size, *labels.shape[1:]), labels.dtype)
            expected[:real] = labels[start : start + real]
            placed = self.compiled.put(images, expected)
            sums.append(self.compiled.evaluate(trainable, other, placed[0], placed[1], real))
        loss, figure = (sum(float(value) for value in values) for values in zip(*sums, strict=True))
        return loss / len(inputs), figure / len(inputs)

    # -- arrays in and out

    def _calls(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield (first step, number of steps) of each call: at most `steps_per_call`, and none goes
        beyond an epoch's last step.
        """
        while start < stop:
            number = 1
            while (
                number < self.config.steps_per_call
                and start + number < stop
                and self._epoch(start + number) == self._epoch(start)
            ):
                number += 1
            yield start, number
            start += number

    def _feed(self, start: int, stop: int) -> Iterator[tuple[Any, Any, int]]:
        """Yield what each call takes, made while the calls before it run.

        In this thread: it has nothing else to do meanwhile, and another one would take the
        interpreter from it (docs/LOG.md, 2026-11-21).
        """
        for call in self._calls(start, stop):
            yield self._batch(*call)

    def _batch(self, step: int, number: int) -> tuple[Any, Any, int]:
        if self.config.steps_per_call == 1:
            images, labels = (array[None] for array in self.batches.at(step))
        else:
            made = [self.batches.at(step + place) for place in range(number)]
            made += [made[0]] * (
                self.config.steps_per_call - number
            )  # one shape; these are not computed
            images, labels = (np.stack(arrays) for arrays in zip(*made, strict=True))
        return *self.compiled.put(images, labels, axis=1), number

    def _save(self, folder: Path, origin: dict[str, Any], saver: Saver) -> None:
        begun, step = time.monotonic(), self.step
        arrays = self.state.arrays() | {
            f"{BEST}{name}": array for name, array in self._best_weights.items()
        }
        details: dict[str, Any] = {
            "run_id": self.run_id,
            "origin": origin,
            "metrics": self.metrics,
            "best": dict(self.best),
        }
        details["seconds"] = self._used + begun - self._began

        def write() -> None:
            wrong = states.not_finite(arrays)
            if wrong:
                shown = ", ".join(wrong[:3])
                raise self._diverged(
                    f"{len(wrong)} of {len(arrays)} arrays of the state are not finite, for example {shown},",
                    step,
                )
            checkpoint.save(folder, step, arrays, details)

        saver.save(time.monotonic() - begun, write)

    def _resume(self, folder: Path, origin: dict[str, Any]) -> dict[str, Any]:
        """Go on from the newest checkpoint, if there is one, and return the origin of the run: how
        it began.
        """
        found = checkpoint.latest(folder)
        if found is None:
            return origin
        try:
            theirs, run_id = found.details["origin"], str(found.details["run_id"])
            metrics, best = dict(found.details["metrics"]), dict(found.details["best"])
            used = float(found.details.get("seconds", 0.0))
            changed, named = (
                changes(theirs["config"], origin["config"]),
                theirs["config"].get("name", self.config.name),
            )
            if theirs["data"] != origin["data"]:
                changed.append("the inputs or labels, or which of them validate")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(
                f"{folder} holds step {found.step} of no run of this project: {type(error).__name__}: {error}.\n"
                "Expected what `train` writes. Choose another --output, or begin again with --fresh."
            ) from error
        if named != self.config.name:
            raise CheckpointError(
                f"{folder} holds step {found.step} of the config {named!r}, and this is {self.config.name!r}; expected a folder of its own.\n"
                "Choose another --output, or begin here with --fresh (which sets the old checkpoints aside)."
            )
        if changed:
            raise CheckpointError(
                f"{folder} holds step {found.step} of another run; changed since: {'; '.join(changed)}.\n"
                "Undo the change to go on, choose another --output, or begin again with --fresh (which sets the old checkpoints aside)."
            )
        arrays = {name: array for name, array in found.arrays.items() if not name.startswith(BEST)}
        wrong = self.state.differing(arrays)
        if wrong:
            raise CheckpointError(
                f"{folder} holds step {found.step} of a different model or optimizer, for example in {', '.join(wrong[:3])}.\n"
                "Use the code that began the run, or begin again with --fresh."
            )
        self.state = self.state.restored(arrays)
        self._best_weights = {
            name.removeprefix(BEST): found.arrays[name]
            for name in found.arrays.keys() - arrays.keys()
        }
        self.step, self.run_id, self.metrics, self.best, self._used = (
            found.step,
            run_id,
            metrics,
            best,
            used,
        )
        for problem in found.skipped:
            self.show(f"Warning: a newer checkpoint is corrupt and skipped: {problem}")
        self.show(
            f"Going on from step {found.step} of {self.applied.total_steps}, run {run_id}, after {used:.0f} s of training"
        )
        began = {
            name: theirs.get(name, origin[name])
            for name in origin.keys() & {"precision", "devices", "code"}
        }
        if began.get("code") != origin.get("code"):
            self.show(
                "Warning: the code in pipeline/ is not the one that the run began with; two ways of training may be mixed."
            )
        if any(began[name] != origin[name] for name in ("precision", "devices")):
            self.show(
                f"The run goes on in {origin['precision']} on {origin['devices']}; it began in {began['precision']} on {began['devices']}"
            )
        return {**origin, **began}
