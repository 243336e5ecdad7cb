"""The experiments of a competition: what each changed, its scores, and which of them to believe.

Comes in: the artifacts of trainings, and the scores that Kaggle gave them. Goes out: `Experiment`s,
the line of local against given scores, a page.
"""
