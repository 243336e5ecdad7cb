"""The training loop, which runs steps, saves checkpoints, and validates after each epoch.

Batches and augmentation are functions of (seed, step). The dropout generator is
initialized from the seed, and its state is saved in checkpoints. The host runs a few calls ahead of
the devices (asynchronous dispatch) and never waits for the newest call.
"""

import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pipeline.config import Config
from pipeline.config.config import changes
from pipeline.data import dataset
from pipeline.data.labels import FIGURE
from pipeline.data.row_gathering import blocks
from pipeline.errors import CheckpointError, DeviceError, DivergedError
from pipeline.evaluate.held_out_rows import EpochScore
from pipeline.models import weight_names
from pipeline.runtime import devices, processes, replicas
from pipeline.train import checkpoint, phases
from pipeline.train import feed as feeding
from pipeline.train.learning_rate import Applied
from pipeline.train.progress_log import Fold, Progress, Show
from pipeline.train.session import Session
from pipeline.train.step import Batch, Report, TrainStep

BEST = "best/"  # name prefix of the best epoch's weights in a checkpoint
# Parts of a run's origin that can change between sessions. If one of them changes, a warning is
# shown.
MAY_CHANGE = ("precision", "devices", "code")
START_OVER = "start over with --fresh, which sets the old checkpoints aside."

# Limits for the calls in flight. If there are too few, the devices wait for the host on a busy
# machine. If there are too many, the host runs far ahead and the batches use too much memory.
# With 3 calls of 20 ms in flight, steps took 4 % longer than with 24 (docs/dev/findings.md).
MIN_CALLS, MAX_CALLS, SECONDS, BYTES = 3, 32, 0.5, 256e6
# Calls in flight during evaluation. With 33 or more on a CPU with several devices, a thread that
# starts a call waits for an older call that needs the same thread, and XLA aborts the process
# (docs/dev/findings.md).
EVALUATIONS = 16
# Number of initial calls that are timed individually.
ALONE = 3


@dataclass
class Record:
    """Values stored in a checkpoint in addition to the state.

    Attributes:
        run_id: the run's id, which is the same for all folds.
        origin: the run's origin when it started, see `Loop.run`.
        best: epoch, metrics and metric name of the best epoch, and the number of epochs since.
        init_from: origin of the initial weights (`warm_start.begin`), or None.
        seconds: training time over all sessions.
        micro_batch: a micro-batch size that fits into the memory of `devices`.
    """

    run_id: str
    origin: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    best: dict[str, Any] = field(default_factory=dict)
    init_from: dict[str, Any] | None = None
    seconds: float = 0.0
    devices: str = ""
    micro_batch: int = 0


