"""The loop over steps: from one checkpoint to the next, with a validation after each epoch.

The step counter decides everything: the batch and its augmentation are functions of (seed, step),
and so is dropout, whose generator starts from the seed and lies in the state. The host runs a few
calls ahead of the devices, and never waits for the newest one.
"""

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
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
from pipeline.evaluate.held_out_outputs import EpochScore
from pipeline.models import weight_names
from pipeline.runtime import devices, processes, replicas
from pipeline.train import checkpoint, out_of_memory, run_origin
from pipeline.train import feed as feeding
from pipeline.train.accumulation import Accumulation
from pipeline.train.async_dispatch import EVALUATIONS, CallQueue
from pipeline.train.checkpoint import Checkpoint, Saver
from pipeline.train.feed import Feed
from pipeline.train.learning_rate import Applied
from pipeline.train.progress_log import Fold, Progress
from pipeline.train.session import Session
from pipeline.train.state import not_finite
from pipeline.train.step import Report, TrainStep

BEST = "best/"  # begins the names of the best epoch's weights in a checkpoint


@dataclass(frozen=True)
class HeldOut:
    """What a loop validates on.

    Attributes:
        rows: of the batches' inputs, int64 (v,).
        score: compares epochs by the competition's metric; None: nothing does.
    """

    rows: np.ndarray
    score: EpochScore | None = None


