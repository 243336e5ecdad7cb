"""Bench: the benchmark of 2018 retold by the report's code, and trainings here beside it."""

import os

os.environ["KERAS_BACKEND"] = "jax"  # before anything of the model side is imported
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
