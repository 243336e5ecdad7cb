"""Local tools: folder inspection, plans, rehearsals, reports and training checks.

This package imports `pipeline`, but not vice versa, and does not depend on Kaggle. It is included
in the bench notebook.
"""
