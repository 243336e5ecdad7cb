"""Train a model on all devices, using a config and labelled examples.

A run can be stopped at any time and resumed later. This package must not import `pipeline.figures`.
"""
