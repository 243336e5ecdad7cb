"""Evaluate a run on its held-out rows: losses, metrics, and the rows with the largest errors.

This package imports neither training nor figures.
"""
