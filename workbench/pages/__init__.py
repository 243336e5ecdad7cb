"""Shared parts of the HTML pages: the layout, SVG charts and statistics.

The inputs are numbers and text. The output is HTML, with all text escaped. This package does not
import any other package of the project.
"""
