"""What the files of a competition folder are, before anybody has described the competition.

Comes in: a folder. Goes out: its files by kind, what they hold, and refusals of what no config can
describe. Never imported here: models or training.
"""
