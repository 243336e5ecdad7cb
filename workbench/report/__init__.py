"""One HTML page of a training.

Comes in: the output of a training. Goes out: `report.html`.
"""