class Loop:
    """The training loop of a run, or of one of its folds.

    Args:
        held_out: rows of the batches' inputs to validate on, int64 (v,).
        output: folder for checkpoints/, progress.jsonl and history.csv.

    Attributes:
        state: the state after `step` steps.
        score: compares epochs with the competition's metric; None if they are not compared.
        seconds: duration of each phase.
    """

    _progress: Progress

    def __init__(
        self,
        config: Config,
        applied: Applied,
        model: Any,
        batches: dataset.Batches,
        held_out: np.ndarray,
        output: Path,
        show: Show,
        fold: Fold | None = None,
    ) -> None:
        self.config, self.applied, self.batches = config, applied, batches
        self.held_out, self.output, self.show, self.fold = held_out, output, show, fold
        self.compiled = TrainStep(config, applied, model, replicas.mesh())
        self._devices = f"{self.compiled.replicas} of {devices.found()}"
        self.state = self.compiled.layout.initial()
        self.step = 0
        self.record = Record(new_run_id(config))
        self.score: EpochScore | None = None
        self.seconds = defaultdict[str, float](float)
        self._keys = self.compiled.layout.keys
        self._best_weights: dict[str, np.ndarray] = {}
        self._calls, self._metric = CallQueue(self.compiled.replicas), FIGURE[config.target]
        self._started = self._validation_seconds = 0.0

    # Steps

    def run(self, origin: dict[str, Any], session: Session, *, max_steps: int | None) -> str:
        """Train until the end of the run, step `max_steps`, or the end of the session, and return
        "complete" or "partial".

        `origin` is compared with the origin in the checkpoint. Its values for "config", "data" and
        "pretrained" must be the same, and the values in `MAY_CHANGE` can differ. "config" includes
        the digest of the config's functions.

        Raises:
            CheckpointError: if the checkpoint is from a different run.
            DeviceError: if a call does not fit in device memory.
            DivergedError: if a loss or a weight is not finite.
        """
        folder, total = self.output / "checkpoints", self.applied.total_steps
        with checkpoint.writer(folder), self._explained_memory():
            self._resume(folder, origin)
            fitted = self.record.micro_batch
            if self.record.devices == self._devices and self.compiled.use(fitted):
                self.show(
                    f"Using micro-batches of {fitted} per replica, which fit earlier in this run"
                )
            stop = None
            if not self.complete:
                self._started = time.monotonic()
                most = total if max_steps is None else min(max_steps, total)
                with feeding.begin(self.config, self.batches, self.compiled, self.show) as feed:
                    stop = self._train(feed, session, most)
        if self.out_of_patience:
            since = f"no later epoch was better than epoch {self.record.best['epoch']}"
            self.show(f"Stopped early: {since} (patience={self.config.patience})")
        if self.complete:
            return "complete"
        again = "" if stop else " with a larger --max-steps or without it"
        self.show(
            f"Stopped at step {self.step} of {total}: {stop or 'reached max_steps'}. The state was"
            f" saved. To resume, run the same command{again}."
        )
        return "partial"

    def _train(self, feed: feeding.Feed, session: Session, max_steps: int) -> str | None:
        saved_step, stop, calls = self.step, None, self._calls
        calls.restart()
        state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self.state))
        saver = checkpoint.Saver(self.config.checkpoint_seconds, state_bytes)
        total = self.applied.total_steps
        self._progress = Progress(self.output, self.config, saved_step, total, self.show, self.fold)
        for batches, number in feed.calls(self._spans(max_steps)):
            report = self._call(feed, batches, number)
            for step, ended in calls.ended(sum(a.nbytes for a in jax.tree.leaves(batches))):
                session.progress()
                feed.ended(step)
                if self._progress.due():
                    self._show_progress(step, ended)
            ends_epoch = self._epoch(self.step) != self._epoch(self.step - number)
            if ends_epoch:
                self._end_epoch(report, session)
            if saves := saver.due():
                with self._progress.aside():
                    self._save(saver)
                saved_step = self.step
            if ends_epoch or saves:  # both have waited for all calls
                feed.ended(self.step)
                calls.restart(keep_newest=not ends_epoch)
                session.progress()
            # After another call, saving must wait for all calls in flight, and possibly for a
            # validation. The first call of a phase also compiles, which is assumed to take as long
            # as all compilations so far.
            reserve = saver.reserve() + calls.seconds + self._validation_seconds
            reserve += self.seconds["compile"] if self._begins_program else 0.0
            stop = session.over(reserve)
            if stop or self.out_of_patience:
                break
        if newest := calls.last():  # the last step was not the end of an epoch
            self._show_progress(*newest)
        self.seconds["train"] = time.monotonic() - self._started - self.seconds.get("compile", 0.0)
        if self.step != saved_step:
            self._save(saver)
        self.seconds["checkpoints"] = sum(saver.costs)
        return stop

    def _call(self, feed: feeding.Feed, batches: Batch, number: int) -> Report:
        compiles = self._begins_program
        if compiles:
            begun = time.monotonic() if "compile" in self.seconds else self._started
            self._begin_phase()
            report = self._first_call(feed, batches, number)
            self.seconds["compile"] += time.monotonic() - begun
            self._progress.restart_clock(self.step + number)
            self._calls.restart()
        else:
            self._calls.begin()
            self.state, report = self.compiled.train(self.state, feed.held, batches, number)
        self.step += number
        self._calls.add(self.step, report, timed=not compiles)
        return report

    def _begin_phase(self) -> None:
        phase = self.compiled.phase = phases.of(self.applied, self.step)
        changes = []
        if self.applied.frozen_steps:
            what = "only new layers train" if phase.frozen else "all weights train"
            changes.append(f"{what} (frozen_epochs)")
        if self.config.progressive:
            size = self.compiled.models[phase.size].inputs[0].shape[1:]
            changes.append(f"images have {phases.shown(size)} (progressive)")
        if changes:
            self.show(f"From step {self.step + 1} on, {' and '.join(changes)}")

    def _first_call(self, feed: feeding.Feed, batches: Batch, number: int) -> Report:
        step, layout = self.compiled, self.compiled.layout
        before = layout.to_arrays(self.state)  # a failed call may have reused the state's memory
        while True:
            try:
                state, report = step.train(self.state, feed.held, batches, number)
                jax.block_until_ready(state)  # type: ignore[no-untyped-call]
                self.state = state
                return report
            except jax.errors.JaxRuntimeError as error:
                if not devices.exhausted(error) or not step.smaller:
                    raise
                self.state, tried = layout.from_arrays(before, self.state), step.micro_batch
                step.use(step.smaller[0])
                self.show(
                    f"Out of memory with {tried} {self.config.data.noun} per replica; retrying with"
                    f" micro-batches of {step.micro_batch}. The batch size and learning rate are"
                    " unchanged."
                )

    @contextmanager
    def _explained_memory(self) -> Iterator[None]:
        """Raise a `DeviceError` with advice if the devices run out of memory. Either even the
        smallest micro-batch does not fit, or a later call ran out of memory, for example because
        another process uses the devices.
        """
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            if not devices.exhausted(error):
                raise
            size = self.compiled.micro_batch
            raise DeviceError(
                f"A micro-batch of {size} per replica does not fit in device memory:"
                f" {str(error).splitlines()[0][:300]}\n"
                "Stop other programs on these devices, set micro_batch below"
                f" {size} in the config (which does not affect results), keep the inputs off the"
                ' devices (feed="host"), or use a smaller model. Run the same command to resume'
                " from the last checkpoint."
            ) from error

    def _spans(self, max_steps: int) -> Iterator[tuple[int, int]]:
        """Yield (first step, number of steps) for each call. Calls never span two epochs."""
        start = self.step
        while start < max_steps and not self.out_of_patience:
            images = (self._epoch(start) + 1) * len(self.batches)
            end = min(-(-images // self.config.batch), max_steps)
            end = min(end, start + self.compiled.steps_per_call)
            yield start, end - start
            start = end

    @property
    def _begins_program(self) -> bool:
        phase = phases.of(self.applied, self.step)
        return "compile" not in self.seconds or phase != self.compiled.phase

    @property
    def complete(self) -> bool:
        return self.step >= self.applied.total_steps or self.out_of_patience

    @property
    def out_of_patience(self) -> bool:
        patience = self.config.patience
        return patience is not None and self.record.best.get("epochs_since", 0) >= patience

    # Epochs

    def _epoch(self, step: int) -> int:
        """Return the number of epochs completed within the first `step` steps."""
        # The last step may extend past the last epoch.
        return min(step * self.config.batch // len(self.batches), self.config.epochs)

    def _end_epoch(self, report: Report, session: Session) -> None:
        epoch, progress, score = self._epoch(self.step), self._progress, self.score
        means, started = self._means(report), time.monotonic()
        with progress.aside():
            metrics = self.record.metrics = means | self._validate(session)
            if score:
                self._compare_epochs(epoch, score)
        self._validation_seconds = time.monotonic() - started
        self.seconds["validate"] += self._validation_seconds
        scored = {score.name: metrics.get(score.name)} if score else {}  # None if undefined
        progress.epoch(
            {
                "epoch": epoch,
                "step": self.step,
                **metrics,
                **scored,
                "learning_rate": float(report.learning_rate),
                **({"loss_scale": float(report.scale.value)} if report.scale else {}),
                "images_per_second": progress.images_per_second(self.step),
                "seconds": time.monotonic() - self._started,
            }
        )
        if progress.due() or epoch == self.config.epochs:
            progress.line(self.step, {"epoch": epoch, **metrics, "idle": self._calls.idle()})
        self.state = self.state._replace(totals=self.compiled.layout.zeros())

    def _validate(self, session: Session) -> dict[str, float]:
        step = self.compiled
        params, buffers = step.layout.for_inference(self.state)
        # If the loss compares rows, pad the last group with the first rows.
        together, count = step.together or 1, len(self.held_out)
        rows = np.resize(self.held_out, -(-count // together) * together)
        labels = self.batches.labels[rows]

        def evaluate(start: int, images: np.ndarray, real: int) -> Any:
            places = np.minimum(np.arange(start, start + len(images)), len(rows) - 1)
            placed = replicas.put(step.mesh, images, labels[places])
            return step.evaluate(params, buffers, *placed, min(real, count - start))

        *sums, outputs = zip(*self._evaluations(rows, evaluate, session), strict=True)
        loss, metric = (sum(map(float, values)) / count for values in sums)
        if not np.isfinite(loss):
            raise self._diverged(f"The validation loss is {loss}")
        means = {"validation_loss": loss, f"validation_{self._metric}": metric}
        return means | (self.score.of(np.concatenate(outputs)[:count]) if self.score else {})

    def _evaluations(
        self, rows: np.ndarray, evaluate: Callable[[int, np.ndarray, int], Any], session: Session
    ) -> Iterator[Any]:
        """Evaluate blocks of rows, several at a time, and yield their results on the host.
        `evaluate` receives the index of the block's first row, the inputs, and the number of inputs
        that are not padding.
        """
        step, in_flight = self.compiled, deque[Any]()
        size = step.micro_batch * step.replicas  # fits in memory even with gradients
        for number, (images, real) in enumerate(blocks(self.batches.inputs, rows, size)):
            in_flight.append(evaluate(number * size, images, real))
            if len(in_flight) == EVALUATIONS:
                yield jax.device_get(in_flight.popleft())
                session.progress()
        yield from jax.device_get(list(in_flight))

    def _compare_epochs(self, epoch: int, score: EpochScore) -> None:
        metrics, best = self.record.metrics, self.record.best
        if best and score.order(metrics) <= score.order(best["metrics"]):
            best["epochs_since"] += 1
            return
        self.record.best = {
            "epoch": epoch,
            "metrics": metrics,
            "metric": score.metric.name,
            "epochs_since": 0,
        }
        if self.config.keep == "best":
            self._best_weights = {}
            self._best_weights = self.final_weights()

    def _show_progress(self, step: int, report: Report) -> None:
        epochs, idle = step * self.config.batch / len(self.batches), self._calls.idle()
        self._progress.line(step, {"epoch": epochs, **self._means(report), "idle": idle})

    def _means(self, report: Report) -> dict[str, float]:
        """Wait for a call and return the means over the epoch so far."""
        totals = report.totals
        names = ["loss", *(f"loss_{name}" for name in self.compiled.losses), self._metric]
        sums, count = (totals.loss, *totals.parts, totals.metric), max(float(totals.count), 1)
        means = {name: float(each) / count for name, each in zip(names, sums, strict=True)}
        if not np.isfinite(means["loss"]):
            raise self._diverged(f"The loss is {means['loss']}")
        return means

    def _diverged(self, what: str) -> DivergedError:
        base_rate, peak_rate = self.config.optimizer.base_rate, self.applied.peak_rate
        return DivergedError(
            f"{what} by step {self.step} (optimizer.base_rate={base_rate:g}, applied {peak_rate:g})"
        )

    # Results

    def final_weights(self) -> dict[str, np.ndarray]:
        """Return the weights for inference, keyed by name. These are moving averages if the config
        enables them. If the config is set to keep the best epoch, they come from that epoch.
        """
        params, buffers = self.compiled.layout.for_inference(self.state)
        values = zip(self._keys, [*params, *buffers], strict=True)
        return self._best_weights or {key: np.asarray(value) for key, value in values if key}

    def held_out_outputs(self, session: Session) -> np.ndarray | None:
        """Return the trained model's outputs for the held-out rows, float32 (v, outputs), or None
        if the session ends first.
        """
        if "compile" in self.seconds and session.over(self._validation_seconds):
            return None
        step, best = self.compiled, self._best_weights
        params, buffers = step.layout.for_inference(self.state)
        weights = [
            replicas.placed(best[key], value.sharding) if key in best else value
            for key, value in zip(self._keys, [*params, *buffers], strict=True)
        ]

        def evaluate(_start: int, images: np.ndarray, _real: int) -> Any:
            parts = weights[: len(params)], weights[len(params) :]
            return step.forward(*parts, *replicas.put(step.mesh, images))

        with self._explained_memory():
            outputs = np.concatenate([*self._evaluations(self.held_out, evaluate, session)])
        return outputs[: len(self.held_out)]  # drop the padding of the last block

    # Checkpoints

    def _save(self, saver: checkpoint.Saver) -> None:
        with saver.saving():
            best = {f"{BEST}{name}": array for name, array in self._best_weights.items()}
            arrays = self.compiled.layout.to_arrays(self.state) | best
            wrong = [name for name, array in arrays.items() if not np.isfinite(array).all()]
            if wrong:
                raise self._diverged(
                    f"{len(wrong)} of {len(arrays)} state arrays are not finite, for example"
                    f" {', '.join(wrong[:3])},"
                )
            record, seconds = self.record, time.monotonic() - self._started
            record.devices, record.micro_batch = self._devices, self.compiled.micro_batch
            details = asdict(replace(record, seconds=record.seconds + seconds))
            checkpoint.save(self.output / "checkpoints", self.step, arrays, details)

    def _resume(self, folder: Path, origin: dict[str, Any]) -> None:
        self.record.origin, found = origin, checkpoint.latest(folder)
        if found is None:
            return
        layout = self.compiled.layout
        names = [*layout.names, *(f"{BEST}{key}" for key in self._keys)]
        saved = weight_names.matched(names, found.arrays)
        arrays = {name: array for name, array in saved.items() if not name.startswith(BEST)}
        arrays = layout.with_own_scale(arrays, self.state)
        try:
            record = Record(**found.details)
            changed = self._changed(record, arrays)
        except (TypeError, KeyError):
            changed = ["the program, which saves different values"]
        if changed:
            raise CheckpointError(
                f"{folder} contains step {found.step} of a different run. Differences:"
                f" {'; '.join(changed)}.\n"
                f"Undo the change to resume, choose another --output, or {START_OVER}"
            )
        self.state, self.step = layout.from_arrays(arrays, self.state), found.step
        best = [name for name in saved if name.startswith(BEST)]  # in the model's order
        self._best_weights = {name.removeprefix(BEST): saved[name] for name in best}
        self.record = record
        for problem in found.skipped:
            self.show(f"Warning: skipped a newer checkpoint, which is corrupt: {problem}")
        self.show(
            f"{'Already complete: step' if self.complete else 'Resuming from step'} {found.step} of"
            f" {self.applied.total_steps}, run {record.run_id}, after {record.seconds:.0f} s"
        )
        for name in MAY_CHANGE:
            then, now = record.origin[name], origin[name]
            if then != now:
                self.show(
                    f"Warning: {name} changed from {then} to {now} after the run started."
                    " The results will be a mixture of both."
                )
        record.origin["config"] = origin["config"]  # some fields can change

    def _changed(self, record: Record, arrays: Mapping[str, np.ndarray]) -> list[str]:
        theirs, ours, metric = record.origin, self.record.origin, record.best.get("metric")
        found = changes(theirs["config"], ours["config"])
        if theirs["data"] != ours["data"]:
            found.append("the inputs or labels, or the held-out set")
        if theirs["pretrained"] != ours["pretrained"]:
            found.append("the published weights that were loaded")
        if differing := self.compiled.layout.differing(arrays, self.state):
            found.append(f"the model or the optimizer, for example {', '.join(differing[:3])}")
        if self.score and metric and metric != self.score.metric.name:
            found.append(f"the best epoch was chosen by {metric}, not by {self.score.metric.name}")
        return found


def new_run_id(config: Config) -> str:
    """Return a unique run id, which is the same in all processes that train together."""
    now = datetime.now(UTC)
    return processes.shared(f"{config.name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}")


# Asynchronous dispatch


class CallQueue:
    """The calls in flight, oldest first.

    On a CPU with several devices (`replicas`), at most `MIN_CALLS` calls are in flight. See
    `EVALUATIONS` for the reason.
    """

    def __init__(self, replicas: int = 1) -> None:
        self._few = replicas > 1 and jax.devices()[0].platform == "cpu"
        self._calls: deque[tuple[int, Any]] = deque()
        self._limit, self._mean, self._slowest = MIN_CALLS, 0.0, 0.0
        self._alone: list[float] = []
        self._waited = self._seconds = 0.0
        self.restart()

    def restart(self, *, keep_newest: bool = False) -> None:
        """Clear the queue, except for the newest call if `keep_newest` is set, and restart the
        timing. The caller must have waited for the removed calls.
        """
        self._calls = deque([*self._calls][-1:] if keep_newest else [])
        self._ended = 0
        self._since = self._last_end = self._began = time.monotonic()

    def begin(self) -> None:
        """Record that a call is about to be made.

        If the devices are idle, add the time since the last call ended to their idle time. The last
        call is assumed to have taken as long as the fastest individually timed call.
        """
        now = time.monotonic()
        passed, self._began = now - self._began, now
        self._seconds += passed
        last = jax.tree.leaves(self._calls[-1][1]) if self._calls else []
        if len(self._alone) == ALONE and last and last[0].is_ready():
            self._waited += max(passed - min(self._alone), 0.0)

    def add(self, step: int, report: Any, *, timed: bool = True) -> None:
        """Record a call after which `step` steps are complete. Calls that compile are not timed."""
        if timed and len(self._alone) < ALONE:
            jax.block_until_ready(report)  # type: ignore[no-untyped-call]
            self._alone.append(time.monotonic() - self._began)
        self._calls.append((step, report))

    def idle(self) -> float:
        """Return the fraction of time (0 to 1) that the devices spent waiting for the host since
        this method was last called. The time between a call and a restart is excluded.
        """
        share = min(self._waited / max(self._seconds, 1e-9), 1.0)
        self._waited = self._seconds = 0.0
        return share

    def ended(self, size: int) -> Iterator[tuple[int, Any]]:
        """Wait until the number of calls in flight is within the limit, and yield (step, report)
        for each completed call. `size` is the number of bytes in the batches of a call.
        """
        while len(self._calls) > self._limit:
            step, report = self._calls.popleft()
            jax.block_until_ready(report)  # type: ignore[no-untyped-call]
            self._ended += 1
            now = time.monotonic()
            self._mean = (now - self._since) / self._ended
            self._slowest = max(self._slowest, now - self._last_end)
            self._last_end = now
            self._limit = MIN_CALLS if self._few else allowed(self._mean, size)
            yield step, report

    @property
    def seconds(self) -> float:
        """Estimated seconds until all calls in flight and two more have ended. One of them is
        assumed to be as slow as the slowest call so far.
        """
        return (self._limit + 2) * self._mean + self._slowest

    def last(self) -> tuple[int, Any] | None:
        return self._calls[-1] if self._calls else None


def allowed(seconds: float, size: int) -> int:
    """Return how many calls can be in flight if each takes `seconds` seconds and uses `size` bytes.

    >>> allowed(0.02, 10_000), allowed(2.0, 10_000), allowed(0.02, 200_000_000), allowed(0.0001, 10)
    (25, 3, 3, 32)
    """
    most = min(SECONDS / max(seconds, 1e-9), BYTES / max(size, 1), MAX_CALLS)
    return int(max(most, MIN_CALLS))
