"""Loop: the steps of a run, and the state that they change, from one checkpoint to the next.

The step counter decides everything: the batch and its augmentation are functions of (seed, step),
and so is dropout, whose generator starts from the seed and lies in the state. The host runs a few
calls ahead of the devices, and never waits for the newest one.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pipeline.config import Config
from pipeline.data import dataset
from pipeline.data.labels import FIGURE
from pipeline.data.row_gathering import blocks
from pipeline.errors import DivergedError
from pipeline.evaluate.epoch_score import EpochScore
from pipeline.models import architectures, backbones, weight_names
from pipeline.runtime import processes, replicas
from pipeline.train import checkpoint, out_of_memory, run_origin
from pipeline.train import feed as feeding
from pipeline.train import train_state as states
from pipeline.train.async_dispatch import EVALUATIONS, CallQueue
from pipeline.train.checkpoint_schedule import Saver
from pipeline.train.feed import Feed
from pipeline.train.learning_rate import Applied
from pipeline.train.progress_log import HISTORY, LINES, Fold, Progress
from pipeline.train.time_limit import Session
from pipeline.train.train_step import Step

# What a run writes beside its checkpoints, and must not stay beside those of another run.
OUTPUTS = (
    HISTORY, LINES, "artifact", "validation.csv", "validation.npz", "examples.npz", "held-out.npz"
)  # fmt: skip
BEST = "best/"


class Loop:
    """The loop over steps. It builds the model, so set the distribution and the dtype policy first.

    Args:
        config, applied: the run and its numbers.
        batches: of training.
        held: rows of the batches' inputs to validate on, int64 (v,).
        output: gets checkpoints/, progress.jsonl and history.csv.
        show: takes each line of text.
        seconds: gets the seconds of each phase.
        fold: which part of a run this is; None: all of it.
        score: compares epochs by the competition's metric, where the config asks for that.
        begin: gives the model another run's weights, and says whose
            (pipeline.train.warm_start.begin).
    """

    def __init__(
        self,
        config: Config,
        applied: Applied,
        batches: dataset.Batches,
        held: np.ndarray,
        output: Path,
        show: Callable[[str], None],
        seconds: dict[str, float],
        fold: Fold | None = None,
        score: EpochScore | None = None,
        begin: Callable[[Any], dict[str, Any]] | None = None,
    ) -> None:
        self.config, self.applied, self.batches = config, applied, batches
        self.held, self.output, self.show = held, output, show
        self.seconds, self.fold, self._score = seconds, fold, score
        self.model = architectures.build(config, applied.batchnorm_momentum)
        self.pretrained = backbones.load_published(self.model, config)
        self.init_from = begin(self.model) if begin else None
        self._keys = weight_names.keys(self.model)
        self.compiled = Step(config, applied, self.model, replicas.mesh())
        self.state = self.compiled.initial()
        self.step, self._began, self._used = 0, 0.0, 0.0  # seconds of the sessions before
        run = f"{config.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        self.run_id = processes.shared(run)
        self.memory: Path | None = None  # a file that keeps what fits into the devices
        self.metrics: dict[str, float] = {}
        self.best: dict[str, Any] = {}  # epoch, metrics, and how many epochs have come since
        self._best_weights: dict[str, np.ndarray] = {}
        self._validating = 0.0  # seconds that it took the last time
        self._figure = FIGURE[config.target]

    def go(
        self, origin: dict[str, Any], session: Session, *, max_steps: int | None, fresh: bool
    ) -> str:
        """Run to the end, to step `max_steps`, or to the end of the session.

        Args:
            origin: what the run is made from, as `pipeline.train.run_origin` compares it with
                that of the checkpoint.
            session: says when to stop, and is told of progress.
            max_steps: of the run; None: run to the end.
            fresh: set earlier checkpoints and the other outputs of that run aside.

        Returns:
            "complete" or "partial".
        """
        folder = self.output / "checkpoints"
        if fresh:
            checkpoint.set_aside(folder, [self.output / name for name in OUTPUTS])
        with checkpoint.writer(folder), out_of_memory.later_calls(self.compiled):
            return self._run(folder, origin, session, max_steps)

    def _run(
        self, folder: Path, origin: dict[str, Any], session: Session, max_steps: int | None
    ) -> str:
        origin = self._resume(folder, origin)
        out_of_memory.recall(self.compiled, self.memory, self.show)
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
            score=self._score.name if self._score else "",
            noun=self.config.data.noun,
        )
        begun = self._began = time.monotonic()
        epoch, stop, first = self._epoch(self.step), None, True
        calls = CallQueue(several=self.compiled.replicas > 1 and jax.devices()[0].platform == "cpu")
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state.tree))
        with (
            Saver(self.config.checkpoint_seconds, size) as saver,
            self._feed() as feed,
        ):
            for given, number in feed.calls(self._calls(self.step, last)):
                if self.ended:
                    break
                began: float | None = calls.begin()
                if first:
                    first, began = False, None
                    self.state, totals = out_of_memory.first_call(
                        self.compiled,
                        self.state,
                        (feed.held, given, number),
                        self.show,
                        self.memory,
                        partial(feed.release, self.step, number, self.show),
                    )
                    self.seconds["compile"] = time.monotonic() - begun
                    progress.restart_clock(self.step + number)
                    calls.restart()
                else:
                    self.state.tree, totals = self.compiled.train(
                        self.state.tree, feed.held, given, number
                    )
                self.step += number
                calls.add(self.step, totals, began)
                sent = sum(array.nbytes for array in jax.tree.leaves(given))
                for done, ready in calls.ended(sent):
                    session.progress()
                    feed.ended(done)
                    if progress.due():
                        self._line(progress, done, ready, calls.idle())
                if self._epoch(self.step) != epoch:
                    epoch = self._epoch(self.step)
                    calls.pause()
                    self._end_epoch(epoch, progress, totals, session, calls)
                    feed.ended(self.step)
                    calls.restart()
                    session.progress()
                # Another call has to wait for those in flight, and perhaps to validate, before it
                # can save.
                stop = session.over(saver.reserve() + calls.seconds + self._validating)
                if stop:
                    break
                if saver.due():
                    jax.block_until_ready(totals)  # type: ignore[no-untyped-call]
                    with progress.aside():
                        self._save(folder, origin, saver)
                    saved_step = self.step
            newest = calls.last()
            if newest:  # no epoch ended with the last step
                self._line(progress, *newest, calls.idle())
            self.seconds["train"] = time.monotonic() - begun - self.seconds.get("compile", 0.0)
            if self.step != saved_step:
                self._save(folder, origin, saver)
            saver.wait()
            self.seconds["checkpoints"] = saver.seconds
        if self.step == self.applied.total_steps or self.ended:
            return "complete"
        command = "again" if stop else "without --max-steps, or a larger one,"
        self.show(
            f"Stopped at step {self.step} of {self.applied.total_steps}:"
            f" {stop or 'max_steps is reached'}. The state is saved;"
            f" the same command {command} resumes from there."
        )
        return "partial"

    @property
    def ended(self) -> bool:
        """Whether `patience` epochs have passed without a better one."""
        patience = self.config.patience
        return patience is not None and self.best.get("epochs_since", 0) >= patience

    def final_weights(self) -> dict[str, np.ndarray]:
        """Return the weights to infer with, by name: averages where there are any, of the best
        epoch if the config keeps that.
        """
        if self.config.keep == "best" and self._best_weights:
            return self._best_weights
        values = dict(zip(map(id, self._variables()), self._inferring(), strict=True))
        return {key: np.asarray(values[one]) for one, key in self._keys.items()}

    def forward(self) -> Callable[[Any], Any]:
        """Return the trained model, from inputs on the devices to outputs."""
        best = self._best_weights if self.config.keep == "best" else {}
        values = [
            replicas.placed(best[key], value.sharding) if key in best else value
            for key, value in zip(
                (self._keys.get(id(one), "") for one in self._variables()),
                self._inferring(),
                strict=True,
            )
        ]
        number = len(self.model.trainable_variables)
        return partial(self.compiled.forward, values[:number], values[number:])

    def _variables(self) -> list[Any]:
        return [*self.model.trainable_variables, *self.model.non_trainable_variables]

    def _inferring(self) -> list[Any]:
        trainable, other = self.state.inferring()
        return [*trainable, *other]

    def _epoch(self, step: int) -> int:
        """Return how many epochs end within the first `step` steps. The last step may reach beyond
        the last epoch.
        """
        return min(step * self.config.batch // len(self.batches), self.config.epochs)

    def _line(self, progress: Progress, step: int, totals: Any, idle: float) -> None:
        epochs = step * self.config.batch / len(self.batches)
        progress.line(step, {"epoch": epochs, **self._means(totals, step), "idle": idle})

    def _end_epoch(
        self, epoch: int, progress: Progress, totals: Any, session: Session, calls: CallQueue
    ) -> None:
        """Validate after the step that ended epoch number `epoch`, and perhaps others before it,
        and write its row.
        """
        means = self._means(totals, self.step)
        begun = time.monotonic()
        with progress.aside():
            validated = self._validate(session.progress)
        self._validating = time.monotonic() - begun
        self.seconds["validate"] = self.seconds.get("validate", 0.0) + self._validating
        if not np.isfinite(loss := validated["validation_loss"]):
            raise self._diverged(f"The validation loss is {loss}", self.step)
        self.metrics = {"loss": means["loss"], self._figure: means[self._figure], **validated}
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
            progress.line(self.step, {"epoch": epoch, **self.metrics, "idle": calls.idle()})
        with progress.aside():
            self._compare(epoch)
        *rest, totals = self.state.tree
        # Put there, since computing them would be one more program to compile.
        zeros = [replicas.placed(np.zeros((), total.dtype), total.sharding) for total in totals]
        self.state.tree = (*rest, tuple(zeros))

    def _compare(self, epoch: int) -> None:
        """Keep the best epoch's metrics and weights, where the config asks for that."""
        if self._score is None:
            return
        order = self._score.order
        if self.best and order(self.metrics) <= order(self.best["metrics"]):
            self.best["epochs_since"] += 1
            return
        self.best = {
            "epoch": epoch,
            "step": self.step,
            "metrics": dict(self.metrics),
            "metric": self._score.metric.name,
            "epochs_since": 0,
        }
        if self.config.keep == "best":
            self._best_weights = {}
            self._best_weights = self.final_weights()

    def _means(self, totals: Any, step: int) -> dict[str, float]:
        """Return the epoch's means up to `step`, once the devices are there."""
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

    def _validate(self, progress: Callable[[], None]) -> dict[str, float]:
        """Return loss and figure of the held-out rows, and where epochs are compared the score."""
        trainable, other = self.state.inferring()
        # The first rows fill up the last group, where the loss compares rows.
        together, count = self.compiled.together or 1, len(self.held)
        rows = np.resize(self.held, -(-count // together) * together)
        labels = self.batches.labels[rows]
        # What fits with gradients fits without.
        size = self.compiled.micro_batch * self.compiled.replicas
        found: list[Any] = []
        for images, read in blocks(self.batches.inputs, rows, size):
            start = len(found) * size
            expected = np.zeros((size, *labels.shape[1:]), labels.dtype)
            expected[:read] = labels[start : start + read]
            placed = replicas.put(self.compiled.mesh, images, expected)
            real = min(read, count - start)
            found.append(self.compiled.evaluate(trainable, other, *placed, real))
            if len(found) > EVALUATIONS:  # waits for it, and takes it off the devices
                found[-EVALUATIONS] = jax.device_get(found[-EVALUATIONS])
                progress()
        *sums, outputs = zip(*jax.device_get(found), strict=True)
        loss, figure = (sum(map(float, values)) / count for values in sums)
        means = {"validation_loss": loss, f"validation_{self._figure}": figure}
        if self._score is None or not np.isfinite(loss):
            return means
        return means | self._score.of(np.concatenate(outputs)[:count])

    # -- arrays in and out

    def _calls(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield (first step, number of steps) of each call: at most `steps_per_call`, all of one
        epoch.
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

    def _feed(self) -> Feed:
        more = not self.ended and self.step < self.applied.total_steps
        return feeding.begin(self.config, self.batches, self.compiled, self.show, needed=more)

    def _save(self, folder: Path, origin: dict[str, Any], saver: Saver) -> None:
        begun, step = time.monotonic(), self.step
        best = {f"{BEST}{name}": array for name, array in self._best_weights.items()}
        arrays = self.state.arrays() | best
        details: dict[str, Any] = {
            "run_id": self.run_id,
            "origin": origin,
            "metrics": self.metrics,
            "best": dict(self.best),
            "init_from": self.init_from,
            "seconds": self._used + begun - self._began,
        }

        def write() -> None:
            wrong = states.not_finite(arrays)
            if wrong:
                shown = ", ".join(wrong[:3])
                what = f"{len(wrong)} of {len(arrays)} arrays of the state are not finite"
                raise self._diverged(f"{what}, for example {shown},", step)
            checkpoint.save(folder, step, arrays, details)

        saver.save(time.monotonic() - begun, write)

    def _resume(self, folder: Path, origin: dict[str, Any]) -> dict[str, Any]:
        """Resume from the newest checkpoint, if there is one, and return the origin of the run."""
        found = checkpoint.latest(folder)
        if found is None:
            return origin
        earlier = run_origin.earlier(found, folder, origin)
        ours = [*self.state.names, *(f"{BEST}{key}" for key in self._keys.values())]
        saved = weight_names.matched(ours, found.arrays)
        arrays = {name: array for name, array in saved.items() if not name.startswith(BEST)}
        run_origin.refuse_differing(self.state.differing(arrays), found, folder)
        self.state = self.state.restored(arrays)
        best = saved.keys() - arrays.keys()
        self._best_weights = {name.removeprefix(BEST): saved[name] for name in best}
        self.step, self.run_id, self._used = found.step, earlier.run_id, earlier.seconds
        self.metrics, self.best = earlier.metrics, earlier.best
        self.init_from = found.details.get("init_from")
        if self._score and self.best:
            run_origin.refuse_other_metric(
                self.best, self._score.metric.name, self.config.target, found, folder
            )
        for problem in found.skipped:
            self.show(f"Warning: a newer checkpoint is corrupt and skipped: {problem}")
        complete = found.step >= self.applied.total_steps or self.ended
        self.show(
            f"{'Complete already: step' if complete else 'Resuming from step'} {found.step} of"
            f" {self.applied.total_steps}, run {self.run_id}, after {self._used:.0f} s of training"
        )
        for line in run_origin.differences(earlier.origin, origin):
            self.show(line)
        return earlier.origin
