"""What the steps of configs take on a TPU v5e-8, as its compiler says. No TPU is needed.

A large step takes the compiler minutes, so results are kept in compiled.json by the sha256 of what
is compiled: a step that is lowered to another program is compiled again. `python -m
proofs.hardware.compiled NAME…` prints one JSON object a case.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline import config as configs
from pipeline.config import Config
from pipeline.plan import tpu_compiler
from pipeline.plan.accelerators import V5E
from proofs.shared import module_process
from proofs.shared.results_table import Row, last_json

ACCELERATOR = "tpu-v5e-8"
KEPT = Path(__file__).with_name("compiled.json")
MEMORY, TRAFFIC, REDUCES = 4.2e9, 1.05, 5
GROUPS, ONE_GROUP, HELD = "wrn-4096", "wrn-4096-one-group", "wrn-4096-held"
CIFAR = 50_000
SHIPPED = (
    "breast_cancer", "cifar100_wrn", "diabetes", "digits", "digits_csv", "digits_mobilenet",
    "digits_sgd", "cells", "orders", "reviews",
)  # fmt: skip
NETWORKS = {"efficientnetv2b0-224": "efficientnetv2b0", "convnext_tiny-224": "convnext_tiny"}
BATCH, GROUP = 1024, 128  # `inspect --for tpu-v5e-8` proposes 128 images a step at most


def rows(root: Path) -> Iterator[Row]:
    """Yield the rows."""
    names = (GROUPS, ONE_GROUP, HELD, *SHIPPED, *NETWORKS)
    yield from judged({name: one(root, name) for name in names})


def one(root: Path, name: str) -> dict[str, Any]:
    """Return what the compiler says of a case."""
    return last_json(module_process.output(root, "proofs.hardware.compiled", name))


def short_row(found: dict[str, Any]) -> Row:
    """Return the row of digits alone."""
    return Row(
        "Compiled for a TPU v5e-8 without one: a step of digits",
        "memory, operations, traffic and collectives; it fits",
        _told(found),
        0 < found["memory"] <= V5E.memory
        and found["operations"] > 1e6
        and found["collectives"].get("all-reduce", 0) > 0,
    )


def judged(found: dict[str, dict[str, Any]]) -> Iterator[Row]:
    """Yield the rows that the compiler's numbers give."""
    groups, single, held = found[GROUPS], found[ONE_GROUP], found[HELD]
    where = "Compiled for v5e:2x4, cifar100_wrn at batch 4096, groups of 128"
    yield Row(
        f"{where}: memory a core",
        f"≤ {MEMORY / 1e9:.1f} GB",
        f"{groups['memory'] / 1e9:.2f} GB; one group a core {single['memory'] / 1e9:.2f} GB;"
        f" with {CIFAR:,} images on the devices {held['memory'] / 1e9:.2f} GB",
        groups["memory"] <= MEMORY,
    )
    ratio = groups["traffic"] / single["traffic"]
    yield Row(
        f"{where}: bytes accessed, beside one group a core",
        f"within {TRAFFIC - 1:.0%}",
        f"{ratio - 1:+.1%}: {groups['traffic'] / 1e9:.1f} and {single['traffic'] / 1e9:.1f} GB",
        ratio <= TRAFFIC,
    )
    reduces = [one["collectives"].get("all-reduce", 0) for one in (groups, held)]
    yield Row(
        f"{where}: all-reduces a step; fed by the host, and by images on the devices",
        f"≤ {REDUCES}; no all-gather of images",
        f"{reduces[0]} and {reduces[1]}; {groups['gathered']} and {held['gathered']} bytes of"
        f" images gathered; of those held: {held['collectives']}",
        max(reduces) <= REDUCES and not groups["gathered"] and not held["gathered"],
    )
    others = {name: found[name] for name in (*SHIPPED, *NETWORKS)}
    room = V5E.memory
    yield Row(
        "Compiled for v5e:2x4: memory a core of every shipped config, and of EfficientNetV2B0 and"
        f" ConvNeXt-Tiny at 224 with batch {BATCH}, 8 times what is proposed",
        f"≤ {room / 2**30:.2f} GiB of 16",
        "; ".join(f"{name} {one['memory'] / 1e9:.2g} GB" for name, one in others.items()),
        all(one["memory"] <= room for one in others.values()),
    )


def _told(found: dict[str, Any]) -> str:
    return (
        f"{found['memory'] / 1e6:.1f} MB, {found['operations'] / 1e6:.0f} million operations,"
        f" {found['traffic'] / 1e6:.0f} MB of traffic a core; {found['collectives']};"
        f" libtpu {found['libtpu']}"
    )


def case(name: str) -> tuple[Config, int]:
    """Return a case's config, and how many images lie on the devices."""
    if name in NETWORKS:
        base = configs.load("digits_mobilenet")
        data = replace(
            base.data, height=224, width=224, channels=3, crop_padding=0, flip=True, rand_augment=0,
            mixup=0.2, cutmix=1.0,
        )  # fmt: skip
        options = {"pretrained": "none", "batchnorm": "groups"}
        adam = replace(base.optimizer, base_rate=2e-3, base_batch=GROUP)
        config = replace(
            base, name="network", model=NETWORKS[name], data=data, batch=BATCH, optimizer=adam,
            model_options=options, batchnorm_batch=None, batchnorm_momentum=0.97,
        )  # fmt: skip
        return config, 0
    if name == "digits_mobilenet":
        config = configs.load(name)
        return replace(config, model_options={**config.model_options, "pretrained": "none"}), 0
    if name in SHIPPED:
        return configs.load(name), 0
    given = configs.load("cifar100_wrn")
    adam = replace(given.optimizer, base_rate=1e-3, base_batch=GROUP)
    large = replace(given, optimizer=adam, batchnorm_momentum=0.99, batch=4096)
    if name == ONE_GROUP:
        large = replace(large, batchnorm_batch=512)
    return large, CIFAR if name == HELD else 0


if __name__ == "__main__":
    for each in sys.argv[1:]:
        config, images = case(each)
        found = tpu_compiler.compile_step(config, ACCELERATOR, kept=KEPT, images=images)
        print(json.dumps(found.to_json()))
