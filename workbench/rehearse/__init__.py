"""A rehearsal on a competition folder: comes in a folder with labelled rows and a config; go out
the folders that a session sees, a hidden test set with its scoring, and how a short run is cut.
"""
