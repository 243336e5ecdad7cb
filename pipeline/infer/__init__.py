"""An artifact and a test set become a submission, in time.

In: artifacts and a competition's folder. Out: one prediction for each id, and a submission.csv that
is equal to the sample in ids, order and columns. Never imported here: training.
"""
