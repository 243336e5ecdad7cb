"""A Kaggle on this machine: the protocol on 127.0.0.1, and a runner that really executes the pushed
notebooks.
"""
