"""Inference: from artifacts and a competition folder to a submission.csv within the time limit.

The submission has the sample's ids, order and columns. This package does not import training code.
"""
