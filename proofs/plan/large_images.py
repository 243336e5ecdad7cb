"""A model that takes 5 GB at 32 pixels, planned at 224: what an article learned by running it.

Its author estimated 250 GB, and then 4,000 hours, while a GPU of 50 GB was being paid for. The
stand-in has so many channels that a batch of 64 takes about 5 GB.
"""

from pathlib import Path

from proofs.shared import module_process
from proofs.shared.results_table import Row, last_json

SMALL, LARGE, BATCH, HOURS = 5e9, 250e9, 64, 1000.0
NEAR = 0.2
MODEL = """from pipeline.config import Config, Data, Optimizer
from keras import layers

def stand_in(images, num_classes, batchnorm_momentum):
    x = images
    for number in range({depth}):
        x = layers.Conv2D({width}, 3, padding="same", activation="relu", name=f"conv{{number}}")(x)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return layers.Dense(num_classes, dtype="float32", name="logits")(x)

CONFIG = Config(
    name="{name}", competition="large-images", num_classes=2, model="stand_in",
    data=Data(height={side}, width={side}, channels=3, crop_padding=0),
    optimizer=Optimizer(name="adam", base_rate=1e-3, base_batch={batch}), batch={batch},
    precision="float32", epochs=300,
)
"""


def row(root: Path, folder: Path) -> Row:
    """Return the row."""
    found = {}
    for side in (32, 224):
        text = MODEL.format(depth=24, width=384, side=side, batch=BATCH, name=f"side{side}")
        (folder / f"side{side}.py").write_text(text)
        found[side] = last_json(
            module_process.output(
                root,
                "pipeline",
                "plan",
                "--config",
                folder / f"side{side}.py",
                "--for",
                "gpu-a100",
                "--images",
                50_000,
                "--json",
            )
        )
    (small,), (large,) = (found[side]["outlooks"] for side in (32, 224))
    hours = large["total"]["usual"] / 3600
    advice = found[224]["advice"]
    return Row(
        "A model that takes 5 GB at 32 pixels, planned at 224 for an A100 of 40 GB",
        f"{SMALL / 1e9:.0f} GB and {LARGE / 1e9:.0f} GB within {NEAR:.0%}; flagged before a run,"
        f" and so are more than {HOURS:,.0f} hours",
        f"{small['memory'] / 1e9:.1f} GB, fits: {small['fits']}; {large['memory'] / 1e9:.0f} GB,"
        f" fits: {large['fits']}, {large['why']}; {hours:,.0f} hours; {advice}",
        abs(small["memory"] / SMALL - 1) <= NEAR
        and abs(large["memory"] / LARGE - 1) <= NEAR
        and small["fits"]
        and not large["fits"]
        and hours > HOURS
        and "take fewer epochs" in advice,
    )
