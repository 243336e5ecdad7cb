"""Choose hyperparameters for configs with a custom reader.

Networks for a CPU are timed on this machine, but the speed of a TPU is assumed.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config import Config, Data, Optimizer
from pipeline.train.learning_rate import ADAM_STEPS_PER_EPOCH
from workbench.inspect import config_file, readers, recipes
from workbench.inspect.inputs import Reader
from workbench.inspect.recipes import CPU, TPU, Network, Plan, Recipe, Speed, Task

# Longest side of images with masks, in pixels. It is limited by rehearsals, which run on a CPU.
SIDES = {CPU: (64, 96, 128), TPU: (128,)}
STRIDE = 2  # side of the patches that are processed as one pixel, which is four times as fast
HALVED = 16  # pixels; sides are multiples of it so that they can be halved four times
# Names of functions that are defined in the templates.
FUNCTIONS: dict[str, Any] = {"read_training": "read_training", "read_test": "read_test"}
MASKED = {"loss": "entropy_and_dice", "augment": "turned", "write_submission": "write_masks"}
FEATURES = 64  # image features that are concatenated with the columns


@dataclass(frozen=True)
class Tried:
    """A candidate config with its reader and network."""

    config: Config
    reader: Reader
    network: Network


def recipe(task: Task, reader: Reader, plan: Plan, measure: Callable[[Config], Speed]) -> Recipe:
    """Return the recipe with the largest images that can be trained for enough epochs."""
    if reader.template == "pictures_and_columns":
        return _pictures_and_columns(task, reader, plan, measure)
    best: tuple[Tried, Speed] | None = None
    for tried in (_masks if reader.template == "masks" else _texts)(task, reader, plan):
        config_file.register(tried.config, tried.reader)
        on_cpu = plan.machine == CPU
        speed = measure(tried.config) if on_cpu else recipes.on_tpu(tried.config, tried.network)
        if best and speed.epochs(task, 1, plan.seconds) < tried.network.enough:
            break
        best = tried, speed
    assert best is not None  # noqa: S101 - the first candidate is always accepted
    tried, speed = best
    network, texts = tried.network, reader.template == "texts"
    fits = {folds: speed.epochs(task, folds, plan.seconds) for folds in task.folds if texts}
    folds = next((each for each, epochs in fits.items() if epochs >= network.enough), 1)
    epochs = max(min(speed.epochs(task, folds, plan.seconds), network.most), 1)
    warmup = max(round(epochs / 10), 1)
    config = replace(
        tried.config, epochs=epochs, warmup_epochs=warmup, folds=folds if folds > 1 else None
    )
    config_file.register(config, tried.reader)
    seconds = speed.seconds(task, folds, epochs)
    how = "measured here" if plan.machine == CPU else "assumed; not yet run there"
    text = f"{recipes.in_budget(epochs, seconds, plan)} ({how})"
    text += speed.lacking(task, folds, epochs, network)
    reasons = {
        "model": f"{config.model} {network}: {network.why}",
        "batch": f"{config.batch} rows per step; adamw, base_rate={config.optimizer.base_rate:g}",
        "epochs": text,
        **({"folds": recipes.why_folds(task, config)} if texts else {}),
    }
    return Recipe(config, plan, seconds, reasons, tried.reader)


def _config(
    task: Task, network: Network, most: int, functions: Mapping[str, Any] | None = None
) -> Config:
    batch = recipes.batch_of(4 * task.split(1)[0] // 5, most, ADAM_STEPS_PER_EPOCH)
    few = task.split(1)[0] < ADAM_STEPS_PER_EPOCH * batch
    return Config(
        **task.given,
        **FUNCTIONS,
        **(functions or {}),
        data=network.data,
        model=network.model,
        model_options=network.options,
        optimizer=Optimizer(name="adamw", base_rate=2e-3, base_batch=batch, weight_decay=0.05),
        batch=batch,
        epochs=1,
        warmup_epochs=1,
        batchnorm_momentum=0.9 if few else 0.97,
        progress_seconds=2.0,
        checkpoint_seconds=30.0,
    )


def _masks(task: Task, reader: Reader, plan: Plan) -> Iterator[Tried]:
    assert reader.pictures is not None  # noqa: S101 - masks have images
    width, height = task.size or (reader.pictures.width, reader.pictures.height)
    wide = 16 if plan.machine == CPU else 32
    sizes = dict.fromkeys(_size(width, height, side) for side in SIDES[plan.machine])
    for size in sizes:
        pictures = replace(reader.pictures, height=size[0], width=size[1])
        data = replace(task.data, **readers.mask_forms(pictures))
        adds = math.prod(size) / STRIDE**2 * 9 * 6 * wide**2 * 4
        why = f"images and masks of {size[0]}x{size[1]}, chosen to fit the budget"
        options = {"width": wide, "levels": 2 if max(size) < SIDES[CPU][0] else 3, "stride": STRIDE}
        network = Network("unet", options, data, 2 * adds, why, enough=20, most=60)
        made = _config(task, network, recipes.BASE, MASKED)
        values = {**reader.values, "square": size[0] == size[1]}
        yield Tried(made, replace(reader, pictures=pictures, values=values), network)


def _size(width: int, height: int, side: int) -> tuple[int, int]:
    factor = min(side / max(width, height), 1.0)
    low, high = (max(round(each * factor / HALVED), 2) * HALVED for each in (height, width))
    return low, high


def _texts(task: Task, reader: Reader, _: Plan) -> Iterator[Tried]:
    options = {"width": 64, "dropout": 0.3}
    length, known = reader.values["length"], reader.values["known"]
    why = f"the {length} top-weighted terms out of {known:,}, and a CNN on the first words"
    adds = 4.0 * length * 64 + 2 * 3 * 64**2 * reader.values["first"]
    network = Network("bag_and_cnn", options, task.data, 2 * adds, why, enough=4, most=15)
    yield Tried(_config(task, network, 2 * recipes.BASE), reader, network)


def _pictures_and_columns(
    task: Task, reader: Reader, plan: Plan, measure: Callable[[Config], Speed]
) -> Recipe:
    assert reader.pictures is not None  # noqa: S101 - there are images
    alone = replace(task, data=reader.pictures, size=None)
    made = recipes.recipe(alone, plan, measure)
    images: Data = made.config.data
    values = {
        **reader.values,
        "network": made.config.model,
        "padding": images.crop_padding,
        "flip": images.flip,
    }
    config = replace(
        made.config,
        **FUNCTIONS,
        data=task.data,
        model="joined",
        model_options={"features": FEATURES, **made.config.model_options},
        augment="shifted",
        views=1,
    )
    reader = replace(reader, values=values)
    config_file.register(config, reader)
    kept = ("batch", "folds", "rate", "average", "epochs")
    reasons = {name: made.reasons[name] for name in kept if name in made.reasons}
    size = f"{images.height}x{images.width}, from scratch"
    text = (
        f"joined: {made.config.model} on images of {size}, then two dense layers with the columns"
    )
    if plan.machine == TPU and task.size is not None:
        text += ". Also try --alone pictures, which allows published weights and larger images"
    return replace(made, config=config, reasons={"model": text, **reasons}, reader=reader)
