"""Estimate the memory, time and cost of a training run on accelerators.

A plan is made from a config, without access to the accelerators.
"""
