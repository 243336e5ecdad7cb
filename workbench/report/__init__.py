"""HTML reports about training runs.

In   the output folder of a training run
Out  `report.html`
"""
