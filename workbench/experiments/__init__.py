"""The experiments of a competition: their changes, their scores, and which scores to believe.

In   the artifacts of trainings, and the scores that Kaggle gave them
Out  rows of a table, the line of local against given scores, a page
"""
