"""Handwritten digits with SGD: what shows that the linear rule holds at eight times the batch, and
that the check can tell.

Command   invoke scale-check --config digits_sgd
Expect    scaled: gap 1 to 2 s.d., 1.0x the epochs; unscaled: never at the target; about a minute on 2 CPU cores

At a small rate both batches follow the gradient flow. Momentum trails it by ten steps, and those
are more images of a large batch; the warm-up is long enough for the loss to be past its steepest
fall (docs/LOG.md has what failed).
"""

from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name="digits_sgd",
    competition="digits",
    num_classes=10,
    data=Data(height=8, width=8, channels=1, crop_padding=1),
    model="small_cnn",
    model_options={"width": 16, "dropout": 0.3},
    optimizer=Optimizer(name="sgd", base_rate=1e-3, base_batch=8),
    batch=64,
    epochs=30,
    warmup_epochs=8,
    progress_seconds=2,
    checkpoint_seconds=30,
)
