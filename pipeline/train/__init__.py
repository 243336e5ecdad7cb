"""A config and examples become an artifact, on every device there is.

In: a config, examples, a folder with an earlier checkpoint. Out: the artifact, the history,
checkpoints; a run can stop at any moment and resume. Never imported here: inference or figures.
"""
