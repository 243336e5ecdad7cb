"""Inspect a run's environment, such as its accelerator, mounted inputs and library versions.

This package must not import data, models, training or inference.
"""
