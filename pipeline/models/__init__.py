"""Keras models, built by code from a config.

Comes in: a config. Goes out: an uncompiled functional model whose layers and weights have names.
Never imported here: training or inference.
"""
