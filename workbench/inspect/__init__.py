"""Inspect a competition folder that has no config yet.

The result is a list of findings, a config that runs and an HTML page.
"""
