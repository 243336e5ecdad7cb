"""Rehearsals with a competition folder.

In   a folder with labelled rows, and a config
Out  folders for the sessions, a hidden test set and its scoring, and the size of a short run
"""
