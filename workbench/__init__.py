"""What stays at home: inspection of a folder, plans, rehearsals, reports and checks of a training.

It imports `pipeline`, never the other way, and knows no Kaggle. The bench notebook carries it.
"""
