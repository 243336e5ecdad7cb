"""Inspect competition folders, plan and rehearse runs, and check how models train.

This package imports `pipeline`, but `pipeline` does not import this package. It does not depend on
Kaggle, and the bench notebook includes it.
"""
