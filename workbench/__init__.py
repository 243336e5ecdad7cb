"""Tools for inspecting competition folders, planning and rehearsing runs, and checking how models
train.

This package imports `pipeline`, but `pipeline` does not import this package. The package does not
depend on Kaggle, and the bench notebook includes it.
"""
