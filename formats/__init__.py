"""Read and write the file formats that are used both locally and on Kaggle.

This package only requires the standard library and numpy.
"""
