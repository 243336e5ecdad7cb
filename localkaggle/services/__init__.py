"""The services of the local Kaggle, which take the request classes of kagglesdk.

In: requests. Out: answers. Imports neither the server nor its HTTP handler.
"""
