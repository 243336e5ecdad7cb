"""The Kaggle client: bundle, push, watch, pull, publish and submit. Each step yields events.

It reads a project and the journal of its requests to Kaggle. It creates versions, datasets and
submissions, each exactly once. Nothing here depends on a model.
"""
