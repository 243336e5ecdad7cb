"""Train a model on all devices, using a config and labelled examples.

Training writes an artifact, a history and checkpoints. A run can be stopped at any time and resumed
later. This package must not import `pipeline.figures`.
"""
