"""Benchmark that repeats koshian2/TPU-Benchmark (2018) on this machine's devices.

In addition, it measures how many images were actually trained on, the compilation time, and the
accuracy that was reached.

In   a config and its images
Out  a JSON file per training run, and an HTML page about any number of runs

The bench notebook on Kaggle includes everything except `page` (`deploy.bundle`).
"""
