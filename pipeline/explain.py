"""List the files that a run uses, in order, with the purpose of each file."""

from typing import Any

from pipeline.augment.augmentation import CHANGES
from pipeline.config import Config, custom_code
from pipeline.models import published
from pipeline.models.backbones import BACKBONES

# A file in `pipeline/`, its purpose (empty if the run does not use it), and the config fields whose
# custom functions it calls.
Row = tuple[Any, ...]


def way(config: Config) -> dict[str, str]:
    data, given = config.data, config.optimizer
    target = config.target if config.num_classes == 0 else f"{config.target}, {config.num_classes}"
    fields = (name for change in CHANGES for name in change.fields)
    changes = ", ".join(name for name in fields if getattr(data, name)) or "no built-in changes"
    growing = config.progressive
    held_out = f"{data.validation_fraction:g} of the rows"
    if config.folds:
        held_out = f"each of {config.folds} folds in turn"
    form = "with the test set's ids and one column per label"
    if data.sample_submission:
        form = f"with the ids and columns of {data.sample_submission}"
    rows: list[Row] = [
        ("train/training.py", "reads and checks all inputs of the run, then trains each fold"),
        ("data/dataset.py", f"reads the {data.kind}, and selects the rows of each step"),
        *_readers(config),
        ("data/labels.py", f"converts the labels ({target}) to numbers"),
        ("data/folds.py", f"holds out {held_out}"),
        (
            "train/pseudo_labels.py",
            config.pseudo_labels and f"adds rows labelled by {config.pseudo_labels.teacher}",
        ),
        ("data/sampler.py", config.sampler and f"draws rows with {config.sampler!r}", "sampler"),
        ("train/loop.py", f"runs and validates {config.epochs} epochs (batch size {config.batch})"),
        ("train/feed.py", f"transfers batches to the devices (feed={config.feed})"),
        ("data/row_gathering.py", "copies the rows of a batch on all cores"),
        ("augment/augmentation.py", f"augments images ({changes})", "augment", "augment_batch"),
        ("train/phases.py", growing and f"trains on smaller images first (progressive={growing})"),
        ("models/backbones.py", f"builds {config.model}" * (config.model in BACKBONES)),
        (
            "models/published.py",
            published.sources(config) and f"builds the networks in {config.pretrained!r}",
        ),
        ("models/architectures.py", f"builds the model {config.model}", "model"),
        ("models/group_layers.py", "makes BatchNorm and dropout independent of micro-batches"),
        ("evaluate/losses.py", f"computes the loss ({config.loss or 'default'})", "loss"),
        ("train/step.py", "sums the gradients and updates the weights", "train_step"),
        ("train/optimizer.py", f"runs {given.name} with a rate for each weight", "optimizer.name"),
        (
            "train/learning_rate.py",
            f"scales the learning rate {given.base_rate:g} from batch size {given.base_batch} to"
            f" {config.batch}, and follows the schedule {given.schedule}",
            "optimizer.schedule",
        ),
        ("train/checkpoint.py", "saves the run's state to disk"),
        ("train/progress_log.py", "writes progress lines and a row per epoch", "log"),
        ("evaluate/postprocess.py", config.postprocess and "changes predictions", "postprocess"),
        ("evaluate/thresholds.py", config.thresholds and "finds thresholds on held-out rows"),
        ("evaluate/metrics.py", f"computes the score ({config.metric or 'default'})", "metric"),
        ("artifact.py", "stores the weights and a manifest for inference"),
        ("infer/inference.py", f"predicts the test set from {config.views} view(s) of each input"),
        ("infer/submission.py", f"writes submission.csv {form}", "write_submission"),
    ]
    return {f"pipeline/{row[0]}": _told(config, *row[1:]) for row in rows if row[1]}


def _told(config: Config, does: str, *fields: str) -> str:
    called = [field for field in fields if custom_code.function(config, field)]
    told = " and ".join(custom_code.described(config, field) for field in called)
    return f"{does}; calls {told}" if told else does


def _readers(config: Config) -> list[Row]:
    data = config.data
    if data.kind == "custom":
        checked = "checks your readers' return values"
        return [("data/custom_readers.py", checked, "read_training", "read_test")]
    rows = [("data/csv_files.py", data.train_csv and f"reads the table {data.train_csv}")]
    if data.kind == "tfrecords":
        rows = [("data/tfrecords.py", f"reads the records {data.train_records}")]
    if data.kind in ("table", "pixels", "arrays"):
        return [*rows, ("data/table_features.py", "converts its columns to numbers or images")]
    if data.kind == "images":
        rows.append(("data/image_files.py", f"finds the image of each row in {data.train_images}"))
    side = f"{data.height}x{data.width}x{data.channels}"
    rows.append(("data/image_arrays.py", "stores all images in one array, which is cached"))
    return [*rows, ("data/image_decoding.py", f"decodes images to {side} pixels")]
