"""The only modules that speak to Kaggle.

Comes in: credentials and questions. Goes out: plain values, or errors that say what to do. Never
imported here: any other package of `deploy`.
"""
