"""Repeat the koshian2/TPU-Benchmark of 2018 on this machine's devices.

Unlike the original, this benchmark also measures the compilation time, the final accuracy, and the
number of images that were actually used for training. The bench notebook on Kaggle includes every
module of this package except `page` (see `deploy.bundle`).
"""
