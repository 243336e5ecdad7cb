"""Build Keras models from a config.

Models are functional and uncompiled, with named layers and weights. This package must not import
training or inference.
"""