class Loop:
    """The loop over the steps of a run, or of one fold.

    Args:
        config, applied: the run and its numbers.
        model: of Keras, built, with the weights to begin with.
        batches: of training.
        held_out: rows to validate on.
        output: gets checkpoints/, progress.jsonl and history.csv.
        show: takes each line of text.
        fold: which part of a run this is; None: all of it.

    Attributes:
        compiled: the step. state: after `step` steps.
        run_id: of the checkpoints; a fold gets that of the first one.
        init_from: the run whose weights it began with (`warm_start.begin`); None: none.
        metrics: after the last epoch. best: of the best epoch, and how many have come since.
        seconds: by phase.
    """

    def __init__(
        self,
        config: Config,
        applied: Applied,
        model: Any,
        batches: dataset.Batches,
        held_out: HeldOut,
        output: Path,
        show: Callable[[str], None],
        fold: Fold | None = None,
    ) -> None:
        self.config, self.applied, self.model, self.batches = config, applied, model, batches
        self.held_out, self.output, self.show, self.fold = held_out, output, show, fold
        self.compiled = TrainStep(config, applied, model, replicas.mesh())
        self.state = self.compiled.initial()
        self.step = 0
        run = f"{config.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        self.run_id: str = processes.shared(run)
        self.init_from: dict[str, Any] | None = None
        self.metrics: dict[str, float] = {}
        self.best: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}
        self._keys = weight_names.keys(model)
        self._best_weights: dict[str, np.ndarray] = {}
        self._metric = FIGURE[config.target]
        self._started = self._earlier_seconds = self._validation_seconds = 0.0

    # From the first step to the last

    def run(
        self,
        origin: dict[str, Any],
        session: Session,
        *,
        max_steps: int | None,
        fitted: Accumulation | None = None,
    ) -> str:
        """Run to the end, to step `max_steps`, or to the end of the session.

        Args:
            origin: what the run is made from, as `pipeline.train.run_origin` compares it with
                that of the checkpoint.
            session: says when to stop, and is told of progress.
            max_steps: of the run; None: run to the end.
            fitted: what fitted into the devices in an earlier fold.

        Returns:
            "complete" or "partial".
        """
        folder = self.output / "checkpoints"
        with checkpoint.writer(folder), out_of_memory.later_calls(self.compiled):
            origin, resumed = self._resume(folder, origin)
            out_of_memory.use_what_fitted(self.compiled, resumed or fitted, self.show)
            self._started = time.monotonic()
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state))
            with Saver(self.config.checkpoint_seconds, size) as saver, self._feed() as feed:
                stop = self._train(feed, saver, session, origin, max_steps)
        if self.step == self.applied.total_steps or self.out_of_patience:
            return "complete"
        command = "again" if stop else "without --max-steps, or a larger one,"
        self.show(
            f"Stopped at step {self.step} of {self.applied.total_steps}:"
            f" {stop or 'max_steps is reached'}. The state is saved;"
            f" the same command {command} resumes from there."
        )
        return "partial"

    def _train(
        self,
        feed: Feed,
        saver: Saver,
        session: Session,
        origin: dict[str, Any],
        max_steps: int | None,
    ) -> str | None:
        """Take the steps, and return why the session ended them, or None."""
        saved_step, stop, report = self.step, None, None
        last = min(self.applied.total_steps, max_steps or self.applied.total_steps)
        progress = self._progress()
        calls = CallQueue(several=self.compiled.replicas > 1 and jax.devices()[0].platform == "cpu")
        spans = iter(()) if self.out_of_patience else self._spans(self.step, last)
        for batches, number in feed.calls(spans):
            report = self._call(feed, batches, number, calls, progress)
            for ended_step, ended in calls.ended(sum(a.nbytes for a in jax.tree.leaves(batches))):
                session.progress()
                feed.ended(ended_step)
                if progress.due():
                    self._show_progress(progress, ended_step, ended, calls.idle())
            if self._epoch(self.step) != self._epoch(self.step - number):
                calls.pause()
                self._end_epoch(progress, report, session, calls)
                feed.ended(self.step)
                calls.restart()
                session.progress()
            # Another call has to wait for those in flight, and perhaps to validate, before it can
            # save.
            stop = session.over(saver.reserve() + calls.seconds + self._validation_seconds)
            if stop or self.out_of_patience:
                break
            if saver.due():
                jax.block_until_ready(report)  # type: ignore[no-untyped-call]
                with progress.aside():
                    self._save(saver, origin)
                saved_step = self.step
        if newest := calls.last():  # no epoch ended with the last step
            self._show_progress(progress, *newest, calls.idle())
        whole = time.monotonic() - self._started
        self.seconds["train"] = whole - self.seconds.get("compile", 0.0)
        if self.step != saved_step:
            self._save(saver, origin)
        saver.wait()
        self.seconds["checkpoints"] = saver.seconds
        return stop

    def _call(
        self,
        feed: Feed,
        batches: Any,
        number: int,
        calls: CallQueue,
        progress: Progress,
    ) -> Report:
        """Make one call to the devices; the first one compiles, and is waited for."""
        steps = range(self.step, self.step + number)
        began: float | None = calls.begin()
        if "compile" in self.seconds:
            self.state, report = self.compiled.train(self.state, feed.held, batches, number)
        else:
            began = None
            self.state, report = out_of_memory.first_call(
                self.compiled, self.state, feed, batches, steps, self.show
            )
            self.seconds["compile"] = time.monotonic() - self._started
            progress.restart_clock(steps.stop)
            calls.restart()
        self.step = steps.stop
        calls.add(self.step, report, began)
        return report

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield (first step, number of steps) of each call, all of one epoch."""
        most = self.compiled.steps_per_call
        while start < stop:
            number = 1
            while (
                number < most
                and start + number < stop
                and self._epoch(start + number) == self._epoch(start)
            ):
                number += 1
            yield start, number
            start += number

    def _feed(self) -> Feed:
        more = not self.out_of_patience and self.step < self.applied.total_steps
        return feeding.begin(self.config, self.batches, self.compiled, self.show, needed=more)

    @property
    def out_of_patience(self) -> bool:
        """Whether `patience` epochs have passed without a better one."""
        patience = self.config.patience
        return patience is not None and self.best.get("epochs_since", 0) >= patience

    # Epochs

    def _epoch(self, step: int) -> int:
        """Return how many epochs end within the first `step` steps. The last step may reach beyond
        the last epoch.
        """
        return min(step * self.config.batch // len(self.batches), self.config.epochs)

    def _end_epoch(
        self, progress: Progress, report: Report, session: Session, calls: CallQueue
    ) -> None:
        """Validate after the step that ended an epoch, and perhaps others before it, and write its
        row.
        """
        epoch, means = self._epoch(self.step), self._means(report, self.step)
        begun = time.monotonic()
        with progress.aside():
            validated = self._validate(session)
        self._validation_seconds = time.monotonic() - begun
        before = self.seconds.get("validate", 0.0)
        self.seconds["validate"] = before + self._validation_seconds
        if not np.isfinite(loss := validated["validation_loss"]):
            raise self._diverged(f"The validation loss is {loss}", self.step)
        self.metrics = means | validated
        progress.epoch(
            {
                "epoch": epoch,
                "step": self.step,
                **self.metrics,
                "learning_rate": float(report.learning_rate),
                "images_per_second": progress.images_per_second(self.step),
                "seconds": time.monotonic() - self._started,
            }
        )
        if progress.due() or epoch == self.config.epochs:
            progress.line(self.step, {"epoch": epoch, **self.metrics, "idle": calls.idle()})
        with progress.aside():
            self._compare_epochs(epoch)
        # Put there, since computing zeros would be one more program to compile.
        zeros = jax.tree.map(
            lambda total: replicas.placed(np.zeros((), total.dtype), total.sharding),
            self.state.totals,
        )
        self.state = self.state._replace(totals=zeros)

    def _validate(self, session: Session) -> dict[str, float]:
        """Return loss and metric of the held-out rows, and where epochs are compared the score."""
        params, buffers = self.compiled.layout.for_inference(self.state)
        # The first rows fill up the last group, where the loss compares rows.
        together, count = self.compiled.together or 1, len(self.held_out.rows)
        rows = np.resize(self.held_out.rows, -(-count // together) * together)
        labels = self.batches.labels[rows]
        # What fits with gradients fits without.
        size = self.compiled.micro_batch * self.compiled.replicas
        results: list[Any] = []
        for images, read in blocks(self.batches.inputs, rows, size):
            start = len(results) * size
            expected = np.zeros((size, *labels.shape[1:]), labels.dtype)
            expected[:read] = labels[start : start + read]
            placed = replicas.put(self.compiled.mesh, images, expected)
            real = min(read, count - start)
            results.append(self.compiled.evaluate(params, buffers, *placed, real))
            if len(results) > EVALUATIONS:  # waits for it, and takes it off the devices
                results[-EVALUATIONS] = jax.device_get(results[-EVALUATIONS])
                session.progress()
        *sums, outputs = zip(*jax.device_get(results), strict=True)
        loss, metric = (sum(map(float, values)) / count for values in sums)
        means = {"validation_loss": loss, f"validation_{self._metric}": metric}
        score = self.held_out.score
        if score is None or not np.isfinite(loss):
            return means
        return means | score.of(np.concatenate(outputs)[:count])

    def _compare_epochs(self, epoch: int) -> None:
        """Keep the best epoch's metrics and weights, where the config asks for that."""
        score = self.held_out.score
        if score is None:
            return
        if self.best and score.order(self.metrics) <= score.order(self.best["metrics"]):
            self.best["epochs_since"] += 1
            return
        self.best = {
            "epoch": epoch,
            "step": self.step,
            "metrics": dict(self.metrics),
            "metric": score.metric.name,
            "epochs_since": 0,
        }
        if self.config.keep == "best":
            self._best_weights = {}
            self._best_weights = self.final_weights()

    # Numbers for people

    def _progress(self) -> Progress:
        score = self.held_out.score
        return Progress(
            self.output,
            seconds=self.config.progress_seconds,
            step=self.step,
            total_steps=self.applied.total_steps,
            batch=self.config.batch,
            show=self.show,
            fold=self.fold,
            figure=self._metric,
            score=score.name if score else "",
            noun=self.config.data.noun,
        )

    def _show_progress(self, progress: Progress, step: int, report: Report, idle: float) -> None:
        epochs = step * self.config.batch / len(self.batches)
        progress.line(step, {"epoch": epochs, **self._means(report, step), "idle": idle})

    def _means(self, report: Report, step: int) -> dict[str, float]:
        """Return the epoch's means up to `step`, once the devices are there."""
        loss, metric, count = (float(value) for value in report.totals)
        mean = loss / max(count, 1)
        if not np.isfinite(mean):
            raise self._diverged(f"The loss is {mean}", step)
        return {"loss": mean, self._metric: metric / max(count, 1)}

    def _diverged(self, what: str, step: int) -> DivergedError:
        base_rate, peak_rate = self.config.optimizer.base_rate, self.applied.peak_rate
        return DivergedError(
            f"{what} at step {step} (optimizer.base_rate={base_rate:g}, applied {peak_rate:g})"
        )

    # What a trained model is

    def final_weights(self) -> dict[str, np.ndarray]:
        """Return the weights to infer with, by name: averages where there are any, of the best
        epoch if the config keeps that.
        """
        if self.config.keep == "best" and self._best_weights:
            return self._best_weights
        params, buffers = self.compiled.layout.for_inference(self.state)
        values = dict(zip(map(id, self._variables()), [*params, *buffers], strict=True))
        return {key: np.asarray(values[variable]) for variable, key in self._keys.items()}

    def forward(self) -> Callable[[Any], Any]:
        """Return the trained model, from inputs on the devices to outputs."""
        best = self._best_weights if self.config.keep == "best" else {}
        params, buffers = self.compiled.layout.for_inference(self.state)
        keys = [self._keys.get(id(variable), "") for variable in self._variables()]
        values = [
            replicas.placed(best[key], value.sharding) if key in best else value
            for key, value in zip(keys, [*params, *buffers], strict=True)
        ]
        return partial(self.compiled.forward, values[: len(params)], values[len(params) :])

    def _variables(self) -> list[Any]:
        return [*self.model.trainable_variables, *self.model.non_trainable_variables]

    # Checkpoints

    def _save(self, saver: Saver, origin: dict[str, Any]) -> None:
        begun, step = time.monotonic(), self.step
        best = {f"{BEST}{name}": array for name, array in self._best_weights.items()}
        arrays = self.compiled.layout.to_arrays(self.state) | best
        details: dict[str, Any] = {
            "run_id": self.run_id,
            "origin": origin,
            "metrics": self.metrics,
            "best": dict(self.best),
            "init_from": self.init_from,
            "seconds": self._earlier_seconds + begun - self._started,
            "fitted": {
                "devices": str(devices.found()),
                "accumulation": asdict(self.compiled.accumulation),
            },
        }

        def write() -> None:
            if wrong := not_finite(arrays):
                raise self._diverged(
                    f"{len(wrong)} of {len(arrays)} arrays of the state are not finite, for example"
                    f" {', '.join(wrong[:3])},",
                    step,
                )
            checkpoint.save(self.output / "checkpoints", step, arrays, details)

        saver.save(time.monotonic() - begun, write)

    def _resume(
        self, folder: Path, origin: dict[str, Any]
    ) -> tuple[dict[str, Any], Accumulation | None]:
        """Resume from the newest checkpoint, if there is one. Return the origin of the run, and
        what fitted into these devices before, if the checkpoint says so.
        """
        found = checkpoint.latest(folder)
        if found is None:
            return origin, None
        first_origin = run_origin.earlier(found, folder, origin)
        layout = self.compiled.layout
        names = [*layout.names, *(f"{BEST}{key}" for key in self._keys.values())]
        saved = weight_names.matched(names, found.arrays)
        arrays = {name: array for name, array in saved.items() if not name.startswith(BEST)}
        run_origin.refuse_differing(layout.differing(arrays, self.state), found, folder)
        self.state = layout.from_arrays(arrays, self.state)
        self._best_weights = {
            name.removeprefix(BEST): saved[name] for name in saved.keys() - arrays.keys()
        }
        details, self.step = found.details, found.step
        self.run_id, self._earlier_seconds = details["run_id"], details["seconds"]
        self.metrics, self.best = dict(details["metrics"]), dict(details["best"])
        self.init_from = details["init_from"]
        if self.held_out.score and self.best:
            metric = self.held_out.score.metric.name
            run_origin.refuse_other_metric(self.best["metric"], metric, found, folder)
        self._show_resumed(found)
        for line in run_origin.differences(first_origin, origin):
            self.show(line)
        fitted = details["fitted"]
        same_devices = fitted["devices"] == str(devices.found())
        return first_origin, Accumulation(**fitted["accumulation"]) if same_devices else None

    def _show_resumed(self, found: Checkpoint) -> None:
        for problem in found.skipped:
            self.show(f"Warning: a newer checkpoint is corrupt and skipped: {problem}")
        complete = found.step >= self.applied.total_steps or self.out_of_patience
        self.show(
            f"{'Complete already: step' if complete else 'Resuming from step'} {found.step} of"
            f" {self.applied.total_steps}, run {self.run_id},"
            f" after {self._earlier_seconds:.0f} s of training"
        )
