"""Plot a run from its output files, and save the plots as PNG.

This package does not import the training loop.
"""
