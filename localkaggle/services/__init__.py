"""API services of the local Kaggle.

They accept the request objects of kagglesdk and return responses. They import neither the server
nor its HTTP handler.
"""
