"""A competition's experiments: what changed, how they scored, and which local scores to trust.

In   the artifacts of training runs, and their scores on Kaggle
Out  table rows, a line fitted to local and given scores, an HTML page
"""
