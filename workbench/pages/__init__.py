"""Lay out HTML pages, draw their SVG charts and compute their statistics.

All text is escaped. This package does not import any other package of the project.
"""
