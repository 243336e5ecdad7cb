"""A config and examples become an artifact, on every device there is.

Comes in: a config, examples, a folder with an earlier checkpoint. Goes out: the artifact, the
history, checkpoints. Never imported here: inference, figures or reports.
"""
