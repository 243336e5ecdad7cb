"""Data loading: from a competition's folder to arrays, and from arrays to batches.

This package reads CSVs, images, TFRecords and a config. It returns examples, labels, folds and
batches that depend only on the seed and the step, and caches decoded images. It imports neither
models nor inference.
"""
