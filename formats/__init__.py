"""File formats shared by both sides, using only the standard library and numpy.

Files are written atomically, and contents are verified when they are read.
"""
