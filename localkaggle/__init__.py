"""A Kaggle on this machine: the protocol on 127.0.0.1, and sessions that really run notebooks."""
