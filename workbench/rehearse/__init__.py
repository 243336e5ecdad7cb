"""Prepare and score rehearsals that use a competition folder.

Some of the folder's labelled rows are held out as a hidden test set, and the run is shortened to
fit in its time budget. Each session gets a folder that does not contain the hidden labels.
"""
