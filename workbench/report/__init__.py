"""One HTML page about a training.

In   the output of a training
Out  `report.html`
"""
