"""A smoke test of Kaggle itself: what it does where this project can only assume.

Comes in: a connection, and which steps may spend something. Goes out: a table of facts, and one
file with every answer. What it makes is private, and deleted at the end.
"""
