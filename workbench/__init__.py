"""Inspect competition folders, plan and rehearse runs, and check how models train.

This package imports `pipeline`, and not the other way round. It does not depend on Kaggle, and the
bench notebook includes it.
"""
