"""Compare a competition's training runs, and show which local scores can be trusted.

A table lists each run's scores on this machine and on Kaggle, and what changed since its parent. A
line is fitted to both kinds of scores. The results can be shown on an HTML page.
"""
