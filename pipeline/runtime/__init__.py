"""Where a run finds itself: its accelerator, its inputs, its commit and versions, its compiled
programs.

Comes in: the machine and the environment. Goes out: plain values about them. Never imported here:
data, models, training or inference.
"""
