"""Load a competition's data as arrays, and split them into folds and batches.

This package reads CSV files, images and TFRecords, and caches decoded images. For the same data,
folds and batches depend only on the seed and the step. The package imports neither models nor
inference.
"""
