"""Tools for inspecting folders, planning and rehearsing runs, and checking how models train.

This package imports `pipeline`, but `pipeline` does not import it. It does not depend on Kaggle,
and the bench notebook includes it.
"""
