"""Benchmark: koshian2/TPU-Benchmark (2018) repeated on the devices that are here, with what it left
out: images that were really trained, compilation apart, and the accuracy that the time bought.

Comes in: a config and its images. Goes out: a JSON file per training, and one HTML page of any
runs. All but `page` travels to Kaggle with the bench notebook (`deploy.bundle`).
"""
