"""The config that tests start from: a small network for the embedded digits."""

from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name="digits",
    competition="digits",
    num_classes=10,
    data=Data(height=8, width=8, channels=1, crop_padding=1, labelled=1197),
    model="small_cnn",
    model_options={"width": 32, "dropout": 0.3},
    optimizer=Optimizer(name="adam", base_rate=4e-3, base_batch=128),
    batchnorm_momentum=0.9,
    batchnorm_batch=32,
    batch=128,
    epochs=40,
    warmup_epochs=4,
)
