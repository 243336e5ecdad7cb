"""Repeat the benchmark koshian2/TPU-Benchmark (2018) on this machine's devices.

Unlike the original, this benchmark also measures how many images were actually trained on, the
compilation time, and the accuracy that was reached. Each training run writes a JSON file, and an
HTML page compares any number of runs.

The bench notebook on Kaggle includes everything except `page` (`deploy.bundle`).
"""
