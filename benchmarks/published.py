"""Plan the training of published networks on a TPU v5e-8, with two image sizes.

The TPU compiler reports how much memory per core a training step uses. `python -m workbench plan`
estimates the times from the operations and bytes of the compiled step. This benchmark requires
keras-hub and libtpu.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Rows, in_process, write

BATCH, EPOCHS, LABELLED = 256, 10, 11_111  # a tenth of the images is held out for validation
# {name: (model, pretrained)}, where {} stands for the image size. ConvNeXt and EfficientNetV2 are
# from keras.applications, because they accept any image size, unlike presets.
NETWORKS = {
    "DINOv3-B": ("published", "keras/dinov3/keras/dinov3_vit_base_lvd1689m/1"),
    "DINOv3-L": ("published", "keras/dinov3/keras/dinov3_vit_large_lvd1689m/1"),
    "SigLIP-B": ("published", "keras/siglip/keras/siglip_base_patch16_{}/1"),
    "ConvNeXt-B": ("convnext_base", "imagenet"),
    "EfficientNetV2-S": ("efficientnetv2s", "imagenet"),
}
SIDES = 224, 384
COLUMNS = (
    *("network", "pixels", "parameters", "memory per core, GB", "fits", "ms per step"),
    "ten epochs of 10,000 images, min",
)
CONFIG = """from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name={name!r},
    competition="leaves",
    num_classes=100,
    data=Data(height={side}, width={side}, channels=3, labelled={labelled}),
    model={model!r},
    pretrained={pretrained!r},
    optimizer=Optimizer(name="adamw", base_rate=1e-4, base_batch={batch}, weight_decay=0.05),
    batch={batch},
    epochs={epochs},
    warmup_epochs=1,
)
"""


def main() -> None:
    begun, rows = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for side in SIDES:
            for network in NETWORKS:
                rows.append([network, str(side), *planned(Path(folder), network, side)])
                print(f"  {rows[-1]}", file=sys.stderr, flush=True)
    title = f"Kaggle's TPU v5e-8, batch {BATCH}, AdamW, mixed_bfloat16"
    note = (
        "The memory is reported by libtpu's compiler, and a core has 16.9 GB. Times were not"
        " measured. The lower and upper limits are computed from the operations and bytes of the"
        " compiled step. They include the time for startup and compilation. If a step does not fit,"
        " the table shows the largest micro-batch per core that does."
    )
    write("published", "Published networks", [Rows(title, COLUMNS, rows, note)], begun)


def planned(folder: Path, network: str, side: int) -> list[str]:
    model, pretrained = NETWORKS[network]
    name = f"p{side}_{network.lower().replace('-', '_')}"
    path = folder / f"{name}.py"
    given = {"model": model, "pretrained": pretrained.format(side), "batch": BATCH}
    path.write_text(CONFIG.format(name=name, side=side, labelled=LABELLED, epochs=EPOCHS, **given))
    made: dict[str, Any] = in_process(
        "workbench", "plan", "--config", path, "--for", "tpu-v5e-8", "--json"
    )
    one = made["outlooks"][0]
    compiled, micro = one["compiled"], one["micro_batch"]

    def interval(key: str, unit: float) -> str:
        found = one[key]
        return f"{found['least'] / unit:,.0f} to {found['most'] / unit:,.0f}" if found else ""

    return [
        f"{made['counts']['parameters'] / 1e6:.1f} M",
        f"{one['memory'] / 1e9:.1f}" if one["memory"] else compiled["refused"][:80],
        "yes" if one["fits"] else f"micro_batch={micro}" if micro else "no",
        interval("step", 1e-3),
        interval("total", 60),
    ]


if __name__ == "__main__":
    main()
