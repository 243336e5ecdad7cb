"""One session of the local Kaggle: a notebook that really runs, in namespaces of its own.

In: a notebook and its mounts. Out: its output and its log. Never imported here: services or the
server.
"""
