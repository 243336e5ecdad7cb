"""What was asked of Kaggle, what came of it, and where a submission came from.

Comes in: the journal and the pulled folders. Goes out: lines for a person and values for a script.
Never imported here: `deploy.setup`.
"""
