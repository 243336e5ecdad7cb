"""Plots of a run, drawn from its output files and saved as PNG.

This package does not import the training loop.
"""
