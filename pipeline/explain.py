"""The way that a config's run takes: the files that a row of data passes, in order."""

from pipeline.augment.augmentation import CHANGES
from pipeline.config import Config, custom_code
from pipeline.models import published
from pipeline.models.backbones import BACKBONES

# Where custom functions are called, and in which order.
CALLED = {
    "data/custom_readers.py": ("read_training", "read_test"),
    "data/sampler.py": ("sampler",),
    "augment/augmentation.py": ("augment", "augment_batch"),
    "models/architectures.py": ("model",),
    "train/step.py": ("train_step",),
    "evaluate/losses.py": ("loss",),
    "train/optimizer.py": ("optimizer.name",),
    "train/learning_rate.py": ("optimizer.schedule",),
    "train/progress_log.py": ("log",),
    "evaluate/metrics.py": ("metric",),
    "infer/submission.py": ("write_submission",),
}


def way(config: Config) -> dict[str, str]:
    """Return what each file does in a training and an inference of this config, by its path."""
    data, given = config.data, config.optimizer
    target = config.target if config.num_classes == 0 else f"{config.target}, {config.num_classes}"
    changes = [name for change in CHANGES for name in change.fields if getattr(data, name)]
    found = {
        "train/training.py": "reads and checks all that the run needs, then trains each fold",
        "data/dataset.py": f"{data.kind} of the folder, and which of them each step takes",
        **_readers(config),
        "data/labels.py": f"the labels ({target}) as numbers",
        "data/folds.py": f"what is held out: {_held_out(config)}",
        "data/sampler.py": f"the rows of an epoch: {config.sampler}" if config.sampler else "",
        "train/loop.py": f"{config.epochs} epochs of batches of {config.batch}; then a validation",
        "train/feed.py": f"the batches of a call, on the devices (feed={config.feed})",
        "data/row_gathering.py": "the rows of a batch, copied by every core",
        "augment/augmentation.py": f"random changes: {', '.join(changes) or 'none of ours'}",
        "train/phases.py": f"the size of images, at first {config.progressive} of their sides"
        if config.progressive
        else "",
        "models/backbones.py": f"the network {config.model}" if config.model in BACKBONES else "",
        "models/published.py": f"the networks of {config.pretrained!r}"
        if published.sources(config)
        else "",
        "models/architectures.py": f"the model {config.model}, between its inputs and outputs",
        "models/group_layers.py": "BatchNorm by groups, and what draws by its place in the batch",
        "evaluate/losses.py": f"the loss: {config.loss or 'the usual one of the target'}",
        "train/step.py": "gradients, added up over micro-batches and replicas, and the update",
        "train/optimizer.py": f"{given.name}, and the rate of each weight",
        "train/learning_rate.py": f"{given.base_rate:g} at {given.base_batch} images, scaled to"
        f" {config.batch}; {given.schedule}",
        "train/checkpoint.py": "the state of the run, on the disk",
        "train/progress_log.py": "a line of progress, and a row for each epoch",
        "evaluate/metrics.py": f"the held-out rows' score: {config.metric or 'the usual one'}",
        "artifact.py": "weights and a manifest, for inference",
        "infer/inference.py": f"predicts the test set, {config.views} view(s) of each input",
        "infer/submission.py": f"submission.csv, as {data.sample_submission} has it"
        if data.sample_submission
        else "submission.csv, with the ids of the test set and columns for the labels",
    }
    return {
        f"pipeline/{name}": does + _custom(config, CALLED.get(name, ()))
        for name, does in found.items()
        if does
    }


def _readers(config: Config) -> dict[str, str]:
    """Return the files that read this kind of data."""
    data, readers = config.data, dict[str, str]()
    table = f"the table {data.train_csv}" if data.train_csv else ""
    if data.kind == "custom":
        return {"data/custom_readers.py": "what your readers return, checked"}
    if data.kind == "tfrecords":
        readers["data/tfrecords.py"] = f"the records {data.train_records}"
    elif table:
        readers["data/csv_files.py"] = table
    if data.kind in ("table", "pixels", "arrays"):
        readers["data/table_features.py"] = "its columns as numbers, or images"
        return readers
    if data.kind == "images":
        readers["data/image_files.py"] = f"the image of each row, in {data.train_images}"
    readers["data/image_arrays.py"] = "all images as one array, from and into the cache"
    side = f"{data.height}x{data.width}x{data.channels}"
    readers["data/image_decoding.py"] = f"bytes to pixels, {side}"
    return readers


def _held_out(config: Config) -> str:
    share = f"{config.data.validation_fraction:g} of the rows"
    return f"one of {config.folds} folds after the other" if config.folds else share


def _custom(config: Config, fields: tuple[str, ...]) -> str:
    """Return which custom functions of the config a file calls, with where they stand."""
    named = [field for field in fields if custom_code.function(config, field)]
    told = (custom_code.described(config, field) for field in named)
    return f"; calls {' and '.join(told)}" if named else ""
