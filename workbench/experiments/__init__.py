"""Compare a competition's training runs, and show which local scores can be trusted.

A table lists each run's scores on this machine and on Kaggle, and how the run differs from its
parent run. A line relates local scores to scores on Kaggle.
"""
