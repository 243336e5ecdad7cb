"""Proof: nothing makes an accelerator wait, and what a step takes of one."""

import os

# Else Keras imports TensorFlow, which takes seconds and prints lines of its own.
os.environ.setdefault("KERAS_BACKEND", "jax")
