"""Benchmark: repeats koshian2/TPU-Benchmark (2018) on this machine's devices, and adds what that
left out: the images that were really trained on, compilation apart, and the accuracy reached.

In   a config and its images
Out  a JSON file per training, and one HTML page about any runs

The bench notebook brings all of it but `page` to Kaggle (`deploy.bundle`).
"""
