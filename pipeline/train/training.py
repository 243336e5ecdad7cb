"""Train a model on all devices, from reading the data to writing the artifact.

Training uses Keras 3 with JAX. `DataParallel` is set before the model is created, and
`pipeline.train.loop` runs the steps. Folds are trained one after the other, each by its own loop in
its own folder. A complete fold is not trained again, because its weights are in its checkpoint.
"""

import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from formats.errors import writing
from pipeline import artifact
from pipeline.config import Config, custom_code
from pipeline.data import dataset, folds, sampler, samples
from pipeline.errors import CheckpointError
from pipeline.evaluate import held_out_rows, losses, metrics
from pipeline.infer import check as golden_check
from pipeline.infer import submission
from pipeline.models import architectures, published
from pipeline.runtime import backend, devices, processes
from pipeline.runtime import provenance as provenance_module
from pipeline.runtime.provenance import Provenance
from pipeline.train import (
    boosting,
    checkpoint,
    custom_check,
    frozen_features,
    learning_rate,
    loss_scale,
    pseudo_labels,
    step,
    warm_start,
)
from pipeline.train.loop import START_OVER, Loop, Record, new_run_id
from pipeline.train.progress_log import HISTORY, LINES, Fold, Show
from pipeline.train.session import Session

Check = Callable[[Config, Show], None]

GOLDEN_ROWS = 8
# Other files of a run, which are set aside together with its checkpoints.
OUTPUTS = HISTORY, LINES, "artifact", "validation.csv", "validation.npz", "examples.npz"


@dataclass(frozen=True)
class Trained:
    """The result of `train`.

    Attributes:
        status: "complete", or "partial" if the run stopped early.
        manifest: the artifact's manifest; None if the run is partial.
        seconds: duration of each phase of this call.
    """

    status: str
    manifest: dict[str, Any] | None
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Fitted:
    """The result of a completed loop.

    Attributes:
        record: record of the last checkpoint. steps: number of steps.
        metrics: metrics of the weights.
        weights: weights for inference, by name.
        outputs: outputs for the held-out rows, float32 (n, outputs).
    """

    record: Record
    steps: int
    metrics: dict[str, float]
    weights: dict[str, np.ndarray]
    outputs: np.ndarray


def train(  # noqa: PLR0913 - the run, its folders, and six keyword options
    config: Config,
    folder: Path,
    output: Path,
    *,
    examples: dataset.Examples | None = None,
    provenance: Provenance | None = None,
    max_steps: int | None = None,
    fresh: bool = False,
    check: Check = custom_check.by_jax,
    show: Show = print,
) -> Trained:
    """Train the model or resume from a checkpoint in `output`, and write the artifact.

    Args:
        config: the run's config.
        folder: the competition folder, as mounted by Kaggle.
        output: folder for artifact/, validation.csv, validation.npz, examples.npz, checkpoints/,
            progress.jsonl and history.csv. With `config.folds`, each fold has its own checkpoints/,
            progress.jsonl and history.csv in fold-1/, fold-2/ and so on.
        examples: examples from `dataset.read_training`; None to read them from `folder` and cache
            large decoded images in `output`/decoded.
        provenance: origin of the code; None to read it from git.
        max_steps: stop after this step, counted over all folds, with status "partial". To resume,
            call this function with a larger number or None.
        fresh: set earlier checkpoints aside, with their history and artifact, and start over.
        check: function that tests the config's custom functions before the data is read.
        show: receives each line of text.

    Raises:
        ConfigError: if the config is incompatible with the model or the devices, or the Keras
            backend is not JAX.
        DivergedError: if a loss or a weight is not finite.
        DataError, CheckpointError, DeviceError, DiskError: as documented in these classes.
    """
    started = time.monotonic()
    backend.choose("jax")
    backend.keep_compiled(output)
    training = Training(config, folder, output, show)
    training.prepare(examples, check, fresh=fresh)
    fitted = training.fit(max_steps)
    if fitted is None:
        return Trained("partial", None, training.seconds)
    origin = provenance or provenance_module.from_checkout()
    return Trained("complete", training.write(fitted, origin, started), training.seconds)


