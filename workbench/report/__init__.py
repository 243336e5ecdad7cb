"""Write HTML reports about training runs.

A report is created from a run's output folder, and is saved there as report.html.
"""
