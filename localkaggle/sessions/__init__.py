"""The sessions of the local Kaggle, which run notebooks in separate Linux namespaces.

The inputs of a session are a notebook and the folders to mount. Its results are an output folder
and a log. This package imports neither the services nor the server.
"""
