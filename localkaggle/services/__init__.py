"""The services of the local Kaggle, in kagglesdk's own request and response classes.

In: requests. Out: responses. Never imported here: the server and its HTTP handler.
"""
