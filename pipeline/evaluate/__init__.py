"""Evaluate a run on its held-out rows with losses and metrics, and find the largest errors.

This package imports neither training nor figures.
"""
