"""Estimates what a training takes on an accelerator that is not here.

In: a config. Out: numbers.
"""
