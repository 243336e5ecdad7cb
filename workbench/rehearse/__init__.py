"""Prepare and score rehearsals with a competition folder.

Some of the folder's labelled rows are held out as a hidden test set, and the run is shortened to
fit its time budget. Each session gets a folder without the hidden labels.
"""
