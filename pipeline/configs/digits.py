"""Classify handwritten digits in 8x8 grey images, about 1,200 of which are labelled.

The images are included, so your first run does not require a download.

Command   invoke dry-run
Expect    accuracy of about 0.99 on 500 held-out images; training takes about 20 seconds on 2 CPU
          cores
"""

from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name="digits",
    competition="digits",
    num_classes=10,
    data=Data(height=8, width=8, channels=1, crop_padding=1, labelled=1197),
    model="small_cnn",
    model_options={"width": 32, "dropout": 0.3},
    # No check has confirmed a scaling rule for Adam on such a small data set, so nothing is scaled.
    optimizer=Optimizer(name="adam", base_rate=4e-3, base_batch=128),
    batchnorm_momentum=0.9,
    batchnorm_batch=32,
    batch=128,
    epochs=40,
    warmup_epochs=4,
)
