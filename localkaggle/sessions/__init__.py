"""One session of the local Kaggle: a notebook that really runs, in its own namespaces.

In: a notebook and its mounts. Out: its output and its log. Imports neither services nor server.
"""
