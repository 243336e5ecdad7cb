"""Client for Kaggle: push, watch and pull notebooks, publish datasets, and submit predictions.

Each step is a generator that yields events. A journal records the requests to Kaggle, so that each
version, dataset and submission is created exactly once. Nothing here depends on a particular model.
"""
