"""Bench: koshian2/TPU-Benchmark (2018) repeated on the devices that are here, with what it left
out: images that were really trained, compilation apart, and the accuracy that the time bought.
"""
