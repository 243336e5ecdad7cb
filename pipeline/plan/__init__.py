"""What a training will take on an accelerator that is not here.

In: a config. Out: numbers. Never imported here: anything that trains, infers or reports.
"""
