"""From a config and examples to an artifact, on all devices.

In: a config, examples, a folder with earlier checkpoints. Out: the artifact, the history and
checkpoints; a run can stop at any moment and resume. Never imports figures.
"""
