"""Client for Kaggle: push, watch and pull notebooks, publish datasets, and submit predictions.

Each step is a generator that yields events. The client records its requests to Kaggle in a journal,
so that each version, dataset and submission is created exactly once. Nothing in this package
depends on a particular model.
"""
