"""Prepare and score rehearsals that use a competition folder.

Some of its labelled rows are held out as a hidden test set, and the run is shortened to fit its
time budget. Sessions get a folder without the hidden labels.
"""
