"""Utilities for HTML pages, such as their layout, SVG charts and statistics.

All text is escaped. This package does not import any other package of the project.
"""
