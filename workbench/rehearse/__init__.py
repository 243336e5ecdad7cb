"""A rehearsal on a competition's folder.

In   a folder with labelled rows, and a config
Out  the folders that sessions see, a hidden test set with its scoring, and the size of a short run
"""
