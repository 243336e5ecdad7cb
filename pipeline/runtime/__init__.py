"""The environment of a run: accelerator, mounted inputs, provenance, compiled programs.

Comes in: the machine and its environment. Goes out: plain values about them. Never imported here:
data, models, training or inference.
"""
