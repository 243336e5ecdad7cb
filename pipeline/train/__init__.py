"""Training of a model on all devices, from a config and examples to an artifact.

Writes the artifact, the history and checkpoints. A run can be stopped at any moment and resumed.
Must not import figures.
"""
