"""Write HTML reports about training runs.

A report is created from the output folder of a run, and is saved in it as report.html.
"""
