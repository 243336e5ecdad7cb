"""Build uncompiled Keras models from a config.

This package must not import training or inference.
"""
