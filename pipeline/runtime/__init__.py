"""The environment of a run: accelerator, mounted inputs, provenance, compiled programs.

In: the machine and its environment. Out: plain values about them. Never imports data, models,
training or inference.
"""
