"""What a training will take on an accelerator that is not here.

In: a config. Out: numbers.
"""
