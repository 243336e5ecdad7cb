"""Pictures of a run, as PNG files made from the files that it wrote.

Nothing here imports the training loop.
"""
