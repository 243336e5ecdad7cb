"""The files that a config's run passes, in order, with what each does for this config."""

from typing import Any

from pipeline.augment.augmentation import CHANGES
from pipeline.config import Config, custom_code
from pipeline.models import published
from pipeline.models.backbones import BACKBONES

# A file of `pipeline/`, what it does (empty: the run does not pass it), and the fields of the
# config whose custom functions it calls.
Row = tuple[Any, ...]


def way(config: Config) -> dict[str, str]:
    """Return what each file does in a training and an inference of this config, by its path."""
    data, given = config.data, config.optimizer
    target = config.target if config.num_classes == 0 else f"{config.target}, {config.num_classes}"
    fields = (name for change in CHANGES for name in change.fields)
    changes = ", ".join(name for name in fields if getattr(data, name)) or "none built in"
    growing = config.progressive
    held_out = f"{data.validation_fraction:g} of the rows"
    if config.folds:
        held_out = f"one of {config.folds} folds after the other"
    form = "with the ids of the test set and a column per label"
    if data.sample_submission:
        form = f"with the ids and columns of {data.sample_submission}"
    rows: list[Row] = [
        ("train/training.py", "reads and checks all that the run needs, then trains each fold"),
        ("data/dataset.py", f"{data.kind} of the folder, and the rows of each step"),
        *_readers(config),
        ("data/labels.py", f"the labels ({target}) as numbers"),
        ("data/folds.py", f"the held-out set: {held_out}"),
        ("data/sampler.py", config.sampler and f"rows per epoch: {config.sampler}", "sampler"),
        ("train/loop.py", f"{config.epochs} epochs of batches of {config.batch}, each validated"),
        ("train/feed.py", f"the batches of a call, on the devices (feed={config.feed})"),
        ("data/row_gathering.py", "copies the rows of a batch, on every core"),
        ("augment/augmentation.py", f"random changes: {changes}", "augment", "augment_batch"),
        ("train/phases.py", growing and f"the image size, at first {growing} of each side"),
        ("models/backbones.py", f"the network {config.model}" * (config.model in BACKBONES)),
        (
            "models/published.py",
            published.sources(config) and f"the networks of {config.pretrained!r}",
        ),
        ("models/architectures.py", f"the model {config.model}, from inputs to outputs", "model"),
        ("models/group_layers.py", "BatchNorm by groups, and random draws by place in the batch"),
        ("evaluate/losses.py", f"the loss: {config.loss or 'the default of the target'}", "loss"),
        ("train/step.py", "summed gradients, and the update", "train_step"),
        ("train/optimizer.py", f"{given.name}, and the rate of each weight", "optimizer.name"),
        (
            "train/learning_rate.py",
            f"{given.base_rate:g} at {given.base_batch} images, scaled to {config.batch};"
            f" {given.schedule}",
            "optimizer.schedule",
        ),
        ("train/checkpoint.py", "the state of the run, on the disk"),
        ("train/progress_log.py", "a line of progress, and a row per epoch", "log"),
        ("evaluate/metrics.py", f"the score: {config.metric or 'the default'}", "metric"),
        ("artifact.py", "weights and a manifest, for inference"),
        ("infer/inference.py", f"predicts the test set, {config.views} view(s) of each input"),
        ("infer/submission.py", f"submission.csv, {form}", "write_submission"),
    ]
    return {f"pipeline/{row[0]}": _told(config, *row[1:]) for row in rows if row[1]}


def _told(config: Config, does: str, *fields: str) -> str:
    """Return what a file does, with the custom functions that it calls and their places."""
    called = [field for field in fields if custom_code.function(config, field)]
    told = " and ".join(custom_code.described(config, field) for field in called)
    return f"{does}; calls {told}" if told else does


def _readers(config: Config) -> list[Row]:
    """Return the rows of the files that read this kind of data."""
    data = config.data
    if data.kind == "custom":
        checked = "checks what your readers return"
        return [("data/custom_readers.py", checked, "read_training", "read_test")]
    rows = [("data/csv_files.py", data.train_csv and f"the table {data.train_csv}")]
    if data.kind == "tfrecords":
        rows = [("data/tfrecords.py", f"the records {data.train_records}")]
    if data.kind in ("table", "pixels", "arrays"):
        return [*rows, ("data/table_features.py", "its columns as numbers, or images")]
    if data.kind == "images":
        rows.append(("data/image_files.py", f"the image of each row, in {data.train_images}"))
    side = f"{data.height}x{data.width}x{data.channels}"
    rows.append(("data/image_arrays.py", "all images as one array, from and into the cache"))
    return [*rows, ("data/image_decoding.py", f"bytes to pixels, {side}")]
