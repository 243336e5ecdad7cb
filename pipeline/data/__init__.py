"""From a competition's folder to arrays, and from arrays to batches.

In: CSVs, images, TFRecords and a config. Out: examples, labels, folds and batches, each a function
of the seed and the step, and a cache of decoded images. It imports neither models nor inference.
"""
