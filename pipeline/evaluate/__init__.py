"""Evaluation on held-out rows: losses, metrics, and the rows with the largest errors.

Nothing here imports training or figures.
"""
