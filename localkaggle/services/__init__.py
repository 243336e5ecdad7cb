"""API services of the local Kaggle.

They accept kagglesdk's request objects and return responses. They import neither the server nor its
HTTP handler.
"""
