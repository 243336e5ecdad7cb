"""The Kaggle side: bundle → push → watch → pull → publish → submit. Steps yield events.

Comes in: a project, and the journal of what was asked of Kaggle. Goes out: versions, datasets,
submissions, each made once. It knows no model.
"""