class Training:
    """A training run, from the competition folder to the artifact.

    Args:
        config, folder, output, show: see `train`.

    Attributes:
        here: the devices. precision: Keras dtype policy.
        places: output folder of each fold, or only `output` without folds.
        metric: the competition's metric.
        examples: all labelled examples.
        pairs: (training rows, held-out rows) of each fold; a single pair without folds.
        taught: each pair's examples and training rows, including those with pseudo-labels.
        labelled: rows with pseudo-labels, if any.
        held_out: digest of each pair's held-out rows, for comparison with other runs.
        applied: scaled hyperparameters for each pair.
        first: artifact whose weights the run starts from, if any.
        seen: whether that artifact may have been trained on rows that this run holds out.
        networks: networks of `config.pretrained`, by source.
        pretrained: origin of the published weights of each source.
        head: details of the fitted head for the manifest, if `Config.fit` is set.
        seconds: duration of each phase of this call.
    """

    examples: dataset.Examples
    taught: list[tuple[dataset.Examples, np.ndarray]]
    labelled: pseudo_labels.Labelled | None = None
    first: artifact.Artifact | None
    seen: bool
    networks: published.Networks
    pretrained: list[dict[str, Any]]
    head: dict[str, Any]

    def __init__(self, config: Config, folder: Path, output: Path, show: Show) -> None:
        self.config, self.folder, self.output, self.show = config, folder, output, show
        self.here = devices.found()
        self.precision = devices.precision(config.precision, self.here, exact=config.exact)
        self.places = [output / f"fold-{n + 1}" for n in range(config.folds or 0)] or [output]
        self.seconds = defaultdict[str, float](float)

    # Preparation

    def prepare(self, examples: dataset.Examples | None, check: Check, *, fresh: bool) -> None:
        """Read the examples and check everything that would otherwise fail hours later."""
        started, config = time.monotonic(), self.config
        step.per_replica(config, self.here.count)
        with writing(self.output):
            self.output.mkdir(parents=True, exist_ok=True)
        self.metric = metrics.of(config)
        self.networks = published.networks(config)
        published.require(config)
        if config.fit:
            frozen_features.parts(architectures.build(config, networks=self.networks), config)
        else:
            custom_check.check_optimizer_of(config)
        self.first = warm_start.find(config, self.places, fresh=fresh)
        if custom_code.functions(config):
            check(config, self.show)
        if examples is None:
            cache = self.output / "decoded"
            examples = dataset.read_training(self.folder, config, cache=cache, show=self.show)
        if samples.is_there(self.folder, config.data):
            # Check that labels and predictions match the sample submission.
            form = submission.form_of(config, examples.target, self.metric, self.folder)
            form.check_labels()
            tested = form.sample.table.iloc[:, 0].tolist()
            custom_check.check_postprocess_of(config, examples.target, tested, self.folder)
            custom_check.check_submission_of(config, form.columns, self.folder)
        custom_check.check_postprocess_of(config, examples.target, examples.ids, self.folder)
        self.pairs = folds.splits(examples, config, self.show)
        if config.target == "regression" and config.limit_predictions:
            # With folds, use all rows, since the averaged predictions have a single range.
            seen = np.unique(np.concatenate([rows for rows, _ in self.pairs]))
            examples = replace(examples, target=examples.target.limited(examples.labels[seen]))
        self.examples = examples
        self.held_out = [folds.held_out(examples, pair) for pair in self.pairs]
        self.taught = [(examples, rows) for rows, _ in self.pairs]
        if config.pseudo_labels:
            self._add_pseudo_labels(fresh=fresh)
        if self.first:
            self.seen = warm_start.compare(self.first, config, self.held_out, examples, self.show)
        for _, rows in self.pairs:
            custom_check.check_metric_of(config, examples.target.truth(examples.labels[rows]))
        self.applied = [learning_rate.apply(config, len(rows)) for _, rows in self.taught]
        self._refuse_float16_that_overflows()
        self.seconds["read"] = time.monotonic() - started
        self._show_plan()
        self._clear_output(fresh=fresh)
        if self.labelled:
            self.labelled.write(self.output)

    def _add_pseudo_labels(self, *, fresh: bool) -> None:
        """Label rows with an earlier run, and add them to the training rows of each fold."""
        begun = any(any(place.glob("checkpoints/step-*")) for place in self.places)
        given = self.config, self.folder, self.output, self.examples, self.held_out, self.show
        self.labelled = pseudo_labels.find(*given, resumes=begun and not fresh)
        self.taught = self.labelled.with_labelled(self.examples, self.pairs, self.config)

    def _refuse_float16_that_overflows(self) -> None:
        """Use float32 if float16 was chosen automatically but changes the outputs too much."""
        if self.precision != golden_check.HALF or self.config.precision == golden_check.HALF:
            return
        apart = loss_scale.apart(self.config, self.networks, self.examples.inputs[:GOLDEN_ROWS])
        if not apart <= golden_check.TOLERANCE[golden_check.HALF]:
            self.precision = golden_check.FULL
            self.show(
                f"Warning: float16 outputs differ from float32 outputs by {apart:.1e} of the"
                f" largest output. At most {golden_check.TOLERANCE[golden_check.HALF]:g} is"
                ' allowed. Training in float32, as with precision="float32"'
            )

    def _show_plan(self) -> None:
        config, examples, applied, show = self.config, self.examples, self.applied[0], self.show
        show(f"Devices: {self.here}; precision {self.precision}")
        names = len(examples.classes) or " ".join(map(str, config.data.custom_labels))
        show(f"Data: {len(examples)} {config.data.noun}; labels: {names} ({config.target})")
        if broken := examples.broken:
            listed = "; ".join(f"{name!r}: {why}" for name, why in [*broken.items()][:5])
            of_all = f"{len(broken)} of {len(examples) + len(broken)} images"
            show(f"Warning: {of_all} are invalid and were skipped: {listed}")
        if config.fit:
            return
        show(
            f"Learning rate: {applied.optimizer} {config.optimizer.base_rate:g}"
            f" at batch {applied.base_batch} -> {applied.peak_rate:g} at batch {applied.batch};"
            f" {applied.warmup_steps} of {applied.total_steps} steps warm-up"
        )
        for warning in applied.warnings:
            show(f"Warning: {warning}")

    def _clear_output(self, *, fresh: bool) -> None:
        """Set an earlier run aside if `fresh`, or reject it if its folds or fit are different."""
        for place in (self.output, *sorted(self.output.glob("fold-*"))):
            folder = place / "checkpoints"
            if fresh:
                checkpoint.set_aside(
                    folder, [place / name for name in (*OUTPUTS, pseudo_labels.FILE)]
                )
            elif (self.config.fit or place not in self.places) and any(folder.glob("step-*")):
                raise CheckpointError(
                    f"{folder} contains a different run; expected folds={self.config.folds} and"
                    f" fit={self.config.fit!r}.\n"
                    f"Undo the change to resume, choose another --output, or {START_OVER}"
                )

    # Folds

    def fit(self, max_steps: int | None) -> list[Fitted] | None:
        """Train or resume the folds one after the other. Return None if the run stops early."""
        fitted: list[Fitted] = []
        with self._keras_set_up(), Session(self.config.session_hours, self.output) as session:
            if self.config.fit:
                return self._fit_on_features(session)
            for number in range(len(self.pairs)):
                # Do not stop before a fold has been trained, so that each session makes progress.
                if "compile" in self.seconds and (why := session.over(0.0)):
                    self.show(f"Stopped after a fold: {why}. Run the same command to resume.")
                    return None
                gc.collect()  # free the previous fold's arrays on the devices
                left = None if max_steps is None else max_steps - sum(one.steps for one in fitted)
                fold = self._fit_fold(number, fitted[-1] if fitted else None, session, left)
                if fold is None:
                    return None
                fitted.append(fold)
        return fitted

    @contextmanager
    def _keras_set_up(self) -> Iterator[None]:
        """Configure Keras to use all devices and the run's precision."""
        before, several = keras.config.dtype_policy(), self.here.count > 1
        # With a million library objects, a garbage collection takes a quarter of a second.
        gc.freeze()
        try:
            everywhere = keras.distribution.DataParallel() if several else None
            keras.distribution.set_distribution(everywhere)
            keras.config.set_dtype_policy(self.precision)
            with devices.refusing_float16():
                yield
        finally:
            gc.unfreeze()
            keras.distribution.set_distribution(None)
            keras.config.set_dtype_policy(before)

    def _fit_fold(
        self, number: int, before: Fitted | None, session: Session, max_steps: int | None
    ) -> Fitted | None:
        """Train or resume a fold. Return None if it stops early.

        Args:
            number: index of the pair, from 0.
            before: the previous fold.
            max_steps: maximum number of steps for this fold.
        """
        loop, outputs = self._loop(number), None
        if before is not None:
            loop.record.run_id, loop.record.devices = before.record.run_id, before.record.devices
            loop.record.micro_batch = before.record.micro_batch
            published.refuse_another(before.record.origin["pretrained"], self.pretrained)
            warm_start.refuse_another(self.first, before.record.init_from)
        status = loop.run(self._origin(number), session, max_steps=max_steps)
        if status == "complete":
            started = time.monotonic()
            outputs = loop.held_out_outputs(session)
            loop.seconds["final evaluation"] = time.monotonic() - started
            if outputs is None:
                self.show("Stopped during the final evaluation. Run the same command to resume.")
        for name, value in loop.seconds.items():
            self.seconds[name] += value
        if outputs is None:
            return None
        metrics = loop.record.best["metrics"] if self.config.keep == "best" else loop.record.metrics
        return Fitted(loop.record, loop.step, metrics, loop.final_weights(), outputs)

    def _fit_on_features(self, session: Session) -> list[Fitted] | None:
        """For each fold, fit a linear model or trees to a network's features or a table's columns.
        Return None if the session ends first.
        """
        config, examples, began = self.config, self.examples, time.monotonic()
        columns = config.model == "columns"
        of = "the columns" if columns else "the features of the frozen network"
        what = "trees" if config.fit == "boosting" else "a linear model"
        self.show(
            f"fit={config.fit!r}: fitting {what} to {of}; epochs, optimizer, augmentation, keep and"
            " patience have no effect"
        )
        architectures.seed(config.seed)
        model = architectures.build(config, networks=self.networks)
        self.pretrained = published.load(model, config, self.networks, self.show)
        if not (self.pretrained or columns):  # pretrained="none", or a rehearsal without weights
            self.show("Warning: the network has random weights; expect a score near chance")
        below, last = frozen_features.parts(model, config)
        key = frozen_features.key(config, self.precision, self.pretrained, examples.fingerprint)
        place = self.output / frozen_features.FOLDER / key
        share = self.here.count * (config.micro_batch or config.batch)
        given = examples.inputs, min(share, config.batch), place, session, self.show
        features = frozen_features.of(below, *given)
        self.seconds["features"] = time.monotonic() - began
        if features is None:
            return None
        fitted, head, run_id = list[Fitted](), None, new_run_id(config)
        begun = time.monotonic()
        for number, (rows, held_out) in enumerate(self.pairs):
            head = self._head(features, rows, head)
            record = Record(run_id, self._origin(number), micro_batch=GOLDEN_ROWS)
            fitted.append(Fitted(record, 0, {}, {}, head.outputs(features[held_out])))
            found = ", ".join(f"{name} {value:,}" for name, value in head.described.items())
            self.show(f"Fitted to {len(rows):,} {config.data.noun}: {found}")
            session.progress()
            if why := session.over((time.monotonic() - begun) / (number + 1)):
                self.show(f"Stopped after a fold: {why}. Run the same command to fit all folds.")
                return None
        # The final model is fitted to all rows, so that inference only runs the network once.
        if config.folds:
            head = self._head(features, np.arange(len(examples)), head)
        assert head is not None  # noqa: S101 - there is a fold
        self.head = head.described
        last.set_weights(list(head.weights))
        trained = artifact.weights_of(model)
        fitted = [replace(fold, weights=trained) for fold in fitted]
        self.seconds["train"] = time.monotonic() - began - self.seconds["features"]
        return fitted

    def _head(
        self, features: np.ndarray, rows: np.ndarray, before: frozen_features.Head | None
    ) -> frozen_features.Head:
        """Fit a linear model or trees to the given rows.

        Args:
            before: an earlier linear model, whose regularization strength is reused.
        """
        config, examples = self.config, self.examples
        weights = losses.row_weights(examples, config, rows)
        given = features[rows], examples.labels[rows], None if weights is None else weights[rows]
        if config.fit == "boosting":
            return boosting.fit(config, *given)
        groups = None if examples.groups is None else examples.groups[rows]
        strength = before.strength if isinstance(before, frozen_features.Linear) else None
        return frozen_features.fit(config, *given, groups, strength)

    def _loop(self, number: int) -> Loop:
        """Return a fold's loop with its initial weights."""
        config, applied, (examples, rows) = self.config, self.applied[number], self.taught[number]
        place, (_, held_out), fold = self.places[number], self.pairs[number], None
        split = f"{len(rows)} {config.data.noun} for training, {len(held_out)} for validation"
        if config.folds:
            after = sum(later.total_steps for later in self.applied[number + 1 :])
            fold = Fold(number + 1, config.folds, after)
            split = f"Fold {fold.number} of {fold.count}: {split}"
        self.show(split)
        architectures.seed(config.seed)
        model = architectures.build(config, applied.batchnorm_momentum, self.networks)
        self.pretrained = published.load(model, config, self.networks, self.show)
        init_from = None
        if self.first is not None and not any((place / "checkpoints").glob("step-*")):
            init_from = warm_start.begin(model, self.first, config, number + 1, self.show)
            init_from["may_have_seen_held_out"] = self.seen
        batches = dataset.Batches(
            examples.inputs,
            examples.labels,
            batch=config.batch,
            seed=config.seed,
            rows=rows,
            weights=losses.row_weights(examples, config, rows),
            sampler=sampler.of(config, examples.labels[rows]),
        )
        loop = Loop(config, applied, model, batches, held_out, place, self.show, fold)
        if config.compares_epochs:
            labels = self.examples.labels[held_out]
            loop.score = held_out_rows.EpochScore(self.metric, examples.target, labels, self.show)
        loop.record.init_from = init_from
        return loop

    def _origin(self, number: int) -> dict[str, Any]:
        data = folds.fingerprint(self.examples, self.pairs[number])
        origin = {
            "data": f"{data} and {self.labelled.digest}" if self.labelled else data,
            "precision": self.precision,
            "code": provenance_module.code(),
            "pretrained": self.pretrained,
        }
        edit = "Start all processes with the same --input and the same version of this project."
        processes.refuse_differences("the training data", origin, edit)
        config = self.config.to_json() | {"custom_code": custom_code.digest(self.config)}
        return {**origin, "config": config, "devices": str(self.here)}

    # The artifact

    def write(self, fitted: Sequence[Fitted], origin: Provenance, started: float) -> dict[str, Any]:
        """Evaluate the model, write the artifact and the other files, and return the manifest."""
        begun, config, examples = time.monotonic(), self.config, self.examples
        momentum = self.applied[0].batchnorm_momentum
        rebuilt = architectures.build(config, momentum, self.networks)
        rows = np.sort(np.concatenate([rows for _, rows in self.pairs]))
        golden = golden_rows(self.pairs)
        predictions, golden_outputs, weights = self._predict(fitted, rebuilt, golden)
        held_out = held_out_rows.HeldOutRows(config, examples, self.pairs, predictions)
        lines = list[str]()
        decided = held_out_rows.decided(held_out, self.folder, lines.append)
        held_out_rows.write(held_out, decided, self.output)
        steps_and_metrics = [(fold.steps, fold.metrics) for fold in fitted]
        measured = held_out_rows.metrics_of(decided, steps_and_metrics, self.show)
        error = held_out_rows.standard_error(decided)
        baseline = held_out_rows.compare(decided, error, lines.append)
        self.seconds["final evaluation"] += time.monotonic() - begun
        self.seconds["total"] = time.monotonic() - started
        details = {
            "run_id": fitted[0].record.run_id,
            "status": "complete",
            "versions": provenance_module.versions(),
            "git_commit": origin.git_commit,
            "git_dirty": origin.git_dirty,
            "bundle_sha256": origin.bundle_sha256,
            "devices": str(self.here),
            "precision": self.precision,
            "parameters": architectures.count(rebuilt),
            "pretrained": self.pretrained,
            "networks": {name: each.to_json() for name, each in self.networks.items()},
            "init_from": fitted[0].record.init_from,
            "pseudo_labels": self.labelled and self.labelled.origin,
            "held_out": self.held_out,
            "applied": self.head if config.fit else asdict(self.applied[0]),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "earlier_seconds": round(sum(fold.record.seconds for fold in fitted), 3),
            "metric": self.metric.name,
            "greater_is_better": self.metric.greater_is_better,
            "error": error,
            **measured,
            "baseline": baseline,
            "thresholds": decided.found,
        }
        trained = artifact.Artifact(
            details,
            config,
            examples.target,
            examples.encoding,
            prior=predictions[rows].mean(axis=0),
            weights=artifact.joined(weights) if config.folds else weights[0],
            golden_inputs=examples.inputs[golden],
            golden_outputs=golden_outputs,
            golden_file=examples.first_file,
        )
        manifest = artifact.save(self.output / "artifact", trained)
        score = manifest["metrics"].get(f"validation_{self.metric.name}")
        value = "undefined" if score is None else f"{score:.4f}"
        self.show(
            f"Artifact {details['run_id']}: validation {self.metric.name} {value},"
            f" in {self.output / 'artifact'}"
        )
        for line in lines:  # printed last, where users see them
            self.show(line)
        return manifest

    def _predict(
        self, fitted: Sequence[Fitted], rebuilt: Any, golden: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, list[dict[str, np.ndarray]]]:
        """Return out-of-fold predictions for all examples, mean predictions of the folds for the
        golden rows, and the weights of each fold. Predictions are 0 for rows that are never held
        out.
        """
        target, inputs = self.examples.target, self.examples.inputs
        shape = target.predictions(fitted[0].outputs).shape[1:]
        predictions = np.zeros((len(self.examples), *shape), np.float32)
        weights, golden_outputs = [], []
        for (_, rows), fold in zip(self.pairs, fitted, strict=True):
            artifact.assign(rebuilt, fold.weights)
            weights.append(artifact.weights_of(rebuilt))
            predictions[rows] = target.predictions(fold.outputs)
            # Other machines must reproduce these outputs, so a TPU must not use bfloat16. A single
            # device computes them with a batch size that fits on a replica during training.
            batch = min(fold.record.micro_batch, GOLDEN_ROWS)
            with jax.default_matmul_precision("highest"):
                outputs = architectures.outputs(rebuilt, inputs[golden], batch)
            golden_outputs.append(target.predictions(outputs))
        return predictions, target.mean(golden_outputs), weights


def golden_rows(pairs: Sequence[folds.Pair]) -> np.ndarray:
    """Return the rows of the golden inputs, int64 (g,)."""
    rows = np.sort(np.concatenate([rows for _, rows in pairs]))
    # Choose rows from the whole table. If the table is sorted, its first rows have the same class.
    golden = rows[np.unique(np.linspace(0, len(rows) - 1, GOLDEN_ROWS).astype(int))]
    golden[0] = 0  # the row whose file is available
    return np.asarray(golden)
