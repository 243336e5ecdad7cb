"""Read and write the file formats that both sides use, with only the standard library and numpy.

Files are written atomically, and their contents are verified when they are read.
"""
