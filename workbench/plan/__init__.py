"""Estimate the memory, time and cost of a training run on accelerators.

The input is a config, and the output is a plan. The accelerators are not required.
"""
