"""Train koshian2/TPU-Benchmark's WideResNet with 103 million parameters on CIFAR-100.

Command   python -m pipeline train --config cifar100_wrn --input DIR --output OUT
Expect    in theory, 5.8 s per epoch on a TPU v5e-8 at half of its peak; not tested there yet
"""

from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name="cifar100_wrn",
    competition="cifar100",
    num_classes=100,
    data=Data(height=32, width=32, channels=3, crop_padding=4, flip=True, labelled=50_000),
    model="wide_resnet",
    model_options={"k": 7, "n": 4, "kernel_size": 7},
    # Adam's default learning rate for a batch of 128, times sqrt(8). This rule was not tested on
    # such images, so base_batch is 1024, which disables scaling.
    optimizer=Optimizer(name="adam", base_rate=2.8e-3, base_batch=1024),
    batch=1024,
    batchnorm_batch=128,
    batchnorm_momentum=0.9,
    epochs=20,
    warmup_epochs=2,
)
