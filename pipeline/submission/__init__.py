"""Predictions become a `submission.csv` that is equal to the sample in ids, order and columns.

Comes in: predictions by id. Goes out: the file, or a refusal. Never imported here: models, training
or inference.
"""
