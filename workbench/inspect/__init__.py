"""Inspect a competition folder that has no config yet.

The input is a folder. The output is a list of findings, a config that runs and an HTML page, or an
error if no config can describe the folder.
"""
