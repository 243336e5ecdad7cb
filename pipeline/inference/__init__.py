"""An artifact and a test set become predictions, in time.

In: an artifact and a competition's folder. Out: one prediction for each id. Never imported here:
training.
"""
