"""Plot a run from its output files, and save the plots as PNG files.

This package does not import the training loop.
"""
