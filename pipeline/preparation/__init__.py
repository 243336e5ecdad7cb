"""Preparation: what needs no accelerator, done once, before trainings.

Comes in: a competition's folder and a config. Goes out: decoded images that a training finds by
their marker file. Never imported here: models or training.
"""
