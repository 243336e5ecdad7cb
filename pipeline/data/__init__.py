"""A competition's folder becomes arrays, and arrays become batches.

Comes in: CSVs, images, TFRecords and a config. Goes out: examples, labels, folds and batches, each
a function of the seed and the step; decoded images, which later runs find by their marker file.
Never imported here: models or inference.
"""
