"""Handwritten digits with SGD, to show that the linear rule holds at eight times the batch.

It also shows that the check fails without the rule.

Command   invoke scale-check --config digits_sgd
Expect    scaled: gap 1 to 2 s.d., 1.0x the epochs; unscaled: never at the target; about a minute
          on 2 CPU cores

At a small learning rate both batches follow the gradient flow. Momentum trails it by ten steps,
which are more images with a large batch. After the long warm-up the loss is past its steepest fall
(docs/dev/findings.md says what failed).
"""

from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name="digits_sgd",
    competition="digits",
    num_classes=10,
    data=Data(height=8, width=8, channels=1, crop_padding=1, labelled=1197),
    model="small_cnn",
    model_options={"width": 16, "dropout": 0.3},
    optimizer=Optimizer(name="sgd", base_rate=1e-3, base_batch=8),
    batch=64,
    epochs=30,
    warmup_epochs=8,
)
