"""The environment of a run: accelerator, mounted inputs, provenance and compiled programs.

Inspects the machine and returns plain values. Must not import data, models, training or inference.
"""
