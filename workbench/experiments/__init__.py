"""Compare a competition's training runs, and show which local scores can be trusted.

A table lists each run's scores on this machine and on Kaggle, and how the run differs from its
parent run. A fitted line shows how local scores relate to scores on Kaggle.
"""
