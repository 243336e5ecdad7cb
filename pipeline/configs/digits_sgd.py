"""Show that linear scaling of SGD's learning rate holds for an eightfold batch size.

Without this rule, the check fails.

Command   invoke scale-check --config digits_sgd
Expect    scaled: gap of 1 to 2 s.d., 1.0x the epochs; unscaled: target is never reached; takes
          about a minute on 2 CPU cores

At a small learning rate, training with either batch size follows the gradient flow. Momentum lags
behind it by ten steps, which contain more images if the batch is larger. During the long warm-up,
the loss passes its steepest descent. docs/dev/findings.md describes what did not work.
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
