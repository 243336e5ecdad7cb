"""Train a model on all devices, given a config and examples.

Training writes the artifact, the history and checkpoints. A run can be stopped at any time and
resumed later. This package must not import `pipeline.figures`.
"""
