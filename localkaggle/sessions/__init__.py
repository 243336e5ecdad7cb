"""Sessions of the local Kaggle, which run notebooks in separate Linux namespaces.

A session needs a notebook and the folders to mount, and produces an output folder and a log. This
package imports neither the services nor the server.
"""
