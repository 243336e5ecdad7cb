"""An artifact and a test set become predictions, in time.

Comes in: an artifact and a competition's folder. Goes out: one prediction for each id. Never
imported here: training.
"""
