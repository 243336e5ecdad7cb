"""Pictures of a run, as PNG files made from the files that the run wrote.

Comes in: the output of a training, or predictions. Goes out: paths of pictures. Never imported
here: training.
"""
