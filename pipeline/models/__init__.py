"""Keras models built from a config.

The input is a config. The output is an uncompiled functional model with named layers and weights.
This package must not import training or inference.
"""
