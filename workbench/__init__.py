"""What stays at home: inspection of a folder, plans, rehearsals, reports, checks of a training.

This package imports `pipeline`, never the other way round, and does not know Kaggle. The bench
notebook carries it.
"""
