"""Repeat the koshian2/TPU-Benchmark of 2018 on this machine's devices.

Unlike the original, this benchmark also measures the number of images that were actually used for
training, the compilation time, and the final accuracy. The results of each training run are written
to a JSON file, and an HTML page can compare any number of runs.

The bench notebook on Kaggle includes every module of this package except `page` (see
`deploy.bundle`).
"""
