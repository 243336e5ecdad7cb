"""What comes before the first relay: a config of your own, and a check of all that a relay needs.

Comes in: the repository and the credentials. Goes out: a new config, or rows that say what to fix.
"""
