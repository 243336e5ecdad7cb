"""One session of the local Kaggle: a notebook that really runs, in namespaces of its own.

Comes in: a notebook and its mounts. Goes out: its output and its log. Never imported here: services
or the server.
"""
