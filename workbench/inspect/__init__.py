"""A competition folder that no config describes becomes findings, and a config that runs.

Comes in: a folder. Goes out: its files by kind, findings, refusals of what no config can describe,
a config, a page.
"""
