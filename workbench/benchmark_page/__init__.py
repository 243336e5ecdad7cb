"""The page of any runs of the benchmark, beside that of 2018: it stays at home.

Comes in: what `workbench.benchmark` measured. Goes out: one HTML page.
"""
