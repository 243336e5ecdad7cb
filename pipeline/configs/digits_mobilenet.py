"""Classify handwritten digits, resized to 32x32, with a network from keras.applications.

This config shows how to use a pretrained model, but it starts from random weights.

Command   invoke dry-run --config digits_mobilenet
Expect    accuracy of about 0.97 on 500 held-out images; training takes a few minutes on 2 CPU cores

For photographs, set pretrained="imagenet", model_options={"backbone_rate": 0.1}, and a larger
height and width.
"""

from pipeline.config import Config, Data, Optimizer

CONFIG = Config(
    name="digits_mobilenet",
    competition="digits",
    num_classes=10,
    data=Data(
        height=32,
        width=32,
        channels=1,
        resize="stretch",
        crop_padding=3,
        rand_augment=1,
        mixup=0.2,
        labelled=1197,
    ),
    model="mobilenetv3_small",
    pretrained="none",
    model_options={"dropout": 0.2},
    optimizer=Optimizer(name="adam", base_rate=4e-3, base_batch=128),
    batchnorm_momentum=0.9,
    batchnorm_batch=32,
    batch=128,
    epochs=20,
    warmup_epochs=2,
)
