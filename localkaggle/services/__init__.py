"""The services of the local Kaggle, in kagglesdk's own request and response classes.

Comes in: requests. Goes out: responses. Never imported here: the server and its HTTP handler.
"""
