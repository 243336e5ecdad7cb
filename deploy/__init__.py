"""The Kaggle client, which bundles, pushes, watches, pulls, publishes and submits notebooks.

Each step is a generator of events. The client records its requests to Kaggle in a journal, so that
each version, dataset and submission is created exactly once. Nothing here depends on a model.
"""
