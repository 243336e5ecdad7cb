"""A config of weights in a dataset that no notebook mounts: refused before anything is pushed."""

from dataclasses import replace

from pipeline.configs.digits_mobilenet import CONFIG as MOBILENET

CONFIG = replace(MOBILENET, name="mounting", model_options={"pretrained": "ann/weights/notop.h5"})
